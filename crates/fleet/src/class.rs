//! What a payload needs of a worker, as part of a subject: the backend, the language, GPUs and the class of memory. And what a worker has.

use cofferdam_contract::request::{BackendName, Gpus};
use cofferdam_contract::seal::Sealed;
use cofferdam_contract::task::Task;
use serde::{Deserialize, Serialize};

/// What a payload needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    pub backend: String,
    /// `command`, `wasm` and `project` for what is not source code.
    pub language: String,
    pub gpu: Gpu,
    /// In MiB, a power of two.
    pub memory_mb: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gpu {
    None,
    Needed,
}

/// What a worker has: what `doctor` found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    pub backends: Vec<String>,
    pub languages: Vec<String>,
    pub gpus: u32,
    pub memory_mb: u64,
    /// Limits that a run here is held to.
    pub limits: Vec<String>,
}

const LEAST_MB: u64 = 64;

impl Class {
    pub fn of(sealed: &Sealed, backend: BackendName) -> Self {
        let payload = sealed.payload();
        let language = match &payload.task {
            Task::Command(_) => "command".to_owned(),
            Task::Source(source) => source.language.to_lowercase(),
            Task::Wasm(_) => "wasm".to_owned(),
            Task::Project(_) => "project".to_owned(),
        };
        let memory = payload.limits.memory.at_most();
        let mb = memory.map_or(LEAST_MB, |bytes| bytes.get().div_ceil(1 << 20));
        Self {
            backend: backend.as_str().to_owned(),
            language,
            gpu: match payload.gpus {
                Gpus::None => Gpu::None,
                Gpus::All | Gpus::Numbered(_) => Gpu::Needed,
            },
            memory_mb: mb
                .max(LEAST_MB)
                .checked_next_power_of_two()
                .unwrap_or(u64::MAX),
        }
    }

    /// Four tokens of a subject.
    pub fn subject(&self) -> String {
        let gpu = match self.gpu {
            Gpu::None => "cpu",
            Gpu::Needed => "gpu",
        };
        let token = crate::names::token;
        format!(
            "{}.{}.{gpu}.m{}",
            token(&self.backend),
            token(&self.language),
            self.memory_mb
        )
    }

    pub fn read(subject: &str) -> Option<Self> {
        let parts: Vec<&str> = subject.split('.').collect();
        let [backend, language, gpu, memory] = parts.as_slice() else {
            return None;
        };
        Some(Self {
            backend: crate::names::untoken(backend)?,
            language: crate::names::untoken(language)?,
            gpu: match *gpu {
                "cpu" => Gpu::None,
                "gpu" => Gpu::Needed,
                _ => return None,
            },
            memory_mb: memory.strip_prefix('m')?.parse().ok()?,
        })
    }
}

impl Capabilities {
    /// Everything that is missing for work of this class; nothing when it can be taken.
    pub fn lacks(&self, class: &Class) -> Vec<String> {
        let mut lacks = Vec::new();
        if !self.backends.contains(&class.backend) {
            lacks.push(format!("backend {}", class.backend));
        }
        let is_known = matches!(class.language.as_str(), "command" | "wasm" | "project")
            || self.languages.contains(&class.language);
        if !is_known {
            lacks.push(format!("language {}", class.language));
        }
        if class.gpu == Gpu::Needed && self.gpus == 0 {
            lacks.push("a GPU".to_owned());
        }
        // The class rounds up; what is asked for is more than half of it.
        if class.memory_mb / 2 >= self.memory_mb {
            lacks.push(format!("{} MB of memory", class.memory_mb));
        }
        lacks
    }

    pub fn can_take(&self, class: &Class) -> bool {
        self.lacks(class).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(subject: &str) -> Class {
        Class::read(subject).unwrap()
    }

    #[test]
    fn a_class_is_read_back_from_its_subject_and_nothing_else_is_one() {
        for subject in [
            "native.python.cpu.m512",
            "wasm.wasm.cpu.m64",
            "native.c=2B=2B.gpu.m1024",
        ] {
            assert_eq!(class(subject).subject(), subject);
        }
        for bad in [
            "",
            "native.python.cpu",
            "native.python.tpu.m512",
            "a.b.cpu.512",
            "a.b.cpu.m5.x",
        ] {
            assert_eq!(Class::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_worker_takes_only_what_it_has() {
        let has = Capabilities {
            backends: vec!["native".into()],
            languages: vec!["python".into()],
            gpus: 0,
            memory_mb: 700,
            limits: Vec::new(),
        };
        assert!(has.can_take(&class("native.python.cpu.m512")));
        assert!(
            has.can_take(&class("native.command.cpu.m1024")),
            "more than half of it may be 600"
        );
        for (subject, lacks) in [
            ("wasm.wasm.cpu.m64", "backend wasm"),
            ("native.ruby.cpu.m64", "language ruby"),
            ("native.command.gpu.m64", "a GPU"),
            ("native.command.cpu.m2048", "2048 MB of memory"),
        ] {
            assert_eq!(has.lacks(&class(subject)), [lacks]);
        }
    }
}
