//! What is said about the network, and what is kept of it.

use cofferdam_testkit::{Need, Way, host};
use serde_json::Value;

use crate::site::{self, Server};

#[test]
fn the_history_has_what_went_out_and_what_was_turned_away() {
    let host = host!(Need::Root, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import urllib.request
print(urllib.request.urlopen('http://good.example:{port}/').read())
try: urllib.request.urlopen('http://evil.example:{port}/')
except Exception as error: print(error)
"
    );
    let net = format!("allow=good.example:{port}");
    let run = site::python(&host, Way::Root, &net, &script);
    assert_eq!(
        run.out(),
        "b'hello\\n'\nHTTP Error 403: Forbidden\n",
        "{run:#?}"
    );
    let id = run.record()["run_id"].as_str().unwrap().to_owned();
    let shown = host.run(["runs", "show", &id, "--json"]);
    let shown: Value = serde_json::from_str(&shown.out()).unwrap();
    let text = shown.to_string();
    assert!(text.contains(&net), "{text}");
    let find = |value: &Value| value.pointer("/network").cloned();
    let network = find(&shown)
        .or_else(|| find(&shown["outcome"]))
        .or_else(|| find(&shown["closing"]));
    assert_eq!(
        network.unwrap()["events"].as_array().unwrap().len(),
        2,
        "{text}"
    );
    let page = host.run(["runs", "show", &id]).out();
    assert!(page.contains(&format!("evil.example:{port}")), "{page}");
    assert!(page.contains("NETWORK"), "{page}");
}

#[test]
fn a_run_without_network_has_no_variables_no_doors_and_no_account() {
    let host = host!(Need::Root, Need::Python);
    let script = "
import os, socket
print([name for name in os.environ if 'proxy' in name.lower()])
try: socket.create_connection(('198.18.0.1', 1023), 1); print('connected')
except OSError as error: print(error.errno)
";
    let run = host.json([
        "run",
        "--net",
        "none",
        "--",
        "/usr/bin/python3",
        "-c",
        script,
    ]);
    assert_eq!(run.out(), "[]\n101\n", "{run:#?}");
    assert_eq!(run.record()["network"], Value::Null);
}

#[test]
fn what_cannot_be_allowed_is_refused_in_words_all_at_once() {
    let host = host!();
    let run = host.run([
        "run",
        "--net",
        "allow=a b,x.example:0,dns.example:53",
        "--",
        "true",
    ]);
    assert_ne!(run.code(), 0);
    for part in ["a b", "x.example:0", "dns.example:53"] {
        assert!(run.err().contains(part), "{run:#?}");
    }
    for backend in ["host", "bubblewrap", "gvisor"] {
        let run = host.run(["run", "--backend", backend, "--net", "full", "--", "true"]);
        assert_eq!(run.code(), 125, "{run:#?}");
        assert!(
            run.err().contains("cannot bound what is reached"),
            "{run:#?}"
        );
    }
    let run = host.run(["run", "--net-private", "loopback", "--", "true"]);
    assert!(run.err().contains("--net"), "{run:#?}");
}

#[test]
fn a_denied_connection_of_a_failed_payload_is_a_network_violation() {
    let host = host!(Need::Root, Need::Python);
    let draft = serde_json::json!({
        "contract_id": "c", "scope": "s", "network_allowed": true,
        "task": { "kind": "command", "argv": ["/usr/bin/python3", "-c", "import urllib.request; urllib.request.urlopen('http://evil.example/')"] },
    });
    let (draft_file, payload) = (
        host.dir().join("draft.json"),
        host.dir().join("payload.json"),
    );
    std::fs::write(&draft_file, draft.to_string()).unwrap();
    let sealed = host.run(["seal".as_ref(), draft_file.as_os_str()]);
    std::fs::write(&payload, sealed.out()).unwrap();
    // It asks; without the word of whoever runs it, it is refused.
    let refused = host.run(["execute".as_ref(), payload.as_os_str()]);
    assert_eq!(refused.code(), 125, "{refused:#?}");
    assert!(refused.err().contains("--net"), "{refused:#?}");
    let run = host.launch([
        "execute".as_ref(),
        payload.as_os_str(),
        "--net".as_ref(),
        "allow=good.example".as_ref(),
    ]);
    let run = site::among_names(&host, Way::Root, run).finish();
    let envelope: Value = serde_json::from_str(&run.out()).unwrap();
    assert_eq!(envelope["status"], "ERROR", "{envelope:#}");
    assert!(
        envelope.to_string().contains("NETWORK_VIOLATION"),
        "{envelope:#}"
    );
}
