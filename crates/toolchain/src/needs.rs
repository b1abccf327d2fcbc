//! What a language needs beyond the contract's defaults, to work at all. Raises defaults; never touches what a person asked for, and has
//! no word for address space: a limit on addresses breaks Node.js, Go and the JVM without bounding their memory.

use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, Cap};

/// Floors under the default limits, with the reason for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub wall_time: Option<Duration>,
    pub cpu_time: Option<Duration>,
    pub memory: Option<Bytes>,
    pub processes: Option<u64>,
    pub disk: Option<Bytes>,
    pub open_files: Option<u64>,
    /// Why; empty exactly when nothing is needed.
    pub why: String,
}

impl Needs {
    /// The defaults, with those raised that are below what is needed. What a person asked for is put on top of this by the caller.
    pub fn raise(&self, defaults: &Limits) -> Limits {
        Limits {
            wall_time: at_least(&defaults.wall_time, self.wall_time),
            cpu_time: at_least(&defaults.cpu_time, self.cpu_time),
            memory: at_least(&defaults.memory, self.memory),
            processes: at_least(&defaults.processes, self.processes),
            disk: at_least(&defaults.disk, self.disk),
            open_files: at_least(&defaults.open_files, self.open_files),
            output: defaults.output,
            cpus: defaults.cpus,
            disk_io: defaults.disk_io,
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        let bare = Self {
            why: self.why.clone(),
            ..Self::default()
        };
        *self == bare
    }

    /// The needs alone, for looking at their ranges.
    pub(crate) fn as_limits(&self) -> Limits {
        let cap = |bytes| match bytes {
            Some(bytes) => Cap::AtMost(bytes),
            None => Cap::Unlimited,
        };
        let number = |n: Option<u64>| n.map_or(Cap::Unlimited, Cap::AtMost);
        let time = |t: Option<Duration>| t.map_or(Cap::Unlimited, Cap::AtMost);
        Limits {
            wall_time: time(self.wall_time),
            cpu_time: time(self.cpu_time),
            memory: cap(self.memory),
            processes: number(self.processes),
            disk: cap(self.disk),
            open_files: number(self.open_files),
            output: Cap::Unlimited,
            cpus: Cap::Unlimited,
            disk_io: Cap::Unlimited,
        }
    }
}

fn at_least<T: Copy + Ord>(default: &Cap<T>, need: Option<T>) -> Cap<T> {
    match (*default, need) {
        (Cap::AtMost(default), Some(need)) => Cap::AtMost(default.max(need)),
        (unchanged, _) => unchanged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_raise_and_never_lower() {
        let needs = Needs {
            memory: Bytes::from_mib(1024),
            processes: Some(10),
            why: "a test".to_owned(),
            ..Needs::default()
        };
        let raised = needs.raise(&Limits::DEFAULT);
        let expected = Limits {
            memory: Cap::AtMost(Bytes::new(1 << 30)),
            ..Limits::DEFAULT
        };
        assert_eq!(raised, expected);
        let unlimited = Limits {
            memory: Cap::Unlimited,
            ..Limits::DEFAULT
        };
        assert_eq!(needs.raise(&unlimited).memory, Cap::Unlimited);
        assert!(!needs.is_none() && Needs::default().is_none());
    }
}
