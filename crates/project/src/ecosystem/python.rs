//! Python: pytest or unittest, with pip or uv. What is installed goes into `.venv` in the project, from wheels that lie in the cache.

use toml::Table;

use super::runner::{Ask, Runner};
use crate::action::{Action, Cache, Coverage, FailFast, Place, Reach, Step};
use crate::coverage::CoverageFormat;
use crate::detect::{Tree, is_below};
use crate::diagnostic::Speaker;
use crate::model::{Ecosystem, Framework, PackageManager, Project, Wanted, join};
use crate::report::Format;

pub(super) struct Python;

/// The first of these that a directory has is its manifest.
const MANIFESTS: [&str; 4] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
];
/// Make a project of a directory that is in no other one.
const HINTS: [&str; 3] = ["pytest.ini", "tox.ini", "conftest.py"];

impl Runner for Python {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let mut places: Vec<(String, &str)> = Vec::new();
        let dirs: Vec<(String, Vec<String>)> = tree
            .dirs()
            .map(|(dir, names)| (dir.to_owned(), names.files.clone()))
            .collect();
        for (dir, files) in dirs {
            let is_inside = places.iter().any(|(other, _)| is_below(&dir, other));
            let has = |name: &&&str| files.iter().any(|file| file == **name);
            let own = MANIFESTS.iter().find(has).filter(|name| {
                // A list of requirements beside the tests is no project of its own.
                !is_inside || **name != "requirements.txt"
            });
            let hint = HINTS.iter().find(has).filter(|_| !is_inside);
            if let Some(name) = own.or(hint) {
                places.push((dir, name));
            }
        }
        places
            .into_iter()
            .map(|(dir, name)| read(tree, &dir, name))
            .collect()
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        match ask.action {
            Action::Restore => Ok(restore(ask)),
            Action::Build => Ok(vec![compile(ask)]),
            Action::Test => test(ask),
            Action::Lint if ask.project.uses("ruff") => Ok(vec![
                python(ask)
                    .args([
                        "-m",
                        "ruff",
                        "check",
                        "--no-cache",
                        "--output-format=concise",
                        ".",
                    ])
                    .speaker(Speaker::Places),
            ]),
            Action::Run => Ok(run(ask)),
            Action::Lint => Ok(vec![compile(ask)]),
            Action::Format => match ["ruff", "black"].iter().find(|name| ask.project.uses(name)) {
                Some(&"ruff") => Ok(vec![python(ask).args(["-m", "ruff", "format", "."])]),
                Some(_) => Ok(vec![python(ask).args(["-m", "black", "."])]),
                None => Ok(Vec::new()),
            },
        }
    }

    fn programs(&self, project: &Project, action: Action) -> Vec<&'static str> {
        match (project.package_manager, action) {
            (Some(PackageManager::Uv), Action::Restore) => vec!["python3", "uv"],
            _ => vec!["python3"],
        }
    }
}

fn read(tree: &mut Tree<'_>, dir: &str, name: &str) -> Project {
    let manifest = join(dir, name);
    let text = tree.text(&manifest).unwrap_or_default();
    let mut project = Project::new(Ecosystem::Python, &manifest);
    let table: Table = match name {
        "pyproject.toml" => text.parse().unwrap_or_else(|error| {
            tree.note(format!("{manifest}: {error}"));
            Table::new()
        }),
        _ => Table::new(),
    };
    let meta = table.get("project").and_then(toml::Value::as_table);
    let said = |key: &str| {
        meta.and_then(|meta| meta.get(key)?.as_str())
            .map(str::to_owned)
    };
    project.name = said("name");
    project.wants = said("requires-python").map(|version| Wanted {
        version,
        by: manifest.clone(),
    });
    let uv = tree.nearest(dir, "uv.lock");
    project.package_manager = Some(match uv {
        Some(_) => PackageManager::Uv,
        None => PackageManager::Pip,
    });
    let requirements = tree
        .has(dir, "requirements.txt")
        .then(|| join(dir, "requirements.txt"));
    project.lock_file = uv.or_else(|| requirements.clone());
    let listed = requirements
        .and_then(|path| tree.text(&path))
        .unwrap_or_default();
    let declared = meta
        .and_then(|meta| meta.get("dependencies")?.as_array())
        .into_iter()
        .flatten();
    let declared = declared.filter_map(toml::Value::as_str);
    project.requirements = listed.lines().chain(declared).filter_map(plain).collect();
    let builders = table
        .get("build-system")
        .and_then(|system| system.get("requires")?.as_array())
        .into_iter()
        .flatten();
    project.build_requirements = builders
        .filter_map(toml::Value::as_str)
        .filter_map(plain)
        .collect();
    let mentions = |word: &str| {
        named_in_table(&table, word)
            || named_in_text(&listed, word)
            || name != "pyproject.toml" && named_in_text(&text, word)
    };
    for (what, used) in [
        ("requirements", tree.has(dir, "requirements.txt")),
        ("package", meta.is_some() || name == "setup.py"),
        ("ruff", mentions("ruff")),
        ("black", mentions("black")),
        ("venv", tree.is_file(&join(dir, ".venv/pyvenv.cfg"))),
    ] {
        if used {
            project.uses.push(what.to_owned());
        }
    }
    let scripts = meta.and_then(|meta| meta.get("scripts")?.as_table());
    project.program = program(tree, dir, project.name.as_deref(), scripts);
    let is_pytest = mentions("pytest")
        || tree.has(dir, "pytest.ini")
        || tree.any_below(dir, |names| {
            names.files.iter().any(|file| file == "conftest.py")
        });
    if is_pytest {
        project.frameworks.push(Framework::Pytest);
    } else if tree.any_below(dir, |names| names.has_python_tests) {
        project.frameworks.push(Framework::Unittest);
    }
    project
}

/// Whether a manifest asks for a package or configures it: by a key, or as a requirement in a list. A description is neither.
fn named_in_table(table: &Table, word: &str) -> bool {
    table
        .iter()
        .any(|(key, value)| is_named(key, word) || named_in_value(value, word))
}

fn named_in_value(value: &toml::Value, word: &str) -> bool {
    match value {
        toml::Value::Table(table) => named_in_table(table, word),
        toml::Value::Array(list) => list.iter().any(|item| match item {
            toml::Value::String(text) => {
                let name = text.trim_start().split(|c: char| !is_of_name(c)).next();
                name.is_some_and(|name| is_named(name, word))
            }
            other => named_in_value(other, word),
        }),
        _ => false,
    }
}

/// In what is not TOML: as a word of its own, outside of comments.
fn named_in_text(text: &str, word: &str) -> bool {
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let mut words = lines.flat_map(|line| line.split(|c: char| !is_of_name(c)));
    words.any(|found| is_named(found, word))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "-_.".contains(c)
}

/// The package itself, or a plugin of it such as `pytest-cov`.
fn is_named(found: &str, word: &str) -> bool {
    let rest = found.strip_prefix(word);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// The project's own interpreter, once it has one.
fn python(ask: &Ask<'_>) -> Step {
    let program = match ask.project.uses("venv") {
        true => format!("{}/.venv/bin/python", ask.dir()),
        false => "python3".to_owned(),
    };
    Step::new(ask.dir(), [program])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
}

/// The one script that the manifest names, else what Python itself would start.
fn program(
    tree: &Tree<'_>,
    dir: &str,
    name: Option<&str>,
    scripts: Option<&Table>,
) -> Option<String> {
    if let Some(scripts) = scripts.filter(|scripts| scripts.len() == 1) {
        let entry = scripts.values().next()?.as_str()?;
        let (module, function) = entry.split_once(':')?;
        let is_name =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
        let mut parts = module.split('.').chain(function.split('.'));
        return parts.all(is_name).then(|| entry.to_owned());
    }
    let is_there = |file: &str| tree.is_file(&join(dir, file));
    if let Some(package) = name.map(|name| name.replace('-', "_").to_lowercase())
        && (is_there(&format!("{package}/__main__.py"))
            || is_there(&format!("src/{package}/__main__.py")))
    {
        return Some(package);
    }
    ["__main__.py", "main.py", "app.py"]
        .into_iter()
        .find(|file| is_there(file))
        .map(str::to_owned)
}

/// As an installed script would start it; packages lie at the top or in `src`.
fn run(ask: &Ask<'_>) -> Vec<Step> {
    let Some(program) = ask.project.program.as_deref() else {
        return Vec::new();
    };
    let step = python(ask).env("PYTHONPATH", format!("{0}:{0}/src", ask.dir()));
    let step = match program.split_once(':') {
        Some((module, function)) => {
            let import = format!(
                "import sys, importlib, functools; sys.argv[0] = {module:?}; sys.exit(functools.reduce(getattr, {function:?}.split('.'), importlib.import_module({module:?}))())"
            );
            step.args(["-c", &import])
        }
        None if program.ends_with(".py") => step.arg(program),
        None => step.args(["-m", program]),
    };
    let step = step.args(ask.options.args.iter().cloned());
    vec![step.speaker(Speaker::Python).program()]
}

/// Wheels first, since what pip keeps of its own downloads cannot be used without asking the index again.
fn restore(ask: &Ask<'_>) -> Vec<Step> {
    let project = ask.project;
    if project.package_manager == Some(PackageManager::Uv) {
        return match ask.options.reach {
            Reach::Host => uv_fetch(ask),
            Reach::Offline => vec![uv(ask, ask.dir(), &["sync", "--frozen", "--offline"])],
        };
    }
    let what: &[&str] = match (project.uses("requirements"), project.uses("package")) {
        (true, _) => &["-r", "requirements.txt"],
        (false, true) => &["."],
        (false, false) => return Vec::new(),
    };
    let wheels = format!("{}/wheels", ask.places.cache(Cache::Pip));
    let pip = || {
        Step::new(ask.dir(), [".venv/bin/python", "-m", "pip"])
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .cache(Cache::Pip, ask.places)
    };
    if ask.options.reach == Reach::Host {
        return vec![fetch(ask, &wheels)];
    }
    let install = pip().args(["install", "--quiet", "--no-index", "--find-links", &wheels]);
    vec![
        Step::new(ask.dir(), ["python3", "-m", "venv", ".venv"]),
        install.args(what.iter().copied()),
    ]
}

/// On the host only this, and not from within the project: Python imports what lies where it is started, and whoever installs runs what is installed. Ready-made and by
/// name only: whatever else pip could be told to take, it would have to run.
fn fetch(ask: &Ask<'_>, wheels: &str) -> Step {
    let caches = &ask.places.caches;
    let fetch = Step::new(caches.clone(), ["python3", "-I", "-m", "pip", "download"]).args([
        "--quiet",
        "--only-binary",
        ":all:",
        "--dest",
        wheels,
    ]);
    fetch
        .args(["setuptools", "wheel"])
        .args(ask.project.build_requirements.iter().cloned())
        .args(ask.project.requirements.iter().cloned())
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .cache(Cache::Pip, ask.places)
}

/// With the interpreter that the sandbox sees: what is fetched is made for it. No other one is fetched.
fn uv(ask: &Ask<'_>, cwd: String, words: &[&str]) -> Step {
    Step::new(cwd, ["uv"])
        .args(words.iter().copied())
        .args(["--python", "/usr/bin/python3"])
        .env("UV_CACHE_DIR", ask.places.cache(Cache::Pip))
        .env("UV_PYTHON_DOWNLOADS", "never")
        .env("UV_LINK_MODE", "copy")
        .env("UV_NO_PROGRESS", "1")
        .cache(Cache::Pip, ask.places)
}

/// What the lock file names, ready-made, into an environment beside the cache that nobody uses; nothing of the project is built or obeyed. What builds the project inside is fetched as well.
fn uv_fetch(ask: &Ask<'_>) -> Vec<Step> {
    let project = ask.dir();
    let caches = &ask.places.caches;
    let beside = |name: &str| format!("{}/{name}", ask.places.cache(Cache::Pip));
    let sync = [
        "sync",
        "--frozen",
        "--no-config",
        "--no-build",
        "--no-install-workspace",
        "--project",
        &project,
    ];
    let mut steps = vec![
        uv(ask, caches.clone(), &sync).env("UV_PROJECT_ENVIRONMENT", beside("fetched-environment")),
    ];
    let builders = &ask.project.build_requirements;
    if !builders.is_empty() {
        let target = beside("fetched-builders");
        let install = [
            "pip",
            "install",
            "--no-config",
            "--only-binary",
            ":all:",
            "--target",
            &target,
        ];
        steps.push(uv(ask, caches.clone(), &install).args(builders.iter().cloned()));
    }
    steps
}

/// A requirement without options, addresses and paths.
fn plain(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    let begins = line.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_plain = begins && !line.contains(['/', '\\', '@', ':']) && line.len() < 200;
    is_plain.then(|| line.to_owned())
}

fn compile(ask: &Ask<'_>) -> Step {
    let skipped = r"(^|/)(\.venv|venv|node_modules|\.git|\.tox)/";
    Step::new(
        ask.dir(),
        ["python3", "-m", "compileall", "-q", "-x", skipped, "."],
    )
    .speaker(Speaker::Python)
}

fn test(ask: &Ask<'_>) -> Result<Vec<Step>, String> {
    let options = ask.options;
    match ask.project.frameworks.first() {
        Some(Framework::Pytest) => {
            let file = ask.places.report("pytest.xml");
            let mut step = python(ask)
                .args(["-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider"])
                .arg(format!("--junitxml={file}"));
            if let Some(filter) = &options.filter {
                step = step.args(["-k", filter]);
            }
            if options.fail_fast == FailFast::Yes {
                step = step.arg("-x");
            }
            if options.coverage == Coverage::Yes {
                let to = ask.places.report("coverage.xml");
                step = step
                    .arg("--cov=.")
                    .arg(format!("--cov-report=xml:{to}"))
                    .covered("coverage.xml", CoverageFormat::Cobertura)
                    // What it measures into is a file as well.
                    .env("COVERAGE_FILE", ask.places.report(".coverage"));
            }
            Ok(vec![
                step.report(Place::Own("pytest.xml".to_owned()), Format::Junit)
                    .report(Place::Stdout, Format::PytestText)
                    .speaker(Speaker::Python),
            ])
        }
        Some(_) => {
            let mut step = python(ask).args(["-m", "unittest", "discover", "-v"]);
            if let Some(filter) = &options.filter {
                step = step.args(["-k", filter]);
            }
            if options.fail_fast == FailFast::Yes {
                step = step.arg("-f");
            }
            Ok(vec![
                step.report(Place::Stderr, Format::UnittestText)
                    .speaker(Speaker::Python),
            ])
        }
        None => Err("has no tests: no file is named test*.py or *_test.py, and pytest is not mentioned; add one".to_owned()),
    }
}
