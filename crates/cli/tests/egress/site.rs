//! Servers on this machine, names that lead to them for `cofferdam` alone, and runs that may reach some.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_testkit::{Finished, Host, Launch, Way};
use serde_json::Value;

/// Names as the host of the test knows them.
const HOSTS: &str = "127.0.0.1 localhost\n127.0.0.1 good.example evil.example sub.wild.example\n10.9.9.9 private.example\n169.254.169.254 metadata.example\n";

/// A server that speaks HTTP, once per connection, and remembers what it was asked.
pub(crate) struct Server {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers every request with this.
    pub(crate) fn answering(response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let asked = Arc::clone(&of_thread);
                std::thread::spawn(move || answer(stream.unwrap(), response, &asked));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn hello() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")
    }

    /// The heads of what it was asked, and an empty one for whoever said nothing.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, response: &str, asked: &Mutex<Vec<String>>) {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let is_request = text.contains(" HTTP/1");
    asked.lock().unwrap().push(text);
    if is_request {
        let _ = stream.write_all(response.as_bytes());
    }
}

/// A TLS server of another make than our own, with a certificate for `good.example`.
pub(crate) struct TlsServer {
    child: Child,
    pub(crate) port: u16,
    pub(crate) authority: PathBuf,
}

impl TlsServer {
    pub(crate) fn start(host: &Host) -> Self {
        let (key, authority) = (host.dir().join("key.pem"), host.dir().join("cert.pem"));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=good.example"])
            .args(["-addext", "subjectAltName=DNS:good.example"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&authority)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success());
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = Command::new("openssl")
            .args([
                "s_server",
                "-quiet",
                "-www",
                "-accept",
                &format!("127.0.0.1:{port}"),
            ])
            .arg("-key")
            .arg(&key)
            .arg("-cert")
            .arg(&authority)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "openssl does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self {
            child,
            port,
            authority,
        }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run with the network that `net` says, among names that only it knows. `flags` come before the command.
pub(crate) fn launch<'h>(
    host: &'h Host,
    way: Way,
    net: &str,
    flags: &[&str],
    command: &[&str],
) -> Launch<'h> {
    let hosts = host.dir().join("hosts");
    std::fs::write(&hosts, HOSTS).unwrap();
    let mut args = vec!["run", "--net", net];
    args.extend(flags);
    args.push("--");
    args.extend(command);
    among_names(host, way, host.launch(args))
}

/// `cofferdam` with names of the test's own, started by root in a mount namespace, and as somebody else where the way says so.
pub(crate) fn among_names<'h>(host: &'h Host, way: Way, launch: Launch<'h>) -> Launch<'h> {
    let hosts = host.dir().join("hosts");
    std::fs::write(&hosts, HOSTS).unwrap();
    let user = match way {
        Way::User => "setpriv --reuid=12345 --regid=12345 --clear-groups",
        Way::Root | Way::RootWithoutCgroups => "",
    };
    let script = format!(
        "exec unshare -m sh -c 'mount --bind {} /etc/hosts && exec {user} \"$@\"' sh \"$@\"",
        hosts.display()
    );
    let history = host.history(way);
    let start = match way {
        Way::User => Way::Root,
        way => way,
    };
    let launch = launch
        .way(start)
        .from_shell(&script)
        .env("COFFERDAM_DATA_DIR", &history)
        .env("XDG_RUNTIME_DIR", &history);
    match way {
        Way::User => launch.env("COFFERDAM_NO_CGROUPS", "1"),
        Way::Root | Way::RootWithoutCgroups => launch,
    }
}

/// A Python program that may reach `net`, on this machine too.
#[track_caller]
pub(crate) fn python(host: &Host, way: Way, net: &str, script: &str) -> Finished {
    let command = ["/usr/bin/python3", "-c", script];
    launch(host, way, net, &["--net-private", "loopback"], &command)
        .json()
        .finish()
}

/// The events of a record as `outcome way host:port`, and why.
pub(crate) fn events(run: &Finished) -> Vec<String> {
    let record = run.record();
    let events = record["network"]["events"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|event| {
            let port = event["port"]
                .as_u64()
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let why = match &event["why"] {
                Value::Null => String::new(),
                why => format!(" ({})", text(why)),
            };
            let (outcome, way, host) = (
                text(&event["outcome"]),
                text(&event["way"]),
                text(&event["host"]),
            );
            format!("{outcome} {way} {host}{port}{why}")
        })
        .collect()
}

/// What was denied, by name.
pub(crate) fn denials(run: &Finished) -> Vec<String> {
    let record = run.record();
    let denials = record["denials"].as_array().unwrap().iter();
    denials
        .filter(|denial| denial["kind"] == "network")
        .map(|denial| denial["what"].as_str().unwrap().to_owned())
        .collect()
}
