//! The keys that a configuration file may have and what they mean. Collects every problem of the file instead of stopping at one.
//!
//! ```yaml
//! sandbox:
//!   default_runtime: native
//!   limits: { timeout: 30s, memory: 512m, cpus: 1.5 }   # for every backend
//!   native: { memory_limit: 1g }                        # for one backend, before `limits`
//! history: { stdout: 1m, max_age: 30d }                 # see the history module
//! serve: { listen: "127.0.0.1:8080" }                   # see the serve module
//! mode: air-gapped                                      # above all of these
//! ```

mod docker_section;

use std::path::Path;

use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::{Bytes, Cap};

use super::docker::DockerKey;
use super::history::{HistoryKey, HistorySettings, REDACT};
use super::serve;
use super::serve_key::{Many, SECTIONS, ServeKey};
use super::setting::{BACKEND, Layer, MODE, Origin, Setting, names};
use super::spelling;
use super::suggest::nearest;
use super::yaml::{self, Key, Node, Value};

/// What one file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileLayer {
    /// The backend, and the limits for every backend.
    pub(crate) general: Layer,
    native: Layer,
    bubblewrap: Layer,
    gvisor: Layer,
    host: Layer,
    wasm: Layer,
    docker: Layer,
    /// What else is said about containers, checked.
    pub(crate) docker_keys: Vec<(DockerKey, Setting<String>)>,
    pub(crate) history: Vec<Said>,
    /// About the daemon, checked.
    pub(crate) serve: Vec<(ServeKey, Vec<Setting<String>>)>,
}

/// What a file says about history, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) what: About,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Key(HistoryKey),
    /// One more pattern.
    Pattern,
}

impl Said {
    pub(crate) fn apply(&self, settings: &mut HistorySettings) -> Result<(), String> {
        match self.what {
            About::Key(key) => settings.set(key, &self.text, self.origin.clone()),
            About::Pattern => settings.add_pattern(&self.text, self.origin.clone()),
        }
    }
}

impl FileLayer {
    /// The limits that this file sets for one backend alone.
    pub(crate) fn into_layers(self, backend: BackendName) -> (Layer, Layer) {
        match backend {
            BackendName::Native => (self.general, self.native),
            BackendName::Bubblewrap => (self.general, self.bubblewrap),
            BackendName::Gvisor => (self.general, self.gvisor),
            BackendName::Host => (self.general, self.host),
            BackendName::Wasm => (self.general, self.wasm),
            BackendName::Docker => (self.general, self.docker),
        }
    }
}

/// Reads the text of a file.
pub(crate) fn read(path: &Path, text: &str, problems: &mut Vec<Problem>) -> FileLayer {
    let mut reader = Reader { path, problems };
    match yaml::parse(text) {
        Ok(document) => reader.document(document),
        Err(bad) => {
            let line = bad
                .line
                .and_then(|line| usize::try_from(line).ok())
                .and_then(|line| text.lines().nth(line.checked_sub(1)?));
            reader.complain(
                bad.line,
                "not usable as YAML",
                line.unwrap_or_default(),
                bad.reason,
            );
            FileLayer::default()
        }
    }
}

/// The spellings of the limits in a section, besides the plain ones.
const SECTION_ALIASES: [(&str, LimitName); 2] = [
    ("memory_limit", LimitName::Memory),
    ("cpu_limit", LimitName::Cpus),
];

const STACK_SIZE: &str = "stack_size";

struct Reader<'a> {
    path: &'a Path,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn document(&mut self, document: Node) -> FileLayer {
        let mut layer = FileLayer::default();
        for (key, node) in self.entries("", document) {
            match key.name.as_str() {
                "sandbox" => self.sandbox(node, &mut layer),
                "history" => self.history(node, &mut layer.history),
                "serve" => self.serve("", node, &mut layer.serve),
                name if name == MODE.yaml => self.mode(node, &mut layer.general),
                _ => self.unknown("", &key, &["sandbox", "history", "serve", MODE.yaml]),
            }
        }
        layer
    }

    fn sandbox(&mut self, node: Node, layer: &mut FileLayer) {
        const KNOWN: [&str; 8] = [
            BACKEND.yaml,
            "limits",
            "native",
            "host",
            "docker",
            "wasm",
            "bubblewrap",
            "gvisor",
        ];
        for (key, node) in self.entries("sandbox", node) {
            let section = format!("sandbox.{}", key.name);
            match key.name.as_str() {
                "limits" => self.limits(&section, node, &[], &mut layer.general),
                "native" => self.limits(&section, node, &SECTION_ALIASES, &mut layer.native),
                "host" => self.limits(&section, node, &SECTION_ALIASES, &mut layer.host),
                "bubblewrap" => {
                    self.limits(&section, node, &SECTION_ALIASES, &mut layer.bubblewrap)
                }
                "gvisor" => self.limits(&section, node, &SECTION_ALIASES, &mut layer.gvisor),
                "docker" => self.docker(&section, node, layer),
                "wasm" => {
                    let rest = self.without_stack_size(&section, node);
                    self.limits(&section, rest, &SECTION_ALIASES, &mut layer.wasm);
                }
                name if name == BACKEND.yaml => self.backend(&section, node, &mut layer.general),
                _ => self.unknown("sandbox", &key, &KNOWN),
            }
        }
    }

    fn history(&mut self, node: Node, said: &mut Vec<Said>) {
        for (key, node) in self.entries("history", node) {
            let field = format!("history.{}", key.name);
            let known = HistoryKey::ALL
                .into_iter()
                .find(|known| known.yaml() == key.name);
            let items = match (known, node.value) {
                (None, Value::List(items)) if key.name == REDACT => items,
                (None, value) if key.name == REDACT => vec![Node {
                    line: node.line,
                    value,
                }],
                (None, _) => {
                    let mut known = HistoryKey::ALL.map(HistoryKey::yaml).to_vec();
                    known.push(REDACT);
                    self.unknown("history", &key, &known);
                    continue;
                }
                (Some(_), value) => vec![Node {
                    line: node.line,
                    value,
                }],
            };
            let what = known.map_or(About::Pattern, About::Key);
            for item in items {
                self.say(&field, what, item, said);
            }
        }
    }

    /// `section` is one within `serve`, or empty for `serve` itself.
    fn serve(
        &mut self,
        section: &str,
        node: Node,
        said: &mut Vec<(ServeKey, Vec<Setting<String>>)>,
    ) {
        let place = match section {
            "" => "serve".to_owned(),
            _ => format!("serve.{section}"),
        };
        for (key, node) in self.entries(&place, node) {
            if section.is_empty() && SECTIONS.contains(&key.name.as_str()) {
                self.serve(&key.name, node, said);
                continue;
            }
            let path = match section {
                "" => key.name.clone(),
                _ => format!("{section}.{}", key.name),
            };
            let Some(known) = ServeKey::named(&path) else {
                self.unknown(&place, &key, &ServeKey::names_in(section));
                continue;
            };
            let items = match (known.many(), node.value) {
                (Many::Yes, Value::List(items)) => items,
                (_, value) => vec![Node {
                    line: node.line,
                    value,
                }],
            };
            let field = format!("serve.{path}");
            let values = items
                .into_iter()
                .filter_map(|item| self.serve_value(&field, known, item));
            let values = values.collect();
            said.push((known, values));
        }
    }

    fn serve_value(&mut self, field: &str, key: ServeKey, node: Node) -> Option<Setting<String>> {
        let (line, value) = self.scalar(field, node)?;
        match serve::check(key, &value) {
            Ok(()) => Some(Setting {
                value,
                origin: self.origin(line),
            }),
            Err(fix) => {
                self.complain(Some(line), field, &value, fix);
                None
            }
        }
    }

    /// Keeps what was said, once it is known to mean something.
    fn say(&mut self, field: &str, what: About, node: Node, said: &mut Vec<Said>) {
        let Some((line, text)) = self.scalar(field, node) else {
            return;
        };
        let origin = self.origin(line);
        let new = Said { what, text, origin };
        match new.apply(&mut HistorySettings::built_in()) {
            Ok(()) => said.push(new),
            Err(fix) => self.complain(Some(line), field, &new.text, fix),
        }
    }

    fn mode(&mut self, node: Node, layer: &mut Layer) {
        let Some((line, text)) = self.scalar(MODE.yaml, node) else {
            return;
        };
        match spelling::mode(&text) {
            Ok(value) => {
                layer.mode = Some(Setting {
                    value,
                    origin: self.origin(line),
                })
            }
            Err(fix) => self.complain(Some(line), MODE.yaml, &text, fix),
        }
    }

    fn backend(&mut self, field: &str, node: Node, layer: &mut Layer) {
        let Some((line, text)) = self.scalar(field, node) else {
            return;
        };
        match spelling::backend(&text) {
            Ok(value) => {
                layer.backend = Some(Setting {
                    value,
                    origin: self.origin(line),
                })
            }
            Err(fix) => self.complain(Some(line), field, &text, fix),
        }
    }

    fn limits(
        &mut self,
        section: &str,
        node: Node,
        aliases: &[(&str, LimitName)],
        layer: &mut Layer,
    ) {
        let mut seen: Vec<(LimitName, String)> = Vec::new();
        for (key, node) in self.entries(section, node) {
            let plain = LimitName::ALL
                .into_iter()
                .find(|limit| names(*limit).yaml == key.name);
            let alias = || {
                aliases
                    .iter()
                    .find(|(name, _)| *name == key.name)
                    .map(|(_, limit)| *limit)
            };
            let Some(limit) = plain.or_else(alias) else {
                let known = LimitName::ALL.map(|limit| names(limit).yaml);
                let known: Vec<&str> = known
                    .into_iter()
                    .chain(aliases.iter().map(|(name, _)| *name))
                    .collect();
                self.unknown(section, &key, &known);
                continue;
            };
            let field = format!("{section}.{}", key.name);
            if let Some((_, other)) = seen.iter().find(|(earlier, _)| *earlier == limit) {
                let fix = format!("sets the same limit as `{other}`; keep one of them");
                self.complain(Some(key.line), &field, &key.name, fix);
                continue;
            }
            let Some((line, text)) = self.scalar(&field, node) else {
                continue;
            };
            if let Err(fix) = layer.set(limit, &text, self.origin(line)) {
                self.complain(Some(line), &field, &text, fix);
            }
            seen.push((limit, key.name));
        }
    }

    /// What a WebAssembly program's calls may take is fixed, and a file may say so.
    fn without_stack_size(&mut self, section: &str, node: Node) -> Node {
        let Value::Map(entries) = node.value else {
            return node;
        };
        let (sizes, rest): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|(key, _)| key.name == STACK_SIZE);
        for (_, size) in sizes {
            let field = format!("{section}.{STACK_SIZE}");
            let Some((line, text)) = self.scalar(&field, size) else {
                continue;
            };
            if spelling::bytes(&text) != Ok(Cap::AtMost(Bytes::new(1 << 20))) {
                let fix = "is always `1m` in this version; write that, or remove the key";
                self.complain(Some(line), &field, &text, fix.to_owned());
            }
        }
        Node {
            line: node.line,
            value: Value::Map(rest),
        }
    }

    /// The entries of a section. An empty section says nothing, which is allowed.
    fn entries(&mut self, section: &str, node: Node) -> Vec<(Key, Node)> {
        let found = match node.value {
            Value::Map(entries) => return entries,
            Value::Empty => return Vec::new(),
            Value::List(_) => "a list".to_owned(),
            Value::Scalar(text) => text,
        };
        let field = if section.is_empty() {
            "the document"
        } else {
            section
        };
        self.complain(
            Some(node.line),
            field,
            &found,
            "holds `key: value` lines, nothing else".to_owned(),
        );
        Vec::new()
    }

    fn scalar(&mut self, field: &str, node: Node) -> Option<(u64, String)> {
        let (found, fix) = match node.value {
            Value::Scalar(text) => return Some((node.line, text)),
            Value::Empty => ("nothing", "has no value; write one, or remove the key"),
            Value::List(_) => ("a list", "takes one value, not a list"),
            Value::Map(_) => ("a section", "takes one value, not a section"),
        };
        self.complain(Some(node.line), field, found, fix.to_owned());
        None
    }

    fn unknown(&mut self, section: &str, key: &Key, known: &[&str]) {
        let place = if section.is_empty() {
            "at the top".to_owned()
        } else {
            format!("in `{section}`")
        };
        let fix = match nearest(&key.name, known) {
            Some(name) => format!("is not known {place}; did you mean `{name}`?"),
            None => format!("is not known {place}; known are {}", known.join(", ")),
        };
        self.complain(Some(key.line), "unknown key", &key.name, fix);
    }

    fn origin(&self, line: u64) -> Origin {
        Origin::File {
            path: self.path.to_owned(),
            line: Some(line),
        }
    }

    fn complain(&mut self, line: Option<u64>, field: &str, value: &str, fix: String) {
        let origin = Origin::File {
            path: self.path.to_owned(),
            line,
        };
        // The file may be hostile to the terminal it is shown on.
        self.problems.push(Problem::new(
            format!("{origin}: {field}"),
            value.escape_debug(),
            fix,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        read(Path::new("c.yml"), text, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_example_of_the_first_specification_loads() {
        let seed = "sandbox:\n  docker:\n    memory_limit: \"512m\"\n    cpu_limit: \"1.0\"\n    network_mode: \"none\"\n    \
                    privileged: false\n  wasm:\n    memory_limit: \"128m\"\n    stack_size: \"1m\"\n    timeout: \"5m\"\n";
        assert_eq!(problems(seed), Vec::<String>::new());
    }

    #[test]
    fn every_problem_of_a_file_is_told_at_once_with_its_line() {
        let text = "sandbox:\n  default_runtim: native\n  limits:\n    memory: lots\n    timeout: [1]\n    disk:\n    \
                    processes: -1\n  docker: { privileged: true, network_mode: host }\n  wasm: 3\nsandbx: 1\n";
        let found = problems(text);
        let starts = [
            "c.yml:2: unknown key: is not known in `sandbox`; did you mean `default_runtime`?",
            "c.yml:4: sandbox.limits.memory: `lots` is not a size",
            "c.yml:5: sandbox.limits.timeout: takes one value, not a list",
            "c.yml:6: sandbox.limits.disk: has no value",
            "c.yml:7: sandbox.limits.processes: `-1` is not a whole number",
            "c.yml:8: sandbox.docker.privileged: is always `false`",
            "c.yml:8: sandbox.docker.network_mode: is `none`:",
            "c.yml:9: sandbox.wasm: holds `key: value` lines",
            "c.yml:10: unknown key: is not known at the top; did you mean `sandbox`?",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}\n{start}");
        }
    }

    #[test]
    fn two_spellings_of_one_limit_in_one_section_are_refused() {
        let found = problems("sandbox:\n  native:\n    memory: 1g\n    memory_limit: 2g\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("sets the same limit as `memory`"),
            "{found:?}"
        );
    }

    #[test]
    fn an_unknown_key_cannot_write_to_the_terminal() {
        let found = problems("\"\\x1b[2Jowned\": 1\n");
        assert_eq!(found.len(), 1);
        assert!(!found[0].contains('\u{1b}'), "{found:?}");
    }

    #[test]
    fn broken_yaml_is_one_problem_that_shows_the_line() {
        let found = problems("sandbox:\n  limits: { memory: 1g\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("c.yml:"), "{found:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            let _ = problems(&text);
        }

        #[test]
        fn no_value_makes_it_panic(key in "[a-z_]{1,12}", value in "[ -~]{0,40}") {
            let _ = problems(&format!("sandbox:\n  limits:\n    {key}: {value}\n    memory: {value}\n"));
        }
    }
}
