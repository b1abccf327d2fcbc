//! The backends. A new one is an entry here and two tests in main.rs; what it does not promise is the doctor's to say.

use cofferdam_testkit::Way;

/// A backend as far as this suite has to know it.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) attackers: Attackers,
    /// Limits that nothing can hold where there are no control groups.
    pub(crate) unheld_without_groups: &'static [&'static str],
    /// How long a fork bomb may go on. A resource limit refuses in silence, so that the bomb lasts that long; whoever counts from beside the bomb has to get its turn.
    pub(crate) bomb_time: &'static str,
}

/// How attackers get inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attackers {
    /// By `--mount`.
    Mounted,
    /// They are where they are on the host.
    OnHost,
    /// By `--workspace`: containers take nothing else.
    InWorkspace,
    /// They are modules, and others.
    Modules,
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
    attackers: Attackers::Mounted,
    unheld_without_groups: &[],
    bomb_time: "3s",
};

pub(crate) const BUBBLEWRAP: Backend = Backend {
    name: "bubblewrap",
    attackers: Attackers::Mounted,
    unheld_without_groups: &["memory"],
    bomb_time: "3s",
};

pub(crate) const GVISOR: Backend = Backend {
    name: "gvisor",
    attackers: Attackers::Mounted,
    unheld_without_groups: &["memory"],
    bomb_time: "30s",
};

pub(crate) const HOST: Backend = Backend {
    name: "host",
    attackers: Attackers::OnHost,
    unheld_without_groups: &["processes", "cpus"],
    bomb_time: "3s",
};

/// By its API alone: the daemon makes the control groups, whoever asks it.
pub(crate) const DOCKER: Backend = Backend {
    name: "docker",
    attackers: Attackers::InWorkspace,
    unheld_without_groups: &[],
    bomb_time: "10s",
};

pub(crate) const WASM: Backend = Backend {
    name: "wasm",
    attackers: Attackers::Modules,
    unheld_without_groups: &[],
    bomb_time: "3s",
};
