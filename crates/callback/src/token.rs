//! Tokens: read when they are needed, shown to nobody but the peer.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// What stands behind `Authorization: Bearer`.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(String);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Bearer {
    /// Without the white space around it, which files end with. What it was is not repeated in the error.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let sendable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > MAX_TOKEN || !sendable {
            return Err(
                "a token is 1 to 4096 visible ASCII characters; this one is not".to_owned(),
            );
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

const MAX_TOKEN: usize = 4096;

/// Where tokens come from. Asked for every attempt, so that a new token is used as soon as it is there.
pub trait Tokens: Send + Sync {
    /// The error says what is wrong, without the token.
    fn token(&self, name: &str) -> Result<Bearer, String>;
}

impl<F> Tokens for F
where
    F: Fn(&str) -> Result<Bearer, String> + Send + Sync,
{
    fn token(&self, name: &str) -> Result<Bearer, String> {
        self(name)
    }
}

/// A file for each name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenFiles {
    pub files: BTreeMap<String, PathBuf>,
}

impl Tokens for TokenFiles {
    fn token(&self, name: &str) -> Result<Bearer, String> {
        let path = self
            .files
            .get(name)
            .ok_or_else(|| format!("no file is configured for the token `{name}`"))?;
        let mut text = String::new();
        let most = u64::try_from(2 * MAX_TOKEN).unwrap_or(u64::MAX);
        File::open(path)
            .and_then(|file| file.take(most).read_to_string(&mut text))
            .map_err(|error| format!("cannot read the token in `{}`: {error}", path.display()))?;
        Bearer::new(&text).map_err(|why| format!("`{}`: {why}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_anew_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let tokens = TokenFiles {
            files: [("plane".to_owned(), path.clone())].into(),
        };
        assert!(tokens.token("plane").unwrap_err().contains("cannot read"));
        for text in ["first\n", " second \r\n"] {
            std::fs::write(&path, text).unwrap();
            let bearer = tokens.token("plane").unwrap();
            assert_eq!(bearer.header(), format!("Bearer {}", text.trim()));
            assert_eq!(format!("{bearer:?}"), "Bearer(…)");
        }
        for bad in ["", "\n", "two words", "line\nline", "é"] {
            std::fs::write(&path, bad).unwrap();
            let why = tokens.token("plane").unwrap_err();
            assert!(bad.trim().is_empty() || !why.contains(bad), "{why}");
        }
        assert!(tokens.token("other").unwrap_err().contains("`other`"));
    }
}
