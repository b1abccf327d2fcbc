//! Node.js: packages and workspaces, with npm, yarn or pnpm by lock file.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Value;

use super::members::Patterns;
use super::node_restore;
use super::node_test;
use super::runner::{Ask, Runner};
use crate::action::{Action, Cache, Step};
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join};

pub(super) struct Node;

const MOST_OF_A_NAME: usize = 20;
/// Yarn from version 2 on: another program of the same name.
pub(super) const BERRY: &str = "yarn-berry";

impl Runner for Node {
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project> {
        let dirs: Vec<(String, bool)> = tree
            .dirs()
            .filter(|(_, names)| names.files.iter().any(|name| name == "package.json"))
            .map(|(dir, names)| (dir.to_owned(), names.has_node_tests))
            .collect();
        let mut found = Vec::new();
        let mut workspaces = Vec::new();
        for (dir, has_tests) in dirs {
            let manifest = join(&dir, "package.json");
            let Some(text) = tree.text(&manifest) else {
                continue;
            };
            let package: Value = match serde_json::from_str(&text) {
                Ok(package) => package,
                Err(error) => {
                    tree.note(format!("{manifest}: {error}"));
                    continue;
                }
            };
            let has_tests = has_tests || tree.any_below(&dir, |names| names.has_node_tests);
            found.push(read(tree, &dir, &manifest, &package, has_tests));
            let patterns = patterns(tree, &dir, &package);
            if !patterns.is_empty() {
                workspaces.push((dir, manifest, patterns));
            }
        }
        let mut room = Patterns::default();
        let places = places(&found);
        for (dir, manifest, patterns) in workspaces {
            let (excluded, patterns): (Vec<String>, Vec<String>) = patterns
                .into_iter()
                .partition(|pattern| pattern.starts_with('!'));
            let excluded: Vec<String> = excluded
                .iter()
                .map(|pattern| pattern.trim_start_matches('!').to_owned())
                .collect();
            let members = room.adopt(tree, &mut found, &dir, &patterns, &excluded);
            if let Some(top) = places.get(&manifest).and_then(|at| found.get_mut(*at)) {
                top.kind = ProjectKind::Workspace;
                top.members = members;
            }
        }
        room.tell(tree);
        connect(tree, &mut found);
        found
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        match ask.action {
            Action::Restore => Ok(node_restore::steps(ask)),
            Action::Build => Ok(build(ask)),
            Action::Test => node_test::steps(ask),
            Action::Lint => Ok(chore(ask, "lint", "eslint", &["."])),
            Action::Format => Ok(chore(ask, "format", "prettier", &["--write", "."])),
            Action::Run => Ok(run(ask)),
        }
    }

    fn programs(&self, project: &Project, _: Action) -> Vec<&'static str> {
        vec!["node", manager(project).as_str()]
    }

    fn executes(&self, project: &Project) -> Option<&'static str> {
        project
            .uses(BERRY)
            .then_some("yarn loads plugins that the project names in .yarnrc.yml")
    }
}

fn read(tree: &Tree<'_>, dir: &str, manifest: &str, package: &Value, has_tests: bool) -> Project {
    let mut project = Project::new(Ecosystem::Node, manifest);
    project.name = package["name"].as_str().map(str::to_owned);
    if let Some(scripts) = package["scripts"].as_object() {
        project.scripts = scripts.keys().cloned().collect();
    }
    project.test_script = package["scripts"]["test"].as_str().map(str::to_owned);
    let (manager, lock) = package_manager(tree, dir, package);
    project.package_manager = Some(manager);
    project.lock_file = lock;
    project.wants = wanted(tree, dir, package);
    let depends = |name: &str| {
        ["dependencies", "devDependencies"]
            .iter()
            .any(|section| package[section].get(name).is_some())
    };
    let is_berry = manager == PackageManager::Yarn
        && (package["packageManager"]
            .as_str()
            .is_some_and(|said| said.starts_with("yarn@") && !said.starts_with("yarn@1."))
            || project
                .lock_file
                .as_ref()
                .is_some_and(|lock| tree.head(lock).contains("__metadata:")));
    for (name, used) in [
        (BERRY, is_berry),
        (
            "typescript",
            depends("typescript") || tree.has(dir, "tsconfig.json"),
        ),
        ("tsconfig", tree.has(dir, "tsconfig.json")),
        ("eslint", depends("eslint")),
        ("prettier", depends("prettier")),
        (
            "dependencies",
            package["dependencies"].is_object() || package["devDependencies"].is_object(),
        ),
    ] {
        if used {
            project.uses.push(name.to_owned());
        }
    }
    project.program = program(tree, dir, package);
    project.frameworks = frameworks(&project, depends, has_tests);
    project.is_test = false;
    project
}

fn frameworks(
    project: &Project,
    depends: impl Fn(&str) -> bool,
    has_tests: bool,
) -> Vec<Framework> {
    let script = project.test_script.as_deref().unwrap_or_default();
    let says = |word: &str| {
        script
            .split(|c: char| !c.is_alphanumeric() && c != '-')
            .any(|part| part == word)
    };
    let mut found: Vec<Framework> = [
        ("jest", Framework::Jest),
        ("vitest", Framework::Vitest),
        ("mocha", Framework::Mocha),
    ]
    .into_iter()
    .filter(|(name, _)| says(name) || depends(name))
    .map(|(_, framework)| framework)
    .collect();
    // What the script names comes first.
    found.sort_by_key(|framework| !says(framework.as_str()));
    let names_other = found.iter().any(|framework| says(framework.as_str()));
    // `--test-name-pattern` and its like are node's own; `--testTimeout` is Jest's and Vitest's.
    let is_node_test = |word: &str| {
        let rest = word.strip_prefix("--test");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', '-']))
    };
    let says_node_test = !names_other && script.split_whitespace().any(is_node_test);
    if says_node_test || (found.is_empty() && has_tests && !is_no_test(script)) {
        found.insert(0, Framework::NodeTest);
    }
    found
}

/// What `npm init` writes.
pub(super) fn is_no_test(script: &str) -> bool {
    script.contains("no test specified")
}

fn package_manager(
    tree: &Tree<'_>,
    dir: &str,
    package: &Value,
) -> (PackageManager, Option<String>) {
    let locks = [
        ("pnpm-lock.yaml", PackageManager::Pnpm),
        ("yarn.lock", PackageManager::Yarn),
        ("package-lock.json", PackageManager::Npm),
        ("npm-shrinkwrap.json", PackageManager::Npm),
    ];
    // The nearest one counts, whatever its kind.
    let nearest = locks
        .into_iter()
        .filter_map(|(name, manager)| Some((manager, tree.nearest(dir, name)?)));
    if let Some((manager, path)) =
        nearest.min_by_key(|(_, path)| Reverse(path.matches('/').count()))
    {
        return (manager, Some(path));
    }
    let said = package["packageManager"].as_str().unwrap_or_default();
    let manager = match said.split('@').next() {
        Some("pnpm") => PackageManager::Pnpm,
        Some("yarn") => PackageManager::Yarn,
        _ => PackageManager::Npm,
    };
    (manager, None)
}

fn wanted(tree: &Tree<'_>, dir: &str, package: &Value) -> Option<Wanted> {
    if let Some(by) = [".nvmrc", ".node-version"]
        .iter()
        .find_map(|name| tree.nearest(dir, name))
    {
        return Some(Wanted {
            version: String::new(),
            by,
        });
    }
    let version = package["engines"]["node"].as_str()?.to_owned();
    let by = format!("{} (engines)", join(dir, "package.json"));
    Some(Wanted { version, by })
}

/// Patterns of members, by whichever file names them.
fn patterns(tree: &mut Tree<'_>, dir: &str, package: &Value) -> Vec<String> {
    let list = |value: &Value| -> Vec<String> {
        let members = value.as_array().into_iter().flatten();
        members
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut found = list(&package["workspaces"]);
    found.extend(list(&package["workspaces"]["packages"]));
    if tree.has(dir, "pnpm-workspace.yaml") {
        let text = tree
            .text(&join(dir, "pnpm-workspace.yaml"))
            .unwrap_or_default();
        found.extend(pnpm_patterns(&text));
    }
    if found.is_empty() && tree.has(dir, "lerna.json") {
        let text = tree.text(&join(dir, "lerna.json")).unwrap_or_default();
        let lerna: Value = serde_json::from_str(&text).unwrap_or_default();
        found.extend(list(&lerna["packages"]));
    }
    found
}

/// The list below `packages:`, in the only form that anybody writes it.
fn pnpm_patterns(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(item) = line.trim_start().strip_prefix("- ") {
            if is_inside {
                found.push(item.trim().trim_matches(['\'', '"']).to_owned());
            }
        } else if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            is_inside = line.trim_end() == "packages:";
        }
    }
    found
}

/// Where each project stands, by its manifest.
fn places(found: &[Project]) -> HashMap<String, usize> {
    let all = found.iter().enumerate();
    all.map(|(at, project)| (project.manifest.clone(), at))
        .collect()
}

/// Who uses whom, by name; and the versions that small files hold.
fn connect(tree: &mut Tree<'_>, found: &mut [Project]) {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for project in found.iter() {
        if let Some(name) = &project.name {
            let known = names.entry(name.clone()).or_default();
            // Many of one name are nobody's dependency.
            if known.len() < MOST_OF_A_NAME {
                known.push(project.manifest.clone());
            }
        }
    }
    let found_alone = found.len() < 2;
    for project in found.iter_mut() {
        if let Some(wanted) = &mut project.wants
            && wanted.version.is_empty()
        {
            let text = tree.text(&wanted.by).unwrap_or_default();
            wanted.version = text
                .trim()
                .trim_start_matches('v')
                .chars()
                .take(40)
                .collect();
        }
        if names.is_empty() || found_alone {
            continue;
        }
        let package: Value = tree
            .text(&project.manifest)
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let sections = ["dependencies", "devDependencies", "peerDependencies"];
        let uses = sections
            .iter()
            .filter_map(|section| package[section].as_object())
            .flat_map(serde_json::Map::keys);
        let mut references: Vec<&str> = uses
            .filter_map(|name| names.get(name))
            .flatten()
            .map(String::as_str)
            .filter(|manifest| *manifest != project.manifest)
            .collect();
        references.sort_unstable();
        project.references = tree.hold(references.into_iter());
    }
}

pub(super) fn manager(project: &Project) -> PackageManager {
    match project.package_manager {
        Some(manager @ (PackageManager::Yarn | PackageManager::Pnpm)) => manager,
        _ => PackageManager::Npm,
    }
}

/// The script `start`, the file that npm starts without one, or the only command that the package has.
fn program(tree: &Tree<'_>, dir: &str, package: &Value) -> Option<String> {
    if package["scripts"]["start"].is_string() {
        return Some("start".to_owned());
    }
    if tree.is_file(&join(dir, "server.js")) {
        return Some("server.js".to_owned());
    }
    let commands = package["bin"].as_object();
    let only = commands.filter(|commands| commands.len() == 1);
    let file = match only.and_then(|commands| commands.values().next()) {
        Some(file) => file.as_str()?,
        None => package["bin"].as_str()?,
    };
    let file = file.trim_start_matches("./");
    tree.is_file(&join(dir, file)).then(|| file.to_owned())
}

fn run(ask: &Ask<'_>) -> Vec<Step> {
    let project = ask.project;
    let Some(program) = project.program.as_deref() else {
        return Vec::new();
    };
    let args = ask.options.args.iter().cloned();
    let step = match program {
        // Its own words would come between what the program prints. Yarn 2 and later say nothing, and know no such word.
        "start" => {
            let mut step = script(ask, program, &project.path);
            if !project.uses(BERRY) {
                step.argv.insert(1, "--silent".to_owned());
            }
            match manager(project) {
                PackageManager::Npm if !ask.options.args.is_empty() => step.arg("--"),
                _ => step,
            }
        }
        file => quiet(in_view(
            ask,
            Step::new(ask.dir(), ["node", &format!("./{file}")]),
        )),
    };
    vec![step.args(args).program()]
}

fn build(ask: &Ask<'_>) -> Vec<Step> {
    let project = ask.project;
    if project.scripts.iter().any(|name| name == "build") {
        return vec![speak(script(ask, "build", &project.path))];
    }
    if project.uses("tsconfig") {
        let step = local(ask, "tsc", &project.path).args(["--project", ".", "--pretty", "false"]);
        return vec![speak(step)];
    }
    let built = project.members.iter().filter_map(|manifest| {
        let member = ask
            .detection
            .projects
            .iter()
            .find(|project| project.manifest == *manifest)?;
        let has = member.scripts.iter().any(|name| name == "build");
        has.then(|| speak(script(ask, "build", &member.path)))
    });
    built.collect()
}

fn chore(ask: &Ask<'_>, name: &str, program: &str, args: &[&str]) -> Vec<Step> {
    let project = ask.project;
    if project.scripts.iter().any(|script| script == name) {
        return vec![speak(script(ask, name, &project.path))];
    }
    if project.uses(program) {
        return vec![speak(
            local(ask, program, &project.path).args(args.iter().copied()),
        )];
    }
    Vec::new()
}

fn speak(step: Step) -> Step {
    step.speaker(Speaker::Tsc)
        .speaker(Speaker::Eslint)
        .speaker(Speaker::Npm)
}

/// A script of the manifest in this directory.
pub(super) fn script(ask: &Ask<'_>, name: &str, path: &str) -> Step {
    let dir = ask.places.dir(path);
    let step = Step::new(dir, [manager(ask.project).as_str(), "run", name]);
    quiet(in_view(ask, step))
}

/// A program that the project has installed for itself; never one that would be fetched.
pub(super) fn local(ask: &Ask<'_>, program: &str, path: &str) -> Step {
    let dir = ask.places.dir(path);
    let step = match manager(ask.project) {
        PackageManager::Yarn => Step::new(dir, ["yarn", "run", program]),
        PackageManager::Pnpm => Step::new(dir, ["pnpm", "exec", program]),
        _ => Step::new(dir, ["npx", "--no", "--", program]),
    };
    quiet(in_view(ask, step))
}

/// Yarn from version 2 on installs nothing: packages are used from where they were fetched to.
fn in_view(ask: &Ask<'_>, step: Step) -> Step {
    let step = as_it_is(ask, step);
    match ask.project.uses(BERRY) {
        true => step
            .cache(Cache::Yarn, ask.places)
            .env("YARN_ENABLE_GLOBAL_CACHE", "0"),
        false => step,
    }
}

/// No other version of itself because the project names one, and no installation that nobody asked for.
pub(super) fn as_it_is(ask: &Ask<'_>, step: Step) -> Step {
    match manager(ask.project) {
        PackageManager::Pnpm => step
            .env("npm_config_manage_package_manager_versions", "false")
            .env("npm_config_verify_deps_before_run", "false"),
        _ => step,
    }
}

/// Nothing that asks, advises or phones home.
pub(super) fn quiet(step: Step) -> Step {
    step.env("CI", "1")
        .env("npm_config_audit", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_update_notifier", "false")
        .env("NO_UPDATE_NOTIFIER", "1")
        .env("DO_NOT_TRACK", "1")
        .env("YARN_ENABLE_TELEMETRY", "0")
        // A file in the project may name another program that is then run instead of this one.
        .env("YARN_IGNORE_PATH", "1")
}
