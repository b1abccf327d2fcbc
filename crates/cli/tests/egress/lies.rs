//! A connection that is allowed and then says that it is for somebody else.

use cofferdam_testkit::{Need, Way, host};

use crate::site::{self, Server, TlsServer, denials, events};

#[test]
fn a_host_header_that_names_somebody_else_never_reaches_the_server() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket
def say(s, head):
    s.sendall(head); return s.makefile('rb').read()
for head in (b'GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n', b'GET / HTTP/1.1\\r\\nHost: good.example\\r\\nHost: evil.example\\r\\n\\r\\n', b'GET http://evil.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n'):
    print(b' 403 ' in say(socket.create_connection(('good.example', {port})), head))
s = socket.create_connection(('198.18.0.1', 1023))
s.sendall(b'CONNECT good.example:{port} HTTP/1.1\\r\\n\\r\\n'); print(s.recv(100)[:12])
print(b' 403 ' in say(s, b'GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n'))
s = socket.create_connection(('198.18.0.1', 1023))
print(b' 400 ' in say(s, b'GET http://good.example:{port}/ HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n'))
"
    );
    for way in [Way::Root, Way::User] {
        let run = site::python(&host, way, &format!("allow=good.example:{port}"), &script);
        assert_eq!(
            run.out(),
            "True\nTrue\nTrue\nb'HTTP/1.1 200'\nTrue\nTrue\n",
            "{way:?}: {run:#?}"
        );
        let lie = "(the Host header names evil.example)";
        let seen = events(&run);
        assert!(
            seen.contains(&format!("denied direct good.example:{port} {lie}")),
            "{seen:?}"
        );
        assert!(
            seen.contains(&format!("denied http_proxy good.example:{port} {lie}")),
            "{seen:?}"
        );
    }
    // Connected to, perhaps, but nobody said anything.
    assert!(
        server.asked().iter().all(String::is_empty),
        "{:?}",
        server.asked()
    );
}

#[test]
fn a_tls_hello_that_names_somebody_else_is_answered_with_an_alert() {
    let host = host!(
        Need::Root,
        Need::UnprivilegedUser,
        Need::Installed("/usr/bin/openssl")
    );
    let server = TlsServer::start(&host);
    let connect = format!("good.example:{}", server.port);
    let net = format!("allow=good.example:{}", server.port);
    for way in [Way::Root, Way::User] {
        for (name, is_reached) in [("evil.example", false), ("good.example", true)] {
            let command = [
                "openssl",
                "s_client",
                "-brief",
                "-connect",
                &connect,
                "-servername",
                name,
            ];
            let flags = ["--net-private", "loopback", "--stdin", "none"];
            let run = site::launch(&host, way, &net, &flags, &command)
                .json()
                .finish();
            let said = run.record()["stderr"]["data"].as_str().unwrap().to_owned();
            assert_eq!(
                said.contains("access denied"),
                !is_reached,
                "{way:?}: {run:#?}"
            );
            assert_eq!(denials(&run).is_empty(), is_reached, "{way:?}: {run:#?}");
            let lie = "(the TLS hello names evil.example)";
            assert_eq!(
                events(&run).iter().any(|event| event.ends_with(lie)),
                !is_reached
            );
        }
    }
}
