//! What is allowed is reached, whatever the client knows of proxies.

use cofferdam_testkit::{Need, Way, host};

use crate::site::{self, Server, TlsServer, events};

const CURL: Need = Need::Installed("/usr/bin/curl");

#[test]
fn an_allowed_host_is_reached_by_every_kind_of_client_and_each_is_written_down() {
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Python, CURL);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "
import socket, subprocess, urllib.request
url = 'http://good.example:{port}/'
def curl(*args): print(subprocess.run(['curl', '-sS', *args, url], capture_output=True, text=True))
for args in ((), ('--noproxy', '*'), ('--socks5-hostname', '198.18.0.1:1023'), ('-p', '-x', 'http://198.18.0.1:1023')):
    done = subprocess.run(['curl', '-sS', *args, url], capture_output=True, text=True)
    print(done.stdout.strip(), done.stderr.strip())
print(urllib.request.urlopen(url).read())
s = socket.create_connection(('good.example', {port}))
s.sendall(b'GET / HTTP/1.1\\r\\nHost: good.example:{port}\\r\\n\\r\\n')
print(s.makefile('rb').read()[-6:])
"
    );
    for way in Way::all() {
        let run = site::python(&host, way, &format!("allow=good.example:{port}"), &script);
        assert_eq!(
            run.out(),
            "hello \nhello \nhello \nhello \nb'hello\\n'\nb'hello\\n'\n",
            "{way:?}: {run:#?}"
        );
        let mut seen = events(&run);
        seen.sort();
        let by = |way: &str| format!("allowed {way} good.example:{port}");
        let proxy = by("http_proxy");
        assert_eq!(
            seen,
            [
                by("direct"),
                by("direct"),
                proxy.clone(),
                proxy.clone(),
                proxy,
                "allowed name good.example".to_owned(),
                by("socks"),
            ],
            "{way:?}: {run:#?}"
        );
        let record = run.record();
        let network = &record["network"];
        assert!(
            network["sent_bytes"].as_u64().unwrap() > 6 * 40,
            "{network}"
        );
        assert!(
            network["received_bytes"].as_u64().unwrap() >= 6 * 60,
            "{network}"
        );
        assert_eq!(network["events"][0]["address"], format!("127.0.0.1:{port}"));
        assert_eq!(site::denials(&run), [""; 0]);
    }
}

#[test]
fn tls_is_carried_to_the_host_that_its_hello_names() {
    let host = host!(
        Need::Root,
        Need::UnprivilegedUser,
        CURL,
        Need::Installed("/usr/bin/openssl")
    );
    let server = TlsServer::start(&host);
    let url = format!("https://good.example:{}/", server.port);
    let mount = format!("{}:/ca.pem", server.authority.display());
    let net = format!("allow=*.example:{}", server.port);
    for way in [Way::Root, Way::User] {
        for direct in [false, true] {
            let mut command = vec![
                "curl",
                "-sS",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--cacert",
                "/ca.pem",
            ];
            if direct {
                command.extend(["--noproxy", "*"]);
            }
            command.push(&url);
            let flags = ["--net-private", "loopback", "--mount", &mount];
            let run = site::launch(&host, way, &net, &flags, &command)
                .json()
                .finish();
            assert_eq!(run.out(), "200", "{way:?} {direct}: {run:#?}");
        }
    }
}

#[test]
fn git_clones_without_knowing_of_the_proxy() {
    let host = host!(Need::Root, Need::Python, Need::Installed("/usr/bin/git"));
    let repository = host.dir().join("site");
    let made = std::process::Command::new("sh")
        .args(["-ec", "git init -q \"$1\"; cd \"$1\"; echo hi > file; git add file; git -c user.name=a -c user.email=a@b commit -qm one; git update-server-info", "sh"])
        .arg(&repository)
        .env("HOME", host.dir())
        .status()
        .unwrap();
    assert!(made.success());
    let mut files = std::process::Command::new("/usr/bin/python3")
        .args([
            "-u",
            "-m",
            "http.server",
            "0",
            "--bind",
            "127.0.0.1",
            "--directory",
        ])
        .arg(&repository)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut told = std::io::BufReader::new(files.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    let port = line
        .split("port ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let clone = format!(
        "git -c http.proxy= clone -q http://good.example:{port}/.git /tmp/copy && cat /tmp/copy/file"
    );
    let net = format!("allow=good.example:{port}");
    let flags = ["--net-private", "loopback"];
    let run = site::launch(&host, Way::Root, &net, &flags, &["sh", "-c", &clone])
        .json()
        .finish();
    files.kill().unwrap();
    files.wait().unwrap();
    assert_eq!(run.out(), "hi\n", "{run:#?}");
    assert!(
        events(&run)
            .iter()
            .any(|event| event.starts_with("allowed direct")),
        "{run:#?}"
    );
}

#[test]
fn connections_go_through_the_operators_proxy_where_there_is_one() {
    use std::io::{Read as _, Write as _};
    let host = host!(Need::Root, CURL);
    let server = Server::hello();
    let (port, listener) = (
        server.port,
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let proxy = listener.local_addr().unwrap();
    let asked = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0u8; 1];
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        client
            .write_all(b"HTTP/1.1 200 fine\r\nX: y\r\n\r\n")
            .unwrap();
        let mut server = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::io::copy(&mut server, &mut client).unwrap();
        String::from_utf8(head).unwrap()
    });
    // The name means nothing here; the proxy is asked by it.
    let url = format!("http://only-the-proxy-knows.example:{port}/");
    let net = format!("allow=only-the-proxy-knows.example:{port}");
    let upstream = format!("http://{proxy}");
    let run = site::launch(
        &host,
        Way::Root,
        &net,
        &["--net-proxy", &upstream],
        &["curl", "-sS", &url],
    )
    .json()
    .finish();
    assert_eq!(run.out(), "hello\n", "{run:#?}");
    let head = asked.join().unwrap();
    assert!(
        head.starts_with(&format!(
            "CONNECT only-the-proxy-knows.example:{port} HTTP/1.1\r\n"
        )),
        "{head}"
    );
}
