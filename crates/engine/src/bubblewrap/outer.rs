//! Everything that a run under `bwrap` takes, prepared before anything is started: what it reads, what it tells over, who it is.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use cofferdam_contract::request::Request;
use cofferdam_contract::units::Bytes;
use cofferdam_sys::blueprint::{Blueprint, Isolation, NetworkNamespace, Routes};
use cofferdam_sys::errand::Departure;
use cofferdam_sys::program::Program;
use cofferdam_sys::protocol::RESULT_FD;
use cofferdam_sys::seccomp::{Denied, Filter, Listener, Variants};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Resource;

use super::arguments::{ATTENDANT, Asked, HidesKeys, arguments};
use crate::error::EngineError;
use crate::host::{Host, Privilege};
use crate::native::{Lease, view};
use crate::outer::{self, Attended, Hearing, Outer, Owner};
use crate::plan;
use crate::program;

/// bwrap that waits outside, bwrap as process 1, and the attendant.
pub(crate) const TOOL_PROCESSES: u64 = 3;
const NAME: &str = "bubblewrap";
/// Room for what the attendant makes in the scratch space.
const SCRATCH_PAGES: u64 = 4 * 4096;

/// The host's bwrap.
pub(crate) fn find() -> Result<PathBuf, EngineError> {
    outer::find("bwrap", NAME, NAME)
}

/// Draws the run.
pub(crate) fn draw(
    request: &Request,
    rlimits: &[(Resource, u64)],
    cpus: Option<usize>,
    variants: Variants,
    host: &Host,
) -> Result<Outer, EngineError> {
    let bwrap = find()?;
    let Stranger { identity, lease } = Stranger::of(request, host)?;
    let covers: Vec<(PathBuf, Vec<u8>)> = cpus
        .map(|count| view::cpu_files(count).map(|(path, text)| (path.into(), text.into_bytes())))
        .into_iter()
        .flatten()
        .collect();
    let mut words = arguments(&Asked {
        view: &outer::view(request)?,
        env: &program::environment(request),
        scratch_bytes: request
            .limits
            .disk
            .at_most()
            .map(|disk: Bytes| disk.get().saturating_add(SCRATCH_PAGES)),
        covers: &covers,
        hides_keys: match host.privilege {
            Privilege::Root => HidesKeys::No,
            Privilege::User { .. } => HidesKeys::Yes,
        },
    });
    let mut given = Given::default();
    words.words.push("--seccomp".into());
    words.content(filter(variants));
    for (at, content) in std::mem::take(&mut words.contents) {
        let number = given.file(&content)?;
        if let Some(word) = words.words.get_mut(at) {
            *word = number;
        }
    }
    let (status, status_number) = given.pipe()?;
    words
        .words
        .extend(["--json-status-fd".into(), status_number]);
    let (told, told_number) = given.pipe()?;
    let arguments = given.file(&words.for_descriptor())?;
    let mut argv: Vec<OsString> = vec![
        "bwrap".into(),
        "--args".into(),
        arguments,
        "--".into(),
        ATTENDANT.into(),
        told_number,
    ];
    argv.extend(outer::words(&Hearing {
        request,
        rlimits,
        becomes: None,
        most_tasks: None,
    }));
    let place = c_string(bwrap.clone().into_os_string())?;
    let argv = argv.into_iter().map(c_string).collect::<Result<_, _>>()?;
    // Nothing in its environment: it passes on what `--setenv` says, and no variable of the request's can reach its own loader.
    let program = Program::new(c"/".to_owned(), vec![place], argv, Vec::new());
    Ok(Outer {
        isolation: isolation(identity, &bwrap, host),
        blueprint: Blueprint {
            isolation: Isolation::None,
            steps: Vec::new(),
            trees: given.fds,
            filter: Vec::new(),
            listener: Listener::Absent,
            landlock: None,
            routes: Routes::Ignored,
            network: NetworkNamespace::New,
            doors: Vec::new(),
            cpus: cpus
                .map(|count| plan::choose(count, host))
                .unwrap_or_default(),
            fixed: None,
            lease: lease.map(|lease| Box::new(lease) as _),
        },
        program,
        departure: Departure { identity },
        attended: Attended {
            told,
            status: Some(status),
            tool_processes: Some(TOOL_PROCESSES),
            tool: NAME,
            _premises: None,
        },
    })
}

/// Who bwrap is outside: root never starts it as root.
struct Stranger {
    /// `None` for the caller himself.
    identity: Option<(u32, u32)>,
    lease: Option<Lease>,
}

impl Stranger {
    fn of(request: &Request, host: &Host) -> Result<Self, EngineError> {
        let identity = |identity| Self {
            identity,
            lease: None,
        };
        if let Privilege::User { .. } = host.privilege {
            return Ok(identity(None));
        }
        match outer::owner(request, host)? {
            Owner::Of { uid, gid } => Ok(identity(Some((uid, gid)))),
            Owner::Nobody => {
                let lease = Lease::take().ok_or_else(|| EngineError::Unavailable {
                    backend: NAME,
                    why: "too many sandboxes of this process are alive".to_owned(),
                    fix: "run fewer at once".to_owned(),
                })?;
                Ok(Self {
                    identity: Some((lease.id(), lease.id())),
                    lease: Some(lease),
                })
            }
        }
    }
}

/// The descriptors that bwrap is started with.
#[derive(Default)]
struct Given {
    fds: Vec<OwnedFd>,
}

impl Given {
    fn file(&mut self, content: &[u8]) -> Result<OsString, EngineError> {
        self.keep(outer::given(content)?)
    }

    /// Our end, which never blocks, and the number of theirs.
    fn pipe(&mut self) -> Result<(OwnedFd, OsString), EngineError> {
        let failed = EngineError::system("make a pipe");
        let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(&failed)?;
        rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK).map_err(&failed)?;
        Ok((ours, self.keep(theirs)?))
    }

    /// Above the numbers that a program's own descriptors have: a caller may have left them free.
    fn keep(&mut self, fd: OwnedFd) -> Result<OsString, EngineError> {
        let failed = EngineError::system("keep a descriptor");
        let fd = rustix::io::fcntl_dupfd_cloexec(&fd, RESULT_FD + 1).map_err(failed)?;
        let number = fd.as_raw_fd().to_string().into();
        self.fds.push(fd);
        Ok(number)
    }
}

/// The filter as the kernel reads it: `struct sock_filter` after `struct sock_filter`. Nobody listens, so a refused call is answered at once.
fn filter(variants: Variants) -> Vec<u8> {
    let filter = Filter::build(variants, Denied::Errno);
    let mut bytes = Vec::with_capacity(filter.program().len() * 8);
    for instruction in filter.program() {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
        bytes.extend_from_slice(&instruction.k.to_ne_bytes());
    }
    bytes
}

fn isolation(
    identity: Option<(u32, u32)>,
    bwrap: &std::path::Path,
    host: &Host,
) -> BTreeMap<String, String> {
    let outside = match (identity, host.privilege) {
        (Some((uid, _)), _) | (None, Privilege::User { uid, .. }) => uid,
        (None, Privilege::Root) => 0,
    };
    // The attendant's domain needs the second version.
    let landlock = match host.landlock_abi {
        Some(2..) => "tracing only".to_owned(),
        _ => "absent".to_owned(),
    };
    [
        ("built_by", bwrap.display().to_string()),
        ("namespaces", "user,pid,mount,net,ipc,uts,cgroup".to_owned()),
        ("root", "read-only".to_owned()),
        ("seccomp", "filter, refusals not recorded".to_owned()),
        ("landlock", landlock),
        ("proc", "own".to_owned()),
        ("uid", format!("1000 (outside {outside})")),
    ]
    .into_iter()
    .map(|(part, by)| (part.to_owned(), by))
    .collect()
}

fn c_string(word: OsString) -> Result<CString, EngineError> {
    debug_assert!(!word.as_bytes().contains(&0), "the grant refuses NUL");
    CString::new(word.into_vec()).map_err(|_| EngineError::System {
        doing: "lay out the command line of bwrap",
        errno: Errno::INVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_written_as_the_kernel_reads_it() {
        let bytes = filter(Variants::NONE);
        let program = Filter::build(Variants::NONE, Denied::Errno);
        assert_eq!(bytes.len(), program.program().len() * 8);
        let first = &program.program()[0];
        assert_eq!(bytes[..2], first.code.to_ne_bytes());
        assert_eq!(bytes[4..8], first.k.to_ne_bytes());
    }
}
