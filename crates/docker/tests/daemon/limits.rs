//! Every limit, against a program that goes beyond it.

use std::time::Duration;

use cofferdam_contract::ending::{Ending, StopCause, Stream};
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_docker::Settings;
use cofferdam_testkit::docker::Dockerd;

use crate::support::{exited, mib, run, script, settings, try_run};

#[test]
fn memory_processes_and_cpu_time_are_bounded() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    // It stays at some of it for a while: what a container used is known as of the last look at it.
    let mut hog = script("(head -c 20m /dev/zero; sleep 1; head -c 200m /dev/zero) | tail");
    hog.limits.memory = mib(32);
    let record = run(&daemon, hog);
    let limit = Bytes::new(32 << 20);
    assert_eq!(record.ending, Ending::Stopped(StopCause::Memory { limit }));
    let peak = record.usage.memory_peak_bytes.unwrap();
    assert!(peak > 16 << 20 && peak <= 32 << 20, "{peak}");

    // Scratch files are memory too, and there is no swap to go to.
    let mut files = script("dd if=/dev/zero of=/tmp/x bs=1M count=100");
    files.limits.memory = mib(32);
    let record = run(&daemon, files);
    assert_eq!(record.ending, Ending::Stopped(StopCause::Memory { limit }));

    let mut bomb = script("f() { f | f & }; f; sleep 2; exit 1");
    bomb.limits.processes = Cap::AtMost(20);
    let record = run(&daemon, bomb);
    let cause = StopCause::Processes { limit: 20 };
    assert_eq!(record.ending, Ending::Stopped(cause));
    let peak = record.usage.processes_peak.unwrap();
    assert!((2..=20).contains(&peak), "{peak}");

    let mut burner = script("while :; do :; done & while :; do :; done");
    let limit = Duration::from_secs(1);
    burner.limits.cpu_time = Cap::AtMost(limit);
    let record = run(&daemon, burner);
    assert_eq!(record.ending, Ending::Stopped(StopCause::CpuTime { limit }));
    assert!(
        (1000.0..20_000.0).contains(&record.usage.cpu_ms),
        "{:?}",
        record.usage
    );
}

#[test]
fn a_program_whose_time_is_over_is_asked_and_then_ended_and_its_output_kept() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let limit = Duration::from_secs(5);
    let cause = StopCause::WallTime { limit };
    let mut polite =
        script("trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.1; done");
    polite.limits.wall_time = Cap::AtMost(limit);
    let patient = Settings {
        grace: Duration::from_secs(30),
        ..settings(&daemon)
    };
    let record = try_run(polite, &patient).unwrap();
    daemon.assert_clean();
    assert_eq!(record.ending, Ending::Stopped(cause.clone()));
    assert_eq!(record.stdout.data, "hello\nbye\n");

    let mut deaf = script(
        "trap '' TERM; echo hello; (trap '' TERM; sleep 1000) & while :; do sleep 0.1; done",
    );
    deaf.limits.wall_time = Cap::AtMost(limit);
    let record = run(&daemon, deaf);
    assert_eq!(record.ending, Ending::Stopped(cause));
    assert_eq!(record.stdout.data, "hello\n");
    assert!(
        (6000.0..60_000.0).contains(&record.usage.wall_ms),
        "{:?}",
        record.usage
    );
}

#[test]
fn output_is_cut_at_its_limit_and_the_program_ended() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let mut flood = script("yes");
    let limit = Bytes::new(100_000);
    flood.limits.output = Cap::AtMost(limit);
    let record = run(&daemon, flood);
    let stream = Stream::Stdout;
    assert_eq!(
        record.ending,
        Ending::Stopped(StopCause::Output { limit, stream })
    );
    assert_eq!(record.stdout.data, "y\n".repeat(50_000));
    assert!(record.stdout.truncated);
}

#[test]
fn scratch_space_open_files_and_cpus_are_bounded() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let fill = "dd if=/dev/zero of=/tmp/a bs=64k count=1000 2>/dev/null; dd if=/dev/zero of=/dev/shm/b bs=64k count=1000 2>/dev/null; \
                wc -c </tmp/a; wc -c </dev/shm/b";
    let mut full = script(fill);
    full.limits.disk = mib(8);
    let record = run(&daemon, full);
    assert_eq!(record.stdout.data, format!("{}\n{}\n", 7 << 20, 1 << 20));

    let mut one = script("ulimit -n; ulimit -f; ulimit -c; nproc");
    one.limits.open_files = Cap::AtMost(50);
    one.limits.disk = mib(8);
    one.limits.cpus = Cap::AtMost("1".parse().unwrap());
    let record = run(&daemon, one);
    assert_eq!(record.stdout.data, "50\n16384\n0\n1\n");
    assert_eq!(record.enforced_by[&LimitName::Cpus].to_string(), "docker");

    let mut half = script("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
    half.limits.cpus = Cap::AtMost("0.2".parse().unwrap());
    let record = run(&daemon, half);
    exited(&record, 0);
    let usage = record.usage;
    assert!(usage.wall_ms > usage.cpu_ms * 2.0, "{usage:?}");
}

#[test]
fn usage_is_the_kernels_also_where_only_the_daemon_can_read_it() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 1";
    let record = run(&daemon, script(burn));
    assert!(record.usage.cpu_ms > 50.0, "{:?}", record.usage);
    let remote = Settings {
        endpoint: crate::trouble::relay(daemon.socket()),
        ..settings(&daemon)
    };
    let told = try_run(script(burn), &remote).unwrap();
    exited(&told, 0);
    assert!(told.usage.cpu_ms > 50.0, "{:?}", told.usage);
    assert!(told.usage.memory_peak_bytes.is_some());
    let mut burner = script("while :; do :; done");
    let limit = Duration::from_secs(1);
    burner.limits.cpu_time = Cap::AtMost(limit);
    let record = try_run(burner, &remote).unwrap();
    assert_eq!(record.ending, Ending::Stopped(StopCause::CpuTime { limit }));
    daemon.assert_clean();
}
