//! A request as it travels and as it is kept: with its limits said and its files in it, so that whoever carries it out does what was asked here and nothing of his own.

use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, CpuShare};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asked_limits::LimitsRequest;
use crate::submission::{HandlerWish, RunRequest};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Errand {
    Run(Box<RunErrand>),
    /// A sealed payload, which says everything itself.
    Payload(Value),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunErrand {
    request: RunRequest,
    handler: HandlerWish,
}

impl Errand {
    /// Whatever was left to defaults is said: they may differ elsewhere.
    pub(crate) fn of_run(mut request: RunRequest, limits: &Limits) -> Self {
        let handler = request.handler;
        request.limits = said(limits);
        // Whoever was to be told is told from here.
        request.callback_url = None;
        Self::Run(Box::new(RunErrand { request, handler }))
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What is sent of a request.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) text: String,
    /// What a worker must have for it: a language, `command` or `project`.
    pub(crate) language: String,
}

impl Sent {
    pub(crate) fn of(request: RunRequest, limits: &Limits) -> Self {
        let language = match (&request.project, &request.language) {
            (Some(_), _) => "project".to_owned(),
            (None, Some(language)) => language.to_lowercase(),
            (None, None) => "command".to_owned(),
        };
        Self {
            text: Errand::of_run(request, limits).text(),
            language,
        }
    }
}

impl RunErrand {
    pub(crate) fn into_request(self) -> RunRequest {
        RunRequest {
            handler: self.handler,
            ..self.request
        }
    }
}

fn said(limits: &Limits) -> LimitsRequest {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    LimitsRequest {
        wall_time_ms: limits.wall_time.at_most().map(ms),
        cpu_time_ms: limits.cpu_time.at_most().map(ms),
        memory_bytes: limits.memory.at_most().map(Bytes::get),
        output_bytes: limits.output.at_most().map(Bytes::get),
        processes: limits.processes.at_most(),
        disk_bytes: limits.disk.at_most().map(Bytes::get),
        open_files: limits.open_files.at_most(),
        cpus_milli: limits.cpus.at_most().map(CpuShare::milli),
    }
}
