//! What the sandbox refused, as the record lists it: calls that the filter turned away, and attempts to leave the network.

use std::collections::BTreeMap;

use cofferdam_contract::record::{Denial, DenialKind};
use cofferdam_sys::seccomp;

/// Calls that would have changed what the file system is, rather than what is in it.
const FILE_SYSTEM_CALLS: [&str; 15] = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "open_tree_attr",
    "move_mount",
    "fsopen",
    "fsmount",
    "fsconfig",
    "fspick",
    "mount_setattr",
    "open_by_handle_at",
    "mknod",
    "mknodat",
];

/// `refused` counts refused calls by number; `without_route` attempts to reach an address that no route leads to.
pub(crate) fn list(refused: &BTreeMap<u32, u64>, without_route: u64) -> Vec<Denial> {
    let calls = refused.iter().map(|(&number, &count)| {
        let what =
            seccomp::name_of(number).map_or_else(|| format!("system call {number}"), str::to_owned);
        let kind = match what.as_str() {
            "socket" | "socketpair" => DenialKind::Network,
            call if FILE_SYSTEM_CALLS.contains(&call) => DenialKind::Filesystem,
            _ => DenialKind::Syscall,
        };
        Denial { kind, what, count }
    });
    let unreachable = (without_route > 0).then(|| Denial {
        kind: DenialKind::Network,
        what: "an address outside the sandbox".to_owned(),
        count: without_route,
    });
    calls.chain(unreachable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_and_sorted_into_kinds() {
        let listed = list(&BTreeMap::from([(165, 2), (41, 1), (101, 3)]), 4);
        let kinds: Vec<_> = listed
            .iter()
            .map(|denial| (denial.kind, denial.what.as_str(), denial.count))
            .collect();
        assert_eq!(
            kinds,
            [
                (DenialKind::Network, "socket", 1),
                (DenialKind::Syscall, "ptrace", 3),
                (DenialKind::Filesystem, "mount", 2),
                (DenialKind::Network, "an address outside the sandbox", 4),
            ]
        );
    }
}
