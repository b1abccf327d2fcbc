//! A daemon that is missing, refuses, is slow or goes away.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::{Grant, WorkspaceAccess};
use cofferdam_docker::{Endpoint, Settings};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Input, Recording, Streams};
use cofferdam_store::adopt::{self, Keeping, Purpose};
use cofferdam_store::{DataDir, History};
use cofferdam_testkit::docker::{Dockerd, until};
use rustix::process::Signal;

use crate::support::{exited, request, script, settings, streams, try_run, with_workspace};

/// The daemon as another machine's would be reached: bytes go through, processes are not ours to see.
pub(crate) fn relay(socket: PathBuf) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(daemon) = UnixStream::connect(&socket) else {
                continue;
            };
            let back = (daemon.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                copy(&client, &daemon);
                let _ = daemon.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let (daemon, client): (UnixStream, TcpStream) = back;
                copy(&daemon, &client);
                let _ = client.shutdown(Shutdown::Write);
            });
        }
    });
    Endpoint::parse(&format!("tcp://{address}")).unwrap()
}

/// The daemon behind a socket that stops in the middle of a workspace on its way back, and says when.
fn stalling(daemon: &Dockerd) -> (PathBuf, mpsc::Receiver<()>) {
    let socket = daemon.dir().join("stalling");
    let listener = UnixListener::bind(&socket).unwrap();
    let (stalled, told) = mpsc::channel();
    let behind = daemon.socket();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let daemon = UnixStream::connect(&behind).unwrap();
            let is_asked = Arc::new(AtomicBool::new(false));
            let (mut from, mut to) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            let asks = Arc::clone(&is_asked);
            std::thread::spawn(move || {
                pieces(&mut from, |piece| {
                    let text = String::from_utf8_lossy(piece);
                    if text.starts_with("GET ") && text.contains("/archive?") {
                        asks.store(true, Ordering::SeqCst);
                    }
                    to.write_all(piece).is_ok()
                });
                let _ = to.shutdown(Shutdown::Write);
            });
            let stalled = stalled.clone();
            let (mut from, mut to) = (daemon, client);
            std::thread::spawn(move || {
                pieces(&mut from, |piece| {
                    let is_written = to.write_all(piece).is_ok();
                    if !is_asked.load(Ordering::SeqCst) {
                        return is_written;
                    }
                    let _ = stalled.send(());
                    // Until the other side has had enough.
                    let _ = to.read(&mut [0; 1]);
                    false
                });
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
    (socket, told)
}

/// Reads until the end, or until a piece is not wanted.
fn pieces(from: &mut impl Read, mut take: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !take(&buffer[..read]) {
            return;
        }
    }
}

#[test]
fn a_workspace_that_does_not_come_back_is_waited_for_until_a_limit_or_until_somebody_gives_up() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let (socket, stalled) = stalling(&daemon);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kept"), "x").unwrap();
    let run = |settings: &Settings, cancel: Option<std::os::fd::BorrowedFd<'_>>| {
        let asked = script("rm kept; head -c 3000000 /dev/urandom >large");
        let asked = with_workspace(asked, dir.path(), WorkspaceAccess::ReadWrite);
        let streams = Streams {
            cancel,
            ..streams(Input::Empty)
        };
        let grant = Grant::new(asked).unwrap();
        let begun = Instant::now();
        let run = cofferdam_docker::run(grant, streams, &Host::detect(), settings);
        assert!(begun.elapsed() < Duration::from_secs(30));
        let names = std::fs::read_dir(dir.path()).unwrap().flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["kept"]);
        run.unwrap_err().to_string()
    };
    let hasty = Settings {
        endpoint: Endpoint::Unix(socket),
        pull_patience: Duration::from_secs(3),
        ..settings(&daemon)
    };
    let said = run(&hasty, None);
    assert!(said.contains("not all of it came within 3 s"), "{said}");
    stalled.try_recv().unwrap();

    let patient = Settings {
        pull_patience: Duration::from_secs(300),
        ..hasty
    };
    let (cancel, give_up) = std::io::pipe().unwrap();
    let giving_up = std::thread::spawn(move || {
        stalled.recv().unwrap();
        drop(give_up);
    });
    let said = run(&patient, Some(std::os::fd::AsFd::as_fd(&cancel)));
    assert!(said.contains("given up while its workspace"), "{said}");
    giving_up.join().unwrap();
    until("the containers are gone", || daemon.left().is_empty());
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let _ = std::io::copy(&mut from, &mut to);
}

#[test]
fn a_daemon_behind_tcp_does_the_same() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let settings = Settings {
        endpoint: relay(daemon.socket()),
        ..settings(&daemon)
    };
    let record = try_run(script("echo hi; exit 5"), &settings).unwrap();
    exited(&record, 5);
    assert_eq!(record.stdout.data, "hi\n");
    daemon.assert_clean();
}

#[test]
fn a_daemon_that_is_missing_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let deserted = dir.path().join("deserted");
    drop(UnixListener::bind(&deserted).unwrap());
    for socket in [absent, deserted] {
        let settings = Settings {
            endpoint: Endpoint::Unix(socket.clone()),
            image: Some("x".into()),
            ..Settings::default()
        };
        let error = try_run(request(&["true"]), &settings).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BackendUnavailable);
        let text = error.to_string();
        assert!(text.contains(&socket.display().to_string()), "{text}");
        assert!(text.contains("sandbox.docker.host"), "{text}");
    }
}

#[test]
fn a_daemon_that_never_answers_is_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let settings = Settings {
        endpoint: Endpoint::Unix(socket),
        image: Some("x".into()),
        patience: Duration::from_secs(1),
        ..Settings::default()
    };
    let begun = Instant::now();
    let error = try_run(request(&["true"]), &settings).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
    drop(listener);
}

#[test]
fn what_is_refused_before_anything_runs_leaves_nothing() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    for (image, words) in [
        (None, "--image"),
        (Some("../x"), "not the name of an image"),
        (Some("sha256:1"), "64 hex digits"),
    ] {
        let settings = Settings {
            image: image.map(str::to_owned),
            ..settings(&daemon)
        };
        let error = try_run(request(&["true"]), &settings).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.code(), ErrorCode::InputInvalid);
    }
    let grant = Grant::new(request(&["true"])).unwrap();
    let streams = Streams {
        result: Some(100),
        ..streams(Input::Empty)
    };
    let error = cofferdam_docker::run(grant, streams, &Host::detect(), &settings(&daemon));
    assert!(error.unwrap_err().to_string().contains("result channel"));
    daemon.assert_clean();
}

#[test]
fn a_daemon_that_is_stopped_during_a_run_is_told_and_the_record_says_interrupted() {
    let Some(mut daemon) = Dockerd::start() else {
        return;
    };
    let kept = tempfile::tempdir().unwrap();
    let dir = DataDir::at(kept.path().join("history"));
    let settings = settings(&daemon);
    let recording = Recording::new(dir.clone());
    let run_id = recording.run_id;
    let running = std::thread::spawn(move || {
        let grant = Grant::new(script("echo hello; sleep 1000")).unwrap();
        let streams = Streams {
            recording: Some(recording),
            ..streams(Input::Empty)
        };
        cofferdam_docker::run(grant, streams, &Host::detect(), &settings)
    });
    until("the program runs", || {
        daemon
            .docker(&["ps", "--format", "{{.Status}}"])
            .contains("Up")
    });
    daemon.signal(Signal::KILL);
    let begun = Instant::now();
    let error = running.join().unwrap().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    assert!(error.to_string().contains("during the run"), "{error}");
    daemon.stop();
    let mut history = History::open(&dir).unwrap();
    adopt::adopt(&mut history, &Keeping::default(), Purpose::Reading).unwrap();
    let stored = history.get(run_id).unwrap();
    let stored = format!("{stored:?}").to_lowercase();
    assert!(stored.contains("interrupted"), "{stored}");
}
