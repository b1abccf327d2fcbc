//! A program that asks for too much harms itself at most.

use std::io::{Read as _, Write as _};

use cofferdam_testkit::{Need, Way, host};
use rustix::process::Signal;

use crate::site::{self, Server};

#[test]
fn a_flood_of_names_tells_nobody_anything_and_is_counted() {
    let host = host!(Need::Root, Need::Python);
    let script = "
import socket
failed = 0
for n in range(2000):
    try: socket.getaddrinfo(f'secret-{n}.evil.example', 80)
    except OSError: failed += 1
print(failed)
";
    let run = site::python(&host, Way::Root, "allow=good.example", script);
    assert_eq!(run.out(), "2000\n", "{run:#?}");
    let record = run.record();
    let network = &record["network"];
    assert_eq!(network["events"].as_array().unwrap().len(), 256);
    assert_eq!(network["left_out"], 2000 - 256);
    let denied: u64 = record["denials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|denial| denial["count"].as_u64().unwrap())
        .sum();
    assert!(denied >= 2000, "{denied}");
}

#[test]
fn a_flood_of_connections_neither_blocks_nor_outlives_the_run() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket
held = []
for n in range(900):
    s = socket.socket(); s.setblocking(False)
    try: s.connect(('198.18.0.1', 1023 if n % 2 else {port}))
    except BlockingIOError: pass
    held.append(s)
print(len(held))
"
    );
    for way in [Way::Root, Way::User] {
        let run = site::python(&host, way, &format!("allow=good.example:{port}"), &script);
        assert_eq!(run.out(), "900\n", "{way:?}: {run:#?}");
    }
    host.assert_clean();
}

#[test]
fn what_is_sent_and_received_is_counted_to_the_byte() {
    let host = host!(Need::Root, Need::Python);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut copy = client.try_clone().unwrap();
        let answers = std::thread::spawn(move || {
            client.write_all(&vec![7; 3_000_000]).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        std::io::copy(&mut copy, &mut std::io::sink()).unwrap();
        answers.join().unwrap();
    });
    let script = format!(
        "
import socket, threading
s = socket.create_connection(('good.example', {port}))
threading.Thread(target=lambda: (s.sendall(b'\\x01' * 2_000_000), s.shutdown(socket.SHUT_WR))).start()
print(len(s.makefile('rb').read()))
"
    );
    let run = site::python(
        &host,
        Way::Root,
        &format!("allow=good.example:{port}"),
        &script,
    );
    assert_eq!(run.out(), "3000000\n", "{run:#?}");
    let record = run.record();
    assert_eq!(record["network"]["sent_bytes"], 2_000_000);
    assert_eq!(record["network"]["received_bytes"], 3_000_000);
}

#[test]
fn a_killed_supervisor_takes_its_connections_with_it() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python);
    for way in [Way::Root, Way::User] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let patience = std::time::Duration::from_secs(15);
            client.set_read_timeout(Some(patience)).unwrap();
            client.write_all(b"!").unwrap();
            let mut said = Vec::new();
            // The end of the connection, or an error of one that was reset; only silence is wrong.
            match client.read_to_end(&mut said) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("{error}"),
                _ => said,
            }
        });
        let script = format!(
            "
import socket, time
s = socket.create_connection(('good.example', {port})); s.sendall(b'\\x01here')
s.recv(1); print('connected', flush=True); time.sleep(60)
"
        );
        let net = format!("allow=good.example:{port}");
        let command = ["/usr/bin/python3", "-c", &script];
        let flags = ["--net-private", "loopback"];
        let mut run = site::launch(&host, way, &net, &flags, &command).start();
        run.await_output("connected");
        run.signal(Signal::KILL);
        run.finish();
        assert_eq!(heard.join().unwrap(), b"\x01here");
    }
    host.assert_clean();
}
