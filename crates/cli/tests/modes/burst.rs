//! The mode `burst`: a command goes to the daemon of this machine and is told as if it had been run here; what cannot go there runs here, and says so.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::desk::{code, stderr, stdout};
use cofferdam_testkit::{Desk, desk};
use rustix::net::{AddressFamily, SocketType};

use crate::refusal::assert_refused;
use crate::serving::Daemon;

fn run(desk: &Desk, server: &str, flags: &[&str], command: &[&str]) -> Output {
    desk.command()
        .args(["--mode", "burst", "run"])
        .args(flags)
        .arg("--")
        .args(command)
        .env("COFFERDAM_SERVER", server)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_command_goes_to_the_daemon_of_this_machine_and_is_told_as_if_it_had_run_here() {
    let desk = desk!();
    let daemon = Daemon::start(&desk, &["serve"]);
    let server = format!("http://{}", daemon.address);
    let script = "echo out $A; cat; echo err >&2; exit 7";
    let input = desk.write("input", "typed\n");
    let flags = ["--env", "A=b c", "--stdin", input.to_str().unwrap()];
    let flags = [&flags[..], &["--tag", "from=burst"]].concat();
    let done = run(&desk, &server, &flags, &["sh", "-c", script]);
    assert_eq!(
        (code(&done), stdout(&done), stderr(&done)),
        (7, "out b c\ntyped\n".to_owned(), "err\n".to_owned())
    );
    // It is the daemon's run, under the tag that was given.
    let until = Instant::now() + Duration::from_secs(60);
    let command = format!("sh -c {script}");
    loop {
        let (status, found) = daemon.get("/v1/runs?tag=from%3Dburst");
        assert_eq!(status, 200, "{found}");
        if found["runs"][0]["command"] == command.as_str() {
            break;
        }
        assert!(Instant::now() < until, "{found}");
        std::thread::sleep(Duration::from_millis(50));
    }
    for (flags, command, expected) in [
        (&["--timeout", "300ms"][..], &["sleep", "60"][..], 124),
        (&[], &["sh", "-c", "kill -9 $$"], 137),
        (&[], &["/no/such/program"], 127),
    ] {
        let done = run(&desk, &server, flags, command);
        assert_eq!(code(&done), expected, "{command:?}: {}", stderr(&done));
    }
}

#[test]
fn what_cannot_go_to_a_daemon_runs_here_and_says_so() {
    let desk = desk!();
    // A port that is taken and that nobody listens at.
    let taken = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&taken, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = SocketAddrV4::try_from(rustix::net::getsockname(&taken).unwrap()).unwrap();
    let server = format!("http://{place}");
    let done = run(&desk, &server, &[], &["sh", "-c", "echo out; exit 3"]);
    let said = format!(
        "cofferdam: mode burst: there is no daemon at {server}; running here, in the native backend\n"
    );
    assert_eq!(
        (code(&done), stdout(&done), stderr(&done)),
        (3, "out\n".to_owned(), said)
    );
    let flags = ["--workspace", desk.root().to_str().unwrap()];
    let flags = [&flags[..], &["--no-history"]].concat();
    let done = run(&desk, &server, &flags, &["pwd"]);
    assert_eq!((code(&done), stdout(&done)), (0, "/work\n".to_owned()));
    assert!(stderr(&done).contains("--workspace is for runs of this process"));
    // The daemon would keep what is not to be kept.
    let done = desk
        .command()
        .args(["--mode", "burst", "run", "--", "echo", "secret"])
        .envs([("COFFERDAM_SERVER", &*server), ("COFFERDAM_HISTORY", "off")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!((code(&done), stdout(&done)), (0, "secret\n".to_owned()));
    assert!(stderr(&done).contains("history.enabled is for runs of this process"));
    // One that is elsewhere is no daemon of this machine.
    let done = run(&desk, "http://192.0.2.7:8080", &[], &["true"]);
    assert_refused(&done, "burst", "daemon");
}

#[test]
fn what_the_daemon_refuses_is_refused_and_not_run_here() {
    let desk = desk!();
    let daemon = Daemon::start(&desk, &["serve", "--net", "none"]);
    let server = format!("http://{}", daemon.address);
    let done = run(&desk, &server, &["--net", "full"], &["echo", "out"]);
    assert_eq!((code(&done), stdout(&done)), (125, String::new()));
    assert!(
        stderr(&done).contains("the daemon refused"),
        "{}",
        stderr(&done)
    );
}
