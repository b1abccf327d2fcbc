//! The name of an answer: a hash over everything that can change it. What cannot be named is not kept, and says why.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_contract::envelope::ENGINE_VERSION;
use cofferdam_contract::request::{
    Gpus, MountAccess, Network, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_contract::seal::Sealed;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::contents::{Reading, Unkeyable};

/// What an answer is kept under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultKey(pub(super) [u8; 32]);

/// A key in the making. Each part has its name and its length before it, so that no two lists of parts are the same bytes.
#[derive(Debug, Clone)]
pub struct KeyParts {
    hash: Sha256,
}

/// Whose directory the workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceIs {
    /// One that stays; what a program may change there is part of its answer.
    Callers,
    /// One that was made for this run and goes with it.
    Fresh,
}

const FORMAT: &[u8] = b"cofferdam.result/1";

impl ResultKey {
    pub fn hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }
}

impl KeyParts {
    /// For the answers of one sender; nobody else's are found.
    pub fn new(scope: &str) -> Self {
        let mut parts = Self {
            hash: Sha256::new(),
        };
        parts.part("format", FORMAT);
        parts.part("engine", major(ENGINE_VERSION).as_bytes());
        parts.part("scope", scope.as_bytes());
        parts
    }

    pub fn part(&mut self, name: &str, bytes: &[u8]) {
        for piece in [name.as_bytes(), bytes] {
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.hash.update(length.to_le_bytes());
            self.hash.update(piece);
        }
    }

    /// A payload without its ids and times: what is the same question under another name.
    pub fn payload(&mut self, sealed: &Sealed) -> Result<(), Unkeyable> {
        const NAMES_AND_TIMES: [&str; 5] = [
            "payload_id",
            "contract_id",
            "created_at",
            "deadline",
            "digest",
        ];
        let mut question = sealed.json().clone();
        if let Value::Object(fields) = &mut question {
            fields.retain(|name, _| !NAMES_AND_TIMES.contains(&name.as_str()));
        }
        let bytes = cofferdam_contract::canonical::to_bytes(&question);
        let bytes = bytes.map_err(|_| Unkeyable::Impure {
            what: "the payload has no canonical JSON",
        })?;
        self.part("payload", &bytes);
        Ok(())
    }

    /// A request with the contents of what it shows the program.
    pub fn request(&mut self, request: &Request, workspace: WorkspaceIs) -> Result<(), Unkeyable> {
        // Named one by one: whatever is added to a request has to be thought about here.
        let Request {
            argv,
            env,
            cwd,
            limits,
            waived,
            network,
            root,
            workspace: shown,
            mounts,
            backend,
            gpus,
        } = request;
        if *gpus != Gpus::None {
            return Err(Unkeyable::Impure {
                what: "a GPU can be used",
            });
        }
        if *network != Network::Denied {
            return Err(Unkeyable::Impure {
                what: "the network is allowed",
            });
        }
        self.part("backend", backend.as_str().as_bytes());
        for argument in argv {
            self.part("argument", argument.as_bytes());
        }
        for (name, value) in env {
            self.part("variable", name.as_bytes());
            self.part("value", value.as_bytes());
        }
        let cwd = cwd
            .as_ref()
            .map_or(&[][..], |cwd| cwd.as_os_str().as_bytes());
        self.part("cwd", cwd);
        self.part("limits", format!("{limits:?}{waived:?}").as_bytes());
        let mut reading = Reading::new();
        match root {
            Root::HostUsr => self.part("root", b"host"),
            Root::Image(image) => {
                self.part("root", image.digest.as_bytes());
                self.part("name", image.name.as_bytes());
                self.part("user", image.user.as_bytes());
            }
            Root::Dir(dir) => {
                let facts = reading.metadata(dir)?;
                self.part("root", &facts);
            }
        }
        if let Some(Workspace { path, access }) = shown {
            let is_written = *access == WorkspaceAccess::ReadWrite;
            if is_written && workspace == WorkspaceIs::Callers {
                return Err(Unkeyable::Impure {
                    what: "the workspace can be written to",
                });
            }
            self.part("workspace", &reading.contents(path)?);
            self.part("access", format!("{access:?}").as_bytes());
        }
        for mount in mounts {
            if mount.access != MountAccess::ReadOnly {
                return Err(Unkeyable::Impure {
                    what: "a mount can be written to",
                });
            }
            self.part("mount", mount.target.as_os_str().as_bytes());
            self.part("mounted", &reading.contents(&mount.source)?);
        }
        if let (Root::HostUsr, Some(program)) = (root, argv.first()) {
            self.program(Path::new(program));
        }
        Ok(())
    }

    /// A file that is run, or compiles what is run: also one that was replaced in its place.
    pub fn program(&mut self, program: &Path) {
        const SEARCHED: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];
        let candidates: Vec<_> = if program.is_absolute() {
            vec![program.to_owned()]
        } else if program.components().count() > 1 {
            // Of the workspace, whose contents are in the key.
            return;
        } else {
            SEARCHED
                .iter()
                .map(|dir| Path::new(dir).join(program))
                .collect()
        };
        for path in candidates {
            self.part("program", &super::system::facts(&path));
        }
    }

    pub fn finish(self) -> ResultKey {
        ResultKey(self.hash.finalize().into())
    }
}

/// What may change answers: the first number, and before 1.0 the second.
fn major(version: &str) -> String {
    let mut numbers = version.split('.');
    let first = numbers.next().unwrap_or_default();
    match (first, numbers.next()) {
        ("0", Some(second)) => format!("0.{second}"),
        _ => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use cofferdam_contract::ids::Entropy;
    use cofferdam_contract::request::{BackendName, Mount};
    use cofferdam_contract::seal::Draft;
    use cofferdam_contract::units::{Bytes, Cap};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn key(request: &Request) -> Result<ResultKey, Unkeyable> {
        let mut parts = KeyParts::new("local");
        parts.request(request, WorkspaceIs::Callers)?;
        Ok(parts.finish())
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let base = || Request::command(["sh", "-c", "true"]);
        type Change = fn(&mut Request);
        let changes: [Change; 9] = [
            |request| request.argv = vec!["sh".into(), "-ctrue".into()],
            |request| request.argv.push("x".into()),
            |request| request.env.push(("A".into(), "b".into())),
            |request| request.env.push(("Ab".into(), "".into())),
            |request| request.cwd = Some("/tmp".into()),
            |request| request.limits.memory = Cap::AtMost(Bytes::new(1 << 26)),
            |request| request.limits.wall_time = Cap::AtMost(Duration::from_secs(1)),
            |request| request.backend = BackendName::Gvisor,
            |request| {
                request
                    .waived
                    .push(cofferdam_contract::enforcement::LimitName::Memory);
            },
        ];
        let mut keys = vec![key(&base()).unwrap()];
        assert_eq!(keys[0], key(&base()).unwrap());
        for change in changes {
            let mut request = base();
            change(&mut request);
            keys.push(key(&request).unwrap());
        }
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().filter(|other| *other == key).count(), 1, "{i}");
        }
        assert_ne!(KeyParts::new("a").finish(), KeyParts::new("b").finish());
    }

    #[test]
    fn the_contents_of_what_is_shown_count_and_not_where_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.join("sub")).unwrap();
            fs::write(path.join("sub/file"), text).unwrap();
            path
        };
        let with = |path: &Path, access| {
            key(&Request {
                workspace: Some(Workspace {
                    path: path.to_owned(),
                    access,
                }),
                ..Request::command(["true"])
            })
        };
        let (one, same, other) = (at("one", "a"), at("same", "a"), at("other", "b"));
        let read = |path: &Path| with(path, WorkspaceAccess::ReadOnly).unwrap();
        assert_eq!(read(&one), read(&same));
        assert_ne!(read(&one), read(&other));
        let before = read(&one);
        fs::set_permissions(one.join("sub/file"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(read(&one), before, "the mode");
        let before = read(&one);
        std::os::unix::fs::symlink("sub", one.join("link")).unwrap();
        assert_ne!(read(&one), before, "a link");
        let before = read(&one);
        fs::rename(one.join("sub/file"), one.join("sub/elif")).unwrap();
        assert_ne!(read(&one), before, "a name");
        assert!(matches!(
            with(&one, WorkspaceAccess::ReadWrite),
            Err(Unkeyable::Impure { .. })
        ));
        let mounted = |access| {
            key(&Request {
                mounts: vec![Mount {
                    source: one.clone(),
                    target: "/data".into(),
                    access,
                }],
                ..Request::command(["true"])
            })
        };
        assert_ne!(mounted(MountAccess::ReadOnly).unwrap(), read(&one));
        assert!(mounted(MountAccess::ReadWrite).is_err());
    }

    #[test]
    fn a_program_that_was_replaced_in_its_place_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tool");
        fs::write(&program, "one").unwrap();
        let request = Request::command([&program]);
        let before = key(&request).unwrap();
        fs::write(&program, "another").unwrap();
        assert_ne!(key(&request).unwrap(), before);
    }

    #[test]
    fn the_same_question_under_another_name_is_the_same() {
        let sealed = |id: &str, scope: &str, seed: u8| {
            let draft = json!({
                "payload_id": id, "contract_id": id, "scope": scope, "pure": true,
                "task": {"kind": "command", "argv": ["true"]},
            });
            let now = Timestamp::from_second(1_700_000_000 + i64::from(seed)).unwrap();
            let draft = Draft::from_value(draft).unwrap();
            draft.seal(now, Entropy([seed; 16])).unwrap()
        };
        let key = |sealed: &Sealed| {
            let mut parts = KeyParts::new("local");
            parts.payload(sealed).unwrap();
            parts.finish()
        };
        let (one, same) = (sealed("P-1", "sum", 1), sealed("P-2", "sum", 2));
        assert_ne!(one.digest(), same.digest());
        assert_eq!(key(&one), key(&same));
        assert_ne!(key(&one), key(&sealed("P-1", "difference", 1)));
    }

    #[test]
    fn an_engine_that_may_answer_otherwise_has_other_keys() {
        assert_eq!(major("0.1.7"), "0.1");
        assert_eq!(major("3.4.5"), "3");
    }
}
