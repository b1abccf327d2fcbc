//! What a run of the daemon's may reach: nothing, unless the operator gives something and the request asks for it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use cofferdam_contract::address::Nearby;
use cofferdam_contract::network::Network;
use serde_json::{Value, json};

use crate::support::Daemon;

/// Asks for its own address through the proxy, by Python, and prints the status.
fn visit(port: u16) -> Value {
    let script = format!(
        "
import os, urllib.request
print('http_proxy' in os.environ)
try: print(urllib.request.urlopen('http://127.0.0.1:{port}/').status)
except Exception as error: print(getattr(error, 'code', None), type(error).__name__)
"
    );
    // 127.0.0.1 is the sandbox itself unless the proxy is asked for it.
    json!({"command": ["/usr/bin/python3", "-c", script], "env": {"no_proxy": "", "NO_PROXY": ""}})
}

fn serve() -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let mut head = [0u8; 4096];
            let _ = client.read(&mut head);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    Ok(port)
}

#[test]
fn a_run_gets_the_network_that_it_asks_for_within_what_the_daemon_may_give() {
    let port = serve().unwrap();
    let ceiling = format!("allow=127.0.0.1:{port},*.example.org");
    let given = Network::read(&ceiling).unwrap().by(
        Nearby {
            loopback: true,
            private: true,
        },
        None,
    );
    // Also with sandboxes that stand ready: none of them has a way out, or is taken for one that has.
    let daemon = Daemon::start(|config| {
        config.runs.network = given;
        config.runs.pool = Some(4);
    })
    .unwrap();
    for _ in 0..3 {
        let plain = daemon.post("/v1/runs", &visit(port)).unwrap().json();
        assert_eq!(
            plain["stdout"]["data"], "False\nNone URLError\n",
            "{plain:#}"
        );
        assert_eq!(plain["network"], Value::Null);
        let mut asking = visit(port);
        asking["network"] = json!(format!("allow=127.0.0.1:{port}"));
        let run = daemon.post("/v1/runs", &asking).unwrap().json();
        assert_eq!(run["stdout"]["data"], "True\n200\n", "{run:#}");
        assert_eq!(run["network"]["events"][0]["outcome"], "allowed", "{run:#}");
        assert!(run["network"]["received_bytes"].as_u64().unwrap() > 0);
        asking["network"] = json!("allow=a.example.org");
        let run = daemon.post("/v1/runs", &asking).unwrap().json();
        assert_eq!(run["stdout"]["data"], "True\n403 HTTPError\n", "{run:#}");
        assert_eq!(run["denials"][0]["kind"], "network", "{run:#}");
    }
    for beyond in ["allow=example.com", "allow=127.0.0.1", "nonsense"] {
        let mut asking = visit(port);
        asking["network"] = json!(beyond);
        let refused = daemon.post("/v1/runs", &asking).unwrap();
        assert_eq!(refused.status, 400, "{beyond}: {}", refused.text());
        assert!(refused.text().contains("network"), "{}", refused.text());
    }
    // Whoever gives nothing is asked in vain.
    let daemon = Daemon::start(|_| {}).unwrap();
    let mut asking = visit(port);
    asking["network"] = json!("full");
    let refused = daemon.post("/v1/runs", &asking).unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("--net"), "{}", refused.text());
}
