//! What is not allowed is not reached, by any way, and the program learns it at once.

use std::time::Duration;

use cofferdam_testkit::{Need, Way, host};

use crate::site::{self, Server, denials, events};

#[test]
fn a_host_that_is_not_listed_is_refused_by_every_way_and_each_is_an_event() {
    let host = host!(
        Need::Root,
        Need::UnprivilegedUser,
        Need::Python,
        Need::Installed("/usr/bin/curl")
    );
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket, subprocess
url = 'http://evil.example:{port}/'
for args in (('-p',), ('--noproxy', '*'), ('--socks5-hostname', '198.18.0.1:1023')):
    print(subprocess.run(['curl', '-sS', *args, url], capture_output=True).returncode)
print(subprocess.run(['curl', '-sS', '-o', '/dev/null', '-w', '%{{http_code}}', url], capture_output=True, text=True).stdout)
"
    );
    for way in Way::all() {
        let run = site::python(&host, way, &format!("allow=good.example:{port}"), &script);
        // A tunnel that failed, a name that is not there, a refused request of SOCKS, and an answer that says why.
        assert_eq!(run.out(), "56\n6\n97\n403\n", "{way:?}: {run:#?}");
        let why = "(it is not on the list of what is allowed)";
        let evil = format!("evil.example:{port}");
        assert_eq!(
            events(&run),
            [
                format!("denied http_proxy {evil} {why}"),
                format!("denied name evil.example {why}"),
                format!("denied socks {evil} {why}"),
                format!("denied http_proxy {evil} {why}"),
            ],
            "{way:?}: {run:#?}"
        );
        assert_eq!(denials(&run), [evil, "the name evil.example".to_owned()]);
    }
    assert_eq!(server.asked(), [""; 0], "somebody came through");
}

#[test]
fn addresses_that_are_spelled_out_lead_nowhere_unless_they_are_listed() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '10.0.0.1'), (socket.AF_INET, '169.254.169.254'), (socket.AF_INET, '93.184.216.34'), (socket.AF_INET6, '2001:db8::1'), (socket.AF_INET6, '::1'), (socket.AF_INET6, '::ffff:127.0.0.1')):
    s = socket.socket(family); s.settimeout(5)
    try:
        s.connect((address, {port})); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
        print(s.recv(100).split()[1])
    except OSError as error: print(error)
"
    );
    for way in [Way::Root, Way::User] {
        let run = site::python(&host, way, &format!("allow=good.example:{port}"), &script);
        assert_eq!(run.out(), "b'403'\n".repeat(7), "{way:?}: {run:#?}");
        assert_eq!(events(&run).len(), 7, "{run:#?}");
        assert!(
            events(&run)
                .iter()
                .all(|event| event.starts_with("denied direct")),
            "{run:#?}"
        );
    }
    assert_eq!(server.asked(), [""; 0], "somebody came through");
    // Named by its address, and this machine allowed: then it is reached.
    let run = site::python(
        &host,
        Way::Root,
        &format!("allow=127.0.0.1:{port}"),
        &script,
    );
    assert!(run.out().starts_with("b'200'\nb'403'\n"), "{run:#?}");
}

#[test]
fn a_name_that_leads_to_a_private_address_is_refused() {
    let host = host!(Need::Root, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket
for name in ('good.example', 'private.example', 'metadata.example'):
    s = socket.create_connection((name, {port}), timeout=15)
    s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
    print(s.makefile('rb').read().split(b'cofferdam: ')[-1])
"
    );
    let net = format!("allow=*.example:{port}");
    let command = ["/usr/bin/python3", "-c", &script];
    let run = site::launch(&host, Way::Root, &net, &[], &command)
        .json()
        .finish();
    let out = run.out();
    assert!(
        out.contains("its name leads to 127.0.0.1, an address of this machine"),
        "{run:#?}"
    );
    assert!(
        out.contains("its name leads to 10.9.9.9, a private address"),
        "{run:#?}"
    );
    assert!(
        out.contains("its name leads to 169.254.169.254, a link-local address"),
        "{run:#?}"
    );
    // Whatever is permitted, link-local addresses are not.
    let run = site::python(
        &host,
        Way::Root,
        &net,
        &script.replace("'private.example', ", ""),
    );
    assert!(run.out().starts_with("b'HTTP/1.1 200 OK"), "{run:#?}");
    assert!(run.out().contains("a link-local address"), "{run:#?}");
}

#[test]
fn a_redirect_to_somebody_else_is_not_followed_out() {
    let host = host!(Need::Root, Need::Installed("/usr/bin/curl"));
    let other = Server::hello();
    let location = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://evil.example:{}/secret\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        other.port
    );
    let server = Server::answering(location.leak());
    let url = format!("http://good.example:{}/", server.port);
    let net = format!(
        "allow=good.example:{},good.example:{}",
        server.port, other.port
    );
    for direct in ["", "*"] {
        let command = ["curl", "-sS", "-L", "-f", "--noproxy", direct, &url];
        let flags = ["--net-private", "loopback"];
        let run = site::launch(&host, Way::Root, &net, &flags, &command)
            .json()
            .finish();
        assert_ne!(run.code(), 0, "{run:#?}");
        assert!(!denials(&run).is_empty(), "{run:#?}");
    }
    assert_eq!(other.asked(), [""; 0]);
}

#[test]
fn a_port_that_is_not_listed_is_refused_at_once_and_no_datagram_leaves() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python);
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let port = receiver.local_addr().unwrap().port();
    let script = format!(
        "
import errno, socket, time
start = time.monotonic()
for address in ('93.184.216.34', '127.0.0.1', '10.0.0.1'):
    try: socket.create_connection((address, 22)); print('connected')
    except OSError as error: print(errno.errorcode[error.errno])
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((address, {port})); u.send(b'x')
    try: u.settimeout(30); u.recv(1)
    except OSError as error: print(errno.errorcode.get(error.errno))
print(open('/proc/net/dev').read().count(':'), time.monotonic() - start < 25)
"
    );
    for way in Way::all() {
        for net in ["allow=good.example:4444", "full"] {
            let script = if net == "full" {
                script.replace(", 22)", ", 2222)")
            } else {
                script.clone()
            };
            let run = site::python(&host, way, net, &script);
            assert_eq!(
                run.out(),
                format!("{}1 True\n", "ECONNREFUSED\n".repeat(6)),
                "{way:?} {net}: {run:#?}"
            );
        }
    }
    assert!(
        receiver.recv(&mut [0; 8]).is_err(),
        "a datagram came through"
    );
}

#[test]
fn everything_public_means_nothing_private() {
    let host = host!(Need::Root, Need::Python);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket
for host in ('good.example', '127.0.0.1', '10.9.9.9', 'private.example', '::1'):
    s = socket.create_connection(('198.18.0.1', 1023))
    name = '[' + host + ']' if ':' in host else host
    s.sendall(f'CONNECT {{name}}:{port} HTTP/1.1\\r\\n\\r\\n'.encode())
    print(s.recv(100).split()[1])
"
    );
    let command = ["/usr/bin/python3", "-c", &script];
    let run = site::launch(&host, Way::Root, "full", &[], &command)
        .json()
        .finish();
    assert_eq!(run.out(), "b'403'\n".repeat(5), "{run:#?}");
    let run = site::launch(
        &host,
        Way::Root,
        "full",
        &["--net-private", "loopback"],
        &[
            "/usr/bin/python3",
            "-c",
            &script.replace("'10.9.9.9', 'private.example', ", ""),
        ],
    )
    .json()
    .finish();
    assert!(run.out().starts_with("b'200'\nb'200'\n"), "{run:#?}");
    assert_eq!(server.asked().len(), 2);
}
