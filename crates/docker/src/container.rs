//! From a granted request to the container that is asked for: its walls, its limits, its labels. Pure; everything that the daemon is told about a run is here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountTmpfsOptions, MountType, MountVolumeOptions, ResourcesUlimits,
};
use cofferdam_contract::network::Network;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::request::{Gpus, Request, Workspace};
use cofferdam_contract::units::{Bytes, Cap};

use crate::daemon::{Flavour, Maker};
use crate::files::Carried;
use crate::image::Image;
use crate::network;
use crate::owner::Owner;
use crate::settings::{Init, Settings};

/// Who the program is.
pub(crate) const ID: u32 = 1000;
/// The scratch space, which is the home too: one file system with one size.
pub(crate) const SCRATCH: &str = "/tmp";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Every container and volume of ours has it; a sweep touches no other.
pub(crate) const MANAGED: &str = "cofferdam.managed";
pub(crate) const OWNER: &str = "cofferdam.owner";
pub(crate) const RUN: &str = "cofferdam.run";
/// When the run is over at the latest, in seconds since 1970; empty without a limit on its time.
pub(crate) const UNTIL: &str = "cofferdam.until";
/// Beyond a run's own limit, for everything around it.
const SLACK: Duration = Duration::from_secs(600);
/// As in the native backend: a process that escapes the look at the counters still meets this, one second after the limit.
const CPU_BACKSTOP: Duration = Duration::from_secs(1);
/// Podman sets this limit in any case, to more than a service without all privileges can give. It counts every process of the user, so the group holds the limit.
const PODMAN_PROCESSES: i64 = 32_768;
/// Of the scratch space, for /dev/shm.
const SHM_SHARE: u64 = 8;
const SHM_MOST: u64 = 64 << 20;

/// Everything that decides how a container looks.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) request: &'a Request,
    pub(crate) image: &'a Image,
    pub(crate) settings: &'a Settings,
    pub(crate) flavour: Flavour,
    pub(crate) run_id: String,
    pub(crate) owner: &'a Owner,
    /// Seconds since 1970.
    pub(crate) now: u64,
    pub(crate) stdin: Stdin,
    /// The CPUs that are shown, where their number is limited and they are this machine's.
    pub(crate) cpus: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stdin {
    Attached,
    Absent,
}

/// The API speaks JSON: what is not text cannot be said.
pub(crate) fn check(request: &Request) -> Result<(), Problems> {
    let mut found = Vec::new();
    let mut look = |field: String, text: &OsStr| {
        if text.to_str().is_none() {
            let fix = "is not UTF-8, which the Docker API needs; pass it with --stdin or in a file, or use --backend native";
            found.push(Problem::new(field, text.to_string_lossy(), fix));
        }
    };
    for (index, argument) in request.argv.iter().enumerate() {
        look(format!("argv[{index}]"), argument);
    }
    for (name, value) in &request.env {
        look(format!("env.{}", name.to_string_lossy()), value);
    }
    if let Some(cwd) = &request.cwd {
        look("cwd".to_owned(), cwd.as_os_str());
    }
    for (index, mount) in request.mounts.iter().enumerate() {
        look(format!("mounts[{index}].target"), mount.target.as_os_str());
    }
    Problems::check(found)
}

/// What containers and volumes of a run are found by.
pub(crate) fn name(run_id: &str) -> String {
    format!("cofferdam-{run_id}")
}

pub(crate) fn body(wish: &Wish<'_>) -> ContainerCreateBody {
    let request = wish.request;
    let is_attached = wish.stdin == Stdin::Attached;
    ContainerCreateBody {
        hostname: Some("sandbox".to_owned()),
        user: Some(format!("{ID}:{ID}")),
        attach_stdin: Some(is_attached),
        open_stdin: Some(is_attached),
        stdin_once: Some(is_attached),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        env: Some(environment(request, wish.image)),
        // The image's own entry point is not asked for: what was named is what runs.
        entrypoint: Some(entry_point(request, wish.image)),
        cmd: Some(Vec::new()),
        image: Some(wish.image.id.clone()),
        working_dir: Some(working_directory(request)),
        labels: Some(labels(wish)),
        stop_signal: Some("SIGTERM".to_owned()),
        // An image may ask to be looked at again and again; each look would be a process that nobody asked for.
        healthcheck: Some(bollard::models::HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        host_config: Some(host_config(wish)),
        ..Default::default()
    }
}

/// What was named; behind the usher where there is a network to wait for.
fn entry_point(request: &Request, image: &Image) -> Vec<String> {
    let argv = request.argv.iter().map(|text| string(text));
    if request.network == Network::Denied {
        return argv.collect();
    }
    let before = std::iter::once(network::USHER.to_owned()).chain(candidates(request, image));
    before.chain([String::new()]).chain(argv).collect()
}

/// As `docker run --gpus` asks for them.
fn gpus(asked: &Gpus) -> Option<Vec<DeviceRequest>> {
    let (count, ids) = match asked {
        Gpus::None => return None,
        Gpus::All => (Some(-1), None),
        Gpus::Numbered(numbers) => {
            let ids = numbers.iter().map(ToString::to_string).collect();
            (None, Some(ids))
        }
    };
    Some(vec![DeviceRequest {
        count,
        device_ids: ids,
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..Default::default()
    }])
}

fn host_config(wish: &Wish<'_>) -> HostConfig {
    let limits = &wish.request.limits;
    let memory = limits.memory.at_most().map(|size| signed(size.get()));
    let init = match wish.settings.init {
        Init::Daemons => 1,
        Init::None => 0,
    };
    let pids = limits.processes.at_most();
    let shm = shm_size(limits.disk);
    HostConfig {
        memory,
        // Memory and swap together: no swap.
        memory_swap: memory,
        nano_cpus: limits
            .cpus
            .at_most()
            .map(|share| signed(u64::from(share.milli()).saturating_mul(1_000_000))),
        cpuset_cpus: wish.cpus.as_ref().map(|cpus| {
            let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            cpus.join(",")
        }),
        // The daemon's init is one more.
        pids_limit: Some(pids.map_or(-1, |count| signed(count.saturating_add(init)))),
        ulimits: Some(ulimits(wish.request, wish.flavour)),
        init: Some(wish.settings.init == Init::Daemons),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(security(wish.flavour)),
        privileged: Some(false),
        network_mode: Some("none".to_owned()),
        dns: dns(wish),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        tmpfs: Some(HashMap::from([(
            SCRATCH.to_owned(),
            scratch_options(limits.disk, wish.flavour),
        )])),
        shm_size: Some(signed(shm)),
        mounts: Some(mounts(wish)),
        // What the program prints is kept here, within its limit, and not on the daemon's disk without one.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        auto_remove: Some(false),
        runtime: wish.settings.runtime.clone(),
        device_requests: gpus(&wish.request.gpus),
        ..Default::default()
    }
}

/// Every address is answered by us; this one is as good as any. Podman takes none where it gives no network.
fn dns(wish: &Wish<'_>) -> Option<Vec<String>> {
    let has_network = wish.request.network != Network::Denied;
    let is_taken = has_network && wish.flavour.maker == Maker::Docker;
    is_taken.then(|| vec![cofferdam_engine::backend::NAME_SERVER.to_string()])
}

/// A newer Docker may have been told to filter nothing by default; it also knows a name for the filter that it has built in.
fn security(flavour: Flavour) -> Vec<String> {
    let mut options = vec!["no-new-privileges".to_owned()];
    if flavour.maker == Maker::Docker && flavour.minor >= KNOWS_BUILT_IN {
        options.push("seccomp=builtin".to_owned());
    }
    options
}

const KNOWS_BUILT_IN: usize = 42;

fn ulimits(request: &Request, flavour: Flavour) -> Vec<ResourcesUlimits> {
    let limits = &request.limits;
    let mut set = vec![("core", 0)];
    if let Cap::AtMost(files) = limits.open_files {
        set.push(("nofile", signed(files)));
    }
    if let Cap::AtMost(disk) = limits.disk {
        set.push(("fsize", signed(disk.get())));
    }
    if let Cap::AtMost(cpu) = limits.cpu_time {
        let seconds = (cpu + CPU_BACKSTOP).as_secs() + u64::from(cpu.subsec_nanos() > 0);
        set.push(("cpu", signed(seconds)));
    }
    if flavour.maker == Maker::Podman {
        set.push(("nproc", PODMAN_PROCESSES));
    }
    let ulimit = |(name, value): (&str, i64)| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    };
    set.into_iter().map(ulimit).collect()
}

/// What /dev/shm gets of the disk limit; the rest is the scratch space's, so that one limit bounds both.
fn shm_size(disk: Cap<Bytes>) -> u64 {
    match disk {
        Cap::AtMost(disk) => (disk.get() / SHM_SHARE).clamp(PAGE, SHM_MOST),
        Cap::Unlimited => SHM_MOST,
    }
}

const PAGE: u64 = 4096;

/// Owned by the program, where the daemon lets us say so: some runtimes give it the mode that the image's own /tmp has.
fn scratch_options(disk: Cap<Bytes>, flavour: Flavour) -> String {
    let mut options = "rw,exec,nosuid,nodev,mode=1777".to_owned();
    if flavour.maker == Maker::Docker {
        options.push_str(&format!(",uid={ID},gid={ID}"));
    }
    if let Cap::AtMost(size) = disk {
        let rest = size.get().saturating_sub(shm_size(disk)).max(PAGE);
        options.push_str(&format!(",size={rest}"));
    }
    options
}

/// The workspace and what else is carried in are volumes without a name, which go with their container. Volumes that the image asks for would be writable without any
/// limit: they are empty and read-only.
fn mounts(wish: &Wish<'_>) -> Vec<Mount> {
    let carried = Carried::all(wish.request);
    let is_own = |target: &String| {
        let target = target.trim_end_matches('/');
        [SCRATCH, Workspace::INSIDE, network::PLACE].contains(&target)
            || carried.iter().any(|each| each.inside == target)
    };
    let empty = wish.image.volumes.iter().filter(|target| !is_own(target));
    let empty = empty.map(|target| Mount {
        target: Some(target.clone()),
        typ: Some(MountType::TMPFS),
        read_only: Some(true),
        tmpfs_options: Some(MountTmpfsOptions {
            size_bytes: Some(signed(PAGE)),
            ..Default::default()
        }),
        ..Default::default()
    });
    let volume = |target: &str| Mount {
        target: Some(target.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(false),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            labels: Some(labels(wish)),
            ..Default::default()
        }),
        ..Default::default()
    };
    let network = match wish.request.network {
        Network::Denied => None,
        _ => Some(volume(network::PLACE)),
    };
    let volumes = carried.iter().map(|each| volume(&each.inside));
    empty.chain(volumes).chain(network).collect()
}

fn labels(wish: &Wish<'_>) -> HashMap<String, String> {
    let until = wish.request.limits.wall_time.at_most().map(|limit| {
        // What is carried in and out may take its time, each of it, and twice.
        let carried = u32::try_from(Carried::all(wish.request).len()).unwrap_or(u32::MAX);
        let ways = carried.saturating_add(1).saturating_mul(2);
        let carrying = wish.settings.pull_patience.saturating_mul(ways);
        let longest = (limit + wish.settings.grace + SLACK).saturating_add(carrying);
        wish.now.saturating_add(longest.as_secs()).to_string()
    });
    // Each is set, also where there is nothing to say: what is not, an image could say in our name.
    HashMap::from([
        (MANAGED.to_owned(), "true".to_owned()),
        (OWNER.to_owned(), wish.owner.to_label()),
        (RUN.to_owned(), wish.run_id.clone()),
        (UNTIL.to_owned(), until.unwrap_or_default()),
    ])
}

/// What the image says about itself stays; the rest is the clean environment, and then what the caller added or replaced.
pub(crate) fn environment(request: &Request, image: &Image) -> Vec<String> {
    let mut env: Vec<(String, String)> =
        [("PATH", PATH), ("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
    let mut set = |name: &str, value: &str| match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => value.clone_into(known),
        None => env.push((name.to_owned(), value.to_owned())),
    };
    for (name, value) in image.env.iter().filter_map(|pair| pair.split_once('=')) {
        set(name, value);
    }
    for (name, value) in [
        ("HOME", SCRATCH),
        ("TMPDIR", SCRATCH),
        ("USER", "sandbox"),
        ("LOGNAME", "sandbox"),
    ] {
        set(name, value);
    }
    for (name, value) in &request.env {
        set(&string(name), &string(value));
    }
    let pair = |(name, value)| format!("{name}={value}");
    env.into_iter().map(pair).collect()
}

pub(crate) fn working_directory(request: &Request) -> String {
    match (&request.cwd, &request.workspace) {
        (Some(cwd), _) => string(cwd.as_os_str()),
        (None, Some(_)) => Workspace::INSIDE.to_owned(),
        (None, None) => SCRATCH.to_owned(),
    }
}

/// Where a program of this name would be found inside, in the order in which it is looked for.
pub(crate) fn candidates(request: &Request, image: &Image) -> Vec<String> {
    let name = request.argv.first().map(|name| string(name));
    let name = name.unwrap_or_default();
    if name.contains('/') {
        let path = Path::new(&working_directory(request)).join(&name);
        return vec![path.to_string_lossy().into_owned()];
    }
    let env = environment(request, image);
    let path = env.iter().find_map(|pair| pair.strip_prefix("PATH="));
    path.unwrap_or(PATH)
        .split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| format!("{dir}/{name}"))
        .collect()
}

fn string(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The API's numbers have a sign. What is larger is no limit to anything.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "container_tests.rs"]
pub(crate) mod tests;
