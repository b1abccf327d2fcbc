//! Node.js: packages and workspaces, with npm, yarn or pnpm by lock file.

use serde_json::Value;

use super::members;
use super::node_test;
use super::runner::{Ask, Runner};
use crate::action::{Action, Cache, Reach, Step};
use crate::detect::Tree;
use crate::diagnostic::Speaker;
use crate::model::{Ecosystem, Framework, PackageManager, Project, ProjectKind, Wanted, join};

pub(super) struct Node;

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
        for (dir, manifest, patterns) in workspaces {
            let (excluded, patterns): (Vec<String>, Vec<String>) = patterns
                .into_iter()
                .partition(|pattern| pattern.starts_with('!'));
            let excluded: Vec<String> = excluded
                .iter()
                .map(|pattern| pattern.trim_start_matches('!').to_owned())
                .collect();
            let members = members::adopt(&mut found, &dir, &patterns, &excluded);
            if let Some(top) = found
                .iter_mut()
                .find(|project| project.manifest == manifest)
            {
                top.kind = ProjectKind::Workspace;
                top.members = members;
            }
        }
        connect(tree, &mut found);
        found
    }

    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String> {
        match ask.action {
            Action::Restore => restore(ask),
            Action::Build => Ok(build(ask)),
            Action::Test => node_test::steps(ask),
            Action::Lint => Ok(chore(ask, "lint", "eslint", &["."])),
            Action::Format => Ok(chore(ask, "format", "prettier", &["--write", "."])),
        }
    }

    fn programs(&self, project: &Project) -> Vec<&'static str> {
        vec!["node", manager(project).as_str()]
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
    for (name, used) in [
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
    if script.contains("--test") || (found.is_empty() && has_tests && !is_no_test(script)) {
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
    for (name, manager) in locks {
        if let Some(path) = tree.nearest(dir, name) {
            return (manager, Some(path));
        }
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

/// Who uses whom, by name; and the versions that small files hold.
fn connect(tree: &mut Tree<'_>, found: &mut [Project]) {
    let names: Vec<(String, String)> = found
        .iter()
        .filter_map(|project| Some((project.name.clone()?, project.manifest.clone())))
        .collect();
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
        if names.len() < 2 {
            continue;
        }
        let package: Value = tree
            .text(&project.manifest)
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let uses = |name: &str| {
            ["dependencies", "devDependencies", "peerDependencies"]
                .iter()
                .any(|section| package[section].get(name).is_some())
        };
        project.references = names
            .iter()
            .filter(|(name, manifest)| *manifest != project.manifest && uses(name))
            .map(|(_, manifest)| manifest.clone())
            .collect();
    }
}

pub(super) fn manager(project: &Project) -> PackageManager {
    match project.package_manager {
        Some(manager @ (PackageManager::Yarn | PackageManager::Pnpm)) => manager,
        _ => PackageManager::Npm,
    }
}

fn restore(ask: &Ask<'_>) -> Result<Vec<Step>, String> {
    let project = ask.project;
    if !project.uses("dependencies") && project.members.is_empty() {
        return Ok(Vec::new());
    }
    let locked = project.lock_file.is_some();
    // On the host nothing of the project's runs: scripts wait for the sandbox, and the program that fetches from git is not the project's to choose. `ci` also to
    // warm a cache: what `install` leaves there is not found again where the lock file does not say where it came from. Without retries, or an offline machine
    // waits for minutes.
    let words: &[&str] = match (manager(project), ask.options.reach) {
        (PackageManager::Yarn, Reach::Host) if locked => &["yarn", "install", "--frozen-lockfile"],
        (PackageManager::Yarn, Reach::Host) => &["yarn", "install"],
        (PackageManager::Yarn, Reach::Offline) => {
            &["yarn", "install", "--frozen-lockfile", "--offline"]
        }
        (PackageManager::Pnpm, Reach::Host) if locked => {
            &["pnpm", "install", "--frozen-lockfile", "--ignore-scripts"]
        }
        (PackageManager::Pnpm, Reach::Host) => &["pnpm", "install", "--ignore-scripts"],
        (PackageManager::Pnpm, Reach::Offline) => {
            &["pnpm", "install", "--frozen-lockfile", "--offline"]
        }
        (_, Reach::Host) if locked => &[
            "npm",
            "ci",
            "--prefer-offline",
            "--ignore-scripts",
            "--git=git",
        ],
        (_, Reach::Host) => &["npm", "install", "--ignore-scripts", "--git=git"],
        (_, Reach::Offline) if locked => &["npm", "ci", "--offline", "--fetch-retries=0"],
        (_, Reach::Offline) => &["npm", "install", "--offline", "--fetch-retries=0"],
    };
    let cache = match manager(project) {
        PackageManager::Yarn => Cache::Yarn,
        PackageManager::Pnpm => Cache::Pnpm,
        _ => Cache::Npm,
    };
    let step = Step::new(ask.dir(), words.iter().copied());
    Ok(vec![
        quiet(step).cache(cache, ask.places).speaker(Speaker::Npm),
    ])
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
    quiet(Step::new(dir, [manager(ask.project).as_str(), "run", name]))
}

/// A program that the project has installed for itself; never one that would be fetched.
pub(super) fn local(ask: &Ask<'_>, program: &str, path: &str) -> Step {
    let dir = ask.places.dir(path);
    quiet(match manager(ask.project) {
        PackageManager::Yarn => Step::new(dir, ["yarn", "run", program]),
        PackageManager::Pnpm => Step::new(dir, ["pnpm", "exec", program]),
        _ => Step::new(dir, ["npx", "--no", "--", program]),
    })
}

/// Nothing that asks, advises or phones home.
fn quiet(step: Step) -> Step {
    step.env("CI", "1")
        .env("npm_config_audit", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_update_notifier", "false")
        .env("NO_UPDATE_NOTIFIER", "1")
        .env("DO_NOT_TRACK", "1")
}
