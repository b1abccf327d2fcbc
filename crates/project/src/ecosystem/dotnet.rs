//! .NET: solutions and projects, with the dotnet command. Compiler servers are switched off: nothing is to outlive a step.

use std::collections::HashSet;

use super::runner::{Ask, Runner};
use super::rust::resolve_file;
use crate::action::{Action, Cache, Coverage, Place, Reach, Step};
use crate::coverage::CoverageFormat;
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{
    Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join, parent,
};
use crate::report::Format;
use crate::xml::{self, Element};

pub(super) struct Dotnet;

const PROJECTS: [&str; 3] = [".csproj", ".fsproj", ".vbproj"];
const SOLUTIONS: [&str; 2] = [".sln", ".slnx"];
/// Where a program is built to be started: among what the compiler keeps, which no project takes for source.
const BUILT: &str = "obj/cofferdam";

impl Runner for Dotnet {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let ends =
            |name: &str, endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        let files: Vec<String> = tree
            .dirs()
            .flat_map(|(dir, names)| names.files.iter().map(move |name| join(dir, name)))
            .filter(|path| ends(path, &PROJECTS) || ends(path, &SOLUTIONS))
            .collect();
        let mut found: Vec<Project> = files
            .iter()
            .filter(|path| ends(path, &PROJECTS))
            .filter_map(|path| project(tree, path))
            .collect();
        let known: HashSet<String> = found
            .iter()
            .map(|project| project.manifest.clone())
            .collect();
        for path in files.iter().filter(|path| ends(path, &SOLUTIONS)) {
            found.push(solution(tree, path, &known));
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
        Ok(match ask.action {
            Action::Restore => vec![restore(ask)],
            Action::Build => vec![build(ask)],
            Action::Test => vec![test(ask)],
            Action::Lint => {
                vec![dotnet(ask, "format").args(["--verify-no-changes", "--no-restore"])]
            }
            Action::Format => vec![dotnet(ask, "format").arg("--no-restore")],
            Action::Run => run(ask),
        })
    }

    fn executes(&self, _: &Project) -> Option<&'static str> {
        Some("MSBuild runs what project files name")
    }

    fn programs(&self, _: &Project, _: Action) -> Vec<&'static str> {
        vec!["dotnet"]
    }
}

fn project(tree: &mut Tree<'_>, path: &str) -> Option<Project> {
    let text = tree.text(path)?;
    let document = match xml::parse(text.as_bytes()) {
        Ok(document) => document,
        Err(error) => {
            tree.note(format!("{path}: {error}"));
            return None;
        }
    };
    let root = &document.root;
    let mut project = Project::new(Ecosystem::Dotnet, path);
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
    project.name = Some(name.to_owned());
    project.package_manager = Some(PackageManager::Nuget);
    project.wants = global_json(tree, parent(path));
    let said = |key: &str| {
        root.all(key)
            .first()
            .map(|found| found.text.trim().to_owned())
    };
    if let Some(framework) = said("TargetFramework").or_else(|| said("TargetFrameworks")) {
        project.uses.push(framework);
    }
    let included = |kind: &str| -> Vec<String> {
        let all = root.all(kind).into_iter();
        all.filter_map(|item: &Element| item.attribute("Include").map(str::to_owned))
            .collect()
    };
    let references = included("ProjectReference").into_iter();
    project.references = tree.hold(references.filter_map(|file| resolve_file(parent(path), &file)));
    let is_test_package = |name: &String| {
        let name = name.to_lowercase();
        [
            "microsoft.net.test.sdk",
            "xunit",
            "nunit",
            "mstest",
            "tunit",
        ]
        .iter()
        .any(|known| name.starts_with(known))
    };
    let is_said = said("IsTestProject").map(|text| text.eq_ignore_ascii_case("true"));
    let is_named = ["Tests", "Test", "UnitTests", "IntegrationTests"]
        .iter()
        .any(|ending| name.ends_with(ending));
    project.is_test = is_said
        .unwrap_or_else(|| is_named || included("PackageReference").iter().any(is_test_package));
    if project.is_test {
        project.frameworks.push(Framework::Vstest);
    } else if is_program(root, said("OutputType").as_deref()) {
        let assembly = said("AssemblyName").filter(|said| !said.contains(['/', '$']));
        project.program = Some(assembly.unwrap_or_else(|| name.to_owned()));
    }
    Some(project)
}

/// Programs say so, and what serves or works in the background is one by its kind.
fn is_program(root: &Element, output: Option<&str>) -> bool {
    let is = |text: &str, of: [&str; 2]| of.iter().any(|one| text.eq_ignore_ascii_case(one));
    match output {
        Some(output) => is(output, ["Exe", "WinExe"]),
        None => root
            .attribute("Sdk")
            .is_some_and(|sdk| is(sdk, ["Microsoft.NET.Sdk.Web", "Microsoft.NET.Sdk.Worker"])),
    }
}

fn global_json(tree: &mut Tree<'_>, dir: &str) -> Option<Wanted> {
    let by = tree.nearest(dir, "global.json")?;
    let text = tree.text(&by)?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    let version = value["sdk"]["version"].as_str()?.to_owned();
    Some(Wanted { version, by })
}

fn solution(tree: &mut Tree<'_>, path: &str, known: &HashSet<String>) -> Project {
    let text = tree.text(path).unwrap_or_default();
    let mut project = Project::new(Ecosystem::Dotnet, path);
    project.kind = ProjectKind::Solution;
    let file = path.rsplit('/').next().unwrap_or(path);
    project.name = file.rsplit_once('.').map(|(name, _)| name.to_owned());
    project.package_manager = Some(PackageManager::Nuget);
    project.wants = global_json(tree, parent(path));
    project.frameworks.push(Framework::Vstest);
    let listed: Vec<String> = if path.ends_with(".slnx") {
        let document = xml::parse(text.as_bytes()).ok();
        let all = document
            .iter()
            .flat_map(|document| document.root.all("Project"));
        all.filter_map(|item| item.attribute("Path").map(str::to_owned))
            .collect()
    } else {
        // Project("{type}") = "name", "path", "{id}"
        let lines = text
            .lines()
            .filter(|line| line.trim_start().starts_with("Project("));
        lines
            .filter_map(|line| line.split('"').nth(5).map(str::to_owned))
            .collect()
    };
    let members = listed
        .iter()
        .filter_map(|file| resolve_file(parent(path), file));
    project.members = tree.hold(members.filter(|file| known.contains(file)));
    project
}

/// What the file is called in its own directory.
fn file(ask: &Ask<'_>) -> String {
    let manifest = &ask.project.manifest;
    manifest.rsplit('/').next().unwrap_or(manifest).to_owned()
}

fn dotnet(ask: &Ask<'_>, verb: &str) -> Step {
    surrounded(ask, Step::new(ask.dir(), ["dotnet", verb]).arg(file(ask)))
}

/// Nothing that phones home, and nothing that outlives the step.
fn surrounded(ask: &Ask<'_>, step: Step) -> Step {
    step.cache(Cache::Nuget, ask.places)
        .env("DOTNET_CLI_TELEMETRY_OPTOUT", "1")
        .env("DOTNET_SKIP_FIRST_TIME_EXPERIENCE", "1")
        .env("DOTNET_NOLOGO", "1")
        .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
        .env("MSBUILDDISABLENODEREUSE", "1")
        .env("DOTNET_CLI_USE_MSBUILD_SERVER", "0")
        .speaker(Speaker::Msbuild)
}

fn build(ask: &Ask<'_>) -> Step {
    dotnet(ask, "build").args([
        "--no-restore",
        "-nodeReuse:false",
        "-p:UseSharedCompilation=false",
        "-nologo",
    ])
}

fn restore(ask: &Ask<'_>) -> Step {
    let step = dotnet(ask, "restore");
    match ask.options.reach {
        Reach::Host => step,
        // What is in the cache is used without asking anybody; what is not fails at once.
        Reach::Offline => step.arg("--ignore-failed-sources"),
    }
}

/// Built first, into a place that is known, so that what the SDK says does not come between what the program prints: `dotnet run` greets whoever has a new home, which is everybody inside.
fn run(ask: &Ask<'_>) -> Vec<Step> {
    let Some(program) = ask.project.program.as_deref() else {
        return Vec::new();
    };
    let program = Step::new(ask.dir(), ["dotnet", &format!("{BUILT}/{program}.dll")])
        .args(ask.options.args.iter().cloned());
    vec![
        build(ask).args(["--output", BUILT]),
        surrounded(ask, program).program(),
    ]
}

fn test(ask: &Ask<'_>) -> Step {
    let options = ask.options;
    let mut step = dotnet(ask, "test")
        .args([
            "--no-restore",
            "-nodeReuse:false",
            "-p:UseSharedCompilation=false",
            "-nologo",
            "--logger",
            "trx",
            // Test by test while they run; what is parsed of it is in English.
            "--logger",
            "console;verbosity=normal",
        ])
        .env("DOTNET_CLI_UI_LANGUAGE", "en")
        .args(["--results-directory", &ask.places.reports]);
    if let Some(filter) = &options.filter {
        step = step.args(["--filter", filter]);
    }
    if options.coverage == Coverage::Yes {
        step = step
            .args(["--collect", "XPlat Code Coverage"])
            .covered("coverage.cobertura.xml", CoverageFormat::Cobertura);
    }
    step.report(Place::OwnAll(".trx"), Format::Trx)
        .report(Place::Stdout, Format::VstestText)
}
