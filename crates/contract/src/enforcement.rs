//! Which limit was enforced by what. A limit that was asked for and is not enforced is either refused or waived, and says so.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a limit, as flags, records and waivers spell it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    WallTime,
    CpuTime,
    Memory,
    Output,
    Processes,
    Disk,
    OpenFiles,
    Cpus,
    DiskIo,
}

/// One mechanism that holds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enforcer {
    /// The supervisor's own clock or byte counter.
    Supervisor,
    Cgroup1,
    Cgroup2,
    /// A kernel resource limit, inherited by every descendant.
    Rlimit,
    /// The size of the private scratch file system.
    Tmpfs,
    /// The supervisor looks at the process tree or the directory again and again: it can be overshot between two looks.
    Poll,
    /// CPU affinity that the program cannot widen.
    Affinity,
    /// Instructions of a WebAssembly program, counted by the code itself.
    WasmFuel,
    /// The clock that interrupts a WebAssembly program: it can be overshot by a few milliseconds.
    WasmEpoch,
    /// Every growth of a WebAssembly program's memories and tables is asked for.
    WasmMemory,
    /// What a WebAssembly program has open is counted in the table that holds it.
    WasmTable,
    /// A WebAssembly program has no means to pass this limit.
    WasmAbsent,
    /// Control groups of version 1 hold what is written past the page cache, and all reads; what the kernel writes back later is nobody's.
    Cgroup1Direct,
    /// The container daemon, which has the kernel hold it.
    Docker,
    /// Asked for, not enforceable here, and the caller said that this is all right.
    Waived,
    /// The caller asked for no limit.
    Unlimited,
}

/// Everything that holds one limit: `tmpfs+poll`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnforcedBy(pub Vec<Enforcer>);

/// Per limit, what enforced it.
pub type Enforcement = BTreeMap<LimitName, EnforcedBy>;

/// A name that is no limit's or no enforcer's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    #[error(
        "`{text}` is not a limit; write wall_time, cpu_time, memory, output, processes, disk, open_files, cpus or disk_io"
    )]
    Limit { text: String },
    #[error(
        "`{text}` does not say what enforced a limit; write names such as `cgroup2` or `tmpfs+poll`"
    )]
    Enforcer { text: String },
}

impl Enforcer {
    pub const ALL: [Self; 16] = [
        Self::Supervisor,
        Self::Cgroup1,
        Self::Cgroup2,
        Self::Rlimit,
        Self::Tmpfs,
        Self::Poll,
        Self::Affinity,
        Self::WasmFuel,
        Self::WasmEpoch,
        Self::WasmMemory,
        Self::WasmTable,
        Self::WasmAbsent,
        Self::Cgroup1Direct,
        Self::Docker,
        Self::Waived,
        Self::Unlimited,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Cgroup1 => "cgroup1",
            Self::Cgroup2 => "cgroup2",
            Self::Rlimit => "rlimit",
            Self::Tmpfs => "tmpfs",
            Self::Poll => "poll",
            Self::Affinity => "affinity",
            Self::WasmFuel => "wasm-fuel",
            Self::WasmEpoch => "wasm-epoch",
            Self::WasmMemory => "wasm-memory",
            Self::WasmTable => "wasm-table",
            Self::WasmAbsent => "wasm-absent",
            Self::Cgroup1Direct => "cgroup1-direct",
            Self::Docker => "docker",
            Self::Waived => "waived",
            Self::Unlimited => "unlimited",
        }
    }
}

impl LimitName {
    pub const ALL: [Self; 9] = [
        Self::WallTime,
        Self::CpuTime,
        Self::Memory,
        Self::Output,
        Self::Processes,
        Self::Disk,
        Self::OpenFiles,
        Self::Cpus,
        Self::DiskIo,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WallTime => "wall_time",
            Self::CpuTime => "cpu_time",
            Self::Memory => "memory",
            Self::Output => "output",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::OpenFiles => "open_files",
            Self::Cpus => "cpus",
            Self::DiskIo => "disk_io",
        }
    }
}

impl fmt::Display for EnforcedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, enforcer) in self.0.iter().enumerate() {
            let plus = if i == 0 { "" } else { "+" };
            write!(f, "{plus}{}", enforcer.as_str())?;
        }
        Ok(())
    }
}

impl Serialize for EnforcedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LimitName {
    type Err = UnknownName;

    /// Dashes and underscores are the same: flags write `wall-time`, records `wall_time`.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let name = text.replace('-', "_");
        let unknown = || UnknownName::Limit {
            text: crate::problem::shorten(text),
        };
        Self::ALL
            .into_iter()
            .find(|limit| limit.as_str() == name)
            .ok_or_else(unknown)
    }
}

impl FromStr for EnforcedBy {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let unknown = || UnknownName::Enforcer {
            text: crate::problem::shorten(text),
        };
        let find = |name: &str| Enforcer::ALL.into_iter().find(|e| e.as_str() == name);
        text.split('+')
            .map(find)
            .collect::<Option<_>>()
            .map(Self)
            .ok_or_else(unknown)
    }
}

impl<'de> Deserialize<'de> for EnforcedBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for EnforcedBy {
    fn schema_name() -> Cow<'static, str> {
        "EnforcedBy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let name = Enforcer::ALL.map(Enforcer::as_str).join("|");
        json_schema!({
            "description": "Everything that holds one limit, joined by `+`: `tmpfs+poll`.",
            "type": "string",
            "pattern": format!("^({name})(\\+({name}))*$"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_names_read_back_and_serialize_as_they_are_spelled() {
        for limit in LimitName::ALL {
            assert_eq!(limit.as_str().parse(), Ok(limit));
            assert_eq!(limit.as_str().replace('_', "-").parse(), Ok(limit));
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.as_str());
        }
        for text in ["", "Memory", "ram", "cpu"] {
            let unknown = UnknownName::Limit { text: text.into() };
            assert_eq!(text.parse::<LimitName>(), Err(unknown));
        }
    }

    #[test]
    fn enforcers_read_back() {
        for enforcer in Enforcer::ALL {
            assert_eq!(enforcer.as_str().parse(), Ok(EnforcedBy(vec![enforcer])));
        }
        let both = EnforcedBy(vec![Enforcer::Tmpfs, Enforcer::Poll]);
        assert_eq!(both.to_string(), "tmpfs+poll");
        assert_eq!("tmpfs+poll".parse(), Ok(both));
        for text in ["", "+", "tmpfs+", "magic"] {
            let unknown = UnknownName::Enforcer { text: text.into() };
            assert_eq!(text.parse::<EnforcedBy>(), Err(unknown));
        }
    }
}
