//! The ways in which the same run can be started: what enforces a limit depends on who asks and on what the kernel lends.

use crate::need;

/// The unprivileged user of the tests: in no passwd file, in no group.
pub(crate) const TEST_UID: u32 = 12345;

/// Who runs `cofferdam`, and with which help of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Root with control groups.
    Root,
    /// Root where control groups are switched off.
    RootWithoutCgroups,
    /// A user who has neither privileges nor control groups.
    User,
}

impl Way {
    /// All ways that this host allows; in CI that is all of them.
    pub fn all() -> Vec<Self> {
        if !need::is_root() {
            return vec![Self::User];
        }
        let mut ways = vec![Self::RootWithoutCgroups, Self::User];
        if need::has_cgroups() {
            ways.insert(0, Self::Root);
        }
        assert!(
            ways.len() == 3 || std::env::var_os("CI").is_none(),
            "CI must have control groups"
        );
        ways
    }

    pub fn has_cgroups(self) -> bool {
        match self {
            Self::Root => true,
            Self::RootWithoutCgroups | Self::User => false,
        }
    }

    /// `cgroup1`, `cgroup2`, or what the record must say where there is none.
    pub fn group_or(self, otherwise: &'static str) -> &'static str {
        if !self.has_cgroups() {
            otherwise
        } else if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            "cgroup2"
        } else {
            "cgroup1"
        }
    }
}
