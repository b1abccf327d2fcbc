//! The task of a payload: what is to be done, in one of four kinds. Whether a backend can do it is the backend's to say.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fields::Fields;
use crate::problem::Problem;
use crate::request::{BackendName, Request};
use crate::request_check;

/// What a payload asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// A program with its arguments.
    Command(CommandTask),
    /// Source code in a language that the worker knows how to run.
    Source(SourceTask),
    /// A WebAssembly module.
    Wasm(WasmTask),
    /// A step of the project in the workspace.
    Project(ProjectTask),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandTask {
    /// The program and its arguments; no shell reads them.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// Added to the clean environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Absolute, as the program sees it; the workspace or the home directory when absent.
    pub cwd: Option<String>,
    /// Text for the program to read; nothing when absent.
    pub stdin: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTask {
    #[schemars(length(min = 1, max = 64))]
    pub language: String,
    #[schemars(length(min = 1))]
    pub code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WasmTask {
    /// The module or component, in base64 with padding.
    #[schemars(length(min = 1))]
    pub module_base64: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// What the program reads, in base64 with padding; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_base64: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectTask {
    pub action: ProjectAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProjectAction {
    Build,
    Test,
    Run,
    Restore,
}

/// Source code longer than this belongs into the workspace.
pub const MAX_CODE_BYTES: usize = 1 << 20;

const WASM_MAGIC: &[u8] = b"\0asm";

impl Task {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Source(_) => "source",
            Self::Wasm(_) => "wasm",
            Self::Project(_) => "project",
        }
    }

    /// Reads the `task` object and returns every problem at once.
    pub(crate) fn read(map: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(map, "task.");
        let task = match fields.text("kind") {
            Some("command") => read_command(&mut fields).map(Self::Command),
            Some("source") => read_source(&mut fields).map(Self::Source),
            Some("wasm") => read_wasm(&mut fields).map(Self::Wasm),
            Some("project") => read_project(&mut fields).map(Self::Project),
            Some(other) => {
                fields.problem(
                    "kind",
                    other,
                    "is not a kind of task; write command, source, wasm or project",
                );
                // The other fields cannot be judged without knowing the kind.
                return Err(fields.finish().into_iter().take(1).collect());
            }
            None => return Err(fields.finish().into_iter().take(1).collect()),
        };
        match (task, fields.finish()) {
            (Some(task), found) if found.is_empty() => Ok(task),
            (_, found) => Err(found),
        }
    }
}

impl CommandTask {
    /// The command as a request that says nothing yet about where it runs.
    pub(crate) fn to_request(&self) -> Request {
        Request {
            env: self
                .env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: self.cwd.as_ref().map(Into::into),
            ..Request::command(&self.argv)
        }
    }
}

impl WasmTask {
    /// What a program finds as its own name.
    pub const PROGRAM: &'static str = "task.wasm";

    pub fn module(&self) -> Vec<u8> {
        decoded(&self.module_base64)
    }

    pub fn input(&self) -> Vec<u8> {
        self.input_base64
            .as_deref()
            .map(decoded)
            .unwrap_or_default()
    }

    /// The program as a request that says nothing yet about where it runs; its code goes beside it.
    pub(crate) fn to_request(&self) -> Request {
        let argv = std::iter::once(Self::PROGRAM).chain(self.args.iter().map(String::as_str));
        let command = CommandTask {
            argv: argv.map(str::to_owned).collect(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: None,
        };
        Request {
            backend: BackendName::Wasm,
            ..command.to_request()
        }
    }
}

/// Checked when the payload was opened.
fn decoded(base64: &str) -> Vec<u8> {
    data_encoding::BASE64
        .decode(base64.as_bytes())
        .unwrap_or_default()
}

fn read_command(fields: &mut Fields<'_>) -> Option<CommandTask> {
    let argv = fields.text_list("argv");
    let env = fields.optional_text_map("env");
    let cwd = fields.optional_text("cwd").map(str::to_owned);
    let stdin = fields.optional_text("stdin").map(str::to_owned);
    let task = CommandTask {
        argv: argv?,
        env,
        cwd,
        stdin,
    };
    let of_the_task = |problem: Problem| Problem {
        field: format!("task.{}", problem.field),
        ..problem
    };
    fields.add(
        request_check::command_problems(&task.to_request())
            .into_iter()
            .map(of_the_task),
    );
    Some(task)
}

fn read_source(fields: &mut Fields<'_>) -> Option<SourceTask> {
    let language = fields.text("language");
    let code = fields.text("code");
    let is_name = |name: &str| {
        let is_allowed =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'#' | b'.' | b'-' | b'_');
        !name.is_empty() && name.len() <= 64 && name.bytes().all(is_allowed)
    };
    if let Some(name) = language.filter(|name| !is_name(name)) {
        fields.problem(
            "language",
            name,
            "is not the name of a language; write one such as python",
        );
    }
    match code {
        Some("") => fields.problem("code", "", "is empty; write the source code"),
        Some(code) if code.len() > MAX_CODE_BYTES => {
            let fix = format!(
                "is longer than {MAX_CODE_BYTES} bytes; put it into the workspace and run it as a command"
            );
            fields.problem("code", code, fix);
        }
        Some(_) | None => {}
    }
    Some(SourceTask {
        language: language?.to_owned(),
        code: code?.to_owned(),
    })
}

fn read_wasm(fields: &mut Fields<'_>) -> Option<WasmTask> {
    let module = fields.text("module_base64");
    let args = fields.optional_text_list("args");
    if let Some(text) = module {
        match data_encoding::BASE64.decode(text.as_bytes()) {
            Err(_) => fields.problem(
                "module_base64",
                text,
                "is not base64 with padding; encode the module again",
            ),
            Ok(bytes) if !bytes.starts_with(WASM_MAGIC) => {
                let fix = "is not a WebAssembly module: it does not begin with \\0asm; compile it to wasm first";
                fields.problem("module_base64", text, fix);
            }
            Ok(_) => {}
        }
    }
    let input = fields.optional_text("input_base64");
    if let Some(text) = input
        && data_encoding::BASE64.decode(text.as_bytes()).is_err()
    {
        let fix = "is not base64 with padding; encode the input again";
        fields.problem("input_base64", text, fix);
    }
    let task = WasmTask {
        module_base64: module?.to_owned(),
        args,
        input_base64: input.map(str::to_owned),
    };
    let of_the_task = |problem: Problem| Problem {
        field: format!("task.{}", problem.field),
        ..problem
    };
    let found = request_check::command_problems(&task.to_request());
    fields.add(found.into_iter().map(of_the_task));
    Some(task)
}

fn read_project(fields: &mut Fields<'_>) -> Option<ProjectTask> {
    let action = match fields.text("action")? {
        "build" => ProjectAction::Build,
        "test" => ProjectAction::Test,
        "run" => ProjectAction::Run,
        "restore" => ProjectAction::Restore,
        other => {
            fields.problem(
                "action",
                other,
                "is not an action; write build, test, run or restore",
            );
            return None;
        }
    };
    Some(ProjectTask { action })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Task, Vec<String>> {
        let fields = |found: Vec<Problem>| found.into_iter().map(|p| p.field).collect();
        Task::read(value.as_object().unwrap()).map_err(fields)
    }

    #[test]
    fn every_kind_is_read_and_written_alike() {
        for value in [
            json!({"kind": "command", "argv": ["sh", "-c", ""], "env": {"A": "1"}, "cwd": "/work", "stdin": "hi"}),
            json!({"kind": "command", "argv": ["true"], "env": {}, "cwd": null, "stdin": null}),
            json!({"kind": "source", "language": "c++", "code": "int main(){}"}),
            json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA=", "args": ["a"]}),
            json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA=", "args": [], "input_base64": "aGVsbG8="}),
            json!({"kind": "project", "action": "build"}),
            json!({"kind": "project", "action": "restore"}),
        ] {
            let task = read(&value).unwrap();
            assert_eq!(serde_json::to_value(&task).unwrap(), value);
            assert_eq!(serde_json::from_value::<Task>(value.clone()).unwrap(), task);
            assert_eq!(value["kind"], task.kind());
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (value, expected) in [
            (json!({}), vec!["task.kind"]),
            (json!({"kind": 1}), vec!["task.kind"]),
            (json!({"kind": "shell", "argv": []}), vec!["task.kind"]),
            (json!({"kind": "command"}), vec!["task.argv"]),
            (json!({"kind": "command", "argv": "ls"}), vec!["task.argv"]),
            (json!({"kind": "command", "argv": []}), vec!["task.argv"]),
            (
                json!({"kind": "command", "argv": [""]}),
                vec!["task.argv[0]"],
            ),
            (
                json!({"kind": "command", "argv": ["a", 1]}),
                vec!["task.argv[1]"],
            ),
            (
                json!({"kind": "command", "argv": ["a\u{0}"]}),
                vec!["task.argv[0]"],
            ),
            (
                json!({"kind": "command", "argv": ["a"], "env": {"1": "", "B": 2}, "cwd": "x", "stdin": 3, "shell": true}),
                vec![
                    "task.env.B",
                    "task.stdin",
                    "task.env",
                    "task.cwd",
                    "task.shell",
                ],
            ),
            (
                json!({"kind": "source"}),
                vec!["task.language", "task.code"],
            ),
            (
                json!({"kind": "source", "language": "", "code": ""}),
                vec!["task.language", "task.code"],
            ),
            (
                json!({"kind": "source", "language": "../x", "code": "1"}),
                vec!["task.language"],
            ),
            (
                json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA"}),
                vec!["task.module_base64"],
            ),
            (
                json!({"kind": "wasm", "module_base64": "aGVsbG8="}),
                vec!["task.module_base64"],
            ),
            (
                json!({"kind": "wasm", "module_base64": "", "args": 1}),
                vec!["task.args", "task.module_base64"],
            ),
            (
                json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA=", "args": ["a\u{0}"], "input_base64": "?"}),
                vec!["task.input_base64", "task.argv[1]"],
            ),
            (json!({"kind": "project"}), vec!["task.action"]),
            (
                json!({"kind": "project", "action": "deploy"}),
                vec!["task.action"],
            ),
            (
                json!({"kind": "project", "action": "run", "argv": []}),
                vec!["task.argv"],
            ),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(read(&value), Err(expected), "{value}");
        }
    }
}
