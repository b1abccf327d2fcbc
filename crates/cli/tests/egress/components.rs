//! The same network for a component of WebAssembly, which runs in our own process: what is allowed is reached, by the same rules and with the same account, and nothing else is.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use cofferdam_testkit::{Finished, Host, Way, host};

use rustix::net::{AddressFamily, SocketType};

use crate::site::{self, Server, denials, events};

const CLIENT: &str = include_str!("component.wat");
/// The numbers of errors, as the client prints them.
const ACCESS_DENIED: &str = "b";
const REMOTE_UNREACHABLE: &str = "n";
const NAME_UNRESOLVABLE: &str = "s";

/// A component that asks `name` for `/` and prints the answer, in the name of `said`.
fn ask(host: &Host, way: Way, net: &str, (name, port, said): (&str, u16, &str)) -> Finished {
    let request = format!("GET / HTTP/1.1\r\nHost: {said}:{port}\r\n\r\n");
    let shown = request.replace('\r', "\\0d").replace('\n', "\\0a");
    let text = CLIENT
        .replace("LENGTH_OF_NAME", &name.len().to_string())
        .replace("LENGTH_OF_REQUEST", &request.len().to_string())
        .replace("\"NAME\"", &format!("\"{name}\""))
        .replace("\"REQUEST\"", &format!("\"{shown}\""))
        .replace("(i32.const PORT)", &format!("(i32.const {port})"));
    let path = host.dir().join("client.wat");
    std::fs::write(&path, text).unwrap();
    let flags = ["--net-private", "loopback", "--backend", "wasm"];
    let command = [path.to_str().unwrap()];
    site::launch(host, way, net, &flags, &command)
        .json()
        .finish()
}

#[test]
fn a_component_reaches_what_is_allowed_and_each_way_is_an_event() {
    let host = host!();
    let server = Server::hello();
    let port = server.port;
    for way in Way::all() {
        let net = format!("allow=good.example:{port}");
        let run = ask(&host, way, &net, ("good.example", port, "good.example"));
        run.assert_success();
        assert!(run.out().ends_with("\r\n\r\nhello\n"), "{way:?}: {run:#?}");
        assert_eq!(
            events(&run),
            [
                "allowed name good.example".to_owned(),
                format!("allowed direct good.example:{port}")
            ]
        );
        let record = run.record();
        let (sent, received) = (
            &record["network"]["sent_bytes"],
            &record["network"]["received_bytes"],
        );
        let asked = server.asked().pop().unwrap();
        assert_eq!(*sent, asked.len());
        assert_eq!(*received, run.out().len());
        assert_eq!(record["isolation"]["network"], net);
    }
}

/// A port that is taken and that nobody listens at.
fn nobody() -> (OwnedFd, u16) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = rustix::net::getsockname(&socket).unwrap();
    let place = SocketAddrV4::try_from(place).unwrap();
    (socket, place.port())
}

#[test]
fn a_component_reaches_nothing_else_and_is_told_so() {
    let host = host!();
    let server = Server::hello();
    let port = server.port;
    let (_held, closed) = nobody();
    let net = format!("allow=good.example:{port},good.example:{closed},metadata.example");
    let cases = [
        // A name that is not listed, and an address for which no name was asked.
        ("evil.example", port, format!("n{NAME_UNRESOLVABLE}")),
        ("127.0.0.1", port, format!("f{ACCESS_DENIED}")),
        // A port that is not, and a name that leads where nobody may go.
        ("good.example", 9, format!("f{ACCESS_DENIED}")),
        ("metadata.example", 80, format!("f{ACCESS_DENIED}")),
    ];
    for (name, port, answer) in cases {
        let run = ask(&host, Way::Root, &net, (name, port, "good.example"));
        assert_eq!((run.code(), run.out()), (1, answer), "{name}: {run:#?}");
        assert_eq!(denials(&run).len(), 1, "{name}: {run:#?}");
    }
    // Allowed, but nobody is there: no denial.
    let run = ask(
        &host,
        Way::Root,
        &net,
        ("good.example", closed, "good.example"),
    );
    let answer = format!("f{REMOTE_UNREACHABLE}");
    assert_eq!((run.code(), run.out()), (1, answer), "{run:#?}");
    assert!(denials(&run).is_empty(), "{run:#?}");
    assert!(server.asked().is_empty());
}

#[test]
fn a_component_that_names_somebody_else_than_it_was_let_out_for_is_turned_away() {
    let host = host!();
    let server = Server::hello();
    let port = server.port;
    let net = format!("allow=good.example:{port}");
    let run = ask(
        &host,
        Way::Root,
        &net,
        ("good.example", port, "evil.example"),
    );
    assert!(run.out().contains("403 Forbidden"), "{run:#?}");
    assert_eq!(denials(&run).len(), 1, "{run:#?}");
    assert!(!server.asked().iter().any(|head| head.contains("evil")));
}

#[test]
fn a_module_has_no_calls_for_a_network_and_says_so() {
    let host = host!();
    let path = host.dir().join("module.wat");
    let text = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
    std::fs::write(&path, text).unwrap();
    let module = path.to_str().unwrap();
    let args = ["run", "--net", "full", "--backend", "wasm", module];
    let run = host.run(args);
    let said = run.err();
    assert_eq!(run.code(), 126, "{said}");
    assert!(said.contains("build it as a component"), "{said}");
}
