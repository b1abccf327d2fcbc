//! Network: loopback of one's own, and nothing else.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use cofferdam_testkit::{Need, Way, host};

#[test]
fn nothing_outside_can_be_reached() {
    let host = host!(Need::Python);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "
import socket, time
start = time.monotonic()
for family, address in ((socket.AF_INET, ('192.0.2.1', 80)), (socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_INET, ('169.254.169.254', 80)), (socket.AF_INET6, ('2001:db8::1', 80)), (socket.AF_INET6, ('::1', {port}))):
    s = socket.socket(family); s.settimeout(2)
    try: s.connect(address); print('connected', address)
    except OSError as error: print(error.errno)
    u = socket.socket(family, socket.SOCK_DGRAM)
    try: u.sendto(b'x', address); print('sent') if address[0] not in ('127.0.0.1', '::1') else None
    except OSError: pass
try: socket.getaddrinfo('example.com', 80); print('resolved')
except OSError: pass
print(open('/proc/net/dev').read().count(':'), open('/proc/net/route').read().count('\\n'), time.monotonic() - start < 4)
"
    );
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", &script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            run.out(),
            "101\n111\n101\n101\n111\n1 1 True\n",
            "{way:?}: {run:#?}"
        );
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody came through");
}

#[test]
fn a_server_inside_can_be_reached_from_inside() {
    let host = host!(Need::Python);
    let script = "
import socket, threading
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.socket(family); server.bind((address, 0)); server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b'hello')).start()
    print(socket.create_connection((address, server.getsockname()[1])).recv(5))
print(socket.gethostbyname('localhost'))
";
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            run.out(),
            "b'hello'\nb'hello'\n127.0.0.1\n",
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn unix_sockets_of_the_host_cannot_be_reached() {
    let host = host!(Need::Python);
    let name = format!("cofferdam-{}", host.mark());
    let abstract_listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let path = host.dir().join("socket");
    let path_listener = UnixListener::bind(&path).unwrap();
    let in_workspace = host.workspace(Way::all()[0]);
    let script = format!(
        "
import socket
for address in ('\\0{name}', '{}', '/run/dbus/system_bus_socket', '/var/run/docker.sock', '/dev/log'):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(address); print('connected', repr(address))
    except OSError as error: print(error.errno)
",
        path.display()
    );
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--workspace",
                in_workspace.to_str().unwrap(),
                "--",
                "python3",
                "-c",
                &script,
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(run.out(), "111\n2\n2\n2\n2\n", "{way:?}: {run:#?}");
    }
    for listener in [abstract_listener, path_listener] {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "somebody came through");
    }
}

/// The same port inside two sandboxes and outside is three different ports.
#[test]
fn two_runs_do_not_share_a_port() {
    let host = host!(Need::Python);
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let script = format!("
import socket, sys
s = socket.socket(); s.bind(('127.0.0.1', {port})); s.listen(); print('bound', flush=True); sys.stdin.read()
");
    for way in Way::all() {
        let start = || {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut run = host
                .launch(["run", "--", "python3", "-c", &script])
                .way(way)
                .stdin_from(std::os::fd::OwnedFd::from(theirs))
                .start();
            run.await_output("bound");
            (run, ours)
        };
        let (first, second) = (start(), start());
        for (run, mut stdin) in [first, second] {
            stdin.write_all(b"end").unwrap();
            stdin.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(run.finish().code(), 0);
            let _ = stdin.read(&mut [0]);
        }
    }
}
