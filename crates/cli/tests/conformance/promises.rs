//! The promises, each with an attack and what must come of it.

use cofferdam_testkit::Finished;
use cofferdam_testkit::hostile::Hostile;

/// What is promised, and the proof.
pub(crate) struct Promise {
    pub(crate) name: &'static str,
    /// The limit that it is about, as records spell it.
    pub(crate) limit: Option<&'static str>,
    pub(crate) flags: &'static [&'static str],
    pub(crate) attack: Attack,
    pub(crate) is_kept: fn(&Finished) -> bool,
}

pub(crate) enum Attack {
    Shell(&'static str),
    /// A program of the testkit's, with its arguments.
    Program(Hostile, &'static [&'static str]),
    /// As it is.
    Command(&'static [&'static str]),
}

pub(crate) const PRIVATE: &str = "/tmp/cofferdam-conformance-private";

pub(crate) fn stopped(run: &Finished, cause: &str, code: i32) -> bool {
    (run.ending(), run.code()) == (cause, code)
}

pub(crate) fn said(run: &Finished, text: &str) -> bool {
    run.code() == 0 && run.out() == text
}

pub(crate) const PROMISES: &[Promise] = &[
    Promise {
        name: "wall time",
        limit: Some("wall_time"),
        flags: &["--timeout", "700ms"],
        attack: Attack::Shell("trap '' TERM INT HUP; while :; do sleep 1; done"),
        is_kept: |run| stopped(run, "wall_time", 124),
    },
    Promise {
        name: "CPU time of a tree",
        limit: Some("cpu_time"),
        flags: &["--cpu-time", "600ms"],
        attack: Attack::Program(Hostile::Tree, &["burn", "3"]),
        is_kept: |run| stopped(run, "cpu_time", 152),
    },
    Promise {
        name: "memory of one process",
        limit: Some("memory"),
        flags: &["--memory", "128m"],
        attack: Attack::Program(Hostile::Memory, &["heap", "512"]),
        is_kept: |run| stopped(run, "memory", 137),
    },
    Promise {
        name: "memory of a tree",
        limit: Some("memory"),
        flags: &["--memory", "128m"],
        attack: Attack::Program(Hostile::Memory, &["children", "512"]),
        is_kept: |run| stopped(run, "memory", 137),
    },
    Promise {
        name: "processes and threads",
        limit: Some("processes"),
        flags: &["--pids", "40"],
        attack: Attack::Program(Hostile::Tree, &["fork"]),
        // A resource limit refuses without saying so, and the bomb goes on in vain.
        is_kept: |run| {
            stopped(run, "processes", 137)
                || run.enforced_by("processes") == "rlimit" && stopped(run, "wall_time", 124)
        },
    },
    Promise {
        name: "output",
        limit: Some("output"),
        flags: &["--output-limit", "10k"],
        attack: Attack::Command(&["yes"]),
        is_kept: |run| stopped(run, "output", 153) && run.out().len() == 10 << 10,
    },
    Promise {
        name: "scratch disk",
        limit: Some("disk"),
        flags: &["--disk", "8m"],
        attack: Attack::Program(Hostile::Disk, &["many", "/tmp", "64"]),
        // Whoever may not look into a container sees a program that met the end of its space and says so.
        is_kept: |run| {
            stopped(run, "disk", 153)
                || run.enforced_by("disk") == "docker"
                    && run.ending() == "exited"
                    && run.code() == 3
        },
    },
    Promise {
        name: "open files",
        limit: Some("open_files"),
        flags: &["--open-files", "64"],
        attack: Attack::Shell("ulimit -n; ulimit -H -n; ulimit -n 65 2>/dev/null || echo held"),
        is_kept: |run| said(run, "64\n64\nheld\n"),
    },
    Promise {
        name: "CPUs shown are CPUs given",
        limit: Some("cpus"),
        flags: &["--cpus", "1"],
        attack: Attack::Command(&["nproc"]),
        is_kept: |run| said(run, "1\n"),
    },
    Promise {
        name: "partial output survives",
        limit: None,
        flags: &["--timeout", "5s"],
        attack: Attack::Shell("echo part; sleep 60"),
        is_kept: |run| stopped(run, "wall_time", 124) && run.out() == "part\n",
    },
    Promise {
        name: "a signal is told from an exit code",
        limit: None,
        flags: &[],
        attack: Attack::Shell("kill -SEGV $$"),
        is_kept: |run| run.ending() == "signaled" && run.record()["signal"] == "SIGSEGV",
    },
    Promise {
        name: "an exit code is told from a signal",
        limit: None,
        flags: &[],
        attack: Attack::Shell("exit 139"),
        is_kept: |run| run.ending() == "exited" && run.code() == 139,
    },
    Promise {
        name: "a missing program is told from a failing one",
        limit: None,
        flags: &[],
        attack: Attack::Command(&["/no/such/program"]),
        is_kept: |run| run.ending() == "never_started" && run.code() == 127,
    },
    Promise {
        name: "daemons end with the run",
        limit: None,
        flags: &[],
        attack: Attack::Program(Hostile::Tree, &["daemon"]),
        // The fixture looks for what is left.
        is_kept: |run| run.code() == 0,
    },
    Promise {
        name: "the environment is clean",
        limit: None,
        flags: &[],
        attack: Attack::Shell("env | grep -c OF_THE_SUPERVISOR; true"),
        is_kept: |run| said(run, "0\n"),
    },
    Promise {
        name: "the root is read-only",
        limit: None,
        flags: &[],
        attack: Attack::Shell(
            "for d in / /usr /etc /usr/bin; do touch $d/x 2>/dev/null && echo wrote $d; done; true",
        ),
        is_kept: |run| said(run, ""),
    },
    Promise {
        name: "other files are not seen",
        limit: None,
        flags: &[],
        // Places that every host has, and one that is shown.
        attack: Attack::Shell(
            "for d in /var /root /boot /opt /mnt /usr; do test -e $d && echo $d; done; true",
        ),
        // An image need not have even that.
        is_kept: |run| said(run, "/usr\n") || said(run, ""),
    },
    Promise {
        name: "/tmp is private",
        limit: None,
        flags: &[],
        attack: Attack::Command(&["touch", PRIVATE]),
        is_kept: |run| run.code() == 0 && !std::path::Path::new(PRIVATE).exists(),
    },
    Promise {
        name: "other processes are not seen",
        limit: None,
        flags: &[],
        // The shell, what lists, what counts, and a tool's own first processes.
        attack: Attack::Shell(
            "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; test $n -le 4 && echo few",
        ),
        is_kept: |run| said(run, "few\n"),
    },
    Promise {
        name: "no network but loopback",
        limit: None,
        flags: &[],
        attack: Attack::Shell(
            "tail -n +3 /proc/net/dev | grep -vc ' lo:'; tail -n +3 /proc/net/dev | grep -c 'lo:'",
        ),
        is_kept: |run| said(run, "0\n1\n"),
    },
    Promise {
        name: "uid 1000 without capabilities",
        limit: None,
        flags: &[],
        attack: Attack::Shell("id -u; grep -c '^Cap...:.0000000000000000' /proc/self/status"),
        is_kept: |run| run.code() == 0 && matches!(run.out().as_str(), "1000\n4\n" | "1000\n5\n"),
    },
    Promise {
        name: "no namespace can be made",
        limit: None,
        flags: &[],
        attack: Attack::Command(&["unshare", "--user", "true"]),
        is_kept: |run| run.ending() == "exited" && run.code() != 0,
    },
    Promise {
        name: "refusals are recorded",
        limit: None,
        flags: &[],
        attack: Attack::Command(&["unshare", "--user", "true"]),
        is_kept: |run| {
            run.record()["denials"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        },
    },
];
