//! Whether what ran has changed what git executes: hooks and configuration. They run outside of the sandbox the next time that somebody uses git there, so that a person is told.
//! What cannot be watched is told as well: a link in the place of a directory leads to what somebody else can change.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use cofferdam_project::Beneath;
use cofferdam_project::beneath::Mark;
use rustix::fs::FileType;

/// More hooks than anybody has.
const MOST: usize = 1000;
/// More than the submodules of anybody have.
const MOST_DIRS: usize = 5000;
/// Where the directories of submodules and worktrees are.
const NESTED: [&str; 2] = ["modules", "worktrees"];

/// What git would execute or obey, before anything ran.
#[derive(Debug)]
pub(crate) struct Git {
    seen: io::Result<BTreeMap<String, Mark>>,
}

impl Git {
    pub(crate) fn look(root: &Path) -> Self {
        Self { seen: see(root) }
    }

    /// A line for a person, where something is not as it was or could not be looked at.
    pub(crate) fn warning(&self, root: &Path) -> Option<String> {
        let (before, now) = match (&self.seen, see(root)) {
            (Ok(before), Ok(now)) => (before, now),
            (Err(error), _) => return Some(unseen(error)),
            (_, Err(error)) => return Some(unseen(&error)),
        };
        let changed = now
            .iter()
            .find(|(name, mark)| before.get(*name) != Some(mark));
        let gone = before.keys().find(|name| !now.contains_key(*name));
        let name = changed.map(|(name, _)| name).or(gone)?;
        Some(format!(
            "what ran has changed what git obeys in this project (`{name}`): look at it before you use git here, or use --cow"
        ))
    }
}

fn unseen(error: &io::Error) -> String {
    format!(
        "whether what ran has changed what git obeys in this project cannot be said ({error}): look at `.git` before you use git here, or use --cow"
    )
}

fn see(root: &Path) -> io::Result<BTreeMap<String, Mark>> {
    let project = Beneath::open(root)?;
    let mut seen = BTreeMap::new();
    if let Some(mark) = project.mark(".gitmodules")? {
        seen.insert(".gitmodules".to_owned(), mark);
    }
    let Some(own) = project.mark(".git")? else {
        return Ok(seen);
    };
    // Of a worktree or a submodule `.git` is a file that names another place.
    if own.kind == FileType::RegularFile {
        seen.insert(".git".to_owned(), own);
        return Ok(seen);
    }
    seen.insert(".git".to_owned(), directory(".git", own)?);
    // Those of submodules, which git enters, and of worktrees lie below.
    let mut dirs = vec![String::new()];
    let mut looked = 0;
    while let Some(at) = dirs.pop() {
        looked += 1;
        if looked > MOST_DIRS {
            let why = format!("`.git/modules` holds more than {MOST_DIRS} directories");
            return Err(io::Error::other(why));
        }
        for (name, mark) in project.marks(format!(".git/{at}").trim_end_matches('/'), MOST)? {
            let path = format!("{at}{name}");
            if name == "hooks" {
                let dir = format!(".git/{path}");
                seen.insert(path.clone(), directory(&dir, mark)?);
                let hooks = project.marks(&dir, MOST)?.into_iter();
                seen.extend(hooks.map(|(name, mark)| (format!("{path}/{name}"), mark)));
            } else if name.starts_with("config") || name == "commondir" {
                seen.insert(path, mark);
            } else if NESTED.contains(&name.as_str()) || is_nested(&at, &name) {
                match mark.kind {
                    FileType::Directory => dirs.push(format!("{path}/")),
                    FileType::Symlink => {
                        directory(&format!(".git/{path}"), mark)?;
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(seen)
}

/// A module has the name of its path, and so lies any number of directories down.
fn is_nested(at: &str, name: &str) -> bool {
    let is_below = NESTED.iter().any(|dir| at.starts_with(dir));
    is_below && !["objects", "refs", "logs", "info", "lfs", "branches"].contains(&name)
}

/// It changes with every name in it; that it is the same one is enough.
fn directory(name: &str, mark: Mark) -> io::Result<Mark> {
    if mark.kind == FileType::Directory {
        return Ok(mark.itself());
    }
    Err(io::Error::other(format!("`{name}` is no directory")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_hides_what_git_would_obey() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 11] = [
            ("modules/a/b/config", |dir| {
                fs::write(
                    dir.join(".git/modules/a/b/config"),
                    "[core] fsmonitor = evil",
                )
                .unwrap();
            }),
            ("modules/a/b/hooks", |dir| {
                fs::create_dir(dir.join(".git/modules/a/b/hooks")).unwrap();
                fs::write(dir.join(".git/modules/a/b/hooks/post-checkout"), "").unwrap();
            }),
            ("no directory", |dir| {
                fs::rename(dir.join(".git/modules/a"), dir.join("evil")).unwrap();
                symlink("../../evil", dir.join(".git/modules/a")).unwrap();
            }),
            ("hooks/pre-commit", |dir| {
                fs::write(dir.join(".git/hooks/pre-commit"), "evil").unwrap();
            }),
            ("hooks/pre-commit", |dir| {
                symlink("../../evil", dir.join(".git/hooks/pre-commit")).unwrap();
            }),
            ("config", |dir| {
                fs::rename(dir.join(".git/config"), dir.join("evil")).unwrap();
                symlink("../evil", dir.join(".git/config")).unwrap();
            }),
            ("no directory", |dir| {
                fs::rename(dir.join(".git/hooks"), dir.join("evil")).unwrap();
                symlink("../evil", dir.join(".git/hooks")).unwrap();
            }),
            ("no directory", |dir| {
                fs::rename(dir.join(".git"), dir.join("evil")).unwrap();
                symlink("evil", dir.join(".git")).unwrap();
            }),
            (".git", |dir| {
                fs::rename(dir.join(".git"), dir.join("evil")).unwrap();
                fs::write(dir.join(".git"), "gitdir: evil").unwrap();
            }),
            (".git", |dir| {
                fs::rename(dir.join(".git"), dir.join("evil")).unwrap();
                fs::create_dir_all(dir.join(".git/hooks")).unwrap();
            }),
            ("more than", |dir| {
                for number in 0..=MOST {
                    fs::write(dir.join(format!(".git/hooks/{number}")), "").unwrap();
                }
            }),
        ];
        for (at, (told, change)) in changes.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
            fs::write(dir.path().join(".git/config"), "").unwrap();
            fs::create_dir_all(dir.path().join(".git/modules/a/b/objects/00")).unwrap();
            let git = Git::look(dir.path());
            fs::write(dir.path().join(".git/index"), "").unwrap();
            fs::write(dir.path().join(".git/modules/a/b/index"), "").unwrap();
            fs::write(dir.path().join(".git/modules/a/b/objects/00/config"), "").unwrap();
            assert_eq!(git.warning(dir.path()), None);
            change(dir.path());
            let warning = git.warning(dir.path()).unwrap_or_default();
            assert!(warning.contains(told), "{at}: {warning}");
        }
    }
}
