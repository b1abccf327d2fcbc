//! Input and output through the daemon's frames.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::request::Grant;
use cofferdam_docker::Settings;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Input, Sink, Streams};
use cofferdam_testkit::docker::Dockerd;

use crate::support::{exited, request, run, script, settings, streams};

#[test]
fn streams_are_told_apart_and_no_byte_is_lost() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    // The first byte comes before anybody could attach after the start.
    let record = run(&daemon, script("echo first; echo second >&2; exit 3"));
    exited(&record, 3);
    assert_eq!(
        (&*record.stdout.data, &*record.stderr.data),
        ("first\n", "second\n")
    );

    // A character whose bytes come in two frames.
    let halves = r"printf 'gr\303'; sleep 0.3; printf '\274n\n'";
    let record = run(&daemon, script(halves));
    assert_eq!(record.stdout.data, "grün\n");

    // What looks like frames is only output.
    let record = run(
        &daemon,
        script(r"printf '\001\000\000\000\000\000\000\005\377'"),
    );
    assert_eq!(record.stdout.bytes().unwrap(), b"\x01\0\0\0\0\0\0\x05\xff");

    let record = run(&daemon, script("seq 1 1000000"));
    let expected: String = (1..=1_000_000).map(|n| format!("{n}\n")).collect();
    assert!(
        record.stdout.data == expected,
        "{}",
        record.stdout.data.len()
    );
}

/// Of three mebibytes of `x`.
const SUM: &str = "c1887f0c970afa48194adf7f5c504696";

#[test]
fn input_comes_from_bytes_and_descriptors_and_ends() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let with = |stdin| {
        let grant = Grant::new(request(&["md5sum"])).unwrap();
        cofferdam_docker::run(grant, streams(stdin), &Host::detect(), &settings(&daemon)).unwrap()
    };
    let large = vec![b'x'; 3 << 20];
    let record = with(Input::Bytes(large.clone()));
    exited(&record, 0);
    assert_eq!(record.stdout.data, format!("{SUM}  -\n"));

    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &large).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    assert_eq!(
        with(Input::From(OwnedFd::from(file))).stdout.data,
        format!("{SUM}  -\n")
    );
    let nothing = with(Input::Empty);
    assert_eq!(nothing.stdout.data, "d41d8cd98f00b204e9800998ecf8427e  -\n");
    daemon.assert_clean();
}

#[test]
fn input_that_nobody_reads_or_ends_holds_nothing_up() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let (ours, theirs) = std::io::pipe().unwrap();
    let grant = Grant::new(request(&["true"])).unwrap();
    let streams = streams(Input::From(ours.into()));
    let record = cofferdam_docker::run(grant, streams, &Host::detect(), &settings(&daemon));
    exited(&record.unwrap(), 0);
    drop(theirs);
    daemon.assert_clean();
}

#[test]
fn a_slow_reader_gets_everything_and_one_that_goes_away_ends_the_run() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let pass = |command: &str, reader: fn(std::io::PipeReader) -> usize| {
        let (ours, theirs) = std::io::pipe().unwrap();
        let reading = std::thread::spawn(move || reader(ours));
        let grant = Grant::new(script(command)).unwrap();
        let streams = Streams {
            stdout: Sink::Pass { to: theirs.into() },
            ..streams(Input::Empty)
        };
        let record = cofferdam_docker::run(grant, streams, &Host::detect(), &settings(&daemon));
        (record.unwrap(), reading.join().unwrap())
    };
    let (record, got) = pass("head -c 3000000 /dev/zero", |mut from| {
        let mut got = 0;
        let mut buffer = [0; 50_000];
        loop {
            std::thread::sleep(std::time::Duration::from_millis(2));
            match from.read(&mut buffer).unwrap() {
                0 => return got,
                read => got += read,
            }
        }
    });
    exited(&record, 0);
    assert_eq!(got, 3_000_000);
    let (record, _) = pass("yes", |mut from| from.read(&mut [0; 10]).unwrap());
    assert_eq!(record.ending, Ending::Stopped(StopCause::Canceled));
    daemon.assert_clean();
}

/// Longer than the daemon's silence is taken for an end.
#[test]
fn a_reader_that_pauses_for_long_after_the_end_gets_everything() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    const PAUSE: std::time::Duration = std::time::Duration::from_secs(8);
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(PAUSE);
        let mut all = String::new();
        ours.read_to_string(&mut all).unwrap();
        all
    });
    let grant = Grant::new(script("seq 1 60000")).unwrap();
    let streams = Streams {
        stdout: Sink::Pass { to: theirs.into() },
        ..streams(Input::Empty)
    };
    let record =
        cofferdam_docker::run(grant, streams, &Host::detect(), &settings(&daemon)).unwrap();
    exited(&record, 0);
    let expected: String = (1..=60_000).map(|n| format!("{n}\n")).collect();
    let got = reading.join().unwrap();
    assert!(got == expected, "{} of {}", got.len(), expected.len());
    daemon.assert_clean();
}

#[test]
fn whoever_gives_up_gets_an_end_that_says_so() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let (cancel, give_up) = std::io::pipe().unwrap();
    let cancel = OwnedFd::from(cancel);
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let giving_up = std::thread::spawn(move || {
        let mut said = [0; 6];
        ours.read_exact(&mut said).unwrap();
        drop(give_up);
        let mut rest = Vec::new();
        ours.read_to_end(&mut rest).unwrap();
        (said, rest)
    });
    let grant = Grant::new(script("echo hello; sleep 1000")).unwrap();
    let streams = Streams {
        cancel: Some(std::os::fd::AsFd::as_fd(&cancel)),
        stdout: Sink::Pass { to: theirs.into() },
        ..streams(Input::Empty)
    };
    let record =
        cofferdam_docker::run(grant, streams, &Host::detect(), &settings(&daemon)).unwrap();
    assert_eq!(giving_up.join().unwrap(), (*b"hello\n", Vec::new()));
    assert_eq!(record.ending, Ending::Stopped(StopCause::Canceled));
    daemon.assert_clean();
}

/// A registry that accepts and never answers.
#[test]
fn whoever_gives_up_while_an_image_comes_does_not_wait_for_it() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/slow:1", registry.local_addr().unwrap());
    let settings = Settings {
        image: Some(image),
        ..settings(&daemon)
    };
    let (cancel, give_up) = std::io::pipe().unwrap();
    let cancel = OwnedFd::from(cancel);
    let giving_up = std::thread::spawn(move || {
        // The daemon is asking for the image.
        let asking = registry.accept().unwrap();
        drop(give_up);
        (registry, asking)
    });
    let grant = Grant::new(request(&["true"])).unwrap();
    let streams = Streams {
        cancel: Some(std::os::fd::AsFd::as_fd(&cancel)),
        ..streams(Input::Empty)
    };
    let begun = std::time::Instant::now();
    let record = cofferdam_docker::run(grant, streams, &Host::detect(), &settings).unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    assert_eq!(record.ending, Ending::Stopped(StopCause::Canceled));
    drop(giving_up.join().unwrap());
    daemon.assert_clean();
}
