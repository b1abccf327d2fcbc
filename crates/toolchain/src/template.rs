//! Commands with placeholders. Which placeholders a command may have is checked when its manifest is loaded, so that filling one in
//! cannot fail.

use cofferdam_contract::problem::Problem;

/// An argument list with placeholders, as a manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    argv: Vec<String>,
}

/// What goes in for the placeholders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill<'a> {
    /// The main file, relative to the workspace.
    pub(crate) file: &'a str,
    /// The main file without its extension.
    pub(crate) stem: &'a str,
    /// The workspace, absolute, as the program sees it.
    pub(crate) dir: &'a str,
    /// What the compiler makes goes below this directory.
    pub(crate) out: &'a str,
    pub(crate) shim: &'a str,
    pub(crate) mode: &'a str,
    /// The main file and the others with its extension; an argument each.
    pub(crate) sources: &'a [String],
}

/// Stands alone in its argument, because it becomes several.
const SOURCES: &str = "{sources}";

impl Template {
    /// `allowed` are the placeholders that mean something here, of which one of `wanted` must be there.
    pub(crate) fn read(
        field: &str,
        argv: Vec<String>,
        allowed: &[&str],
        wanted: &[&str],
        found: &mut Vec<Problem>,
    ) -> Self {
        let mut seen = Vec::new();
        for (i, argument) in argv.iter().enumerate() {
            let here = placeholders(argument);
            for name in &here {
                if !allowed.contains(name) {
                    let fix = format!(
                        "{{{name}}} has no meaning here; use {} or remove it",
                        spell(allowed)
                    );
                    found.push(Problem::new(format!("{field}[{i}]"), argument, fix));
                } else if *name == "sources" && argument != SOURCES {
                    let fix = "{sources} becomes several arguments; let it stand alone in its own";
                    found.push(Problem::new(format!("{field}[{i}]"), argument, fix));
                }
            }
            seen.extend(here);
            if argument.contains('\0') {
                let fix = "has a NUL character; remove it";
                found.push(Problem::new(format!("{field}[{i}]"), argument, fix));
            }
        }
        if argv.first().is_none_or(String::is_empty) {
            found.push(Problem::new(field, "", "names no program; write one first"));
        }
        if !wanted.is_empty() && !wanted.iter().any(|name| seen.contains(name)) {
            let fix = format!("never uses {}; add it", spell(wanted));
            found.push(Problem::new(field, argv.join(" "), fix));
        }
        Self { argv }
    }

    pub(crate) fn fill(&self, fill: &Fill<'_>) -> Vec<String> {
        let mut filled = Vec::with_capacity(self.argv.len());
        for argument in &self.argv {
            if argument == SOURCES {
                filled.extend_from_slice(fill.sources);
            } else {
                filled.push(fill_one(argument, fill));
            }
        }
        filled
    }

    pub(crate) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    pub(crate) fn argv(&self) -> &[String] {
        &self.argv
    }
}

/// In one pass, so that a value with a placeholder in it stays as it is.
fn fill_one(argument: &str, fill: &Fill<'_>) -> String {
    let mut out = String::new();
    let mut rest = argument;
    while let Some((before, name, after)) = next(rest) {
        out.push_str(before);
        match name {
            "file" => out.push_str(fill.file),
            "stem" => out.push_str(fill.stem),
            "dir" => out.push_str(fill.dir),
            "out" => out.push_str(fill.out),
            "shim" => out.push_str(fill.shim),
            "mode" => out.push_str(fill.mode),
            other => {
                out.push('{');
                out.push_str(other);
                out.push('}');
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn placeholders(argument: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = argument;
    while let Some((_, name, after)) = next(rest) {
        names.push(name);
        rest = after;
    }
    names
}

/// The next `{word}`. Other braces are text: `awk '{print $1}'` is a command like any other.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    for (open, _) in text.match_indices('{') {
        let (before, inside) = (text.get(..open)?, text.get(open + 1..)?);
        let Some(close) = inside.find('}') else {
            continue;
        };
        let (name, after) = (inside.get(..close)?, inside.get(close + 1..)?);
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()) {
            return Some((before, name, after));
        }
    }
    None
}

fn spell(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{{{name}}}")).collect();
    if names.is_empty() {
        return "no placeholder".to_owned();
    }
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill<'a>(sources: &'a [String]) -> Fill<'a> {
        Fill {
            file: "{dir}.py",
            stem: "{dir}",
            dir: "/work",
            out: "/work/.cofferdam/out",
            shim: "S",
            mode: "auto",
            sources,
        }
    }

    fn strings(argv: &[&str]) -> Vec<String> {
        argv.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn placeholders_are_filled_once_and_other_braces_stay() {
        let argv = strings(&[
            "x",
            "{file}",
            "a{dir}{out}b",
            "{sources}",
            "{ {print $1} {}",
        ]);
        let template = Template { argv };
        let sources = strings(&["main.c", "{file}.c"]);
        assert_eq!(
            template.fill(&fill(&sources)),
            [
                "x",
                "{dir}.py",
                "a/work/work/.cofferdam/outb",
                "main.c",
                "{file}.c",
                "{ {print $1} {}"
            ]
        );
    }

    #[test]
    fn wrong_templates_are_named() {
        let mut found = Vec::new();
        let argv = strings(&["", "{nope}", "-l{sources}", "a\0"]);
        Template::read("run", argv, &["file", "sources"], &["file"], &mut found);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "run[1]: {nope} has no meaning here; use {file} or {sources} or remove it (got `{nope}`)",
                "run[2]: {sources} becomes several arguments; let it stand alone in its own (got `-l{sources}`)",
                "run[3]: has a NUL character; remove it (got `a\0`)",
                "run: names no program; write one first",
                "run: never uses {file}; add it (got ` {nope} -l{sources} a\0`)",
            ]
        );
    }
}
