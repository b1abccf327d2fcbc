//! Laying out what a tool sees without walls, and taking back the one file that it made for the project. Nothing is read or written through a link.

use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_project::Beneath;
use cofferdam_project::action::Guards;
use cofferdam_project::apart::{self, Apart};
use cofferdam_store::private_dir::PrivateDir;

use crate::error::WorkError;

/// Lock files of large workspaces are large.
const LARGEST: u64 = 64 << 20;
const MODE: u32 = 0o644;

/// Copies into a directory of its own. What is there and cannot be read is an error: half a project is another one.
pub(crate) fn lay_out(
    apart: &Apart,
    project: &Beneath,
    into: &PrivateDir,
) -> Result<PathBuf, WorkError> {
    for name in &apart.files {
        let bytes = project.read(name, LARGEST).map_err(unread(name))?;
        into.place(name, &bytes, MODE)?;
    }
    for name in &apart.settings {
        // It need not be there, and whoever hides it behind a link does without.
        if let Ok(text) = project.text(name, LARGEST) {
            into.place(name, apart::registries(&text).as_bytes(), MODE)?;
        }
    }
    for (name, contents) in &apart.written {
        into.place(name, contents.as_bytes(), MODE)?;
    }
    Ok(into.path().to_owned())
}

/// Puts what the tool made into the project, where nothing of that name is.
pub(crate) fn take_back(
    apart: &Apart,
    project: &Beneath,
    from: &PrivateDir,
) -> Result<(), WorkError> {
    let Some(name) = &apart.brings else {
        return Ok(());
    };
    let made = Beneath::open(from.path()).and_then(|from| from.read(name, LARGEST));
    // Not every tool makes one each time.
    let Ok(bytes) = made else {
        return Ok(());
    };
    project.create(name, &bytes).map_err(|error| {
        let what = format!("cannot write `{name}` into the project");
        WorkError::io(ErrorCode::OutputWriteFailed, &what, &error)
    })
}

/// Refuses where a tool would write through a link that somebody left in the project, or to a place that nobody has looked at.
/// Returns what the tool is told besides.
pub(crate) fn guard(
    guards: &Guards,
    root: &Path,
    project: &Beneath,
) -> Result<Option<&'static str>, WorkError> {
    for name in &guards.written {
        let is_safe = match project.mark(name) {
            Ok(None) => true,
            Ok(Some(mark)) => mark.kind == rustix::fs::FileType::RegularFile,
            Err(_) => false,
        };
        if !is_safe {
            let fix = format!(
                "`{name}` is no regular file, and fetching would write to it; replace it with one"
            );
            return Err(WorkError::problem("--backend", "host", fix));
        }
    }
    let below = guards.absent.iter();
    let below = below.filter(|name| !matches!(project.mark(name), Ok(None)));
    let above = root.ancestors().skip(1);
    let above = guards.absent_above.into_iter().flat_map(|name| {
        let names = above.clone().map(move |dir| dir.join(name));
        names.filter(|path| path.symlink_metadata().is_ok())
    });
    let found = below.map(|name| root.join(name)).chain(above).next();
    match (found, guards.careful) {
        (None, _) => Ok(None),
        (Some(_), Some(careful)) => Ok(Some(careful)),
        (Some(path), None) => {
            let fix = format!(
                "`{}` may have the lock file written elsewhere; make the lock file first, or fetch for that directory",
                path.display()
            );
            Err(WorkError::problem("--backend", "host", fix))
        }
    }
}

fn unread(name: &str) -> impl Fn(std::io::Error) -> WorkError {
    move |error| {
        WorkError::io(
            ErrorCode::InputUnreadable,
            &format!("cannot read `{name}`"),
            &error,
        )
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::{DataDir, RunId};

    use super::*;

    #[test]
    fn nothing_is_read_or_written_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("project");
        std::fs::create_dir_all(dir.join("a")).unwrap();
        std::fs::write(dir.join("a/package.json"), "{}").unwrap();
        std::fs::write(top.path().join("secret"), "registry=https://x\n").unwrap();
        std::os::unix::fs::symlink("../secret", dir.join(".npmrc")).unwrap();
        std::os::unix::fs::symlink("../new", dir.join("lock")).unwrap();
        let project = Beneath::open(&dir).unwrap();
        let store = DataDir::at(top.path().join("data"));
        let into = PrivateDir::create(&store, RunId::new()).unwrap();
        let mut apart = Apart {
            files: vec!["a/package.json".to_owned()],
            settings: vec![".npmrc".to_owned()],
            written: vec![("b.yaml".to_owned(), "x".to_owned())],
            brings: Some("lock".to_owned()),
        };
        lay_out(&apart, &project, &into).unwrap();
        assert!(into.path().join("a/package.json").is_file());
        assert!(into.path().join("b.yaml").is_file());
        assert!(!into.path().join(".npmrc").exists());
        std::fs::write(into.path().join("lock"), "made").unwrap();
        assert!(take_back(&apart, &project, &into).is_err());
        assert!(!top.path().join("new").exists());
        let written = |names: &[&str]| Guards {
            written: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Guards::default()
        };
        assert!(guard(&written(&["lock"]), &dir, &project).is_err());
        assert!(guard(&written(&["absent", "a/package.json"]), &dir, &project).is_ok());
        let absent = |name: &str| Guards {
            absent: vec![name.to_owned()],
            ..Guards::default()
        };
        assert!(guard(&absent("a/package.json"), &dir, &project).is_err());
        assert!(guard(&absent("a/other.json"), &dir, &project).is_ok());
        let above = |name| Guards {
            absent_above: Some(name),
            ..Guards::default()
        };
        assert!(guard(&above("secret"), &dir, &project).is_err());
        let careful = Guards {
            careful: Some("--locked"),
            ..above("secret")
        };
        assert_eq!(guard(&careful, &dir, &project).unwrap(), Some("--locked"));
        assert!(guard(&above("package.json"), &dir, &project).is_ok());
        std::fs::remove_file(dir.join("lock")).unwrap();
        take_back(&apart, &project, &into).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("lock")).unwrap(), "made");
        apart.files = vec![".npmrc".to_owned()];
        assert!(lay_out(&apart, &project, &into).is_err());
    }
}
