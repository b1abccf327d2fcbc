//! What Node.js packages depend on: fetched outside of the sandbox by npm, Yarn or pnpm, which see copies of manifests there and not the project; installed inside from the cache.

use super::node::{BERRY, as_it_is, manager, quiet};
use super::runner::Ask;
use crate::action::{Cache, Reach, Step};
use crate::apart::Apart;
use crate::diagnostic::Speaker;
use crate::model::{PackageManager, Project, ProjectKind, join};

/// One step for a project with dependencies.
pub(super) fn steps(ask: &Ask<'_>) -> Vec<Step> {
    let ask = &Ask {
        project: fetched_for(ask),
        ..*ask
    };
    let project = ask.project;
    if !project.uses("dependencies") && project.members.is_empty() {
        return Vec::new();
    }
    let locked = project.lock_file.is_some();
    let is_host = ask.options.reach == Reach::Host;
    // On the host nothing of the project's runs: scripts wait for the sandbox, and the program that fetches from git is not the project's to choose. `ci` also to
    // warm a cache: what `install` leaves there is not found again where the lock file does not say where it came from. Without retries, or an offline machine
    // waits for minutes.
    let mut words: Vec<&str> = Vec::new();
    let cache = match manager(project) {
        PackageManager::Yarn if project.uses(BERRY) => {
            words.extend(["yarn", "install"]);
            words.extend(locked.then_some("--immutable"));
            // Its setting for scripts is not about those of the project itself.
            words.extend(is_host.then_some("--mode=skip-build"));
            Cache::Yarn
        }
        PackageManager::Yarn => {
            words.extend(["yarn", "install", "--non-interactive"]);
            words.extend(locked.then_some("--frozen-lockfile"));
            words.push(if is_host {
                "--ignore-scripts"
            } else {
                "--offline"
            });
            Cache::Yarn
        }
        // What is locked needs no manifest to be fetched.
        PackageManager::Pnpm if is_host && locked => {
            words.extend(["pnpm", "fetch", "--ignore-scripts", "--ignore-pnpmfile"]);
            Cache::Pnpm
        }
        PackageManager::Pnpm => {
            words.extend(["pnpm", "install"]);
            words.push(if locked {
                "--frozen-lockfile"
            } else {
                "--no-frozen-lockfile"
            });
            match is_host {
                true => words.extend(["--ignore-scripts", "--ignore-pnpmfile"]),
                false => words.push("--offline"),
            }
            Cache::Pnpm
        }
        _ => {
            words.extend(["npm", if locked { "ci" } else { "install" }]);
            match is_host {
                true => {
                    words.extend(locked.then_some("--prefer-offline"));
                    words.extend(["--ignore-scripts", "--git=git"]);
                }
                false => words.extend(["--offline", "--fetch-retries=0"]),
            }
            Cache::Npm
        }
    };
    let step = as_it_is(ask, quiet(Step::new(ask.dir(), words)));
    let mut step = step.cache(cache, ask.places);
    if project.uses(BERRY) {
        // Its cache is the one that it is given, and not one in the home directory.
        step = step
            .env("YARN_ENABLE_GLOBAL_CACHE", "0")
            .env("YARN_ENABLE_NETWORK", if is_host { "1" } else { "0" })
            .env("YARN_ENABLE_SCRIPTS", if is_host { "0" } else { "1" })
            // With `CI` set it would refuse to make a lock file.
            .env(
                "YARN_ENABLE_IMMUTABLE_INSTALLS",
                if locked { "1" } else { "0" },
            );
    }
    // Whoever trusts the project has it fetched for in its own place.
    if is_host && !project.uses(BERRY) {
        step.apart = Some(apart(ask));
    }
    vec![step.speaker(Speaker::Npm)]
}

/// On the host a member is fetched for with its workspace: the lock file and what says who belongs to it are there.
fn fetched_for<'a>(ask: &Ask<'a>) -> &'a Project {
    let own = ask.project;
    if ask.options.reach == Reach::Offline || own.kind != ProjectKind::Member {
        return own;
    }
    let mut all = ask.detection.projects.iter();
    let holds =
        |top: &&Project| top.ecosystem == own.ecosystem && top.members.contains(&own.manifest);
    all.find(holds).unwrap_or(own)
}

/// Manifests and lock file in a directory of their own. A tool in the project itself would write and remove through every link there, and obey its settings.
fn apart(ask: &Ask<'_>) -> Apart {
    let project = ask.project;
    let of = |name: &str| join(&project.path, name);
    let is_pnpm = manager(project) == PackageManager::Pnpm;
    let mut apart = Apart {
        settings: vec![of(".npmrc"), of(".yarnrc")],
        ..Apart::default()
    };
    match &project.lock_file {
        Some(lock) => apart.files.push(lock.clone()),
        None => {
            apart.brings = Some(of(match manager(project) {
                PackageManager::Yarn => "yarn.lock",
                PackageManager::Pnpm => "pnpm-lock.yaml",
                _ => "package-lock.json",
            }));
        }
    }
    if !is_pnpm || project.lock_file.is_none() {
        apart.files.push(project.manifest.clone());
        apart.files.extend(project.members.iter().cloned());
    }
    if is_pnpm && !project.members.is_empty() && project.lock_file.is_none() {
        // Its own file has settings as well, such as where to install to.
        let below = |manifest: &String| {
            let dir = crate::model::parent(manifest);
            let inner = dir.strip_prefix(&project.path).unwrap_or(dir);
            let inner = inner.trim_start_matches('/');
            format!("  - {}\n", serde_json::Value::from(inner))
        };
        let members: String = project.members.iter().map(below).collect();
        apart
            .written
            .push((of("pnpm-workspace.yaml"), format!("packages:\n{members}")));
    }
    apart
}
