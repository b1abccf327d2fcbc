//! The fixture of one test: where the binary is, a directory of the test's own, and what the host looked like before.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::clean::{self, Before};
use crate::finished::Finished;
use crate::launch::Launch;
use crate::need::{self, Need};
use crate::process::Process;
use crate::terminal::Terminal;
use crate::way::{TEST_UID, Way};

/// One test's view of the host. Dropping it checks that the test has left nothing behind.
#[derive(Debug)]
pub struct Host {
    binary: PathBuf,
    mark: String,
    dir: TempDir,
    before: Before,
    seen: RefCell<Seen>,
}

/// What became known about this test's runs.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) run_ids: BTreeSet<String>,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) children: BTreeSet<u32>,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl Host {
    /// In the environment of everything that a test starts, so that tests that run side by side can be told apart.
    pub const MARK: &'static str = "COFFERDAM_TEST_MARK";

    pub fn new(binary: &str, needs: &[Need]) -> Option<Self> {
        if !need::all_met(needs) {
            return None;
        }
        // Whatever a run leaves behind becomes a child of this process and cannot hide.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("subreaper");
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("mark-{}-{number}", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(clean::OWN_PREFIX)
            .tempdir()
            .expect("a temporary directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
            .expect("chmod");
        let binary = reachable(Path::new(binary), dir.path());
        Some(Self {
            binary,
            mark,
            before: Before::look(dir.path()),
            dir,
            seen: RefCell::default(),
        })
    }

    /// `cofferdam` with these arguments, such as `["run", "--", "true"]`.
    pub fn launch<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Launch<'_> {
        Launch::new(self, args)
    }

    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Finished {
        self.launch(args).finish()
    }

    /// With `--json`.
    #[track_caller]
    pub fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Finished {
        self.launch(args).json().finish()
    }

    /// `cofferdam` with these arguments on a terminal of its own.
    pub fn terminal<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Terminal<'_> {
        Terminal::new(self, args)
    }

    /// A new directory that belongs to whoever runs `cofferdam` in this way.
    pub fn workspace(&self, way: Way) -> PathBuf {
        let dir = tempfile::Builder::new()
            .prefix("workspace-")
            .tempdir_in(self.dir.path())
            .expect("a workspace")
            .keep();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        self.give(&dir, way);
        dir
    }

    /// Makes a file or directory belong to whoever runs `cofferdam` in this way.
    pub fn give(&self, path: &Path, way: Way) {
        if way == Way::User && need::is_root() {
            chown(path, Some(TEST_UID), Some(TEST_UID)).expect("chown");
        }
    }

    /// Where whoever runs `cofferdam` in this way keeps history.
    pub fn history(&self, way: Way) -> PathBuf {
        let name = match way {
            Way::Root | Way::RootWithoutCgroups => "history",
            Way::User => "history-of-user",
        };
        let dir = self.dir.path().join(name);
        if !dir.exists() {
            std::fs::create_dir_all(&dir).expect("a directory for history");
            self.give(&dir, way);
        }
        dir
    }

    /// This test's own directory; everybody may read it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// No process, cgroup, mount, namespace or temporary file of this test's runs is left. What is left is ended, so that it disturbs no other test.
    #[track_caller]
    pub fn assert_clean(&self) {
        let left = clean::left_behind(&self.before, &self.mark, &self.seen.borrow());
        if !left.is_empty() {
            clean::end_processes(&self.mark, &self.seen.borrow());
        }
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    pub(crate) fn note_run(&self, finished: &Finished) {
        let id = finished
            .record
            .as_ref()
            .and_then(|record| record["run_id"].as_str());
        self.seen.borrow_mut().run_ids.extend(id.map(str::to_owned));
    }

    pub(crate) fn note_child(&self, pid: u32) {
        self.seen.borrow_mut().children.insert(pid);
    }

    pub(crate) fn note_namespaces(&self, process: &Process) {
        let new = process
            .namespaces()
            .into_iter()
            .filter(|name| !self.before.namespaces.contains(name));
        self.seen.borrow_mut().namespaces.extend(new);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            clean::end_processes(&self.mark, &self.seen.borrow());
        } else {
            self.assert_clean();
        }
    }
}

/// The unprivileged user of the tests must be able to execute the binary, wherever the project was checked out.
fn reachable(binary: &Path, dir: &Path) -> PathBuf {
    let open_to_all = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o5 == 0o5)
    };
    if !need::is_root() || binary.ancestors().all(open_to_all) {
        return binary.to_owned();
    }
    let copy = dir.join("cofferdam");
    std::fs::copy(binary, &copy).expect("copy the binary");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    copy
}
