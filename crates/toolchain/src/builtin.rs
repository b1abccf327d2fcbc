//! The manifests and shims that come with the program, from `languages/` in the repository.

/// File name and text.
pub(crate) const MANIFESTS: [(&str, &str); 14] = [
    ("c.toml", include_str!("../../../languages/c.toml")),
    ("cpp.toml", include_str!("../../../languages/cpp.toml")),
    ("go.toml", include_str!("../../../languages/go.toml")),
    ("java.toml", include_str!("../../../languages/java.toml")),
    (
        "javascript.toml",
        include_str!("../../../languages/javascript.toml"),
    ),
    ("lua.toml", include_str!("../../../languages/lua.toml")),
    ("perl.toml", include_str!("../../../languages/perl.toml")),
    ("php.toml", include_str!("../../../languages/php.toml")),
    (
        "python.toml",
        include_str!("../../../languages/python.toml"),
    ),
    ("r.toml", include_str!("../../../languages/r.toml")),
    ("ruby.toml", include_str!("../../../languages/ruby.toml")),
    ("rust.toml", include_str!("../../../languages/rust.toml")),
    ("shell.toml", include_str!("../../../languages/shell.toml")),
    (
        "typescript.toml",
        include_str!("../../../languages/typescript.toml"),
    ),
];

const SHIMS: [(&str, &str); 3] = [
    (
        "node.cjs",
        include_str!("../../../languages/shims/node.cjs"),
    ),
    (
        "python.py",
        include_str!("../../../languages/shims/python.py"),
    ),
    (
        "shell.sh",
        include_str!("../../../languages/shims/shell.sh"),
    ),
];

/// A shim by its file name.
pub(crate) fn shim(name: &str) -> Option<String> {
    SHIMS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::MAX_RESULT_BYTES;

    #[test]
    fn every_file_of_the_directory_is_built_in() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../languages");
        let names = |dir: &str| -> Vec<String> {
            let mut names: Vec<String> = std::fs::read_dir(dir)
                .unwrap()
                .map(|entry| entry.unwrap())
                .filter(|entry| entry.path().is_file())
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(dir), MANIFESTS.map(|(name, _)| name.to_owned()));
        assert_eq!(
            names(&format!("{dir}/shims")),
            SHIMS.map(|(name, _)| name.to_owned())
        );
    }

    #[test]
    fn every_manifest_has_a_head_comment() {
        for (name, text) in MANIFESTS {
            assert!(text.starts_with("# "), "{name}");
        }
    }

    #[test]
    fn the_shims_hold_the_bound_that_is_read() {
        for (name, text) in SHIMS {
            assert!(text.contains(&MAX_RESULT_BYTES.to_string()), "{name}");
        }
    }
}
