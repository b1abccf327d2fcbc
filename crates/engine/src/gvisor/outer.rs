//! Everything that a run under `runsc` takes, prepared before anything is started.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_contract::request::{MountAccess, Request, WorkspaceAccess};
use cofferdam_contract::units::Bytes;
use cofferdam_sys::attendant;
use cofferdam_sys::blueprint::{Blueprint, Isolation, NetworkNamespace, Routes};
use cofferdam_sys::errand::Departure;
use cofferdam_sys::program::Program;
use cofferdam_sys::seccomp::Listener;
use rustix::io::Errno;
use rustix::process::Resource;

use super::bundle::{self, ATTENDANT, TELL};
use super::premises::Premises;
use crate::error::EngineError;
use crate::host::{Host, Privilege};
use crate::outer::{self, Attended, Hearing, Outer, Owner};
use crate::plan::{self, Channel};
use crate::program;

/// What stands on the host for so many processes inside grows faster than they do: 84 tasks for two of them, 343 for 21, 1,598 for 61 (runsc of 2022, platform ptrace). The limit itself is
/// held inside; this bound keeps the host safe should that fail.
pub(crate) const fn tasks_on_host(processes: u64) -> u64 {
    processes.saturating_mul(64).saturating_add(512)
}
const NAME: &str = "gvisor";
const SANDBOX_ID: u32 = 1000;

/// The host's runsc.
pub(crate) fn find() -> Result<PathBuf, EngineError> {
    outer::find("runsc", NAME, "runsc")
}

/// Draws the run.
pub(crate) fn draw(
    request: &Request,
    rlimits: &[(Resource, u64)],
    cpus: Option<usize>,
    channel: Channel,
    host: &Host,
) -> Result<Outer, EngineError> {
    let runsc = find()?;
    let becomes = check(request, channel, host)?;
    let view = outer::view(request)?;
    let premises = Premises::make().map_err(|error| no_bundle(&error))?;
    let dir = premises.dir().to_owned();
    let told = dir.join("told");
    std::fs::write(&told, "").map_err(|error| no_bundle(&error))?;
    let reader = std::fs::File::open(&told).map_err(|error| no_bundle(&error))?;
    let mut args: Vec<OsString> = vec![ATTENDANT.into(), TELL.into()];
    args.extend(outer::words(&Hearing {
        request,
        rlimits,
        becomes: Some(becomes),
        most_tasks: request.limits.processes.at_most(),
    }));
    let asked = bundle::Asked {
        view: &owned(view, becomes),
        args: &args,
        env: &program::environment(request),
        told: &told,
        scratch_bytes: request.limits.disk.at_most().map(Bytes::get),
        attendant: attendant::executable(),
    };
    bundle::write(&dir, &asked).map_err(|error| no_bundle(&error))?;
    let isolation = isolation(becomes, &runsc, host);
    Ok(Outer {
        program: program_of(&runsc, &dir, host)?,
        isolation,
        blueprint: Blueprint {
            isolation: Isolation::None,
            steps: Vec::new(),
            trees: Vec::new(),
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
            lease: None,
        },
        departure: Departure { identity: None },
        attended: Attended {
            told: reader.into(),
            status: None,
            tool_processes: None,
            tool: NAME,
            _premises: Some(Box::new(premises)),
        },
    })
}

/// Who the program is, or what gVisor cannot do of what is asked.
fn check(request: &Request, channel: Channel, host: &Host) -> Result<u32, EngineError> {
    let refused = |why: &str, fix: &str| EngineError::Unavailable {
        backend: NAME,
        why: why.to_owned(),
        fix: fix.to_owned(),
    };
    if channel == Channel::Open {
        return Err(refused(
            "no descriptor but the standard streams leads into it, so a handler cannot answer",
            "use --backend native",
        ));
    }
    let words = request.argv.iter().map(OsString::as_os_str);
    let variables = request.env.iter();
    let variables = variables.flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]);
    let places = request
        .mounts
        .iter()
        .flat_map(|mount| [&mount.source, &mount.target])
        .chain(request.workspace.iter().map(|workspace| &workspace.path))
        .chain(&request.cwd);
    let places = places.map(|path| path.as_os_str());
    let mut all = words.chain(variables).chain(places);
    if all.any(|word| word.to_str().is_none()) {
        return Err(refused(
            "an argument, a variable or a path is not UTF-8, and its bundle is JSON",
            "use --backend native",
        ));
    }
    if let Privilege::User { .. } = host.privilege {
        let workspace = request.workspace.as_ref();
        let writes = workspace.is_some_and(|it| it.access == WorkspaceAccess::ReadWrite)
            || request
                .mounts
                .iter()
                .any(|it| it.access == MountAccess::ReadWrite);
        if writes {
            return Err(refused(
                "without root, runsc shows your files as root's, and the program is not root",
                "use :ro, or --backend native",
            ));
        }
        return Ok(SANDBOX_ID);
    }
    match outer::owner(request, host)? {
        Owner::Of { uid, .. } => Ok(uid),
        Owner::Nobody => Ok(SANDBOX_ID),
    }
}

/// The user that the program is has a name.
fn owned(mut view: Vec<outer::Entry>, id: u32) -> Vec<outer::Entry> {
    for entry in &mut view {
        if let outer::Entry::File { path, content } = entry
            && [Path::new("/etc/passwd"), Path::new("/etc/group")].contains(&path.as_path())
        {
            let text = String::from_utf8_lossy(content);
            *content = text.replace("1000", &id.to_string()).into_bytes();
        }
    }
    view
}

fn program_of(runsc: &Path, dir: &Path, host: &Host) -> Result<Program, EngineError> {
    let mut state = OsString::from("--root=");
    state.push(dir.join("state"));
    let mut argv: Vec<OsString> = vec![
        "runsc".into(),
        state,
        "--network=none".into(),
        "--platform=ptrace".into(),
        // Control groups are ours.
        "--ignore-cgroups".into(),
        // What the program writes is seen by others at once, and what was made beforehand is not looked at again.
        "--file-access-mounts=shared".into(),
    ];
    if let Privilege::User { .. } = host.privilege {
        argv.push("--rootless".into());
    }
    // Its name is the machine's, not the bundle's: two of the same name cannot run at once.
    let mut name = OsString::from("cofferdam-");
    name.push(dir.file_name().unwrap_or_default());
    argv.extend(["run".into(), "--bundle".into(), dir.into(), name]);
    let argv = argv.into_iter().map(c_string).collect::<Result<_, _>>()?;
    let place = c_string(runsc.into())?;
    Ok(Program::new(c"/".to_owned(), vec![place], argv, Vec::new()))
}

fn isolation(id: u32, runsc: &Path, host: &Host) -> BTreeMap<String, String> {
    let how = match host.privilege {
        Privilege::Root => "root",
        Privilege::User { .. } => "rootless",
    };
    [
        ("built_by", format!("{} ({how})", runsc.display())),
        ("kernel", "gVisor, platform ptrace".to_owned()),
        ("root", "read-only".to_owned()),
        ("proc", "own".to_owned()),
        ("uid", id.to_string()),
    ]
    .into_iter()
    .map(|(part, by)| (part.to_owned(), by))
    .collect()
}

fn no_bundle(error: &std::io::Error) -> EngineError {
    EngineError::Unavailable {
        backend: NAME,
        why: format!("its bundle could not be written: {error}"),
        fix: "make room, or name a root without such entries".to_owned(),
    }
}

fn c_string(word: OsString) -> Result<CString, EngineError> {
    CString::new(word.into_vec()).map_err(|_| EngineError::System {
        doing: "lay out the command line of runsc",
        errno: Errno::INVAL,
    })
}
