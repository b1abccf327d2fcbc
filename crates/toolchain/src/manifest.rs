//! From the text of a manifest to a [`Language`], or to everything that is wrong with it.

use cofferdam_contract::problem::Problem;
use cofferdam_contract::units::{Bytes, parse_duration};
use toml::Table;

use crate::fields::Fields;
use crate::language::{Compile, HandlerShim, Language, Origin, Toolchain, Waiting, WaitingWay};
use crate::needs::Needs;
use crate::paths;
use crate::template::Template;
use crate::version::{PLACEHOLDER, Version};

const MAX_NAME: usize = 32;

/// `shim` gives the text of a shim by its name, or says why it cannot.
pub(crate) fn read(
    text: &str,
    origin: Origin,
    shim: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Language, Vec<Problem>> {
    let table = text.parse::<Table>().map_err(|error| {
        let fix = format!("is not TOML: {}", error.to_string().trim_end());
        vec![Problem::new("manifest", "", fix)]
    })?;
    let mut fields = Fields::new(&table, "");
    let name = fields.text("name").unwrap_or_default().to_owned();
    let aliases = fields.optional_texts("aliases").unwrap_or_default();
    let title = fields.text("title").unwrap_or_default().to_owned();
    let file = fields.text("file").unwrap_or_default().to_owned();
    check_names(&mut fields, &name, &aliases);
    if !file.is_empty() {
        let problem = paths::problem(&file);
        fields.add(problem.map(|fix| Problem::new("file", &file, fix)));
    }
    let env = read_env(&mut fields);
    let needs = read_needs(&mut fields);
    let waiting = read_waiting(&mut fields);
    let handler = read_shim(&mut fields, shim);
    let toolchains = read_toolchains(&mut fields, handler.is_some());
    let found = fields.finish();
    if !found.is_empty() {
        return Err(found);
    }
    Ok(Language {
        name,
        aliases,
        title,
        file,
        env,
        needs,
        waiting,
        handler,
        toolchains,
        origin,
    })
}

fn check_names(fields: &mut Fields<'_>, name: &str, aliases: &[String]) {
    let fix =
        format!("is not a name; use at most {MAX_NAME} lower-case letters, digits and + # . - _");
    if !name.is_empty() && !is_name(name) {
        fields.problem("name", name, fix.clone());
    }
    for (i, alias) in aliases.iter().enumerate() {
        if !is_name(alias) {
            fields.problem(&format!("aliases[{i}]"), alias, fix.clone());
        }
        let before = aliases.get(..i).unwrap_or_default();
        if alias == name || before.contains(alias) {
            fields.problem(&format!("aliases[{i}]"), alias, "is there twice; remove it");
        }
    }
}

/// What the contract lets a payload call a language, in lower case.
fn is_name(name: &str) -> bool {
    let is_allowed = |b: u8| {
        b.is_ascii_lowercase()
            || b.is_ascii_digit()
            || matches!(b, b'+' | b'#' | b'.' | b'-' | b'_')
    };
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_allowed)
}

fn read_env(fields: &mut Fields<'_>) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (name, value) in fields.optional_table("env").into_iter().flatten() {
        let key = format!("env.{name}");
        let is_variable = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_variable || name.starts_with("COFFERDAM_") {
            let fix = "is not a variable that a manifest may set; use letters, digits and _, not COFFERDAM_…";
            fields.problem(&key, name, fix);
        }
        match value.as_str() {
            Some(text) if !text.contains('\0') => env.push((name.clone(), text.to_owned())),
            Some(_) | None => {
                fields.problem(
                    &key,
                    &value.to_string(),
                    "is not text without NUL; write \"…\"",
                );
            }
        }
    }
    env
}

fn read_needs(fields: &mut Fields<'_>) -> Needs {
    let Some(table) = fields.optional_table("limits") else {
        return Needs::default();
    };
    let at = fields.name("limits.");
    let mut inner = Fields::new(table, at.clone());
    let size = |text: &str| text.parse::<Bytes>();
    let needs = Needs {
        wall_time: inner.parsed("wall_time", parse_duration),
        cpu_time: inner.parsed("cpu_time", parse_duration),
        memory: inner.parsed("memory", size),
        disk: inner.parsed("disk", size),
        processes: inner.optional_number("processes"),
        open_files: inner.optional_number("open_files"),
        why: inner.text("why").unwrap_or_default().to_owned(),
    };
    inner.add(
        needs
            .as_limits()
            .problems()
            .into_iter()
            .map(|problem| Problem {
                field: format!("{at}{}", problem.field),
                ..problem
            }),
    );
    let problems = inner.finish();
    let is_empty = problems.is_empty() && needs.is_none();
    fields.add(problems);
    if is_empty {
        let fix = "raises no limit; name one (memory, processes, …) or remove the table";
        fields.problem("limits", "", fix);
    }
    needs
}

/// Python is copied, and Node is started ahead with the shim; whatever else is named would never be used.
fn read_waiting(fields: &mut Fields<'_>) -> Option<Waiting> {
    let table = fields.optional_table("waiting")?;
    let mut inner = Fields::new(table, "waiting.");
    let program = inner.text("program").unwrap_or_default().to_owned();
    let way = match program.as_str() {
        "node" => WaitingWay::Ahead,
        _ => WaitingWay::Copy,
    };
    if way == WaitingWay::Copy && !program.is_empty() && !program.starts_with("python") {
        let fix = "cannot be kept waiting; only node, and python3 and the like, can";
        inner.problem("program", &program, fix);
    }
    let preload = inner.optional_texts("preload").unwrap_or_default();
    if way == WaitingWay::Ahead && !preload.is_empty() {
        let fix = "can only be given for python3 and the like; remove it";
        inner.problem("preload", "", fix);
    }
    for (i, module) in preload.iter().enumerate() {
        let is_name = |part: &str| {
            !part.is_empty()
                && !part.starts_with(|c: char| c.is_ascii_digit())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if !module.split('.').all(is_name) {
            let fix = "is not the name of a module; write names with dots between them";
            inner.problem(&format!("preload[{i}]"), module, fix);
        }
    }
    fields.add(inner.finish());
    Some(Waiting {
        program,
        way,
        preload,
    })
}

fn read_shim(
    fields: &mut Fields<'_>,
    shim: &dyn Fn(&str) -> Result<String, String>,
) -> Option<HandlerShim> {
    let table = fields.optional_table("handler")?;
    let mut inner = Fields::new(table, "handler.");
    let name = inner.text("shim");
    let append = inner.optional_text("append").unwrap_or_default().to_owned();
    let mut read = None;
    if let Some(name) = name {
        match (paths::problem(name), shim(name)) {
            (None, Ok(text)) if !name.contains('/') => {
                let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
                read = Some(HandlerShim {
                    file_name: format!("shim.{extension}"),
                    text,
                    append,
                });
            }
            (None, Err(problem)) if !name.contains('/') => inner.problem("shim", name, problem),
            _ => inner.problem("shim", name, "is not a plain file name; put it into shims/"),
        }
    }
    // A table that is there and wrong still says that there is to be a handler; its problems are reported.
    let problems = inner.finish();
    let is_wrong = !problems.is_empty();
    fields.add(problems);
    read.or_else(|| {
        is_wrong.then(|| HandlerShim {
            file_name: String::new(),
            text: String::new(),
            append: String::new(),
        })
    })
}

fn read_toolchains(fields: &mut Fields<'_>, has_shim: bool) -> Vec<Toolchain> {
    let mut toolchains = Vec::new();
    for (i, table) in fields.tables("toolchain").into_iter().enumerate() {
        let mut inner = Fields::new(table, format!("toolchain[{i}]."));
        toolchains.extend(read_toolchain(&mut inner, has_shim));
        fields.add(inner.finish());
    }
    if has_shim && !toolchains.is_empty() && !toolchains.iter().any(Toolchain::has_handler) {
        let fix = "is used by no toolchain; give one a `handler` command";
        fields.problem("handler", "", fix);
    }
    toolchains
}

fn read_toolchain(fields: &mut Fields<'_>, has_shim: bool) -> Option<Toolchain> {
    let probe = template(fields, "probe", &[], &[]);
    let version = fields.optional_text("version").map(str::to_owned);
    let min_version = fields.parsed("min_version", |text| {
        Version::whole(text).ok_or("is not a version; write numbers and dots, such as \"3.8\"")
    });
    if let Some(pattern) = version
        .as_deref()
        .filter(|p| p.matches(PLACEHOLDER).count() != 1)
    {
        let fix = "must have {version} in it once, where the number stands";
        fields.problem("version", pattern, fix);
    }
    if let (Some(min), None) = (&min_version, &version) {
        let fix = "cannot be compared without `version`; add the pattern";
        fields.problem("min_version", &min.to_string(), fix);
    }
    let compile = read_compile(fields);
    let run = template(
        fields,
        "run",
        &["file", "stem", "dir", "out"],
        &["file", "out"],
    );
    let handler = read_handler(fields, has_shim);
    if let (Some(run), None) = (&run, &compile)
        && run.argv().iter().any(|argument| argument.contains("{out}"))
    {
        let fix = "runs what is compiled, and nothing is; add [toolchain.compile]";
        fields.problem("run", &run.argv().join(" "), fix);
    }
    Some(Toolchain {
        probe: probe?.argv().to_vec(),
        min_version,
        version,
        compile,
        run: run?,
        handler,
    })
}

fn read_compile(fields: &mut Fields<'_>) -> Option<Compile> {
    let table = fields.optional_table("compile")?;
    let mut inner = Fields::new(table, fields.name("compile."));
    let allowed = ["file", "stem", "dir", "out", "sources"];
    let argv = template(&mut inner, "argv", &allowed, &["file", "sources"]);
    let needs = read_needs(&mut inner);
    fields.add(inner.finish());
    Some(Compile { argv: argv?, needs })
}

fn read_handler(fields: &mut Fields<'_>, has_shim: bool) -> Option<Template> {
    let argv = fields.optional_texts("handler")?;
    if !has_shim {
        let fix = "calls a shim, and there is none; add [handler] with shim = \"…\"";
        fields.problem("handler", &argv.join(" "), fix);
    }
    let field = fields.name("handler");
    let has = |name: &str| argv.iter().any(|argument| argument.contains(name));
    let runs_main = has("{file}") || has("{out}");
    if !(has("{shim}") && has("{mode}") && runs_main) {
        let fix = "needs {shim}, {mode} and {file} (or what is compiled, below {out})";
        fields.problem("handler", &argv.join(" "), fix);
    }
    let allowed = ["file", "stem", "dir", "out", "shim", "mode"];
    Some(Template::read(&field, argv, &allowed, &[], fields.found()))
}

fn template(
    fields: &mut Fields<'_>,
    key: &'static str,
    allowed: &[&str],
    wanted: &[&str],
) -> Option<Template> {
    let argv = fields.texts(key)?;
    let field = fields.name(key);
    Some(Template::read(
        &field,
        argv,
        allowed,
        wanted,
        fields.found(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problems(text: &str) -> Vec<String> {
        let shim = |name: &str| match name {
            "x.py" => Ok("pass".to_owned()),
            _ => Err("is not there".to_owned()),
        };
        match read(text, Origin::BuiltIn, &shim) {
            Ok(_) => Vec::new(),
            Err(found) => found.iter().map(ToString::to_string).collect(),
        }
    }

    const GOOD: &str = "name = \"x\"\ntitle = \"X\"\nfile = \"main.x\"\n\
                        [[toolchain]]\nprobe = [\"x\", \"-v\"]\nrun = [\"x\", \"{file}\"]\n";

    #[test]
    fn the_smallest_manifest_is_enough() {
        assert_eq!(problems(GOOD), Vec::<String>::new());
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let text = r#"
            name = "X Y"
            aliases = ["a", "a", "B"]
            file = "../main"
            colour = "red"
            [env]
            1A = "x"
            COFFERDAM_RESULT_FD = "9"
            N = 1
            [limits]
            memory = "lots"
            processes = 0
            address_space = "1g"
            [handler]
            shim = "no.py"
            [[toolchain]]
            probe = []
            version = "v"
            min_version = "x"
            run = ["{out}/program"]
            handler = ["x", "{shim}"]
            [[toolchain]]
            run = "x"
            [toolchain.compile]
            argv = ["cc", "{shim}"]
        "#;
        let found = problems(text);
        let fields: Vec<&str> = found
            .iter()
            .map(|problem| problem.split(": ").next().unwrap())
            .collect();
        assert_eq!(
            fields,
            [
                "title",
                "name",
                "aliases[1]",
                "aliases[2]",
                "file",
                "env.1A",
                "env.COFFERDAM_RESULT_FD",
                "env.N",
                "limits.memory",
                "limits.why",
                "limits.processes",
                "limits.address_space",
                "handler.shim",
                "toolchain[0].probe",
                "toolchain[0].min_version",
                "toolchain[0].version",
                "toolchain[0].handler",
                "toolchain[0].run",
                "toolchain[1].probe",
                "toolchain[1].compile.argv[1]",
                "toolchain[1].compile.argv",
                "toolchain[1].run",
                "colour",
            ],
            "{found:#?}"
        );
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        for (extra, expected) in [
            (
                "handler = [\"x\", \"{shim}\", \"{mode}\", \"{file}\"]",
                "toolchain[0].handler: calls a shim",
            ),
            (
                "min_version = \"3\"",
                "toolchain[0].min_version: cannot be compared",
            ),
            (
                "[handler]\nshim = \"x.py\"",
                "handler: is used by no toolchain",
            ),
            (
                "[handler]\nshim = \"../x.py\"",
                "handler.shim: is not a plain file name",
            ),
            ("[limits]\nwhy = \"because\"", "limits: raises no limit"),
            (
                "[limits]\nmemory = \"1k\"\nwhy = \"x\"",
                "limits.memory: is below 1 MiB",
            ),
            ("name =", "manifest: is not TOML"),
        ] {
            let found = problems(&format!("{GOOD}{extra}\n"));
            assert!(
                found.iter().any(|p| p.starts_with(expected)),
                "{extra}: {found:#?}"
            );
        }
        assert_eq!(problems("").len(), 4);
        assert!(
            problems("toolchain = 1")
                .iter()
                .any(|p| p.contains("[[toolchain]]"))
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in "(name|file|env|toolchain|limits|handler|run|probe|=|\\[|\\]|\"|\n|\\{file\\}|1|\\.){0,60}") {
            let _ = problems(&text);
        }
    }
}
