//! Who we are to a registry: from a file that is named, in the form that clients of Docker keep theirs. No file is looked for, and one that others can read is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use data_encoding::BASE64;
use serde::Deserialize;

use crate::error::ImageError;

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    name: String,
    password: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

const LONGEST: u64 = 1 << 20;

impl Credentials {
    /// Those for this registry; `None` where the file has none for it.
    pub(crate) fn read(path: &Path, registry: &str) -> Result<Option<Self>, ImageError> {
        let unreadable = ImageError::unreadable(path);
        let what = format!("the credentials `{}`", path.display());
        let file = File::open(path).map_err(&unreadable)?;
        let mode = file.metadata().map_err(&unreadable)?.mode();
        if mode & 0o077 != 0 {
            let why = format!(
                "others can read it (mode {:o}); close it with `chmod 600`",
                mode & 0o777
            );
            return Err(ImageError::refused(what, why));
        }
        let mut text = String::new();
        file.take(LONGEST)
            .read_to_string(&mut text)
            .map_err(&unreadable)?;
        // What is wrong in it is not repeated: it could be a password.
        let bad = |_| ImageError::refused(&what, "it is not {\"auths\": {HOST: {\"auth\": …}}}");
        let document: Document = serde_json::from_str(&text).map_err(bad)?;
        let Some(entry) = document
            .auths
            .into_iter()
            .find(|(host, _)| host == registry)
        else {
            return Ok(None);
        };
        let found = match entry.1 {
            Entry {
                username: Some(name),
                password: Some(password),
                ..
            } => Some(Self { name, password }),
            Entry {
                auth: Some(auth), ..
            } => decode(&auth),
            Entry { .. } => None,
        };
        let why = "what it has for this registry is no name and password";
        found
            .map(Some)
            .ok_or_else(|| ImageError::refused(what, why))
    }

    /// As a header says it.
    pub(crate) fn basic(&self) -> String {
        let pair = format!("{}:{}", self.name, self.password);
        format!("Basic {}", BASE64.encode(pair.as_bytes()))
    }
}

fn decode(auth: &str) -> Option<Credentials> {
    let pair = String::from_utf8(BASE64.decode(auth.as_bytes()).ok()?).ok()?;
    let (name, password) = pair.split_once(':')?;
    Some(Credentials {
        name: name.to_owned(),
        password: password.to_owned(),
    })
}

/// Never printed.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn credentials_are_found_by_registry_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(
            r#"{"auths":{"x.test:5000":{"auth":"bWU6c2VjcmV0"},"y.test":{"username":"a","password":"b"}}}"#,
            0o600,
        );
        let found = Credentials::read(&path, "x.test:5000").unwrap().unwrap();
        assert_eq!(
            (found.name.as_str(), found.password.as_str()),
            ("me", "secret")
        );
        assert_eq!(format!("{found:?}"), "Credentials");
        assert_eq!(found.basic(), "Basic bWU6c2VjcmV0");
        assert!(Credentials::read(&path, "y.test").unwrap().is_some());
        assert!(Credentials::read(&path, "z.test").unwrap().is_none());
        write(
            "{\"auths\":{\"x\":{\"auth\":\"not base64 secret\"}}}",
            0o600,
        );
        let error = Credentials::read(&path, "x").unwrap_err().to_string();
        assert!(!error.contains("secret\""), "{error}");
        write("{}", 0o644);
        let error = Credentials::read(&path, "x").unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}
