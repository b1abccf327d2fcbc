//! A request as it travels and as it is kept: with its limits said and its files in it, so that whoever carries it out does what was asked here and nothing of his own.

use cofferdam_contract::limits::Limits;
use cofferdam_contract::network::Network;
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
    /// What compiling has at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compile: Option<LimitsRequest>,
}

/// What the door that sends it on gives it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) network: &'a Network,
    /// Of the step before the run, where there is one.
    pub(crate) compile: Option<&'a Limits>,
}

impl Errand {
    /// Whatever was left to defaults, or is less than was asked for, is said: it may differ elsewhere.
    pub(crate) fn of_run(mut request: RunRequest, given: Given<'_>) -> Self {
        let handler = request.handler;
        request.limits = said(given.limits);
        request.network = match given.network {
            Network::Denied => None,
            // Its hosts, spelled out; which addresses and ways lead to them only the worker knows.
            allowed @ Network::Allowed(_) => Some(allowed.to_string()),
        };
        // Whoever was to be told is told from here.
        request.callback_url = None;
        let compile = given.compile.map(said);
        Self::Run(Box::new(RunErrand {
            request,
            handler,
            compile,
        }))
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
    pub(crate) fn of(request: RunRequest, given: Given<'_>) -> Self {
        let language = match (&request.project, &request.language) {
            (Some(_), _) => "project".to_owned(),
            (None, Some(language)) => language.to_lowercase(),
            (None, None) => "command".to_owned(),
        };
        Self {
            text: Errand::of_run(request, given).text(),
            language,
        }
    }
}

impl RunErrand {
    pub(crate) fn into_request(self) -> RunRequest {
        RunRequest {
            handler: self.handler,
            compile: self.compile,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceilings::Ceilings;
    use crate::config::{Carrier, RunBounds};
    use crate::language::Languages;
    use crate::submission::Submission;
    use cofferdam_contract::units::Cap;
    use cofferdam_engine::host::Host;
    use serde_json::json;

    fn checked(request: RunRequest, bounds: &RunBounds) -> Submission {
        let languages = Languages::new(&[]).unwrap();
        request.check(bounds, &languages, &Host::detect()).unwrap()
    }

    /// What a worker that gives everything makes of what a front door sends.
    fn at_the_worker(request: Value, door: &RunBounds) -> Submission {
        let request = serde_json::from_value(request).unwrap();
        let sent = checked(request, door).work.errand.unwrap();
        let Ok(Errand::Run(errand)) = serde_json::from_str(&sent.text) else {
            panic!("{}", sent.text);
        };
        let wide = RunBounds {
            network: Network::full(),
            ..RunBounds::default()
        };
        checked(errand.into_request(), &wide)
    }

    #[test]
    fn a_worker_gives_no_more_network_than_the_front_door_that_sent_the_run() {
        let door = |network: &str| RunBounds {
            carrier: Carrier::Fleet,
            network: network.parse().unwrap(),
            ..RunBounds::default()
        };
        let given = |asked: &str, most: &str| {
            let request = json!({"command": ["true"], "network": asked});
            at_the_worker(request, &door(most)).work.network.to_string()
        };
        assert_eq!(
            given("full", "allow=example.org:443"),
            "allow=example.org:443"
        );
        assert_eq!(
            given("allow=example.org:443", "full"),
            "allow=example.org:443"
        );
        assert_eq!(given("full", "full"), "full");
        assert_eq!(given("none", "full"), "none");
    }

    #[test]
    fn compiling_at_a_worker_has_no_more_than_at_the_front_door() {
        let door = RunBounds {
            carrier: Carrier::Fleet,
            ceilings: Ceilings {
                processes: 7,
                ..Ceilings::default()
            },
            ..RunBounds::default()
        };
        let request = json!({"language": "c", "code": "int main(void) { return 0; }"});
        let work = at_the_worker(request, &door).work;
        assert_eq!(work.limits.processes, Cap::AtMost(7));
        let step = work.task.compile_limits().unwrap();
        assert_eq!(step.processes, Cap::AtMost(7));
    }
}
