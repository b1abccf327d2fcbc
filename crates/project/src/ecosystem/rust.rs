//! Rust: crates and workspaces, with cargo; nextest where the project is set up for it.

use toml::{Table, Value};

use super::members::Patterns;
use super::runner::{Ask, Runner};
use crate::action::{Action, Cache, FailFast, Place, Reach, Step};
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{
    Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join, parent,
};
use crate::report::Format;

pub(super) struct Rust;

const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";
/// Fails where the lock file would have to be written.
const LOCKED: &str = "--locked";
/// A package that names the directory of its workspace.
const POINTS: &str = "package.workspace";

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
            Action::Restore => vec![fetch(ask)?],
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
    if package.is_some_and(|package| package.get("workspace").is_some()) {
        project.uses.push(POINTS.to_owned());
    }
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

/// On the host not from within the project: cargo and rustup obey the files that they find there, and those can name programs. The lock file that cargo writes is that of the workspace's root, so that
/// it must be known which one that is; where it is not, the one that is there stays as it is.
fn fetch(ask: &Ask<'_>) -> Result<Step, String> {
    if ask.options.reach == Reach::Offline {
        return Ok(fetch_for(ask, &ask.project.path));
    }
    let rust = ask.detection.projects.iter();
    let rust = rust.filter(|project| project.ecosystem == Ecosystem::Rust);
    let rust: Vec<&Project> = rust.collect();
    let holds = |top: &&&Project| {
        top.kind == ProjectKind::Workspace && top.members.contains(&ask.project.manifest)
    };
    // For a member what all of them need is fetched.
    let root = match ask.project.kind {
        ProjectKind::Member => rust.iter().find(holds).map_or(ask.project, |top| *top),
        _ => ask.project,
    };
    let mut step = fetch_for(ask, &root.path);
    step.cwd.clone_from(&ask.places.caches);
    let lock = join(&root.path, LOCK);
    let is_locked = root.lock_file.as_ref() == Some(&lock);
    step.guards.careful = is_locked.then_some(LOCKED);
    step.guards.written.push(lock);
    if root.kind != ProjectKind::Workspace {
        match alone(root, &rust, &mut step) {
            Err(_) if is_locked => step = step.arg(LOCKED),
            told => told?,
        }
    }
    Ok(step)
}

fn fetch_for(ask: &Ask<'_>, dir: &str) -> Step {
    cargo(ask, "fetch")
        .arg("--manifest-path")
        .arg(format!("{}/{MANIFEST}", ask.places.dir(dir)))
}

/// One that is no workspace may belong to one further up, whose lock file is then the one that is written.
fn alone(root: &Project, rust: &[&Project], step: &mut Step) -> Result<(), String> {
    if root.uses(POINTS) {
        return Err(points(root));
    }
    let mut dir = root.path.as_str();
    while dir != "." {
        dir = parent(dir);
        let manifest = join(dir, MANIFEST);
        match rust.iter().find(|project| project.manifest == manifest) {
            Some(above) if above.uses(POINTS) => return Err(points(above)),
            Some(_) => step.guards.written.push(join(dir, LOCK)),
            None => step.guards.absent.push(manifest),
        }
    }
    step.guards.absent_above = Some(MANIFEST);
    Ok(())
}

fn points(project: &Project) -> String {
    let manifest = &project.manifest;
    format!(
        "`{POINTS}` in `{manifest}` names another directory, and fetching outside of the sandbox would write the lock file there; make the lock file first, or leave --backend host out"
    )
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
