//! Who may use the daemon: bearer tokens, kept as hashes in `tokens.json` of the data directory.
//!
//! A token is 256 random bits. What a slow hash is for, guessing what people choose, cannot be done to it: one SHA-256 hides it as well as a thousand would, and costs a request nothing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_store::DataDir;
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What a token is known by and may do. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Names it in logs and in quotas.
    pub id: String,
    pub name: String,
    /// SHA-256 of the secret, in hexadecimal digits.
    sha256: String,
    pub scopes: Vec<Scope>,
    /// Runs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<usize>,
    /// Runs that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<usize>,
    pub created_at: Timestamp,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Send work, and see and cancel what it has sent.
    Run,
    /// See every run, and the metrics.
    Read,
    /// Everything, also cancel what others have sent.
    Admin,
}

/// What a new token is to be.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub max_running: Option<usize>,
    pub max_queued: Option<usize>,
}

/// The secret itself; shown once, kept nowhere.
pub struct Secret(String);

/// Why tokens could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("`{}` is not a list of tokens: {why}; correct it, or remove it and create tokens anew", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("`{}` can be read by others (mode {mode:03o}); run `chmod 600` on it", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("there is no token `{asked}`; `cofferdam token list` shows them")]
    NoSuchToken { asked: String },
    #[error("`{}` would be longer than {LARGEST} bytes; revoke tokens that nobody uses", path.display())]
    TooMany { path: PathBuf },
    #[error("name: use 1 to 64 letters, digits, `-`, `_` and `.` (got `{got}`)")]
    BadName { got: String },
    #[error("scopes: give at least one of run, read, admin")]
    NoScope,
}

/// The file of tokens of one data directory.
#[derive(Debug, Clone)]
pub struct TokenFile {
    dir: DataDir,
    path: PathBuf,
}

/// Tells whether the file is the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    tokens: Vec<Token>,
}

const PREFIX: &str = "cfd_";
const LARGEST: u64 = 1 << 20;
/// Whoever changes the file needs some milliseconds.
const LOCKED_FOR: Duration = Duration::from_secs(30);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Run, Self::Read, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl TokenFile {
    pub fn of(dir: &DataDir) -> Self {
        Self {
            path: dir.path().join("tokens.json"),
            dir: dir.clone(),
        }
    }

    /// Empty where there is no file.
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.io("read")(error)),
        };
        let mode = file
            .metadata()
            .map_err(self.io("read"))?
            .permissions()
            .mode()
            & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed {
                path: self.path.clone(),
                mode,
            });
        }
        let mut text = String::new();
        file.take(LARGEST + 1)
            .read_to_string(&mut text)
            .map_err(self.io("read"))?;
        if is_too_long(&text) {
            return Err(TokenError::Damaged {
                path: self.path.clone(),
                why: format!("it is longer than {LARGEST} bytes"),
            });
        }
        let document: Document =
            serde_json::from_str(&text).map_err(|error| TokenError::Damaged {
                path: self.path.clone(),
                why: error.to_string(),
            })?;
        Ok(document.tokens)
    }

    pub fn create(&self, new: NewToken) -> Result<(Token, Secret), TokenError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=64).contains(&new.name.len()) || !new.name.bytes().all(is_allowed) {
            return Err(TokenError::BadName { got: new.name });
        }
        if new.scopes.is_empty() {
            return Err(TokenError::NoScope);
        }
        let secret = Secret(format!(
            "{PREFIX}{}",
            HEXLOWER.encode(&self.random::<32>()?)
        ));
        let token = Token {
            id: format!("tok_{}", HEXLOWER.encode(&self.random::<6>()?)),
            name: new.name,
            sha256: HEXLOWER.encode(&hash(secret.reveal())),
            scopes: new.scopes,
            max_running: new.max_running,
            max_queued: new.max_queued,
            created_at: Timestamp::now(),
        };
        self.change(|tokens| {
            tokens.push(token.clone());
            Ok(())
        })?;
        Ok((token, secret))
    }

    /// By its id or by its name.
    pub fn revoke(&self, asked: &str) -> Result<Token, TokenError> {
        self.change(|tokens| {
            let is_it = |token: &Token| token.id == asked || token.name == asked;
            let found = tokens.iter().position(is_it);
            found
                .map(|at| tokens.remove(at))
                .ok_or_else(|| TokenError::NoSuchToken {
                    asked: asked.to_owned(),
                })
        })
    }

    pub(crate) fn version(&self) -> Option<Version> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        Some(Version {
            inode: found.ino(),
            length: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whole or not at all, and one at a time.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let _lock = self.lock()?;
        let mut document = Document {
            tokens: self.list()?,
        };
        let changed = change(&mut document.tokens)?;
        let text =
            serde_json::to_string_pretty(&document).map_err(|error| TokenError::Damaged {
                path: self.path.clone(),
                why: error.to_string(),
            })?;
        // Nobody could read it any more, neither to let anybody in nor to revoke.
        if is_too_long(&text) {
            return Err(TokenError::TooMany {
                path: self.path.clone(),
            });
        }
        let new = self.path.with_extension("json.new");
        let _ = fs::remove_file(&new);
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            // A power cut must not bring a revoked token back.
            File::open(self.dir.path())?.sync_all()
        };
        write().map_err(self.io("write"))?;
        Ok(changed)
    }

    fn lock(&self) -> Result<File, TokenError> {
        self.dir
            .create()
            .map_err(|error| self.io("make the directory of")(io::Error::other(error)))?;
        let path = self.path.with_extension("json.lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(self.io("lock"))?;
        let began = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) if began.elapsed() < LOCKED_FOR => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(Errno::WOULDBLOCK) => {
                    let why = "another process has been changing it for a while; end that one";
                    return Err(self.io("lock")(io::Error::new(
                        io::ErrorKind::TimedOut,
                        why,
                    )));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io("lock")(errno.into())),
            }
        }
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], TokenError> {
        let mut bytes = [0; N];
        loop {
            match rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) {
                Ok(got) if got == N => return Ok(bytes),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io("get random bytes for")(errno.into())),
            }
        }
    }

    fn io(&self, what: &'static str) -> impl FnOnce(io::Error) -> TokenError {
        let path = self.path.clone();
        move |source| TokenError::Io { what, path, source }
    }
}

fn is_too_long(text: &str) -> bool {
    u64::try_from(text.len()).is_ok_and(|length| length > LARGEST)
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The token with this secret. Looks at every token and at every byte, so that the time tells nothing.
pub(crate) fn find<'a>(tokens: &'a [Token], secret: &str) -> Option<&'a Token> {
    let presented = HEXLOWER.encode(&hash(secret));
    let mut found = None;
    for token in tokens {
        if equal(token.sha256.as_bytes(), presented.as_bytes()) {
            found = Some(token);
        }
    }
    found
}

fn equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |seen, (a, b)| seen | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: name.to_owned(),
            scopes: vec![Scope::Run],
            max_running: Some(1),
            max_queued: None,
        }
    }

    #[test]
    fn a_token_is_found_by_its_secret_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of(&DataDir::at(dir.path().join("data")));
        assert_eq!(file.list().unwrap(), []);
        let (first, secret) = file.create(new("first")).unwrap();
        let (second, other) = file.create(new("second")).unwrap();
        let tokens = file.list().unwrap();
        assert_eq!(tokens, [first.clone(), second.clone()]);
        assert_eq!(find(&tokens, secret.reveal()), Some(&first));
        assert_eq!(find(&tokens, other.reveal()), Some(&second));
        assert_eq!(find(&tokens, &secret.reveal()[1..]), None);
        assert_eq!(find(&tokens, ""), None);
        assert_eq!(secret.reveal().len(), PREFIX.len() + 64);
        assert_eq!(file.revoke("first").unwrap(), first);
        assert_eq!(find(&file.list().unwrap(), secret.reveal()), None);
        assert!(matches!(
            file.revoke("first"),
            Err(TokenError::NoSuchToken { .. })
        ));
    }

    #[test]
    fn the_file_holds_no_secret_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of(&DataDir::at(dir.path()));
        let (_, secret) = file.create(new("a")).unwrap();
        let path = dir.path().join("tokens.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&secret.reveal()[PREFIX.len()..]));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            file.list(),
            Err(TokenError::Exposed { mode: 0o640, .. })
        ));
    }

    #[test]
    fn no_more_are_written_than_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of(&DataDir::at(dir.path()));
        let (first, _) = file.create(new("first")).unwrap();
        // As many as fit, without writing the file for each.
        let each = serde_json::to_string_pretty(&first).unwrap().len();
        let many = usize::try_from(LARGEST).unwrap() / (each + 100);
        file.change(|tokens| {
            tokens.extend(vec![first.clone(); many]);
            Ok(())
        })
        .unwrap();
        let refused = file.change(|tokens| {
            tokens.extend(vec![first.clone(); many]);
            Ok(())
        });
        assert!(matches!(refused, Err(TokenError::TooMany { .. })));
        assert_eq!(file.list().unwrap().len(), many + 1);
        file.revoke("first").unwrap();
        assert_eq!(file.list().unwrap().len(), many);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::of(&DataDir::at(dir.path()));
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(matches!(
                file.create(new(bad)),
                Err(TokenError::BadName { .. })
            ));
        }
        let none = NewToken {
            scopes: Vec::new(),
            ..new("a")
        };
        assert!(matches!(file.create(none), Err(TokenError::NoScope)));
        let path = dir.path().join("tokens.json");
        fs::write(&path, "{}").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(file.list(), Err(TokenError::Damaged { .. })));
    }
}
