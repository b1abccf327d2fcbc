//! What makes a request refusable, found without looking at the host: the kernel's bounds on arguments, names, and paths.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::problem::{Found, Problem, shorten};
use crate::request::{
    BackendName, Gpus, Mount, Network, Request, Root, Workspace, WorkspaceAccess,
};

/// The kernel's `MAX_ARG_STRLEN` of 32 pages, without the NUL that ends the string.
pub const MAX_ARGUMENT_BYTES: usize = 131_072 - 1;

/// The kernel gives argv and env a quarter of the 8 MiB stack; the slack is for the clean environment and what the kernel adds.
pub const MAX_ARGUMENTS_AND_ENV_BYTES: usize = (2 << 20) - (64 << 10);

/// Each string costs its NUL and a pointer as well.
const BYTES_PER_STRING: usize = 1 + size_of::<u64>();

/// Built by the sandbox itself, so that nothing may be mounted over them.
const RESERVED: [&str; 5] = ["/proc", "/dev", "/sys", "/tmp", "/etc"];

const NO_NUL: &str = "holds a NUL byte, which no argument, variable or path can; remove it";

pub(crate) fn problems(request: &Request) -> Vec<Problem> {
    let mut found = command_problems(request);
    check_places(request, &mut found);
    check_mounts(&request.mounts, &mut found);
    match request.backend {
        BackendName::Native => {}
        BackendName::Bubblewrap | BackendName::Gvisor => check_outer_walls(request, &mut found),
        BackendName::Host => check_without_isolation(request, &mut found),
        BackendName::Wasm => check_wasm(request, &mut found),
        BackendName::Docker => check_container(request, &mut found),
    }
    if request.backend != BackendName::Native {
        check_image(request, &mut found);
    }
    found.extend(request.limits.problems());
    let shows_gpus = matches!(request.backend, BackendName::Native | BackendName::Docker);
    if request.gpus != Gpus::None && !shows_gpus {
        let fix =
            "GPUs are shown by the native and docker backends; use one of them, or leave it out";
        found.push(Problem::new("gpus", request.backend.as_str(), fix));
    }
    check_network(request, &mut found);
    found
}

/// Only where the one door is ours to watch.
fn check_network(request: &Request, found: &mut Vec<Problem>) {
    if request.network == Network::Denied {
        return;
    }
    found.extend(request.network.problems());
    match request.backend {
        BackendName::Native | BackendName::Docker | BackendName::Wasm => {}
        BackendName::Bubblewrap | BackendName::Gvisor | BackendName::Host => {
            let fix = format!(
                "the {} backend cannot bound what is reached; use --backend native, or deny the network",
                request.backend.as_str()
            );
            found.push(Problem::new("network", &request.network, fix));
        }
    }
}

/// Who can be asked to give the same each time.
pub(crate) fn determinism_problems(request: &Request) -> Vec<Problem> {
    let why = match request.backend {
        BackendName::Native | BackendName::Wasm if request.network != Network::Denied => {
            let fix = "what comes over a network is never the same; deny the network";
            return vec![Problem::new("deterministic", &request.network, fix)];
        }
        BackendName::Native | BackendName::Wasm => return Vec::new(),
        BackendName::Bubblewrap | BackendName::Docker => {
            "its filter asks nobody, so time and randomness cannot be answered"
        }
        BackendName::Gvisor => "its kernel has clocks and randomness of its own",
        BackendName::Host => "it shows the program the machine as it is",
    };
    let fix = format!("{why}; say --backend native, or --backend wasm for a module");
    vec![Problem::new("deterministic", request.backend.as_str(), fix)]
}

/// The part that a payload's task can be asked before anyone knows where it will run.
pub(crate) fn command_problems(request: &Request) -> Vec<Problem> {
    let mut strings = Found::default();
    check_argv(request, &mut strings);
    check_env(request, &mut strings);
    let mut found = strings.into_vec();
    check_total(request, &mut found);
    if let Some(cwd) = &request.cwd {
        check_absolute("cwd", cwd, &mut found);
    }
    found
}

fn check_argv(request: &Request, found: &mut Found) {
    match request.argv.first() {
        None => {
            found.push(|| Problem::new("argv", "[]", "is empty; name the program to run"));
        }
        Some(program) if program.is_empty() => {
            found.push(|| Problem::new("argv[0]", "", "is empty; name the program to run"));
        }
        Some(_) => {}
    }
    for (i, argument) in request.argv.iter().enumerate() {
        check_string(|| format!("argv[{i}]"), argument, argument.len(), found);
    }
}

fn check_env(request: &Request, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (name, value) in &request.env {
        let field = || format!("env.{}", shorten(&name.to_string_lossy()));
        if !is_variable_name(name) {
            found.push(|| Problem::new(
                "env",
                name.to_string_lossy(),
                "is not a variable name; use letters, digits and `_`, not beginning with a digit",
            ));
        }
        if !seen.insert(name) {
            let fix = "is set twice; keep one of them";
            found.push(|| Problem::new(field(), value.to_string_lossy(), fix));
        }
        check_string(field, value, name.len() + 1 + value.len(), found);
    }
}

fn check_string(field: impl Fn() -> String, text: &OsStr, bytes: usize, found: &mut Found) {
    if has_nul(text) {
        found.push(|| Problem::new(field(), text.to_string_lossy(), NO_NUL));
    }
    if bytes > MAX_ARGUMENT_BYTES {
        let fix = format!(
            "is {bytes} bytes long and the kernel takes at most {MAX_ARGUMENT_BYTES}; pass it with --stdin or in a file"
        );
        found.push(|| Problem::new(field(), text.to_string_lossy(), fix));
    }
}

fn check_total(request: &Request, found: &mut Vec<Problem>) {
    let argv: usize = request
        .argv
        .iter()
        .map(|a| a.len() + BYTES_PER_STRING)
        .sum();
    let env: usize = request
        .env
        .iter()
        .map(|(n, v)| n.len() + 1 + v.len() + BYTES_PER_STRING)
        .sum();
    let total = argv + env;
    if total > MAX_ARGUMENTS_AND_ENV_BYTES {
        let fix = format!(
            "take {total} bytes together and the kernel leaves {MAX_ARGUMENTS_AND_ENV_BYTES}; pass data with --stdin or in a file"
        );
        let value = format!(
            "{} arguments, {} variables",
            request.argv.len(),
            request.env.len()
        );
        found.push(Problem::new("argv and env", value, fix));
    }
}

fn check_places(request: &Request, found: &mut Vec<Problem>) {
    if let Some(workspace) = &request.workspace {
        check_source("workspace", &workspace.path, found);
    }
    if let Some(path) = request.root.dir() {
        check_source("root", path, found);
    }
}

/// Only the native backend lays an unpacked image out as a root.
fn check_image(request: &Request, found: &mut Vec<Problem>) {
    if let Root::Image(image) = &request.root {
        let backend = request.backend.as_str();
        let fix = format!("the {backend} backend uses no images; use --backend native or docker");
        found.push(Problem::new("image", &image.name, fix));
    }
}

/// The host backend shows the program the host as it is: it must not look as if it did anything else.
fn check_without_isolation(request: &Request, found: &mut Vec<Problem>) {
    const FIX: &str = "use --backend native";
    match &request.root {
        Root::HostUsr | Root::Image(_) => {}
        Root::Dir(path) => found.push(Problem::new(
            "root",
            path.display(),
            format!("the host backend has no root of its own; leave it out, or {FIX}"),
        )),
    }
    for (i, mount) in request.mounts.iter().enumerate() {
        found.push(Problem::new(
            format!("mounts[{i}]"),
            mount.source.display(),
            format!(
                "the host backend mounts nothing; let the program use the path itself, or {FIX}"
            ),
        ));
    }
    let promised = request.workspace.as_ref().and_then(|workspace| {
        let promise = match workspace.access {
            WorkspaceAccess::ReadWrite => return None,
            WorkspaceAccess::ReadOnly => "read-only",
            WorkspaceAccess::CopyOnWrite => "copy-on-write",
        };
        Some((workspace, promise))
    });
    if let Some((workspace, promise)) = promised {
        found.push(Problem::new(
            "workspace",
            workspace.path.display(),
            format!("the host backend cannot make it {promise}; say that it is writable with :rw, or {FIX}"),
        ));
    }
}

/// What tools that build walls for us cannot do.
fn check_outer_walls(request: &Request, found: &mut Vec<Problem>) {
    let backend = request.backend.as_str();
    if let Some(workspace) = &request.workspace
        && workspace.access == WorkspaceAccess::CopyOnWrite
    {
        found.push(Problem::new(
            "workspace",
            workspace.path.display(),
            format!("the {backend} backend cannot make it copy-on-write; use :ro or :rw, or --backend native"),
        ));
    }
}

/// A WebAssembly program sees the directories that it is given and nothing else; there is no file system that could be laid over them.
fn check_wasm(request: &Request, found: &mut Vec<Problem>) {
    match &request.root {
        Root::HostUsr | Root::Image(_) => {}
        Root::Dir(path) => found.push(Problem::new(
            "root",
            path.display(),
            "the wasm backend has no root; give it a directory with --mount DIR:/data:ro",
        )),
    }
    if let Some(workspace) = &request.workspace
        && workspace.access == WorkspaceAccess::CopyOnWrite
    {
        found.push(Problem::new(
            "workspace",
            workspace.path.display(),
            "the wasm backend cannot make it copy-on-write; say :ro or :rw, or use --backend native",
        ));
    }
    let is_workspace = |cwd: &PathBuf| {
        request.workspace.is_some() && cwd.as_path() == Path::new(Workspace::INSIDE)
    };
    if let Some(cwd) = request.cwd.as_ref().filter(|cwd| !is_workspace(cwd)) {
        let fix = "the wasm backend starts in the workspace, where there is one; leave it out";
        found.push(Problem::new("cwd", cwd.display(), fix));
    }
    let texts = request
        .argv
        .iter()
        .chain(request.env.iter().flat_map(|(name, value)| [name, value]));
    for text in texts.filter(|text| text.to_str().is_none()) {
        found.push(Problem::new(
            "argv and env",
            text.to_string_lossy(),
            "is not UTF-8, and a WebAssembly program takes nothing else; pass it with --stdin",
        ));
    }
    for (i, mount) in request.mounts.iter().enumerate() {
        if mount.target.to_str().is_none() {
            let fix = "is not UTF-8, and a WebAssembly program knows no such path; mount elsewhere";
            found.push(Problem::new(
                format!("mounts[{i}].target"),
                mount.target.display(),
                fix,
            ));
        }
    }
}

/// A container's root is its image, and nothing of the host is mounted into it: the workspace and what else is shown are copied.
fn check_container(request: &Request, found: &mut Vec<Problem>) {
    match &request.root {
        Root::HostUsr | Root::Image(_) => {}
        Root::Dir(path) => found.push(Problem::new(
            "root",
            path.display(),
            "the docker backend has an image for its root; name one with --image, or use --backend native",
        )),
    }
}

fn check_absolute(field: &str, path: &Path, found: &mut Vec<Problem>) {
    if has_nul(path.as_os_str()) {
        found.push(Problem::new(field, path.display(), NO_NUL));
    }
    if !is_absolute(path) {
        let fix = "is not absolute; write the path as the program sees it, beginning with `/`";
        found.push(Problem::new(field, path.display(), fix));
    }
}

fn check_source(field: &str, path: &Path, found: &mut Vec<Problem>) {
    if path.as_os_str().is_empty() {
        found.push(Problem::new(
            field,
            "",
            "is empty; name a directory of the host",
        ));
    }
    if has_nul(path.as_os_str()) {
        found.push(Problem::new(field, path.display(), NO_NUL));
    }
}

fn check_mounts(mounts: &[Mount], found: &mut Vec<Problem>) {
    for (i, mount) in mounts.iter().enumerate() {
        check_source(&format!("mounts[{i}].source"), &mount.source, found);
        let field = format!("mounts[{i}].target");
        check_absolute(&field, &mount.target, found);
        let earlier = mounts
            .iter()
            .take(i)
            .map(|m| &m.target)
            .find(|other| mount.target.starts_with(other) || other.starts_with(&mount.target));
        if let Some(fix) = target_fix(&mount.target, earlier) {
            found.push(Problem::new(field, mount.target.display(), fix));
        }
    }
}

fn target_fix(target: &Path, overlapping: Option<&PathBuf>) -> Option<String> {
    let workspace = Path::new(Workspace::INSIDE);
    if has_dot_component(target) {
        return Some("has a `.` or `..` in it; write the path it stands for".to_owned());
    }
    // Components, not text: `//` and `/data/..` are not told apart from `/` by looking at characters.
    if is_absolute(target) && target.components().count() <= 1 {
        return Some("is the root itself; mount below it, such as on /data".to_owned());
    }
    if let Some(reserved) = RESERVED.iter().find(|place| target.starts_with(place)) {
        return Some(format!(
            "is in {reserved}, which the sandbox makes itself; mount elsewhere, such as on /data"
        ));
    }
    if target.starts_with(workspace) {
        return Some(
            "is in the workspace; put the files there, or mount elsewhere, such as on /data"
                .to_owned(),
        );
    }
    overlapping.map(|other| {
        format!(
            "overlaps with the mount on {}; keep mounts side by side",
            other.display()
        )
    })
}

fn is_variable_name(name: &OsStr) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    match name.as_encoded_bytes() {
        [first, rest @ ..] => {
            is_letter(*first) && rest.iter().all(|&b| is_letter(b) || b.is_ascii_digit())
        }
        [] => false,
    }
}

fn has_nul(text: &OsStr) -> bool {
    text.as_encoded_bytes().contains(&0)
}

/// Inside is always Linux, whatever the caller's machine calls absolute.
fn is_absolute(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"/")
}

/// [`Path::components`] drops `.` silently, so the text is asked.
fn has_dot_component(path: &Path) -> bool {
    let is_dot = |part: &[u8]| part == b"." || part == b"..";
    path.as_os_str()
        .as_encoded_bytes()
        .split(|&b| b == b'/')
        .any(is_dot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforcement::LimitName;
    use crate::network::{Allowance, Hosts};

    use crate::request::{Grant, ImageRoot, MountAccess};
    use crate::units::{Bytes, Cap};

    fn request() -> Request {
        Request::command(["/bin/true"])
    }

    fn fields(change: impl FnOnce(&mut Request)) -> Vec<String> {
        let mut request = request();
        change(&mut request);
        match Grant::new(request) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(|p| p.field.clone()).collect(),
        }
    }

    fn mount(target: &str) -> Mount {
        Mount {
            source: "/srv".into(),
            target: target.into(),
            access: MountAccess::ReadOnly,
        }
    }

    #[test]
    fn what_the_wasm_backend_cannot_do_is_named_at_once() {
        let mut request = request();
        request.backend = BackendName::Wasm;
        assert!(Grant::new(request.clone()).is_ok());
        request.root = Root::Dir("/r".into());
        request.workspace = Some(Workspace {
            path: "w".into(),
            access: WorkspaceAccess::CopyOnWrite,
        });
        request.cwd = Some("/tmp".into());
        request
            .argv
            .push(std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]));
        let fields: Vec<String> = problems(&request).into_iter().map(|p| p.field).collect();
        assert_eq!(fields, ["root", "workspace", "cwd", "argv and env"]);
        request.cwd = Some(Workspace::INSIDE.into());
        assert_eq!(problems(&request).len(), 3);
    }

    #[test]
    fn an_image_is_a_root_of_the_native_backend_alone() {
        for backend in [
            BackendName::Bubblewrap,
            BackendName::Gvisor,
            BackendName::Host,
            BackendName::Wasm,
            BackendName::Docker,
        ] {
            let mut request = request();
            request.root = Root::Image(ImageRoot {
                dir: "/images/x".into(),
                name: "x:1".to_owned(),
                digest: "sha256:0".to_owned(),
                user: String::new(),
            });
            assert!(problems(&request).is_empty());
            request.backend = backend;
            let fields: Vec<String> = problems(&request).into_iter().map(|p| p.field).collect();
            assert_eq!(fields, ["image"], "{backend:?}");
        }
    }

    #[test]
    fn a_full_valid_request_is_granted_unchanged() {
        let mut full = request();
        full.argv.push("".into());
        full.env = vec![("A_1".into(), "x=y\n".into()), ("_b".into(), "".into())];
        full.cwd = Some("/work/src".into());
        full.waived = LimitName::ALL.to_vec();
        full.root = Root::Dir("rootfs".into());
        full.workspace = Some(Workspace {
            path: ".".into(),
            access: WorkspaceAccess::CopyOnWrite,
        });
        full.mounts = vec![
            mount("/data"),
            mount("/data2"),
            mount("/opt/tool"),
            mount("/workshop"),
        ];
        assert_eq!(Grant::new(full.clone()).unwrap().request(), &full);
    }

    #[test]
    fn a_program_must_be_named() {
        assert_eq!(fields(|r| r.argv.clear()), ["argv"]);
        assert_eq!(fields(|r| r.argv[0] = "".into()), ["argv[0]"]);
    }

    #[test]
    fn nul_is_refused_everywhere() {
        assert_eq!(fields(|r| r.argv.push("a\0b".into())), ["argv[1]"]);
        assert_eq!(fields(|r| r.env.push(("A".into(), "\0".into()))), ["env.A"]);
        assert_eq!(fields(|r| r.env.push(("A\0".into(), "".into()))), ["env"]);
        assert_eq!(fields(|r| r.cwd = Some("/a\0".into())), ["cwd"]);
        assert_eq!(fields(|r| r.root = Root::Dir("/a\0".into())), ["root"]);
        assert_eq!(
            fields(|r| r.mounts.push(mount("/a\0"))),
            ["mounts[0].target"]
        );
    }

    #[test]
    fn one_argument_has_the_kernels_bound() {
        assert!(fields(|r| r.argv.push("x".repeat(MAX_ARGUMENT_BYTES).into())).is_empty());
        assert_eq!(
            fields(|r| r.argv.push("x".repeat(MAX_ARGUMENT_BYTES + 1).into())),
            ["argv[1]"]
        );
        assert_eq!(
            fields(|r| r
                .env
                .push(("A".into(), "x".repeat(MAX_ARGUMENT_BYTES - 1).into()))),
            ["env.A"]
        );
        let mut long = request();
        long.argv.push("x".repeat(MAX_ARGUMENT_BYTES + 1).into());
        let message = Grant::new(long).unwrap_err().to_string();
        assert!(message.contains("--stdin or in a file"), "{message}");
    }

    #[test]
    fn all_arguments_together_have_a_bound() {
        let many = |n: usize| move |r: &mut Request| r.argv = vec!["x".repeat(91).into(); n];
        let fits = MAX_ARGUMENTS_AND_ENV_BYTES / 100;
        assert!(fields(many(fits)).is_empty());
        assert_eq!(fields(many(fits + 1)), ["argv and env"]);
    }

    #[test]
    fn variables_have_names_and_are_set_once() {
        for name in ["", "1A", "A=B", "A B", "é", "A-B", "=", "A."] {
            assert_eq!(
                fields(|r| r.env.push((name.into(), "".into()))),
                ["env"],
                "{name:?}"
            );
        }
        let twice =
            |r: &mut Request| r.env = vec![("A".into(), "1".into()), ("A".into(), "1".into())];
        assert_eq!(fields(twice), ["env.A"]);
    }

    #[test]
    fn the_working_directory_is_absolute() {
        for cwd in ["", "src", "./src", "../etc"] {
            assert_eq!(fields(|r| r.cwd = Some(cwd.into())), ["cwd"], "{cwd:?}");
        }
    }

    #[test]
    fn sources_are_named() {
        let access = WorkspaceAccess::ReadOnly;
        assert_eq!(
            fields(|r| r.workspace = Some(Workspace {
                path: "".into(),
                access
            })),
            ["workspace"]
        );
        assert_eq!(fields(|r| r.root = Root::Dir("".into())), ["root"]);
        let nowhere = Mount {
            source: "".into(),
            ..mount("/data")
        };
        assert_eq!(fields(|r| r.mounts.push(nowhere)), ["mounts[0].source"]);
    }

    #[test]
    fn mounts_stay_out_of_the_sandboxes_own_places() {
        for target in [
            "/",
            "//",
            "///",
            "/data/..",
            "/data/../etc",
            "/./data",
            "/data/.",
            "/proc",
            "/proc/1",
            "/dev/shm",
            "/sys",
            "/tmp",
            "/tmp/x",
            "/etc",
            "/etc/passwd",
            "/work",
            "/work/",
            "/work/src",
            "data",
            "",
        ] {
            assert_eq!(
                fields(|r| r.mounts.push(mount(target))),
                ["mounts[0].target"],
                "{target:?}"
            );
        }
        for target in [
            "/data",
            "/data/",
            "/procs",
            "/etc2",
            "/opt/a/b",
            "/usr/share/x",
            "/home/x",
        ] {
            assert!(
                fields(|r| r.mounts.push(mount(target))).is_empty(),
                "{target:?}"
            );
        }
    }

    #[test]
    fn mounts_do_not_overlap() {
        for (a, b) in [
            ("/data", "/data"),
            ("/data", "/data/sub"),
            ("/data/sub", "/data"),
            ("/data", "/data/"),
        ] {
            let both = |r: &mut Request| r.mounts = vec![mount(a), mount(b)];
            assert_eq!(fields(both), ["mounts[1].target"], "{a} {b}");
        }
    }

    #[test]
    fn what_only_isolation_can_do_is_refused_without_it() {
        let on_host = |change: fn(&mut Request)| {
            fields(|r| {
                r.backend = BackendName::Host;
                change(r);
            })
        };
        let with = |access| Workspace {
            path: "job".into(),
            access,
        };
        assert!(on_host(|_| {}).is_empty());
        assert_eq!(on_host(|r| r.root = Root::Dir("/srv".into())), ["root"]);
        assert_eq!(
            on_host(|r| r.mounts = vec![mount("/data"), mount("/opt")]),
            ["mounts[0]", "mounts[1]"]
        );
        for (access, refused) in [
            (WorkspaceAccess::ReadWrite, 0),
            (WorkspaceAccess::ReadOnly, 1),
            (WorkspaceAccess::CopyOnWrite, 1),
        ] {
            let mut request = request();
            request.backend = BackendName::Host;
            request.workspace = Some(with(access));
            assert_eq!(problems(&request).len(), refused, "{access:?}");
        }
    }

    #[test]
    fn network_is_granted_only_where_it_can_be_bounded() {
        let mut networked = request();
        networked.network = Network::full();
        assert!(Grant::new(networked.clone()).is_ok());
        for backend in [BackendName::Docker, BackendName::Wasm] {
            let mut elsewhere = networked.clone();
            elsewhere.backend = backend;
            assert!(Grant::new(elsewhere).is_ok(), "{backend:?}");
        }
        for backend in [
            BackendName::Bubblewrap,
            BackendName::Gvisor,
            BackendName::Host,
        ] {
            networked.backend = backend;
            let problems = Grant::new(networked.clone()).unwrap_err();
            let refused = problems.iter().find(|found| found.field == "network");
            let fix = &refused.unwrap().fix;
            assert!(fix.contains("cannot bound what is reached"), "{fix}");
        }
    }

    #[test]
    fn every_problem_is_returned_at_once() {
        let found = fields(|r| {
            r.argv.clear();
            r.env.push(("1".into(), "\0".into()));
            r.cwd = Some("x".into());
            r.mounts = vec![mount("/"), mount("/tmp")];
            r.limits.memory = Cap::AtMost(Bytes::new(0));
            r.network = Network::Allowed(Allowance::new(Hosts::Listed(Vec::new())));
        });
        assert_eq!(
            found,
            [
                "argv",
                "env",
                "env.1",
                "cwd",
                "mounts[0].target",
                "mounts[1].target",
                "memory",
                "network"
            ]
        );
    }
}
