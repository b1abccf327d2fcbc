//! Who started a container, as a label: enough to tell, from another process and after a crash, whether that one is still there.

use std::fs;

/// A process of a machine, for as long as both have been up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    machine: String,
    boot: String,
    /// The pid namespace in which `pid` means something.
    namespace: String,
    pid: u32,
    /// In clock ticks since boot: tells a process from a later one with its number.
    born: u64,
}

/// Whether an owner is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Gone,
    /// Or it cannot be told from here, which must count as the same.
    MayBeThere,
}

impl Owner {
    /// This process.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self {
            machine: read("/etc/machine-id"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace(),
            pid,
            born: born(pid).unwrap_or(0),
        }
    }

    pub(crate) fn to_label(&self) -> String {
        let Self {
            machine,
            boot,
            namespace,
            pid,
            born,
        } = self;
        format!("{machine}/{boot}/{namespace}/{pid}/{born}")
    }

    pub(crate) fn from_label(label: &str) -> Option<Self> {
        let mut parts = label.split('/').map(str::to_owned);
        Some(Self {
            machine: parts.next()?,
            boot: parts.next()?,
            namespace: parts.next()?,
            pid: parts.next()?.parse().ok()?,
            born: parts.next()?.parse().ok()?,
        })
    }

    /// Seen from the process `here`. A daemon may serve many machines, so what another one started is left to that one.
    pub(crate) fn presence(&self, here: &Self) -> Presence {
        if self.boot != here.boot {
            let is_same_machine = !self.machine.is_empty() && self.machine == here.machine;
            return match is_same_machine {
                true => Presence::Gone,
                false => Presence::MayBeThere,
            };
        }
        if self.namespace != here.namespace {
            return Presence::MayBeThere;
        }
        match born(self.pid) {
            Some(born) if born == self.born => Presence::MayBeThere,
            _ => Presence::Gone,
        }
    }
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().replace('/', "")
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |c: &char| c.is_ascii_digit();
    link.to_string_lossy().chars().filter(digits).collect()
}

/// The 22nd field of `stat`; the second, the name, may hold anything and ends at the last parenthesis.
fn born(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_there_until_its_process_is_gone() {
        let here = Owner::current();
        let read = Owner::from_label(&here.to_label()).unwrap();
        assert_eq!(read, here);
        assert_eq!(read.presence(&here), Presence::MayBeThere);

        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let owner = Owner {
            pid: child.id(),
            born: born(child.id()).unwrap(),
            ..here.clone()
        };
        assert_eq!(owner.presence(&here), Presence::MayBeThere);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(owner.presence(&here), Presence::Gone);
    }

    #[test]
    fn a_process_that_took_the_number_is_not_the_owner() {
        let here = Owner::current();
        let earlier = Owner {
            born: here.born - 1,
            ..here.clone()
        };
        assert_eq!(earlier.presence(&here), Presence::Gone);
    }

    #[test]
    fn what_another_machine_or_namespace_started_is_left_alone() {
        let here = Owner::current();
        let elsewhere = Owner {
            boot: "x".into(),
            machine: "y".into(),
            ..here.clone()
        };
        assert_eq!(elsewhere.presence(&here), Presence::MayBeThere);
        let nameless = Owner {
            boot: "x".into(),
            machine: String::new(),
            ..here.clone()
        };
        let here_too = Owner {
            machine: String::new(),
            ..here.clone()
        };
        assert_eq!(nameless.presence(&here_too), Presence::MayBeThere);
        let inside = Owner {
            namespace: "1".into(),
            pid: 1,
            ..here.clone()
        };
        assert_eq!(inside.presence(&here), Presence::MayBeThere);
        let before_a_reboot = Owner {
            boot: "x".into(),
            machine: "m".into(),
            ..here.clone()
        };
        let with_name = Owner {
            machine: "m".into(),
            ..here
        };
        assert_eq!(before_a_reboot.presence(&with_name), Presence::Gone);
    }

    #[test]
    fn labels_of_strangers_are_not_read() {
        for bad in ["", "a/b/c", "a/b/c/x/1", "a/b/c/1/x"] {
            assert_eq!(Owner::from_label(bad), None, "{bad}");
        }
    }
}
