//! Go: modules and workspaces, with the go command.

use std::collections::HashSet;

use super::runner::{Ask, Runner};
use super::rust::resolve_file;
use crate::action::{Action, Cache, Coverage, FailFast, Place, Reach, Step};
use crate::coverage::CoverageFormat;
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join};
use crate::report::Format;

pub(super) struct Go;

impl Runner for Go {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let named = |name: &'static str| {
            move |names: &crate::detect::Names| names.files.iter().any(|file| file == name)
        };
        let dirs = |tree: &Tree<'_>, name: &'static str| -> Vec<String> {
            let all = tree.dirs().filter(|(_, names)| named(name)(names));
            all.map(|(dir, _)| dir.to_owned()).collect()
        };
        let mut found: Vec<Project> = Vec::new();
        for dir in dirs(tree, "go.mod") {
            found.push(module(tree, &dir));
        }
        let modules: HashSet<String> = found
            .iter()
            .map(|project| project.manifest.clone())
            .collect();
        for dir in dirs(tree, "go.work") {
            found.push(workspace(tree, &dir, &modules));
        }
        let members: HashSet<String> = found
            .iter()
            .flat_map(|project| project.members.clone())
            .collect();
        for project in &mut found {
            if members.contains(&project.manifest) {
                project.kind = ProjectKind::Member;
            }
        }
        found
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        let dirs: Vec<String> = match ask.project.kind {
            // `./...` does not enter other modules.
            ProjectKind::Workspace => ask
                .project
                .members
                .iter()
                .map(|manifest| ask.places.dir(crate::model::parent(manifest)))
                .collect(),
            _ => vec![ask.dir()],
        };
        let each = |words: &[&str]| -> Vec<Step> {
            dirs.iter()
                .map(|dir| go(ask, dir.clone(), words).speaker(Speaker::Go))
                .collect()
        };
        Ok(match ask.action {
            Action::Restore => {
                let mut steps = each(&["mod", "download"]);
                if ask.options.reach == Reach::Host {
                    let (work, guards) = written(ask);
                    for step in &mut steps {
                        step.env.push(("GOWORK".to_owned(), work.clone()));
                        step.guards.written.clone_from(&guards);
                    }
                }
                steps
            }
            Action::Build => each(&["build", "./..."]),
            Action::Lint => each(&["vet", "./..."]),
            Action::Format => vec![Step::new(ask.dir(), ["gofmt", "-l", "-w", "."])],
            Action::Run => {
                let package = ask.project.program.as_deref().unwrap_or(".");
                let step = go(ask, ask.dir(), &["run", package]).speaker(Speaker::Go);
                vec![step.args(ask.options.args.iter().cloned()).program()]
            }
            Action::Test => {
                let all = each(&["test", "-json"]).into_iter();
                all.map(|step| test(ask, step)).collect()
            }
        })
    }

    fn programs(&self, _: &Project, _: Action) -> Vec<&'static str> {
        vec!["go"]
    }
}

/// Which workspace go works in, said to it: it would look for one in every directory above. And what it then may write to.
fn written(ask: &Ask<'_>) -> (String, Vec<String>) {
    let all = ask.detection.projects.iter();
    let mut workspaces = all.filter(|project| {
        project.ecosystem == Ecosystem::Go && project.kind == ProjectKind::Workspace
    });
    let of = |top: &Project| {
        top.manifest == ask.project.manifest || top.members.contains(&ask.project.manifest)
    };
    let top = workspaces.find(|top| of(top));
    let work = top.map_or_else(|| "off".to_owned(), |top| ask.places.dir(&top.manifest));
    let top = top.unwrap_or(ask.project);
    let manifests = std::iter::once(&top.manifest).chain(&top.members);
    let written = manifests.flat_map(|manifest| {
        let dir = crate::model::parent(manifest);
        ["go.mod", "go.sum", "go.work", "go.work.sum"].map(|name| join(dir, name))
    });
    (work, written.collect())
}

fn module(tree: &mut Tree<'_>, dir: &str) -> Project {
    let manifest = join(dir, "go.mod");
    let text = tree.text(&manifest).unwrap_or_default();
    let mut project = Project::new(Ecosystem::Go, &manifest);
    let word = |key: &str| {
        let found = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(' '));
        found.map(|rest| rest.trim().to_owned())
    };
    project.name = word("module");
    project.wants = word("go").map(|version| Wanted {
        version,
        by: manifest.clone(),
    });
    project.package_manager = Some(PackageManager::Go);
    project.program = program(tree, dir, project.name.as_deref());
    project.lock_file = tree.has(dir, "go.sum").then(|| join(dir, "go.sum"));
    if tree.any_below(dir, |names| names.has_go_tests) {
        project.frameworks.push(Framework::GoTest);
    }
    project
}

/// Where `main` is by custom: at the top, or in `cmd` under the module's own name.
fn program(tree: &Tree<'_>, dir: &str, module: Option<&str>) -> Option<String> {
    if tree.is_file(&join(dir, "main.go")) {
        return Some(".".to_owned());
    }
    let name = module?.rsplit('/').next()?;
    let is_there = tree.is_file(&join(dir, &format!("cmd/{name}/main.go")));
    is_there.then(|| format!("./cmd/{name}"))
}

fn workspace(tree: &mut Tree<'_>, dir: &str, modules: &HashSet<String>) -> Project {
    let manifest = join(dir, "go.work");
    let text = tree.text(&manifest).unwrap_or_default();
    let mut project = Project::new(Ecosystem::Go, &manifest);
    project.kind = ProjectKind::Workspace;
    project.package_manager = Some(PackageManager::Go);
    project.frameworks.push(Framework::GoTest);
    let mut is_inside = false;
    let members = text.lines().map(str::trim).filter_map(|line| {
        let path = match line.strip_prefix("use") {
            Some(rest) if rest.trim() == "(" => {
                is_inside = true;
                None
            }
            Some(rest) if rest.starts_with(' ') => Some(rest.trim()),
            _ if line == ")" => {
                is_inside = false;
                None
            }
            _ if is_inside && !line.is_empty() && !line.starts_with("//") => Some(line),
            _ => None,
        };
        let manifest = resolve_file(dir, &format!("{}/go.mod", path?))?;
        modules.contains(&manifest).then_some(manifest)
    });
    project.members = tree.hold(members);
    project
}

fn go(ask: &Ask<'_>, dir: String, words: &[&str]) -> Step {
    let step = Step::new(dir, ["go"])
        .args(words.iter().copied())
        .cache(Cache::Go, ask.places)
        // The directory belongs to somebody else inside, which git refuses to look at.
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOTOOLCHAIN", "local")
        .env("GOTELEMETRY", "off");
    match ask.options.reach {
        Reach::Offline => step.env("GOPROXY", "off").env("GOSUMDB", "off"),
        Reach::Host => step,
    }
}

fn test(ask: &Ask<'_>, mut step: Step) -> Step {
    let options = ask.options;
    if let Some(filter) = &options.filter {
        step = step.args(["-run", filter]);
    }
    if options.fail_fast == FailFast::Yes {
        step = step.arg("-failfast");
    }
    if options.coverage == Coverage::Yes {
        step = step
            .arg(format!(
                "-coverprofile={}",
                ask.places.report("coverage.out")
            ))
            .covered("coverage.out", CoverageFormat::GoProfile);
    }
    step.arg("./...")
        .report(Place::Stdout, Format::GoJson)
        .for_programs()
}
