//! The backends, each with what it does not promise. A new one is an entry here and two tests in main.rs.

use cofferdam_testkit::Way;

/// A backend as far as this suite has to know it.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    /// Whether the attackers are shown inside by `--mount`, or found where they are.
    pub(crate) mounts: Mounts,
    /// By the name of a promise: why it is not given.
    pub(crate) not_promised: &'static [(&'static str, &'static str)],
    /// Limits that nothing can hold where there are no control groups.
    pub(crate) unheld_without_groups: &'static [&'static str],
    /// How long a fork bomb may go on. A resource limit refuses in silence, so that the bomb lasts that long; whoever counts from beside the bomb has to get its turn.
    pub(crate) bomb_time: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounts {
    Yes,
    No,
}

impl Backend {
    /// Limits whose runs are refused here unless they are waived.
    pub(crate) fn refuses(&self, way: Way) -> &'static [&'static str] {
        if way.has_cgroups() {
            &[]
        } else {
            self.unheld_without_groups
        }
    }
}

pub(crate) const NATIVE: Backend = Backend {
    name: "native",
    mounts: Mounts::Yes,
    not_promised: &[],
    unheld_without_groups: &[],
    bomb_time: "3s",
};

pub(crate) const BUBBLEWRAP: Backend = Backend {
    name: "bubblewrap",
    mounts: Mounts::Yes,
    not_promised: &[(
        "refusals are recorded",
        "nobody listens to the filter that bwrap installs",
    )],
    unheld_without_groups: &["memory"],
    bomb_time: "3s",
};

pub(crate) const GVISOR: Backend = Backend {
    name: "gvisor",
    mounts: Mounts::Yes,
    not_promised: &[
        (
            "no namespace can be made",
            "gVisor's kernel is its own: what it gives away is not the host's",
        ),
        (
            "refusals are recorded",
            "gVisor answers system calls itself and tells nobody",
        ),
    ],
    unheld_without_groups: &["memory"],
    bomb_time: "30s",
};

const NO_WALLS: &str = "there are no walls";

pub(crate) const HOST: Backend = Backend {
    name: "host",
    mounts: Mounts::No,
    not_promised: &[
        (
            "scratch disk",
            "there is no scratch space; one file is bounded",
        ),
        ("the root is read-only", NO_WALLS),
        ("other files are not seen", NO_WALLS),
        ("/tmp is private", NO_WALLS),
        ("other processes are not seen", NO_WALLS),
        ("no network but loopback", NO_WALLS),
        ("uid 1000 without capabilities", NO_WALLS),
        ("no namespace can be made", NO_WALLS),
        ("refusals are recorded", "there is no filter"),
    ],
    unheld_without_groups: &["processes", "cpus"],
    bomb_time: "3s",
};
