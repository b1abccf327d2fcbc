//! Inputs as they are sent, and what they come to. Nothing is run before all of them have been checked.

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::{Problem, Problems};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{InputTask, Inputs};
use crate::config::RunBounds;
use crate::language::PlannedInput;
use crate::submission::{LimitsRequest, one_of};

/// One input of a program that is compiled once.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputRequest {
    /// Text for standard input.
    pub(crate) stdin: Option<String>,
    /// Bytes for standard input, in base64.
    pub(crate) stdin_base64: Option<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// What the handler is called with. Either every input has one, or none.
    pub(crate) event: Option<Value>,
    /// Limits that differ from those of the request.
    #[serde(default)]
    pub(crate) limits: LimitsRequest,
}

/// What the inputs are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base<'a> {
    /// Of the request, for inputs that have none of their own.
    pub(crate) limits: &'a Limits,
    pub(crate) bounds: &'a RunBounds,
}

/// More of them are another request.
const MAX_INPUTS: usize = 1000;

impl InputRequest {
    /// What is wrong with the inputs as a whole.
    pub(crate) fn problems(inputs: &[Self], bounds: &RunBounds) -> Vec<Problem> {
        let mut found = Vec::new();
        if inputs.is_empty() || inputs.len() > MAX_INPUTS {
            let fix = format!("send 1 to {MAX_INPUTS}");
            found.push(Problem::new("inputs", inputs.len(), fix));
            return found;
        }
        let with_event = inputs.iter().filter(|input| input.event.is_some()).count();
        if with_event != 0 && with_event != inputs.len() {
            let fix = "some have an event and some have none; give one to every input or to none";
            found.push(Problem::new("inputs", with_event, fix));
        }
        for (index, input) in inputs.iter().enumerate() {
            let mut of_one = Vec::new();
            input.stdin(&mut of_one);
            input.limits.merged(&bounds.defaults, bounds, &mut of_one);
            found.extend(of_one.into_iter().map(|problem| placed(index, problem)));
        }
        found
    }

    pub(crate) fn stdin(&self, problems: &mut Vec<Problem>) -> Vec<u8> {
        one_of(
            ("stdin", self.stdin.as_deref()),
            ("stdin_base64", self.stdin_base64.as_deref()),
            problems,
        )
        .unwrap_or_default()
    }
}

/// The inputs with their limits. Their output together is no more than one run's may be.
pub(crate) fn check(
    requests: &[InputRequest],
    planned: Vec<PlannedInput>,
    base: Base<'_>,
) -> Result<Inputs, Problems> {
    let mut problems = Vec::new();
    let mut each = Vec::new();
    for (index, (request, planned)) in requests.iter().zip(planned).enumerate() {
        let mut of_one = Vec::new();
        let limits = request.limits.merged(base.limits, base.bounds, &mut of_one);
        problems.extend(of_one.into_iter().map(|problem| placed(index, problem)));
        each.push(InputTask {
            argv: planned.argv,
            stdin: planned.stdin,
            event: planned.event,
            limits,
        });
    }
    Problems::check(problems)?;
    Ok(Inputs {
        each,
        output: base.bounds.largest_output,
    })
}

fn placed(index: usize, problem: Problem) -> Problem {
    Problem {
        field: format!("inputs[{index}].{}", problem.field),
        ..problem
    }
}
