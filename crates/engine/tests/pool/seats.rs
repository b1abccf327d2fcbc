//! Sandboxes that are built ahead: the same walls, the same limits, the same endings as one that is built for its run; used once, and nothing left of them.

use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::pipeline::Evidence;
use cofferdam_engine::pool::{PoolBounds, Private};

use crate::place::{ROOMY, assert_nothing_is_left, children, kill_and_wait, place, request};

#[test]
fn a_seated_run_is_like_any_other() {
    let place = place(ROOMY).unwrap();
    let script = "echo out; echo err >&2; echo answer >&3; id -u; pwd; ls -A /tmp; cat /proc/sys/kernel/hostname; exit 7";
    let seated = place.run_seated(script, Limits::DEFAULT).unwrap();
    let built = place.run(None, request(script, Limits::DEFAULT)).unwrap();
    assert_eq!(seated.exit_code, Some(7));
    assert_eq!(seated.stdout.data, built.stdout.data);
    assert_eq!(seated.stderr.data, "err\n");
    assert_eq!(seated.result.as_ref().unwrap().data, "answer\n");
    assert_eq!(seated.enforced_by, built.enforced_by);
    let mut walls = [seated.isolation.clone(), built.isolation.clone()];
    for walls in &mut walls {
        walls.remove("uid");
    }
    assert_eq!(walls[0], walls[1]);
    let data = place.data.clone();
    drop(place);
    assert_nothing_is_left(&data);
}

#[test]
fn limits_hold_in_a_sandbox_that_was_built_before_they_were_known() {
    let place = place(ROOMY).unwrap();
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::DEFAULT;
        change(&mut limits);
        limits
    };
    let cases = [
        (
            "sleep 60",
            limits(|limits| limits.wall_time = Cap::AtMost(Duration::from_millis(200))),
            "wall_time",
        ),
        (
            "while :; do :; done",
            limits(|limits| limits.cpu_time = Cap::AtMost(Duration::from_millis(200))),
            "cpu_time",
        ),
        (
            "exec python3 -c 'x = bytearray(200 << 20)'",
            limits(|limits| limits.memory = Cap::AtMost(Bytes::new(48 << 20))),
            "memory",
        ),
        (
            "yes",
            limits(|limits| limits.output = Cap::AtMost(Bytes::new(1000))),
            "output",
        ),
    ];
    for (script, limits, cause) in cases {
        let record = place.run_seated(script, limits).unwrap();
        let told = serde_json::to_value(&record).unwrap();
        assert_eq!(told["ending"]["cause"], cause, "{told:#}");
    }
    // Also where the one before was built for less.
    let more = limits(|limits| limits.memory = Cap::AtMost(Bytes::new(256 << 20)));
    for _ in 0..4 {
        let script = "exec python3 -c 'x = bytearray(150 << 20)'";
        let record = place.run_seated(script, more.clone()).unwrap();
        assert_eq!(record.exit_code, Some(0), "{record:?}");
    }
    let few = limits(|limits| limits.processes = Cap::AtMost(3));
    let record = place
        .run_seated("for i in 1 2 3 4 5 6; do sleep 1 & done; wait", few)
        .unwrap();
    assert_ne!(record.exit_code, Some(0), "{record:?}");
}

#[test]
fn each_is_used_once() {
    let place = place(ROOMY).unwrap();
    let script = "echo mine >> /tmp/x; echo mine >> ~/x; cat /tmp/x ~/x; sleep 100 & echo $$";
    for _ in 0..6 {
        let record = place.run_seated(script, Limits::DEFAULT).unwrap();
        // The same fresh files and, in a pid namespace of its own, the same number.
        assert_eq!(record.stdout.data, "mine\nmine\n3\n");
    }
    let figures = place.pool.figures();
    assert!(figures.taken == 6 && figures.built >= 6, "{figures:?}");
}

#[test]
fn one_with_other_walls_is_not_used() {
    let place = place(ROOMY).unwrap();
    let plain = request("df -k --output=size /tmp | tail -1", Limits::DEFAULT);
    let seat = place.seat(&plain, Private::Nothing).unwrap();
    let mut limits = Limits::DEFAULT;
    limits.disk = Cap::AtMost(Bytes::new(8 << 20));
    let small = request("df -k --output=size /tmp | tail -1", limits);
    let record = place.run(Some(seat), small).unwrap();
    let size: u64 = record.stdout.data.trim().parse().unwrap();
    assert!(size < 10 << 10, "{size} KiB for a limit of 8 MiB");
}

#[test]
fn one_that_was_killed_costs_nothing_but_time() {
    let place = place(ROOMY).unwrap();
    let plain = request("echo hi", Limits::DEFAULT);
    let seat = place.seat(&plain, Private::Nothing).unwrap();
    // Everything that waits, this one's init among them.
    for child in children() {
        kill_and_wait(&child);
    }
    let record = place.run(Some(seat), plain).unwrap();
    assert_eq!(record.stdout.data, "hi\n");
    for _ in 0..3 {
        let record = place.run_seated("echo again", Limits::DEFAULT).unwrap();
        assert_eq!(record.stdout.data, "again\n");
    }
    // What was found dead is gone, and nobody goes round in circles about it.
    // Building what is missing takes a moment, and then there is quiet.
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(400));
        let used = cpu_time() - before;
        if used < Duration::from_millis(100) {
            break;
        }
        assert!(Instant::now() < until, "{used:?} of CPU time");
    }
    let data = place.data.clone();
    drop(place);
    assert_nothing_is_left(&data);
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[test]
fn a_workspace_of_its_own_comes_with_it() {
    let place = place(ROOMY).unwrap();
    let mut seats = Vec::new();
    for n in 0..2 {
        let mut request = request("cat given; echo made > made; pwd", Limits::DEFAULT);
        let mut seat = place.seat(&request, Private::Workspace).unwrap();
        let workspace = seat.take_workspace().unwrap();
        workspace
            .place("given", format!("{n}\n").as_bytes(), 0o644)
            .unwrap();
        request.workspace = Some(Workspace {
            path: workspace.path().to_owned(),
            access: WorkspaceAccess::ReadWrite,
        });
        let record = place.run(Some(seat), request).unwrap();
        assert_eq!(record.stdout.data, format!("{n}\n/work\n"), "{record:?}");
        assert!(workspace.path().join("made").exists());
        seats.push(workspace);
    }
    assert_ne!(seats[0].path(), seats[1].path());
    let paths: Vec<_> = seats.iter().map(|seat| seat.path().to_owned()).collect();
    drop(seats);
    assert!(
        paths
            .iter()
            .all(|path: &std::path::PathBuf| !Path::exists(path))
    );
    let data = place.data.clone();
    drop(place);
    assert_nothing_is_left(&data);
}

#[test]
fn what_waits_long_is_built_anew_and_what_nobody_wants_goes() {
    let bounds = PoolBounds {
        most: 4,
        fresh_for: Duration::from_millis(500),
        idle_for: Duration::from_secs(12),
    };
    let place = place(bounds).unwrap();
    let plain = request("echo hi", Limits::DEFAULT);
    drop(place.seat(&plain, Private::Nothing).unwrap());
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < until, "{what}: {:?}", place.pool.figures());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let built = place.pool.figures().built;
    until("none is built anew", &|| {
        place.pool.figures().built > built + 1
    });
    until("some stay", &|| place.pool.figures().waiting == 0);
    until("processes stay", &|| children().is_empty());
    until("networks stay", &|| open_networks() == 0);
}

/// Of this process.
fn open_networks() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let names = open.flatten().flat_map(|fd| std::fs::read_link(fd.path()));
    names
        .filter(|name| name.to_string_lossy().starts_with("net:["))
        .count()
}

/// One client that asks for something else each time.
#[test]
fn what_nobody_asks_for_twice_takes_no_place() {
    let place = place(ROOMY).unwrap();
    for n in 0..64 {
        let mut limits = Limits::DEFAULT;
        limits.disk = Cap::AtMost(Bytes::new((8 << 20) + (n << 12)));
        let odd = request("true", limits);
        assert!(
            place
                .pool
                .seat(&odd, Evidence::Full, Private::Nothing)
                .is_none()
        );
    }
    assert_eq!(place.pool.figures().built, 0);
    let record = place.run_seated("echo common", Limits::DEFAULT).unwrap();
    assert_eq!(record.stdout.data, "common\n");
}

#[test]
fn sandboxes_with_a_share_of_the_cpus_are_spread_over_them() {
    let place = place(ROOMY).unwrap();
    if place.host.cpus.len() < 2 {
        return;
    }
    let mut limits = Limits::DEFAULT;
    limits.cpus = Cap::AtMost(cofferdam_contract::units::CpuShare::from_milli(1000).unwrap());
    let script = "grep Cpus_allowed_list /proc/self/status";
    let seen: std::collections::BTreeSet<String> = (0..4)
        .map(|_| {
            let request = request(script, limits.clone());
            place.run(None, request).unwrap().stdout.data
        })
        .collect();
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn whoever_asks_the_same_again_after_a_while_finds_one() {
    let place = place(ROOMY).unwrap();
    let plain = request("true", Limits::DEFAULT);
    let ask = || place.pool.seat(&plain, Evidence::Full, Private::Nothing);
    assert!(ask().is_none());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(ask().is_none());
    let until = Instant::now() + Duration::from_secs(30);
    while place.pool.figures().built == 0 {
        assert!(Instant::now() < until, "{:?}", place.pool.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ask().is_some(), "{:?}", place.pool.figures());
}
