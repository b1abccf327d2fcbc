//! A cache as a run sees it: at a path that says nothing of the host, found by the variable that its tool reads. Read-only unless somebody trusts the run with it.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::{BackendName, Mount, MountAccess, Request};
use cofferdam_project::{Bounds, Cache, detect};
use cofferdam_workshop::cache::{self, Held, Side, Use};

use super::place;
use crate::arguments::RunArgs;
use crate::failure::Failure;
use crate::run;
use crate::terminal::output::note;

/// Where caches are, inside.
const INSIDE: &str = "/cache";
/// Chosen by the lock files of the workspace.
const AUTO: &str = "auto";

/// The caches of one run, held for it.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    place: PathBuf,
    uses: Vec<Use>,
    _held: Held,
}

fn mount(each: Use, place: &Path) -> Mount {
    Mount {
        source: place.join(each.cache.as_str()),
        target: Path::new(INSIDE).join(each.cache.as_str()),
        access: each.access,
    }
}

impl Volumes {
    /// Shows them to a run. What the caller has set himself stays.
    pub(crate) fn give(&self, request: &mut Request) {
        // Without walls everything is where it is.
        let is_host = request.backend == BackendName::Host;
        for each in &self.uses {
            let mount = mount(*each, &self.place);
            let seen = if is_host {
                &mount.source
            } else {
                &mount.target
            };
            let name = OsString::from(each.cache.variable());
            if !request.env.iter().any(|(set, _)| *set == name) {
                request.env.push((name, seen.clone().into()));
            }
            if !is_host {
                request.mounts.push(mount);
            }
        }
    }
}

/// What the flags of `run` ask for. Waits for its turn where a cache needs turns.
pub(crate) fn for_run(
    args: &RunArgs,
    backend: BackendName,
    cancel: BorrowedFd<'_>,
) -> Result<Volumes, Failure> {
    if args.volumes.is_empty() {
        return Ok(Volumes::default());
    }
    let workspace = args.workspace.clone().map(|text| run::workspace(text).path);
    let root = match &workspace {
        Some(path) => Some(path.canonicalize().map_err(|error| {
            let what = format!("--workspace: cannot use `{}`", path.display());
            Failure::io(ErrorCode::InputUnreadable, &what, &error)
        })?),
        None => None,
    };
    // What a sandbox could write to, a tool without walls does not obey.
    let side = match backend {
        BackendName::Host => Side::Outside,
        _ => Side::Inside,
    };
    let uses = uses(&args.volumes, root.as_deref(), side)?;
    let place = match (&args.cache_dir, &root) {
        (Some(named), _) => place::place(Some(named), Path::new("/"))?,
        (None, Some(root)) => place::place(None, root)?,
        (None, None) => {
            let fix = "belongs to a workspace, and there is none; name one, or a directory with --cache-dir";
            return Err(Failure::problem("--cache", &args.volumes.join(", "), fix));
        }
    };
    if let (None, Some(root)) = (&args.cache_dir, &root) {
        place::remember_best_effort(&place, root);
    }
    let held = cache::hold(&place, &uses, Some(cancel), &|cache| {
        let name = cache.as_str();
        note(&format!(
            "cofferdam: waiting for the {name} cache, which another run uses"
        ));
    })?;
    Ok(Volumes {
        place,
        uses,
        _held: held,
    })
}

fn uses(asked: &[String], root: Option<&Path>, side: Side) -> Result<Vec<Use>, Failure> {
    let mut uses: Vec<Use> = Vec::new();
    for text in asked {
        let (name, access) = match text.rsplit_once(':') {
            Some((name, "rw")) => (name, MountAccess::ReadWrite),
            Some((name, "ro")) => (name, MountAccess::ReadOnly),
            _ => (text.as_str(), MountAccess::ReadOnly),
        };
        let caches = match Cache::ALL.into_iter().find(|cache| cache.as_str() == name) {
            Some(cache) => vec![cache],
            None if name == AUTO => chosen(root)?,
            None => {
                let known = Cache::ALL.map(Cache::as_str).join(", ");
                let fix = format!("there is no such cache; write `auto`, or one of {known}");
                return Err(Failure::problem("--cache", text, fix));
            }
        };
        for cache in caches {
            match uses.iter_mut().find(|known| known.cache == cache) {
                // What is said later, and by name, counts.
                Some(known) => known.access = access,
                None => uses.push(Use {
                    cache,
                    access,
                    side,
                }),
            }
        }
    }
    Ok(uses)
}

fn chosen(root: Option<&Path>) -> Result<Vec<Cache>, Failure> {
    let Some(root) = root else {
        let fix =
            "is chosen by the lock files of the workspace, and there is none; name a workspace";
        return Err(Failure::problem("--cache", AUTO, fix));
    };
    let found = detect(root, &Bounds::default()).map_err(|error| {
        let what = format!("cannot search `{}`", root.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    let caches = Cache::chosen(&found);
    if caches.is_empty() {
        let fix = "finds no lock file in the workspace; name the cache, such as `npm`";
        return Err(Failure::problem("--cache", AUTO, fix));
    }
    Ok(caches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(asked: &[&str]) -> Vec<String> {
        asked.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cache_is_read_only_unless_the_run_is_trusted_with_it() {
        let read = |asked: &[&str]| uses(&texts(asked), None, Side::Inside).unwrap();
        let npm = |access| Use {
            cache: Cache::Npm,
            access,
            side: Side::Inside,
        };
        assert_eq!(read(&["npm"]), [npm(MountAccess::ReadOnly)]);
        assert_eq!(read(&["npm:rw"]), [npm(MountAccess::ReadWrite)]);
        assert_eq!(read(&["npm:rw", "npm"]), [npm(MountAccess::ReadOnly)]);
        for bad in ["", "npx", "npm:cow", "auto"] {
            assert!(uses(&texts(&[bad]), None, Side::Inside).is_err(), "{bad}");
        }
        let outside = uses(&texts(&["npm"]), None, Side::Outside).unwrap();
        assert_eq!(outside[0].side, Side::Outside);
    }

    #[test]
    fn lock_files_choose_the_caches() {
        for (file, text, expected) in [
            ("package-lock.json", "{}", Cache::Npm),
            ("yarn.lock", "", Cache::Yarn),
            ("pnpm-lock.yaml", "", Cache::Pnpm),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("package.json"), "{\"name\": \"x\"}").unwrap();
            std::fs::write(dir.path().join(file), text).unwrap();
            assert_eq!(chosen(Some(dir.path())).unwrap(), [expected], "{file}");
        }
        for (files, expected) in [
            (
                [
                    (
                        "Cargo.toml",
                        "[package]\nname = \"x\"\nversion = \"0.1.0\"\n",
                    ),
                    ("Cargo.lock", ""),
                ],
                Cache::Cargo,
            ),
            ([("go.mod", "module x\n"), ("go.sum", "")], Cache::Go),
            (
                [("requirements.txt", "x==1\n"), ("test_a.py", "")],
                Cache::Pip,
            ),
            (
                [
                    ("x.csproj", "<Project Sdk=\"Microsoft.NET.Sdk\"/>"),
                    ("packages.lock.json", "{}"),
                ],
                Cache::Nuget,
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            assert_eq!(chosen(Some(dir.path())).unwrap(), [expected], "{files:?}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(chosen(Some(empty.path())).is_err());
    }

    #[test]
    fn a_run_finds_each_cache_by_the_variable_of_its_tool() {
        let volumes = Volumes {
            place: "/host/place".into(),
            uses: vec![
                Use {
                    cache: Cache::Npm,
                    access: MountAccess::ReadOnly,
                    side: Side::Inside,
                },
                Use {
                    cache: Cache::Go,
                    access: MountAccess::ReadWrite,
                    side: Side::Inside,
                },
            ],
            ..Volumes::default()
        };
        let mut request = Request::command(["true"]);
        request.env.push(("GOMODCACHE".into(), "/own".into()));
        volumes.give(&mut request);
        let env = [("GOMODCACHE", "/own"), ("npm_config_cache", "/cache/npm")];
        let env: Vec<(OsString, OsString)> = env.map(|(a, b)| (a.into(), b.into())).into();
        assert_eq!(request.env, env);
        let targets: Vec<&Path> = request.mounts.iter().map(|m| m.target.as_path()).collect();
        assert_eq!(targets, [Path::new("/cache/npm"), Path::new("/cache/go")]);
        let mut without_walls = Request::command(["true"]);
        without_walls.backend = BackendName::Host;
        volumes.give(&mut without_walls);
        assert_eq!(without_walls.env[0].1, "/host/place/npm");
        assert!(without_walls.mounts.is_empty());
    }
}
