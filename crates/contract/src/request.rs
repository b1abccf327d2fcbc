//! What is to be run and where, in the one form that `run` flags and a payload's task both become, and the grant without which
//! no backend starts anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::enforcement::LimitName;
use crate::limits::Limits;
use crate::problem::{Problem, Problems};
use crate::request_check;

pub use crate::network::Network;
pub use crate::request_check::{MAX_ARGUMENT_BYTES, MAX_ARGUMENTS_AND_ENV_BYTES};

/// A request to run a command. Not yet checked: only [`Grant::new`] turns it into something that a backend accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub argv: Vec<OsString>,
    /// Added to the clean environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where the program starts; the workspace or the home directory when absent.
    pub cwd: Option<PathBuf>,
    pub limits: Limits,
    /// Limits that may go unenforced on a host that cannot hold them.
    pub waived: Vec<LimitName>,
    pub network: Network,
    pub root: Root,
    pub workspace: Option<Workspace>,
    pub mounts: Vec<Mount>,
    pub backend: BackendName,
    pub gpus: Gpus,
}

impl Request {
    /// This command with the default limits, behind the native backend's walls, with nothing of the caller's.
    pub fn command(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            limits: Limits::DEFAULT,
            waived: Vec::new(),
            network: Network::Denied,
            root: Root::HostUsr,
            workspace: None,
            mounts: Vec::new(),
            backend: BackendName::Native,
            gpus: Gpus::None,
        }
    }

    /// The same with this network, whatever it asks for.
    #[must_use]
    pub fn reaching(self, network: &Network) -> Self {
        Self {
            network: network.clone(),
            ..self
        }
    }
}

/// Which GPUs the program may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gpus {
    None,
    All,
    /// By number, as the driver counts them.
    Numbered(Vec<u32>),
}

impl Gpus {
    /// `all`, or numbers with commas.
    pub fn read(text: &str) -> Result<Self, String> {
        const MOST: usize = 64;
        let bad = || {
            format!(
                "`{}` names no GPU; write a number such as `0`, several as `0,1`, or `all`",
                crate::problem::shorten(text)
            )
        };
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |word: &str| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true => word.parse().map_err(|_| bad()),
            false => Err(bad()),
        };
        let mut numbers: Vec<u32> = text.split(',').map(number).collect::<Result<_, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        match numbers.len() <= MOST {
            true => Ok(Self::Numbered(numbers)),
            false => Err(bad()),
        }
    }

    /// What of this is given by whoever gives so much; the first that is not, where some is missing.
    pub fn within(&self, given: &Self) -> Result<Self, Problem> {
        let refused = |asked: String| {
            let fix = "is not given here; name it with --gpu, or leave it to somebody who has it";
            Err(Problem::new("gpus", asked, fix))
        };
        match (self, given) {
            (Self::None, _) => Ok(Self::None),
            (Self::All, Self::None) => refused("all".to_owned()),
            (Self::All, given) => Ok(given.clone()),
            (Self::Numbered(_), Self::All) => Ok(self.clone()),
            (Self::Numbered(asked), given) => {
                let has = |number: &u32| match given {
                    Self::Numbered(given) => given.contains(number),
                    Self::None | Self::All => false,
                };
                match asked.iter().find(|number| !has(number)) {
                    Some(missing) => refused(missing.to_string()),
                    None => Ok(self.clone()),
                }
            }
        }
    }
}

/// What the program sees as `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// A read-only view of the host's /usr and its friends, with a synthetic /etc.
    HostUsr,
    /// A directory that holds a whole root file system; never written to.
    Dir(PathBuf),
    /// An image that was unpacked; never written to.
    Image(ImageRoot),
}

/// An unpacked image. What its digest says is what is in the directory, for as long as that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    pub dir: PathBuf,
    /// As it was asked for.
    pub name: String,
    /// `sha256:…` of its configuration, which holds the digests of its layers.
    pub digest: String,
    /// Who it says its programs are; here they are the sandbox's one user.
    pub user: String,
}

impl Root {
    /// The directory that holds it, where it is one.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::HostUsr => None,
            Self::Dir(dir) => Some(dir),
            Self::Image(image) => Some(&image.dir),
        }
    }
}

/// The directory that the work is about, seen inside as [`Workspace::INSIDE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub path: PathBuf,
    pub access: WorkspaceAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceAccess {
    ReadWrite,
    ReadOnly,
    /// Changes are seen inside; the original stays as it was.
    CopyOnWrite,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    pub access: MountAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountAccess {
    ReadWrite,
    ReadOnly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendName {
    Native,
    /// Walls built by the `bwrap` of the host.
    Bubblewrap,
    /// A kernel of its own, in user space: the `runsc` of the host.
    Gvisor,
    /// Limits without isolation; only ever used when named.
    Host,
    /// A WebAssembly module or component, in this process.
    Wasm,
    /// A container of its own for each run, by the API of a Docker or Podman daemon.
    Docker,
}

/// A request that passed validation and policy. The only thing a backend accepts, and it can only be made here.
#[derive(Debug)]
pub struct Grant {
    request: Request,
    seed: Option<u64>,
}

impl Workspace {
    pub const INSIDE: &'static str = "/work";
}

impl BackendName {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Bubblewrap => "bubblewrap",
            Self::Gvisor => "gvisor",
            Self::Host => "host",
            Self::Wasm => "wasm",
            Self::Docker => "docker",
        }
    }
}

impl Grant {
    /// Checks the request as a whole and returns every problem at once. Whether paths exist is for the engine to find out.
    pub fn new(request: Request) -> Result<Self, Problems> {
        Problems::check(request_check::problems(&request))?;
        Ok(Self {
            request,
            seed: None,
        })
    }

    /// The same, to give the same each time, with randomness that begins at `seed`. Only backends that can promise something about that take it on.
    pub fn deterministic(self, seed: u64) -> Result<Self, Problems> {
        Problems::check(request_check::determinism_problems(&self.request))?;
        Ok(Self {
            seed: Some(seed),
            ..self
        })
    }

    /// Where randomness begins in a run that must give the same each time; `None` for one that need not.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Gives the request to whoever carries it out.
    pub fn into_request(self) -> Request {
        self.request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_or_all_together() {
        assert_eq!(Gpus::read("all"), Ok(Gpus::All));
        assert_eq!(Gpus::read("2,0,2"), Ok(Gpus::Numbered(vec![0, 2])));
        let (none, all) = (Gpus::None, Gpus::All);
        let some = |text: &str| Gpus::read(text).unwrap();
        for (asked, given, gets) in [
            (&none, &none, Some(&none)),
            (&none, &all, Some(&none)),
            (&all, &none, None),
            (&all, &some("1,2"), Some(&some("1,2"))),
            (&some("1"), &all, Some(&some("1"))),
            (&some("1"), &some("0,1"), Some(&some("1"))),
            (&some("1,2"), &some("0,1"), None),
            (&some("0"), &none, None),
        ] {
            let got = asked.within(given);
            assert_eq!(got.as_ref().ok(), gets, "{asked:?} of {given:?}");
            assert!(got.is_ok() || got.unwrap_err().to_string().contains("--gpu"));
        }
        for bad in ["", "gpu0", "-1", "0,", "All", "99999999999"] {
            assert!(Gpus::read(bad).is_err(), "{bad}");
        }
    }
}
