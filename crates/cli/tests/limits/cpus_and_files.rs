//! CPUs and open files: what a program sees and what it gets are the same.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Need, Way, host};

const COUNT_CPUS: &str = "
import os
print(os.cpu_count(), len(os.sched_getaffinity(0)), open('/proc/cpuinfo').read().count('processor\\t'),
      sum(line[3:4].isdigit() for line in open('/proc/stat') if line.startswith('cpu')),
      os.sysconf('SC_NPROCESSORS_ONLN'), os.popen('nproc').read().strip())";

#[test]
fn the_visible_cpus_equal_the_share() {
    let host = host!(Need::Python, Need::TwoCpus);
    for way in Way::all() {
        for (share, seen) in [("1", "1 1 1 1 1 1\n"), ("2", "2 2 2 2 2 2\n")] {
            let run = host
                .launch(["run", "--cpus", share, "--", "python3", "-c", COUNT_CPUS])
                .way(way)
                .json()
                .finish();
            assert_eq!(
                (run.out().as_str(), run.code()),
                (seen, 0),
                "{way:?}: {run:#?}"
            );
            assert_eq!(run.enforced_by("cpus"), way.group_or("affinity"));
        }
    }
}

#[test]
fn half_a_cpu_is_shown_as_one() {
    let host = host!(Need::Python, Need::Cgroup);
    let run = host.json(["run", "--cpus", "0.5", "--", "python3", "-c", COUNT_CPUS]);
    assert_eq!(run.out(), "1 1 1 1 1 1\n", "{run:#?}");
}

#[test]
fn a_quota_holds_against_several_burners_accurate() {
    let host = host!(Need::Gcc, Need::Cgroup, Need::TwoCpus);
    let tree = Hostile::Tree.compile();
    let run = host.json([
        "run",
        "--cpus",
        "0.5",
        "--timeout",
        "1s",
        "--mount",
        &tree.mount(),
        "--",
        &tree.inside(),
        "burn",
        "3",
    ]);
    assert_eq!(run.ending(), "wall_time");
    let used = run.usage("cpu_ms");
    assert!(
        (200.0..=620.0).contains(&used),
        "half a CPU for one second is 500 ms, not {used}"
    );
}

#[test]
fn pinned_cpus_hold_against_several_burners_and_cannot_be_widened() {
    let host = host!(Need::Python, Need::TwoCpus);
    let script = "
import os, time
try: os.sched_setaffinity(0, range(64)); print('widened')
except OSError as error: print(error.errno)
os.fork(); os.fork()
end = time.monotonic() + 3
while time.monotonic() < end: pass
while True:
    try: os.wait()
    except OSError: break
";
    for way in Way::all().into_iter().filter(|way| !way.has_cgroups()) {
        let run = host
            .launch(["run", "--cpus", "1", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        assert!(!run.out().contains("widened"), "{way:?}: {run:#?}");
        assert!(
            run.usage("cpu_ms") < 4500.0,
            "{way:?}: more than one CPU: {run:#?}"
        );
    }
}

#[test]
fn a_fraction_of_a_cpu_is_refused_where_nothing_can_hold_it() {
    let host = host!();
    for way in Way::all().into_iter().filter(|way| !way.has_cgroups()) {
        let refused = host
            .launch(["run", "--cpus", "0.5", "--", "true"])
            .way(way)
            .finish();
        refused.assert_refused(125, "limit.unenforceable");
        assert!(refused.err().contains("--waive cpus"), "{refused:#?}");
        let waived = host
            .launch(["run", "--cpus", "0.5", "--waive", "cpus", "--", "true"])
            .way(way)
            .json()
            .finish();
        waived.assert_success();
        assert_eq!(waived.enforced_by("cpus"), "waived");
    }
}

#[test]
fn open_files_are_bounded_and_the_bound_cannot_be_raised() {
    let host = host!(Need::Python);
    let script = "
import os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE))
try: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print('raised')
except ValueError: print('refused')
fds = []
try:
    while True: fds.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error: print(error.errno, max(fds))
";
    for way in Way::all() {
        let run = host
            .launch(["run", "--open-files", "32", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(run.out(), "(32, 32)\nrefused\n24 31\n", "{way:?}: {run:#?}");
        assert_eq!(run.enforced_by("open_files"), "rlimit");
    }
}
