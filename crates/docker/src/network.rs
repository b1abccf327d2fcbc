//! The network of a container. The daemon gives it none; the ways out are opened by us in its network namespace, as in a sandbox of our own, and lead nowhere but to our gate. Until they stand, an
//! usher waits in the program's place: nothing runs without them, and what cannot be opened is refused.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use bollard::Docker;
use bollard::query_parameters::{InspectContainerOptions, UploadToContainerOptionsBuilder};
use cofferdam_contract::ending::{SetupFailure, SetupFailureKind};
use cofferdam_contract::network::Network;
use cofferdam_engine::backend::{self, WayOut};
use cofferdam_engine::error::EngineError;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use crate::daemon;
use crate::settings::Settings;

/// Where the usher is, in a volume of its own; nobody inside but the daemon's root may write there.
pub(crate) const PLACE: &str = "/.cofferdam";
pub(crate) const USHER: &str = "/.cofferdam/usher";
const STEP: &str = "open the network";
/// Runtimes whose containers use the kernel's network. Others have one of their own, in which nothing can be opened from here.
const KERNELS_OWN: [&str; 3] = ["runc", "crun", "io.containerd.runc.v2"];

/// Whether a way out can be had there at all.
pub(crate) async fn check(
    client: &Docker,
    settings: &Settings,
    network: &Network,
) -> Result<(), EngineError> {
    if *network == Network::Denied {
        return Ok(());
    }
    let refused = |why: &str, fix: &str| {
        let why = format!("a container's network cannot be bounded here: {why}");
        Err(daemon::unavailable(why, fix.to_owned()))
    };
    if !settings.endpoint.is_local() {
        let fix =
            "use a daemon of this machine by its Unix socket, --backend native, or --net none";
        return refused("its daemon may be on another machine", fix);
    }
    if !rustix::process::geteuid().is_root() {
        let fix = "run as root beside the daemon, use --backend native, which needs no root, or --net none";
        return refused("that takes root", fix);
    }
    let runtime = match &settings.runtime {
        Some(runtime) => runtime.clone(),
        None => {
            let info = client.info().await;
            let info = info.map_err(daemon::refused("ask the daemon about itself"))?;
            info.default_runtime.unwrap_or_default()
        }
    };
    if !KERNELS_OWN.contains(&runtime.as_str()) {
        let why = format!("the runtime {runtime} has a network of its own");
        return refused(&why, "use --runtime runc, or --net none");
    }
    Ok(())
}

/// Puts the usher in its place.
pub(crate) async fn send_usher(client: &Docker, container: &str) -> Result<(), EngineError> {
    let program = backend::usher_program();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o555);
    header.set_size(program.len() as u64);
    let mut archive = Builder::new(Vec::new());
    let packed = archive
        .append_data(&mut header, "usher", program.as_slice())
        .and_then(|()| archive.into_inner());
    let packed = packed.map_err(|error| EngineError::System {
        doing: "pack the usher",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    let place = UploadToContainerOptionsBuilder::default()
        .path(PLACE)
        .build();
    client
        .upload_to_container(container, Some(place), bollard::body_full(packed.into()))
        .await
        .map_err(daemon::refused("send the usher"))
}

/// Opens the ways in a container that has been started and whose program waits. `None` where it has no network.
pub(crate) async fn open(
    client: &Docker,
    container: &str,
    network: &Network,
) -> Result<Option<WayOut>, SetupFailure> {
    if *network == Network::Denied {
        return Ok(None);
    }
    let found = client
        .inspect_container(container, None::<InspectContainerOptions>)
        .await
        .map_err(|error| failed(&daemon::reason(&error), None))?;
    let pid = found.state.and_then(|state| state.pid);
    let pid = pid
        .filter(|pid| *pid > 0)
        .ok_or_else(|| failed("its first process has ended", None))?;
    let namespace = namespace_of(pid, container)?;
    let opened = WayOut::open(network, namespace);
    opened
        .map(Some)
        .map_err(|errno| failed(&errno.to_string(), Some(errno)))
}

/// The network namespace of a process that is surely of this container, and in which there is nothing but loopback.
fn namespace_of(pid: i64, container: &str) -> Result<OwnedFd, SetupFailure> {
    let unseen = |errno: Errno| {
        let why = format!("its first process cannot be looked at from here: {errno}");
        failed(&why, Some(errno))
    };
    // By one descriptor: whatever gets its number later is somebody else.
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let process = rustix::fs::openat(CWD, format!("/proc/{pid}"), flags, Mode::empty());
    let process = process.map_err(unseen)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |name: &str| rustix::fs::openat(&process, name, flags, Mode::empty());
    let read = |name: &str| -> Result<String, SetupFailure> {
        let mut text = String::new();
        let read = File::from(open(name).map_err(unseen)?).read_to_string(&mut text);
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        read.map_err(errno).map_err(unseen)?;
        Ok(text)
    };
    if !read("cgroup")?.contains(container) {
        let why = "its processes are not this machine's, or have other numbers here";
        return Err(failed(why, None));
    }
    let namespace = open("ns/net").map_err(unseen)?;
    match other_interface(&read("net/dev")?) {
        None => Ok(namespace),
        Some(name) => Err(failed(
            &format!("the daemon has given it the interface {name}"),
            None,
        )),
    }
}

/// An interface besides loopback, from `/proc/PID/net/dev`.
fn other_interface(devices: &str) -> Option<&str> {
    let names = devices.lines().skip(2).filter_map(|line| {
        let (name, _) = line.split_once(':')?;
        Some(name.trim())
    });
    names.filter(|name| *name != "lo").last()
}

fn failed(why: &str, errno: Option<Errno>) -> SetupFailure {
    SetupFailure {
        kind: SetupFailureKind::Sandbox,
        step: STEP.to_owned(),
        message: format!(
            "could not {STEP} of the container: {why}; use --backend native, or --net none"
        ),
        errno: errno.map(Errno::raw_os_error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_nobody_elses() {
        let head = "Inter-|   Receive |  Transmit\n face |bytes packets|bytes packets\n";
        let lo = "    lo: 0 0 0 0\n";
        assert_eq!(other_interface(&format!("{head}{lo}")), None);
        assert_eq!(
            other_interface(&format!("{head}{lo}  eth0: 1 2 3\n")),
            Some("eth0")
        );
        assert_eq!(other_interface(head), None);
    }

    #[test]
    fn a_process_of_somebody_else_is_not_entered() {
        let own = i64::from(std::process::id());
        let failure = namespace_of(own, "0123456789abcdef-not-ours").unwrap_err();
        assert!(failure.message.contains("other numbers"), "{failure:?}");
        let failure = namespace_of(i64::from(i32::MAX), "x").unwrap_err();
        assert_eq!(failure.errno, Some(2), "{failure:?}");
    }
}
