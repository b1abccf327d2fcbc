//! Who started a container, as a label: enough to tell, from another process and after a crash, whether that one is still there.

use std::fs;

use rustix::io::Errno;
use rustix::process::Pid;

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
        let born = match life(pid) {
            Life::Since(born) => born,
            Life::Over | Life::Hidden => 0,
        };
        Self {
            machine: read("/etc/machine-id"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace(),
            pid,
            born,
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
            return match self.is_of_the_machine_of(here) {
                true => Presence::Gone,
                false => Presence::MayBeThere,
            };
        }
        if self.namespace != here.namespace {
            return Presence::MayBeThere;
        }
        match life(self.pid) {
            Life::Since(born) if born != self.born => Presence::Gone,
            Life::Over => Presence::Gone,
            Life::Since(_) | Life::Hidden => Presence::MayBeThere,
        }
    }

    /// Whether both have the same clock.
    pub(crate) fn is_of_the_machine_of(&self, here: &Self) -> bool {
        let is_same = |one: &str, other: &str| !one.is_empty() && one == other;
        is_same(&self.boot, &here.boot) || is_same(&self.machine, &here.machine)
    }
}

/// What can be seen of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// In clock ticks since boot.
    Since(u64),
    Over,
    /// It has the number, and whose it is cannot be read.
    Hidden,
}

/// /proc may be mounted so that others' processes are not in it; signals still tell whether there is one.
fn life(pid: u32) -> Life {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        return from_stat(&stat).unwrap_or(Life::Hidden);
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(rustix::process::test_kill_process) {
        Some(Err(Errno::SRCH)) => Life::Over,
        Some(_) | None => Life::Hidden,
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
fn from_stat(stat: &str) -> Option<Life> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return Some(Life::Over);
    }
    Some(Life::Since(fields.nth(18)?.parse().ok()?))
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
        let Life::Since(born) = life(child.id()) else {
            panic!("it cannot be seen");
        };
        let owner = Owner {
            pid: child.id(),
            born,
            ..here.clone()
        };
        assert_eq!(owner.presence(&here), Presence::MayBeThere);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(owner.presence(&here), Presence::Gone);
    }

    /// Runs itself again as somebody else, who sees nobody's processes but their own.
    #[test]
    fn an_owner_that_hides_from_us_is_not_gone() {
        const LABEL: &str = "OWNER_THAT_HIDES";
        const ENDED: &str = "OWNER_THAT_ENDED";
        if let (Ok(hidden), Ok(ended)) = (std::env::var(LABEL), std::env::var(ENDED)) {
            let here = Owner::current();
            let [hidden, ended] = [hidden, ended].map(|label| Owner::from_label(&label).unwrap());
            assert!(!fs::exists(format!("/proc/{}", hidden.pid)).unwrap());
            assert_eq!(hidden.presence(&here), Presence::MayBeThere);
            assert_eq!(ended.presence(&here), Presence::Gone);
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return cofferdam_testkit::docker::skip::<()>("root").unwrap_or_default();
        }
        let here = Owner::current();
        // A number that no process can have: one that had ended could be another's by now.
        let ended = Owner {
            pid: 1 << 30,
            ..here.clone()
        };
        // Where anybody may execute it.
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), open).unwrap();
        let copy = dir.path().join("test");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let again = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
        let name = "owner::tests::an_owner_that_hides_from_us_is_not_gone";
        let output = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-ec", again, "sh"])
            .arg(&copy)
            .args(["--exact", name])
            .env(LABEL, here.to_label())
            .env(ENDED, ended.to_label())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{output:?}");
        assert!(said.contains("1 passed"), "{said}");
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
