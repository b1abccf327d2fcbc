//! The repo contract: `.agent/config.yml`, in which a project names its own commands. It is a stranger's text: its commands run only in the sandbox, in the project, and
//! within the limits of whoever asked; a time limit in it can only be shorter.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_contract::units::parse_duration;

use crate::beneath::Beneath;
use crate::yaml::{self, Node, Value};

/// Where it lies in a project.
pub const FILE: &str = ".agent/config.yml";
const MAX_BYTES: u64 = 64 << 10;

/// The commands of a project, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contract {
    pub commands: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Written as `null`: not to be done here.
    Disabled,
    /// One after the other, until one fails.
    Run(Vec<Command>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// For a shell, with its variables put in.
    pub line: String,
    /// Relative to the project.
    pub dir: Option<String>,
    pub timeout: Option<Duration>,
    pub env: Vec<(String, String)>,
}

/// What the variables stand for.
pub type Variables = BTreeMap<&'static str, String>;

/// Every name that a variable can have.
pub const VARIABLES: [&str; 11] = [
    "project_root",
    "project_path",
    "project_name",
    "project_dir",
    "solution_path",
    "solution_dir",
    "configuration",
    "output_dir",
    "artifact_dir",
    "platform",
    "runtime",
];

/// The contract of a project, `None` where it has none, or everything that is wrong with it.
pub fn read(project: &Beneath, variables: &Variables) -> Result<Option<Contract>, Vec<String>> {
    let bytes = match project.read(FILE, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(vec![format!("{FILE}: {error}")]),
    };
    let text = String::from_utf8(bytes).map_err(|_| vec![format!("{FILE}: is not UTF-8")])?;
    parse(&text, variables).map(Some)
}

/// What such a file says, or everything that is wrong with it.
pub fn parse(text: &str, variables: &Variables) -> Result<Contract, Vec<String>> {
    let mut reader = Reader {
        variables,
        problems: Vec::new(),
    };
    let contract = match yaml::parse(text) {
        Ok(root) => reader.contract(root),
        Err(bad) => {
            reader.problem(
                bad.line.unwrap_or(1),
                "",
                &format!("is not YAML: {}", bad.reason),
            );
            Contract::default()
        }
    };
    if reader.problems.is_empty() {
        Ok(contract)
    } else {
        Err(reader.problems)
    }
}

struct Reader<'a> {
    variables: &'a Variables,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, line: u64, field: &str, what: &str) {
        let field = if field.is_empty() {
            String::new()
        } else {
            format!("{field}: ")
        };
        self.problems.push(format!("{FILE}:{line}: {field}{what}"));
    }

    fn contract(&mut self, root: Node) -> Contract {
        let mut contract = Contract::default();
        let entries = match root.value {
            Value::Map(entries) => entries,
            Value::Empty => Vec::new(),
            Value::Scalar(_) | Value::List(_) => {
                self.problem(root.line, "", "is no mapping; begin with `commands:`");
                Vec::new()
            }
        };
        // Other keys are for other tools.
        for (key, node) in entries
            .into_iter()
            .filter(|(key, _)| key.name == "commands")
        {
            match node.value {
                Value::Map(commands) => {
                    for (name, node) in commands {
                        if let Some(entry) = self.entry(&name.name, name.line, node) {
                            contract.commands.insert(name.name, entry);
                        }
                    }
                }
                Value::Empty => self.problem(
                    key.line,
                    "commands",
                    "is empty; name a command or remove it",
                ),
                Value::Scalar(_) | Value::List(_) => {
                    self.problem(node.line, "commands", "is no mapping of names to commands")
                }
            }
        }
        contract
    }

    fn entry(&mut self, name: &str, line: u64, node: Node) -> Option<Entry> {
        let field = format!("commands.{name}");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            self.problem(
                line,
                &field,
                "is no name for a command; use letters, digits, `-` and `_`",
            );
            return None;
        }
        match node.value {
            Value::Empty => Some(Entry::Disabled),
            Value::List(items) if items.is_empty() => {
                self.problem(
                    node.line,
                    &field,
                    "is an empty list; write `null` to disable the command",
                );
                None
            }
            Value::List(items) => {
                let all: Vec<Option<Command>> = items
                    .into_iter()
                    .map(|item| self.command(&field, item))
                    .collect();
                all.into_iter().collect::<Option<Vec<_>>>().map(Entry::Run)
            }
            Value::Scalar(_) | Value::Map(_) => self
                .command(&field, node)
                .map(|command| Entry::Run(vec![command])),
        }
    }

    fn command(&mut self, field: &str, node: Node) -> Option<Command> {
        match node.value {
            Value::Scalar(text) => Some(Command {
                line: self.line(field, node.line, &text)?,
                dir: None,
                timeout: None,
                env: Vec::new(),
            }),
            Value::Map(entries) => self.detailed(field, node.line, entries),
            Value::Empty | Value::List(_) => {
                self.problem(
                    node.line,
                    field,
                    "is no command; write a text, or a mapping with `command`",
                );
                None
            }
        }
    }

    fn detailed(
        &mut self,
        field: &str,
        line: u64,
        entries: Vec<(yaml::Key, Node)>,
    ) -> Option<Command> {
        let mut command = Command {
            line: String::new(),
            dir: None,
            timeout: None,
            env: Vec::new(),
        };
        let before = self.problems.len();
        let mut has_command = false;
        for (key, node) in entries {
            let at = node.line;
            match (key.name.as_str(), node.value) {
                ("command", Value::Scalar(text)) => {
                    has_command = true;
                    command.line = self
                        .line(&format!("{field}.command"), at, &text)
                        .unwrap_or_default();
                }
                ("working_directory", Value::Scalar(text)) => {
                    let parts: Vec<&str> = text.split('/').collect();
                    if text.starts_with('/') || parts.contains(&"..") || text.contains('\0') {
                        self.problem(
                            at,
                            &format!("{field}.working_directory"),
                            "leaves the project; name a directory in it",
                        );
                    }
                    command.dir = Some(text);
                }
                ("timeout", Value::Scalar(text)) => match timeout(&text) {
                    Ok(time) => command.timeout = time,
                    Err(why) => self.problem(at, &format!("{field}.timeout"), &why),
                },
                ("environment", Value::Map(variables)) => {
                    for (name, node) in variables {
                        if !is_variable(&name.name) {
                            self.problem(
                                name.line,
                                &format!("{field}.environment.{}", name.name),
                                "is no name for a variable; use letters, digits and `_`, and no digit first",
                            );
                        }
                        match node.value {
                            Value::Scalar(value) => command.env.push((name.name, value)),
                            Value::Empty => command.env.push((name.name, String::new())),
                            Value::List(_) | Value::Map(_) => self.problem(
                                node.line,
                                &format!("{field}.environment.{}", name.name),
                                "is no text",
                            ),
                        }
                    }
                }
                ("command" | "working_directory" | "timeout" | "environment", _) => {
                    self.problem(at, &format!("{field}.{}", key.name), "has the wrong form");
                }
                (other, _) => self.problem(
                    key.line,
                    &format!("{field}.{other}"),
                    "is not known; there are command, working_directory, timeout and environment",
                ),
            }
        }
        if !has_command && self.problems.len() == before {
            self.problem(line, field, "has no `command`");
        }
        (self.problems.len() == before).then_some(command)
    }

    /// A command with its variables put in, each quoted for the shell: a path is one word, whatever is in it.
    fn line(&mut self, field: &str, line: u64, text: &str) -> Option<String> {
        if text.trim().is_empty() {
            self.problem(line, field, "is empty; write `null` to disable the command");
            return None;
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                // `$${x}` stands for `${x}`.
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                self.problem(
                    line,
                    field,
                    "has a `${` that is not closed; write `$${` for the text itself",
                );
                return None;
            };
            match self.variables.get(name) {
                Some(value) => out.push_str(&quoted(value)),
                None if VARIABLES.contains(&name) => {
                    self.problem(
                        line,
                        field,
                        &format!("`${{{name}}}` has no value in this project"),
                    );
                    return None;
                }
                None => {
                    let known = VARIABLES.join(", ");
                    self.problem(line, field, &format!("there is no variable `${{{name}}}`; there are {known}; write `$${{` for the text itself"));
                    return None;
                }
            }
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }
}

fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `unlimited` is what whoever asks allows.
fn timeout(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "unlimited" => Ok(None),
        text => match parse_duration(text) {
            Ok(Duration::ZERO) => Err("0 is not a limit; write a time above 0".to_owned()),
            Ok(time) => Ok(Some(time)),
            Err(bad) => Err(bad.to_string()),
        },
    }
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        BTreeMap::from([
            ("project_root", "/work".to_owned()),
            ("project_name", "it's $(x)".to_owned()),
        ])
    }

    fn one(text: &str) -> Vec<Command> {
        let contract = parse(text, &variables()).unwrap();
        match &contract.commands["build"] {
            Entry::Run(commands) => commands.clone(),
            Entry::Disabled => Vec::new(),
        }
    }

    #[test]
    fn a_command_is_a_text_a_list_a_mapping_or_disabled() {
        assert_eq!(one("commands:\n  build: make\n")[0].line, "make");
        assert_eq!(one("commands:\n  build: [a, b]\n").len(), 2);
        assert_eq!(one("commands:\n  build: null\n"), []);
        let command = one("commands:\n  build:\n    command: make\n    working_directory: sub\n    timeout: 5s\n    environment:\n      A: 1\n").remove(0);
        assert_eq!(
            command,
            Command {
                line: "make".to_owned(),
                dir: Some("sub".to_owned()),
                timeout: Some(Duration::from_secs(5)),
                env: vec![("A".to_owned(), "1".to_owned())],
            }
        );
        assert_eq!(parse("other: 1\n", &variables()), Ok(Contract::default()));
    }

    #[test]
    fn a_variable_is_one_word_for_the_shell_and_can_be_escaped() {
        assert_eq!(
            one("commands:\n  build: make -C ${project_root} $${HOME} $(x)\n")[0].line,
            "make -C /work ${HOME} $(x)"
        );
        assert_eq!(
            one("commands:\n  build: echo ${project_name}\n")[0].line,
            "echo 'it'\\''s $(x)'"
        );
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_line() {
        let text = "commands:\n  build: echo ${nope}\n  test: \"\"\n  lint:\n    command: x\n    wat: 1\n  'bad name': x\n  run:\n    timeout: 5s\n  clean: []\n  a:\n    command: x\n    working_directory: ../up\n  b: ${solution_path}\n  c: ${open\n  d:\n    command: x\n    environment:\n      1A: x\n  e: ${a${project_root}}\n  f: [a, [b]]\n  g:\n    command: x\n    timeout: 5 parsecs\n";
        let problems = parse(text, &variables()).unwrap_err();
        let lines: Vec<&str> = problems
            .iter()
            .map(|problem| problem.split(": ").next().unwrap())
            .collect();
        assert_eq!(
            lines,
            [2, 3, 6, 7, 9, 10, 13, 14, 15, 19, 20, 21, 24].map(|n: u32| format!("{FILE}:{n}")),
            "{problems:#?}"
        );
        assert!(
            problems[0].contains("there is no variable `${nope}`"),
            "{problems:#?}"
        );
        assert!(parse("commands: [", &variables()).unwrap_err()[0].contains("is not YAML"));
        assert!(parse("- a\n", &variables()).is_err());
    }
}
