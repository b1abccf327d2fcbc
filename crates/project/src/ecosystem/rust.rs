//! Rust: crates and workspaces, with cargo; nextest where the project is set up for it.

use toml::{Table, Value};

use super::members::Patterns;
use super::runner::{Ask, Runner};
use crate::action::{Action, Cache, FailFast, Place, Reach, Step};
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join};
use crate::report::Format;

pub(super) struct Rust;

impl Runner for Rust {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let dirs: Vec<String> = tree
            .dirs()
            .filter(|(_, names)| names.files.iter().any(|name| name == "Cargo.toml"))
            .map(|(dir, _)| dir.to_owned())
            .collect();
        let mut found = Vec::new();
        let mut workspaces = Vec::new();
        for dir in dirs {
            let manifest = join(&dir, "Cargo.toml");
            let Some(text) = tree.text(&manifest) else {
                continue;
            };
            let table: Table = match text.parse() {
                Ok(table) => table,
                Err(error) => {
                    tree.note(format!("{manifest}: {error}"));
                    continue;
                }
            };
            found.push(read(tree, &dir, &manifest, &table));
            if let Some(workspace) = table.get("workspace") {
                let list = |key: &str| strings(workspace.get(key));
                workspaces.push((dir, manifest, list("members"), list("exclude")));
            }
        }
        let mut room = Patterns::default();
        for (dir, manifest, patterns, excluded) in workspaces {
            let members = room.adopt(tree, &mut found, &dir, &patterns, &excluded);
            if let Some(top) = found
                .iter_mut()
                .find(|project| project.manifest == manifest)
            {
                top.kind = ProjectKind::Workspace;
                top.members = members;
            }
        }
        room.tell(tree);
        found
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        let json = |step: Step| {
            step.arg("--message-format=json")
                .speaker(Speaker::Rustc)
                .for_programs()
        };
        Ok(match ask.action {
            Action::Restore => vec![fetch(ask)],
            Action::Build => vec![json(cargo(ask, "build").arg("--workspace"))],
            Action::Lint => vec![json(
                cargo(ask, "clippy").args(["--workspace", "--all-targets"]),
            )],
            Action::Format => vec![Step::new(ask.dir(), ["cargo", "fmt", "--all"])],
            Action::Run => {
                let program = cargo(ask, "run").args(["--quiet", "--"]);
                let program = program.args(ask.options.args.iter().cloned()).program();
                // First alone, so that what the compiler says is told as such.
                vec![json(cargo(ask, "build").arg("--bins")), program]
            }
            Action::Test => {
                // First alone, so that what the compiler says is told as such.
                let built = json(cargo(ask, "test").args(["--workspace", "--no-run"]));
                vec![built, test(ask)]
            }
        })
    }

    fn programs(&self, project: &Project, action: Action) -> Vec<&'static str> {
        match (action, project.frameworks.first()) {
            (Action::Test, Some(Framework::Nextest)) => vec!["cargo", "rustc", "cargo-nextest"],
            _ => vec!["cargo", "rustc"],
        }
    }
}

fn read(tree: &mut Tree<'_>, dir: &str, manifest: &str, table: &Table) -> Project {
    let mut project = Project::new(Ecosystem::Rust, manifest);
    let package = table.get("package");
    let said = |key: &str| Some(package?.get(key)?.as_str()?.to_owned());
    project.name = said("name");
    project.package_manager = Some(PackageManager::Cargo);
    project.lock_file = tree.nearest(dir, "Cargo.lock");
    let chosen = ["rust-toolchain.toml", "rust-toolchain"]
        .iter()
        .find_map(|name| tree.nearest(dir, name));
    project.wants = match chosen {
        Some(by) => {
            let text = tree.text(&by).unwrap_or_default();
            let channel = text.parse::<Table>().ok().and_then(|table| {
                Some(table.get("toolchain")?.get("channel")?.as_str()?.to_owned())
            });
            let version = channel.unwrap_or_else(|| text.trim().chars().take(40).collect());
            Some(Wanted { version, by })
        }
        None => said("rust-version").map(|version| Wanted {
            version,
            by: manifest.to_owned(),
        }),
    };
    let nextest = tree.has(&join(dir, ".config"), "nextest.toml");
    project.frameworks = vec![if nextest {
        Framework::Nextest
    } else {
        Framework::CargoTest
    }];
    let is_program = table.get("bin").is_some()
        || said("default-run").is_some()
        || tree.is_file(&join(dir, "src/main.rs"));
    project.program = said("default-run")
        .or_else(|| said("name"))
        .filter(|_| is_program);
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let paths = sections
        .iter()
        .filter_map(|section| table.get(*section)?.as_table());
    let paths = paths
        .flat_map(Table::values)
        .filter_map(|value| value.get("path")?.as_str());
    project.references = tree.hold(paths.filter_map(|path| resolve(dir, path)));
    project
}

/// The manifest that a relative path leads to, if it stays in the tree.
pub(super) fn resolve(dir: &str, path: &str) -> Option<String> {
    resolve_file(dir, &format!("{}/Cargo.toml", path.trim_end_matches('/')))
}

pub(super) fn resolve_file(dir: &str, path: &str) -> Option<String> {
    let path = path.replace('\\', "/");
    let mut parts: Vec<&str> = dir.split('/').filter(|part| *part != ".").collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn cargo(ask: &Ask<'_>, verb: &str) -> Step {
    let step = Step::new(ask.dir(), ["cargo", verb]).cache(Cache::Cargo, ask.places);
    match ask.options.reach {
        Reach::Offline => step.arg("--offline"),
        Reach::Host => step,
    }
}

/// On the host not from within the project: cargo and rustup obey the files that they find there, and those can name programs.
fn fetch(ask: &Ask<'_>) -> Step {
    let mut step = cargo(ask, "fetch")
        .arg("--manifest-path")
        .arg(format!("{}/Cargo.toml", ask.dir()));
    if ask.options.reach == Reach::Host {
        step.cwd.clone_from(&ask.places.caches);
        step.guards.push(join(&ask.project.path, "Cargo.lock"));
    }
    step
}

fn test(ask: &Ask<'_>) -> Step {
    let options = ask.options;
    if ask.project.frameworks.first() == Some(&Framework::Nextest) {
        let mut step = Step::new(
            ask.dir(),
            [
                "cargo",
                "nextest",
                "run",
                "--workspace",
                "--message-format=libtest-json",
            ],
        )
        .env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1")
        .cache(Cache::Cargo, ask.places)
        .for_programs();
        step = match ask.options.reach {
            Reach::Offline => step.arg("--offline"),
            Reach::Host => step,
        };
        step = match options.fail_fast {
            FailFast::Yes => step.arg("--fail-fast"),
            FailFast::No => step.arg("--no-fail-fast"),
        };
        if let Some(filter) = &options.filter {
            step = step.arg(filter);
        }
        return step.report(Place::Stdout, Format::LibtestJson);
    }
    let mut step = cargo(ask, "test").arg("--workspace");
    if options.fail_fast == FailFast::No {
        step = step.arg("--no-fail-fast");
    }
    if let Some(filter) = &options.filter {
        step = step.arg(filter);
    }
    step.env("CARGO_TERM_COLOR", "never")
        .report(Place::Stdout, Format::LibtestText)
}
