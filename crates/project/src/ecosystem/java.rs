//! Java with Maven: single projects and those with modules.

use std::collections::HashSet;

use super::runner::{Ask, Runner};
use super::rust::resolve_file;
use crate::action::{Action, Cache, FailFast, Place, Reach, Step};
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{
    Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join, parent,
};
use crate::report::Format;
use crate::xml::{self, Element};

pub(super) struct Java;

impl Runner for Java {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let dirs: Vec<String> = tree
            .dirs()
            .filter(|(_, names)| names.files.iter().any(|name| name == "pom.xml"))
            .map(|(dir, _)| dir.to_owned())
            .collect();
        let mut found: Vec<Project> = dirs.iter().filter_map(|dir| read(tree, dir)).collect();
        let members: HashSet<String> = found
            .iter()
            .flat_map(|project| project.members.clone())
            .collect();
        for project in &mut found {
            if members.contains(&project.manifest) {
                project.kind = ProjectKind::Member;
            } else if !project.members.is_empty() {
                project.kind = ProjectKind::Workspace;
            }
        }
        found
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        Ok(match ask.action {
            Action::Run => run(ask)?,
            Action::Restore => vec![maven(ask, &["dependency:go-offline"])],
            Action::Build => vec![maven(ask, &["test-compile"])],
            Action::Test => vec![test(ask)],
            Action::Lint | Action::Format => Vec::new(),
        })
    }

    fn executes(&self, _: &Project) -> Option<&'static str> {
        Some("Maven runs plugins and extensions that pom.xml and .mvn name")
    }

    fn programs(&self, _: &Project, _: Action) -> Vec<&'static str> {
        vec!["mvn", "java"]
    }
}

fn read(tree: &mut Tree<'_>, dir: &str) -> Option<Project> {
    let manifest = join(dir, "pom.xml");
    let text = tree.text(&manifest)?;
    let document = match xml::parse(text.as_bytes()) {
        Ok(document) => document,
        Err(error) => {
            tree.note(format!("{manifest}: {error}"));
            return None;
        }
    };
    let pom = &document.root;
    let mut project = Project::new(Ecosystem::Java, &manifest);
    project.name = pom.text_of("artifactId").map(str::to_owned);
    project.package_manager = Some(PackageManager::Maven);
    let properties = pom.child("properties");
    let version = ["maven.compiler.release", "maven.compiler.source"]
        .iter()
        .find_map(|key| properties?.text_of(key));
    project.wants = version.map(|version| Wanted {
        version: version.to_owned(),
        by: manifest.clone(),
    });
    let modules = pom
        .child("modules")
        .map(|list| list.all("module"))
        .unwrap_or_default();
    let members: Vec<String> = modules
        .iter()
        .filter_map(|module| {
            let path = module.text.trim();
            let file = if path.ends_with(".xml") {
                path.to_owned()
            } else {
                format!("{path}/pom.xml")
            };
            resolve_file(dir, &file).filter(|file| tree.has(parent(file), "pom.xml"))
        })
        .collect();
    project.members = tree.hold(members.into_iter());
    let uses = |word: &str| {
        let artifacts = pom.all("dependency").into_iter();
        artifacts
            .filter_map(|dependency: &Element| dependency.text_of("artifactId"))
            .any(|name| name.contains(word))
    };
    if uses("junit") || uses("testng") || !project.members.is_empty() {
        project.frameworks.push(Framework::Surefire);
    }
    project.program = program(pom);
    Some(project)
}

/// A goal that starts it, of the plugins that are there for it; else the class that is named as the one with `main`.
fn program(pom: &Element) -> Option<String> {
    let plugins: Vec<&str> = pom
        .all("plugin")
        .into_iter()
        .filter_map(|plugin: &Element| plugin.text_of("artifactId"))
        .collect();
    let goals = [
        ("spring-boot-maven-plugin", "spring-boot:run"),
        ("exec-maven-plugin", "exec:java"),
    ];
    let goal = goals.iter().find(|(plugin, _)| plugins.contains(plugin));
    let named = || {
        let classes = ["exec.mainClass", "mainClass"].map(|key| pom.all(key));
        let class = classes.iter().flatten().next()?.text.trim();
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '$');
        (!class.is_empty() && class.chars().all(fits)).then(|| class.to_owned())
    };
    match goal {
        Some((_, goal)) => Some((*goal).to_owned()),
        None => named(),
    }
}

fn maven(ask: &Ask<'_>, goals: &[&str]) -> Step {
    let repository = ask.places.cache(Cache::Maven);
    let step = Step::new(ask.dir(), ["mvn", "--batch-mode", "--no-transfer-progress"])
        .arg(format!("-Dmaven.repo.local={repository}"))
        .cache(Cache::Maven, ask.places)
        .speaker(Speaker::Maven);
    let step = match ask.options.reach {
        // A repository in a directory needs no network.
        Reach::Offline => step.args(["--offline", "-Daether.offline.protocols=file"]),
        Reach::Host => step,
    };
    step.args(goals.iter().copied())
}

/// By a goal of Maven's, or by the class itself once it is compiled.
fn run(ask: &Ask<'_>) -> Result<Vec<Step>, String> {
    let args = &ask.options.args;
    Ok(match ask.project.program.as_deref() {
        None => Vec::new(),
        Some(goal @ "spring-boot:run") => {
            let args = format!("-Dspring-boot.run.arguments={}", one_line(args)?);
            vec![maven(ask, &["--quiet", goal, &args]).program()]
        }
        Some(goal @ "exec:java") => {
            let args = format!("-Dexec.args={}", one_line(args)?);
            vec![maven(ask, &["--quiet", "compile", goal, &args]).program()]
        }
        Some(class) => {
            let java = Step::new(ask.dir(), ["java", "-cp", "target/classes", class]);
            vec![
                maven(ask, &["--quiet", "compile"]),
                java.args(args.iter().cloned()).program(),
            ]
        }
    })
}

/// Plugins take arguments as one line and take it apart at its spaces.
fn one_line(args: &[String]) -> Result<String, String> {
    let splits = |arg: &&String| {
        arg.is_empty() || arg.contains(|c: char| c.is_whitespace() || "'\"\\".contains(c))
    };
    match args.iter().find(splits) {
        Some(arg) => Err(format!(
            "Maven's plugin cannot hand over the argument `{arg}`; use none with spaces, quotes or backslashes"
        )),
        None => Ok(args.join(" ")),
    }
}

fn test(ask: &Ask<'_>) -> Step {
    let options = ask.options;
    let mut step = maven(ask, &["test"]);
    step = match options.fail_fast {
        FailFast::Yes => step.args(["--fail-fast", "-Dsurefire.skipAfterFailureCount=1"]),
        FailFast::No => step.arg("--fail-at-end"),
    };
    if let Some(filter) = &options.filter {
        step = step.arg(format!("-Dtest={filter}")).args([
            "-DfailIfNoTests=false",
            "-Dsurefire.failIfNoSpecifiedTests=false",
        ]);
    }
    let own = std::iter::once(&ask.project.manifest).chain(&ask.project.members);
    for manifest in own {
        step = step.report(
            Place::Project {
                dir: join(parent(manifest), "target/surefire-reports"),
                prefix: "TEST-",
                suffix: ".xml",
            },
            Format::Junit,
        );
    }
    step
}
