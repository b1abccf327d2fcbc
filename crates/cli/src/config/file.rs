//! One configuration file from disk: bounded in size, a regular file only, never waited for. What it says is read elsewhere.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cofferdam_contract::problem::Problem;

/// A configuration has a few hundred bytes; whatever is larger is something else.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Why a path is looked at, which decides what its absence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The administrator's file. Absence is normal; a file that cannot be read is not, for its limits would go unnoticed.
    System,
    /// The user's own file. A home that this process may not even look into belongs to somebody else and has nothing to say.
    User,
    /// Named by a person: it must be there.
    Named,
}

/// The text, or `None` where absence is normal and there is no file.
pub(crate) fn read(path: &Path, why: Why) -> Result<Option<String>, Problem> {
    // Without O_NONBLOCK a FIFO at this path would hold the start for ever.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(error) if why != Why::Named && is_absent(path, why, error.kind()) => return Ok(None),
        Err(error) => {
            return Err(problem(
                path,
                format!("cannot be opened: {error}; {}", advice(error.kind())),
            ));
        }
    };
    bounded_text(path, file).map(Some)
}

fn is_absent(path: &Path, why: Why, kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => true,
        ErrorKind::PermissionDenied => why == Why::User && path.symlink_metadata().is_err(),
        _ => false,
    }
}

fn bounded_text(path: &Path, file: File) -> Result<String, Problem> {
    let failed = |error: std::io::Error| problem(path, format!("cannot be read: {error}"));
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(problem(
            path,
            "is not a regular file; put the configuration into one".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed: a file that grows while it is read is caught too.
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_BYTES) {
        return Err(problem(
            path,
            format!(
                "is larger than {} KiB; a configuration is not",
                MAX_BYTES >> 10
            ),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        problem(
            path,
            format!("is not UTF-8 text in line {line}; save it as UTF-8"),
        )
    })
}

fn problem(path: &Path, fix: String) -> Problem {
    Problem::new("configuration file", path.display(), fix)
}

const fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "name a file that exists",
        ErrorKind::PermissionDenied => "make it readable for this user, or remove it",
        _ => "remove it or put a readable file there",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fix(path: &Path, why: Why) -> String {
        read(path, why).expect_err("a problem").fix
    }

    #[test]
    fn absence_is_normal_unless_the_file_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none/config.yml");
        assert_eq!(read(&none, Why::System), Ok(None));
        assert_eq!(read(&none, Why::User), Ok(None));
        assert!(fix(&none, Why::Named).contains("name a file that exists"));
    }

    #[test]
    fn a_directory_a_fifo_and_a_device_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fix(dir.path(), Why::System).contains("not a regular file"));
        assert!(fix(Path::new("/dev/zero"), Why::Named).contains("not a regular file"));
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(fix(&fifo, Why::Named).contains("not a regular file"));
    }

    #[test]
    fn two_megabytes_and_bytes_that_are_no_text_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yml");
        std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
        assert!(fix(&path, Why::User).contains("larger than 1024 KiB"));
        std::fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        assert!(fix(&path, Why::User).contains("line 2"));
        std::fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert!(read(&path, Why::User).is_ok());
    }

    #[test]
    fn a_file_in_a_closed_home_is_absent_but_a_closed_system_file_is_a_problem() {
        // Root opens everything, so the decision is asked directly: the path below cannot be looked at because it is not there,
        // which to the caller is the same as a directory that it may not search.
        let unseen = Path::new("/proc/1/nowhere/config.yml");
        assert!(is_absent(unseen, Why::User, ErrorKind::PermissionDenied));
        assert!(!is_absent(unseen, Why::System, ErrorKind::PermissionDenied));
        let seen = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_absent(
            seen.path(),
            Why::User,
            ErrorKind::PermissionDenied
        ));
    }
}
