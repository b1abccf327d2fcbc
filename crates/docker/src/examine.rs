//! What the doctor wants to know of a daemon: whether it answers, and what it can hold.

use std::time::Duration;

use cofferdam_engine::error::EngineError;

use crate::course::on_this_thread;
use crate::daemon;
use crate::settings::Settings;

/// A daemon that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    pub version: String,
    pub default_runtime: String,
    /// All that it knows, sorted.
    pub runtimes: Vec<String>,
    pub images: u64,
    /// What it lacks to hold every limit and wall, in words; empty when nothing.
    pub lacks: Vec<String>,
}

/// A person waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the daemon, and waits a few seconds at most.
pub fn examine(settings: &Settings) -> Result<Examined, EngineError> {
    let settings = Settings {
        patience: settings.patience.min(PATIENCE),
        ..settings.clone()
    };
    on_this_thread(async {
        let client = daemon::connect(&settings).await?.client;
        let info = client.info().await;
        let info = info.map_err(daemon::refused("ask the daemon about itself"))?;
        let runtimes = info.runtimes.unwrap_or_default();
        let mut runtimes: Vec<String> = runtimes.into_keys().collect();
        runtimes.sort();
        let held = [
            (info.memory_limit, "memory limits"),
            (info.swap_limit, "limits on swap"),
            (info.pids_limit, "limits on processes"),
            (info.cpu_cfs_quota, "shares of CPUs"),
        ];
        let mut lacks: Vec<String> = held
            .into_iter()
            .filter(|(has, _)| *has == Some(false))
            .map(|(_, what)| what.to_owned())
            .collect();
        let security = info.security_options.unwrap_or_default();
        let is_filtered =
            |option: &String| option.contains("seccomp") && !option.contains("unconfined");
        if !security.iter().any(is_filtered) {
            lacks.push("a filter of system calls".to_owned());
        }
        if let Some(wanted) = &settings.runtime
            && !runtimes.contains(wanted)
        {
            lacks.push(format!("the runtime {wanted}"));
        }
        Ok(Examined {
            version: info.server_version.unwrap_or_default(),
            default_runtime: info.default_runtime.unwrap_or_default(),
            runtimes,
            images: info.images.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            lacks,
        })
    })?
}
