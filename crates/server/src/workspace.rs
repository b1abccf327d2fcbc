//! Files that come with a request. Their names come from strangers and never lead outside the workspace that they are placed in.

use cofferdam_contract::problem::Problem;

/// A file to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    /// Relative, checked by [`problem`].
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    pub(crate) executable: Executable,
}

impl PlacedFile {
    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>() + self.path.len() + self.content.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executable {
    Yes,
    No,
}

impl Executable {
    pub(crate) const fn mode(self) -> u32 {
        match self {
            Self::Yes => 0o755,
            Self::No => 0o644,
        }
    }
}

pub(crate) const MAX_FILES: usize = 1000;
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 1024;

/// What is wrong with a name, if anything.
pub(crate) fn problem(field: &str, path: &str) -> Option<Problem> {
    let names: Vec<&str> = path.split('/').collect();
    let fix = if path.is_empty() {
        "is empty; give the file a name"
    } else if path.len() > MAX_PATH || names.iter().any(|name| name.len() > MAX_NAME) {
        "is too long; use names of at most 255 bytes and paths of at most 1024"
    } else if path.contains('\0') {
        "holds a NUL byte; remove it"
    } else if names.iter().any(|name| matches!(*name, "" | "." | "..")) {
        "is not a plain relative path; write it like `src/main.py`, without `..`"
    } else {
        return None;
    };
    Some(Problem::new(field, path, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_outside() {
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "./a",
            "a/",
            "a\0b",
            "a/..",
        ] {
            assert!(problem("files[0].path", bad).is_some(), "{bad:?}");
        }
        for good in ["a", ".hidden", "a/b/c.py", "..a", "ünï"] {
            assert_eq!(problem("files[0].path", good), None, "{good:?}");
        }
        assert!(problem("f", &"x".repeat(256)).is_some());
        assert!(problem("f", &"x/".repeat(600)).is_some());
    }
}
