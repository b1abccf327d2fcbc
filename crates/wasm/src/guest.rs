//! What a program sees of the world: its arguments, its variables, the directories that it was given, what it may reach of a network, and nothing else. No other file, no process.

use std::path::Path;

use cofferdam_contract::request::{MountAccess, Network, Request, Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::error::EngineError;
use rustix::io::Errno;
use rustix::process::Resource;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::component_files::Listings;
use crate::component_network::Reach;
use crate::memory::MemoryAccount;
use crate::steady::Met;

/// The state of one run, as its calls see it.
pub(crate) struct Guest {
    pub(crate) wasi: WasiP1Ctx,
    pub(crate) memory: MemoryAccount,
    /// For deterministic runs.
    pub(crate) met: Met,
    /// Of a component.
    pub(crate) listings: Listings,
    pub(crate) reach: Reach,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// Streams and what is waited for lie in the same table as files.
const BESIDES_FILES: u64 = 64;
/// Of the descriptors that this process may have.
const SHARE_OF_DESCRIPTORS: u64 = 4;
/// Of randomness at once.
const LARGEST_ANSWER: u64 = 64 << 20;

impl Guest {
    pub(crate) fn new(mut wasi: WasiCtxBuilder, request: &Request) -> Self {
        let mut wasi = wasi.build_p1();
        let own = rustix::process::getrlimit(Resource::Nofile).current;
        // What one program opens must not leave the others without.
        let share = own.map_or(u64::MAX, |own| own / SHARE_OF_DESCRIPTORS);
        let files = match request.limits.open_files {
            Cap::AtMost(files) => files.min(share),
            Cap::Unlimited => share,
        };
        let entries = files.saturating_add(BESIDES_FILES);
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        wasi.ctx().table.set_max_capacity(entries);
        Self {
            wasi,
            memory: MemoryAccount::new(request.limits.memory),
            met: Met::default(),
            listings: Listings::default(),
            reach: Reach::default(),
        }
    }
}

/// Arguments, variables and directories.
pub(crate) fn world(request: &Request) -> Result<WasiCtxBuilder, EngineError> {
    let mut wasi = WasiCtxBuilder::new();
    // What is reached is not reached by the engine's own sockets: none of them is bound or connected.
    let reaches = request.network != Network::Denied;
    wasi.allow_tcp(reaches)
        .allow_udp(false)
        .allow_ip_name_lookup(reaches)
        .socket_addr_check(|_, _| Box::pin(async { false }))
        .max_random_size(largest_answer(request));
    for argument in &request.argv {
        wasi.arg(argument.to_string_lossy());
    }
    for (name, value) in &request.env {
        wasi.env(name.to_string_lossy(), value.to_string_lossy());
    }
    if let Some(workspace) = &request.workspace {
        let perms = match workspace.access {
            WorkspaceAccess::ReadWrite => FsPerms::ReadWrite,
            WorkspaceAccess::ReadOnly | WorkspaceAccess::CopyOnWrite => FsPerms::ReadOnly,
        };
        give(&mut wasi, &workspace.path, Workspace::INSIDE, perms)?;
        // Where relative names begin.
        give(&mut wasi, &workspace.path, ".", perms)?;
        wasi.initial_cwd(Workspace::INSIDE);
    }
    for mount in &request.mounts {
        let perms = match mount.access {
            MountAccess::ReadWrite => FsPerms::ReadWrite,
            MountAccess::ReadOnly => FsPerms::ReadOnly,
        };
        let inside = mount.target.to_string_lossy();
        give(&mut wasi, &mount.source, &inside, perms)?;
    }
    Ok(wasi)
}

/// What a component is given at once is made outside of its memory first, and it has no room for more than that.
fn largest_answer(request: &Request) -> u64 {
    let room = request.limits.memory.at_most().map(Bytes::get);
    room.map_or(LARGEST_ANSWER, |room| room.min(LARGEST_ANSWER))
}

fn give(
    wasi: &mut WasiCtxBuilder,
    path: &Path,
    inside: &str,
    perms: FsPerms,
) -> Result<(), EngineError> {
    let unreadable = |errno| EngineError::Unreadable {
        what: "cannot show the directory",
        path: path.display().to_string(),
        errno,
    };
    // Before it is opened: opening a pipe would wait for its other end.
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(unreadable(Errno::NOTDIR)),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(unreadable(errno));
        }
    }
    match wasi.preopened_dir(path, inside, perms) {
        Ok(_) => Ok(()),
        Err(error) => {
            let io = error.downcast_ref::<std::io::Error>();
            Err(unreadable(
                io.and_then(Errno::from_io_error).unwrap_or(Errno::IO),
            ))
        }
    }
}
