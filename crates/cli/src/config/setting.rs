//! What a setting is: a value and where it came from. Holds the layers that are laid over each other and the merged result; it reads
//! nothing and parses nothing.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::io_rates::IoRates;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::Mode;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::{Bytes, Cap, CpuShare};

use super::docker::{DockerFlags, DockerSettings};
use super::history::HistorySettings;
use super::serve::ServeSettings;
use super::spelling;

/// A value and who set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        line: Option<u64>,
    },
    Env {
        name: &'static str,
    },
    Flag {
        name: &'static str,
    },
    /// Nobody else has said, and the mode wants it so.
    Mode {
        mode: Mode,
    },
}

/// What one source says; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) mode: Option<Setting<Mode>>,
    pub(crate) backend: Option<Setting<BackendName>>,
    pub(crate) wall_time: Option<Setting<Cap<Duration>>>,
    pub(crate) cpu_time: Option<Setting<Cap<Duration>>>,
    pub(crate) memory: Option<Setting<Cap<Bytes>>>,
    pub(crate) output: Option<Setting<Cap<Bytes>>>,
    pub(crate) processes: Option<Setting<Cap<u64>>>,
    pub(crate) disk: Option<Setting<Cap<Bytes>>>,
    pub(crate) open_files: Option<Setting<Cap<u64>>>,
    pub(crate) cpus: Option<Setting<Cap<CpuShare>>>,
    pub(crate) disk_io: Option<Setting<Cap<IoRates>>>,
}

impl Layer {
    /// Reads the text of one limit.
    pub(crate) fn set(
        &mut self,
        limit: LimitName,
        text: &str,
        origin: Origin,
    ) -> Result<(), String> {
        match limit {
            LimitName::WallTime => {
                self.wall_time = Some(Setting {
                    value: spelling::duration(text)?,
                    origin,
                })
            }
            LimitName::CpuTime => {
                self.cpu_time = Some(Setting {
                    value: spelling::duration(text)?,
                    origin,
                })
            }
            LimitName::Memory => {
                self.memory = Some(Setting {
                    value: spelling::bytes(text)?,
                    origin,
                })
            }
            LimitName::Output => {
                self.output = Some(Setting {
                    value: spelling::bytes(text)?,
                    origin,
                })
            }
            LimitName::Processes => {
                self.processes = Some(Setting {
                    value: spelling::count(text)?,
                    origin,
                })
            }
            LimitName::Disk => {
                self.disk = Some(Setting {
                    value: spelling::bytes(text)?,
                    origin,
                })
            }
            LimitName::OpenFiles => {
                self.open_files = Some(Setting {
                    value: spelling::count(text)?,
                    origin,
                })
            }
            LimitName::Cpus => {
                self.cpus = Some(Setting {
                    value: spelling::cpus(text)?,
                    origin,
                })
            }
            LimitName::DiskIo => {
                self.disk_io = Some(Setting {
                    value: spelling::io_rates(text)?,
                    origin,
                })
            }
        }
        Ok(())
    }
}

/// The flags of the command line that set something; the command line has parsed them already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) mode: Option<Mode>,
    pub(crate) backend: Option<BackendName>,
    pub(crate) wall_time: Option<Cap<Duration>>,
    pub(crate) cpu_time: Option<Cap<Duration>>,
    pub(crate) memory: Option<Cap<Bytes>>,
    pub(crate) output: Option<Cap<Bytes>>,
    pub(crate) processes: Option<Cap<u64>>,
    pub(crate) disk: Option<Cap<Bytes>>,
    pub(crate) open_files: Option<Cap<u64>>,
    pub(crate) cpus: Option<Cap<CpuShare>>,
    pub(crate) disk_io: Option<(&'static str, IoRates)>,
    pub(crate) docker: DockerFlags,
}

/// The result of laying all sources over each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merged {
    /// What is above all the rest; none where nobody named one.
    pub(crate) mode: Setting<Option<Mode>>,
    pub(crate) backend: Setting<BackendName>,
    pub(crate) wall_time: Setting<Cap<Duration>>,
    pub(crate) cpu_time: Setting<Cap<Duration>>,
    pub(crate) memory: Setting<Cap<Bytes>>,
    pub(crate) output: Setting<Cap<Bytes>>,
    pub(crate) processes: Setting<Cap<u64>>,
    pub(crate) disk: Setting<Cap<Bytes>>,
    pub(crate) open_files: Setting<Cap<u64>>,
    pub(crate) cpus: Setting<Cap<CpuShare>>,
    pub(crate) disk_io: Setting<Cap<IoRates>>,
    pub(crate) history: HistorySettings,
    pub(crate) serve: ServeSettings,
    pub(crate) docker: DockerSettings,
}

/// The names of one limit in the three places that can set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) yaml: &'static str,
    pub(crate) env: &'static str,
    pub(crate) flag: &'static str,
}

pub(crate) const BACKEND: Names = Names {
    yaml: "default_runtime",
    env: "COFFERDAM_BACKEND",
    flag: "--backend",
};

pub(crate) const MODE: Names = Names {
    yaml: "mode",
    env: "COFFERDAM_MODE",
    flag: "--mode",
};

pub(crate) const fn names(limit: LimitName) -> Names {
    match limit {
        LimitName::WallTime => Names {
            yaml: "timeout",
            env: "COFFERDAM_TIMEOUT",
            flag: "--timeout",
        },
        LimitName::CpuTime => Names {
            yaml: "cpu_time",
            env: "COFFERDAM_CPU_TIME",
            flag: "--cpu-time",
        },
        LimitName::Memory => Names {
            yaml: "memory",
            env: "COFFERDAM_MEMORY",
            flag: "--memory",
        },
        LimitName::Output => Names {
            yaml: "output",
            env: "COFFERDAM_OUTPUT_LIMIT",
            flag: "--output-limit",
        },
        LimitName::Processes => Names {
            yaml: "processes",
            env: "COFFERDAM_PIDS",
            flag: "--pids",
        },
        LimitName::Disk => Names {
            yaml: "disk",
            env: "COFFERDAM_DISK",
            flag: "--disk",
        },
        LimitName::OpenFiles => Names {
            yaml: "open_files",
            env: "COFFERDAM_OPEN_FILES",
            flag: "--open-files",
        },
        LimitName::Cpus => Names {
            yaml: "cpus",
            env: "COFFERDAM_CPUS",
            flag: "--cpus",
        },
        LimitName::DiskIo => Names {
            yaml: "disk_io",
            env: "COFFERDAM_DISK_IO",
            flag: "--io-read-bps",
        },
    }
}

impl Merged {
    /// The built-in values, before any source has spoken.
    pub(crate) fn built_in(limits: Limits) -> Self {
        Self {
            mode: Setting::built_in(None),
            backend: Setting::built_in(BackendName::Native),
            wall_time: Setting::built_in(limits.wall_time),
            cpu_time: Setting::built_in(limits.cpu_time),
            memory: Setting::built_in(limits.memory),
            output: Setting::built_in(limits.output),
            processes: Setting::built_in(limits.processes),
            disk: Setting::built_in(limits.disk),
            open_files: Setting::built_in(limits.open_files),
            cpus: Setting::built_in(limits.cpus),
            disk_io: Setting::built_in(limits.disk_io),
            history: HistorySettings::built_in(),
            serve: ServeSettings::default(),
            docker: DockerSettings::default(),
        }
    }

    /// Lays the limits of a later source over this. The backend is not touched: it is chosen first, because it decides which
    /// sections of a file count.
    pub(crate) fn overlay_limits(&mut self, later: Layer) {
        self.wall_time.replace(later.wall_time);
        self.cpu_time.replace(later.cpu_time);
        self.memory.replace(later.memory);
        self.output.replace(later.output);
        self.processes.replace(later.processes);
        self.disk.replace(later.disk);
        self.open_files.replace(later.open_files);
        self.cpus.replace(later.cpus);
        // Each rate for itself: a later source that says one leaves the others.
        let disk_io = later
            .disk_io
            .map(|later| match (later.value, self.disk_io.value) {
                (Cap::AtMost(above), Cap::AtMost(below)) => Setting {
                    value: Cap::AtMost(above.over(below)),
                    ..later
                },
                _ => later,
            });
        self.disk_io.replace(disk_io);
    }

    /// The values alone, as a request takes them.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            wall_time: self.wall_time.value,
            cpu_time: self.cpu_time.value,
            memory: self.memory.value,
            output: self.output.value,
            processes: self.processes.value,
            disk: self.disk.value,
            open_files: self.open_files.value,
            cpus: self.cpus.value,
            disk_io: self.disk_io.value,
        }
    }
}

impl From<Flags> for Layer {
    fn from(flags: Flags) -> Self {
        Self {
            mode: from_flag(flags.mode, MODE),
            backend: from_flag(flags.backend, BACKEND),
            wall_time: from_flag(flags.wall_time, names(LimitName::WallTime)),
            cpu_time: from_flag(flags.cpu_time, names(LimitName::CpuTime)),
            memory: from_flag(flags.memory, names(LimitName::Memory)),
            output: from_flag(flags.output, names(LimitName::Output)),
            processes: from_flag(flags.processes, names(LimitName::Processes)),
            disk: from_flag(flags.disk, names(LimitName::Disk)),
            open_files: from_flag(flags.open_files, names(LimitName::OpenFiles)),
            cpus: from_flag(flags.cpus, names(LimitName::Cpus)),
            disk_io: flags.disk_io.map(|(name, rates)| Setting {
                value: Cap::AtMost(rates),
                origin: Origin::Flag { name },
            }),
        }
    }
}

impl<T> Setting<T> {
    pub(crate) fn built_in(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    pub(crate) fn say(&mut self, value: T, origin: Origin) {
        *self = Self { value, origin };
    }

    fn replace(&mut self, later: Option<Self>) {
        if let Some(later) = later {
            *self = later;
        }
    }
}

fn from_flag<T>(value: Option<T>, names: Names) -> Option<Setting<T>> {
    value.map(|value| Setting {
        value,
        origin: Origin::Flag { name: names.flag },
    })
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Env { name } => write!(f, "environment {name}"),
            Self::Flag { name } => write!(f, "flag {name}"),
            Self::Mode { mode } => write!(f, "mode {mode}"),
        }
    }
}
