//! The same network in a container: the daemon gives it none, and the only ways out are ours.

use cofferdam_testkit::docker::{Dockerd, IMAGE, until};
use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Finished, Host, Launch, Need, Way, host};

use crate::site::{self, Server, denials, events};

/// A shell script in a container that may reach `net`, this machine too.
fn launch<'h>(host: &'h Host, daemon: &Dockerd, net: &str, script: &str) -> Launch<'h> {
    let attacker = Hostile::Reach.compile().workspace();
    let flags = [
        "--net-private",
        "loopback",
        "--backend",
        "docker",
        "--image",
        IMAGE,
        "--workspace",
        &attacker,
    ];
    let command = ["sh", "-c", script];
    site::launch(host, Way::Root, net, &flags, &command).env("DOCKER_HOST", daemon.endpoint())
}

fn run(host: &Host, daemon: &Dockerd, net: &str, script: &str) -> Finished {
    launch(host, daemon, net, script).json().finish()
}

#[test]
fn a_container_reaches_what_is_allowed_by_proxy_and_without_and_each_is_an_event() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root, Need::Gcc);
    let server = Server::hello();
    let port = server.port;
    let script = format!(
        "wget -q -O - http://good.example:{port}/; \
         unset http_proxy HTTP_PROXY; wget -q -O - http://good.example:{port}/; \
         echo $HTTPS_PROXY; grep -c nameserver /etc/resolv.conf"
    );
    let net = format!("allow=good.example:{port}");
    let done = run(&host, &daemon, &net, &script);
    assert_eq!(
        done.out(),
        "hello\nhello\nhttp://198.18.0.1:1023\n1\n",
        "{done:#?}"
    );
    let good = format!("good.example:{port}");
    assert_eq!(
        events(&done),
        [
            format!("allowed http_proxy {good}"),
            "allowed name good.example".to_owned(),
            format!("allowed direct {good}"),
        ],
        "{done:#?}"
    );
    let record = done.record();
    assert!(record["network"]["received_bytes"].as_u64().unwrap() >= 120);
    assert_eq!(record["isolation"]["network"], net, "{done:#?}");
    assert_eq!(denials(&done), [""; 0]);

    // Everything that is public, and with the loopback allowed, this machine.
    let script = format!("wget -q -O - http://good.example:{port}/");
    let done = run(&host, &daemon, "full", &script);
    assert_eq!(done.out(), "hello\n", "{done:#?}");
    daemon.assert_clean();
}

#[test]
fn nothing_else_leads_out_of_a_container() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root, Need::Gcc);
    let server = Server::hello();
    let port = server.port;
    let closed = port ^ 1;
    let script = format!(
        "for a in 127.0.0.1 10.0.0.1 169.254.169.254 93.184.216.34; do /work/reach tcp $a {port}; done; \
         for a in 10.0.0.1 93.184.216.34; do /work/reach tcp $a {closed}; /work/reach udp $a {port}; done; \
         for a in 2001:db8::1 ::1; do /work/reach tcp $a {port}; /work/reach udp $a {port}; done | grep -c 200; \
         wget -q -O - http://evil.example:{port}/ 2>/dev/null || echo no proxy; \
         unset http_proxy; wget -q -O - http://evil.example:{port}/ 2>/dev/null || echo no name; \
         tail -n +3 /proc/net/dev | grep -vc lo:; ls /sys/class/net; touch /.cofferdam/x 2>/dev/null || echo kept"
    );
    let done = run(
        &host,
        &daemon,
        &format!("allow=good.example:{port}"),
        &script,
    );
    let refused = "connect: Connection refused\nrecv: Connection refused\n".repeat(2);
    let expected = format!(
        "{}{refused}0\nno proxy\nno name\n0\nlo\nkept\n",
        "HTTP/1.1 403\n".repeat(4)
    );
    assert_eq!(done.out(), expected, "{done:#?}");
    assert_eq!(server.asked(), [""; 0], "somebody came through");
    let seen = events(&done);
    // By IPv6 where the daemon has left it on.
    assert!((6..=8).contains(&seen.len()), "{seen:#?}");
    assert!(
        seen.iter().all(|event| event.starts_with("denied")),
        "{seen:#?}"
    );
    assert!(
        denials(&done).contains(&"the name evil.example".to_owned()),
        "{done:#?}"
    );
    daemon.assert_clean();
}

#[test]
fn a_container_without_a_way_never_runs_its_program() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root, Need::UnprivilegedUser, Need::Gcc);
    daemon.let_everybody_in();
    let docker = [
        "run",
        "--backend",
        "docker",
        "--image",
        IMAGE,
        "--net",
        "full",
    ];
    let start = |way: Way, more: &[&str]| {
        let args = [&docker[..], more].concat();
        let launch = host.launch(args).way(way);
        launch.env("DOCKER_HOST", daemon.endpoint()).finish()
    };
    let user = start(Way::User, &["--", "true"]);
    user.assert_refused(125, "backend.unavailable");
    assert!(
        String::from_utf8_lossy(&user.stderr).contains("that takes root"),
        "{user:#?}"
    );
    let other = start(Way::Root, &["--runtime", "runsc", "--", "true"]);
    other.assert_refused(125, "backend.unavailable");
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("has a network of its own"), "{said}");
    // What is not there is still told from what failed.
    let absent = start(Way::Root, &["--", "no-such-program"]);
    assert_eq!(absent.code(), 127, "{absent:#?}");
    let unusable = start(Way::Root, &["--", "/bin/not-executable"]);
    assert_eq!(unusable.code(), 126, "{unusable:#?}");
    daemon.assert_clean();
}

#[test]
fn killed_with_a_container_that_has_network_nothing_is_left() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root, Need::Gcc);
    let server = Server::hello();
    let net = format!("allow=good.example:{}", server.port);
    let mut started = launch(&host, &daemon, &net, "echo begun; sleep 1000").start();
    started.await_output("begun");
    // The shell that mounts the names has become the binary.
    started.signal(rustix::process::Signal::KILL);
    drop(started);
    until("the container is gone", || daemon.left().is_empty());
}
