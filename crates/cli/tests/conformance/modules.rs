//! The same promises against modules: there is no shell to attack with, and much of what a process can do has no call here. Each promise has a module that tries what comes nearest.

use std::path::PathBuf;

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Finished, Host};

use crate::promises::{PRIVATE, said, stopped};

/// A module that attacks one promise.
pub(crate) struct Module {
    pub(crate) promise: &'static str,
    pub(crate) source: Source,
    pub(crate) is_kept: fn(&Finished) -> bool,
}

pub(crate) enum Source {
    Text(&'static str),
    /// The program below, with its verb.
    Verb(&'static str),
    /// A file that is not there.
    Missing,
}

/// Tries what its verb says and prints what it got.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void create(const char *dir) {
  char name[200];
  snprintf(name, sizeof name, "%s/x", dir);
  int fd = open(name, O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) printf("wrote %s\n", dir);
}

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  if (!strcmp(verb, "flood")) for (;;) puts("y");
  if (!strcmp(verb, "part")) { puts("part"); fflush(stdout); for (;;); }
  if (!strcmp(verb, "open")) for (;;) if (open(".", O_RDONLY | O_DIRECTORY) < 0) return 3;
  if (!strcmp(verb, "cpus")) printf("%ld\n", sysconf(_SC_NPROCESSORS_ONLN));
  if (!strcmp(verb, "env")) puts(getenv("OF_THE_SUPERVISOR") ? "1" : "0");
  if (!strcmp(verb, "root")) { create(""); create("/usr"); create("/etc"); create("/tmp"); create("."); create(".."); }
  if (!strcmp(verb, "files")) {
    const char *places[] = {"/var", "/root", "/boot", "/opt", "/mnt", "/etc/passwd", "../etc/passwd", "/proc/self"};
    struct stat found;
    for (int i = 0; i < 8; i++) if (!stat(places[i], &found)) puts(places[i]);
  }
  if (!strcmp(verb, "private")) open(argv[2], O_CREAT | O_WRONLY, 0600);
  return 0;
}
"#;

const LOOP: &str = r#"(module (func (export "_start") (loop br 0)))"#;
const GROW: &str = r#"(module (memory 1) (func (export "_start")
    (loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable))"#;
/// Several memories, each below the limit.
const MEMORIES: &str = r#"(module (memory 1 1024) (memory 1 1024) (memory 1 1024) (func (export "_start")
    (loop (br_if 0 (i32.ne (memory.grow 0 (i32.const 16)) (i32.const -1))))
    (loop (br_if 0 (i32.ne (memory.grow 1 (i32.const 16)) (i32.const -1))))
    (loop (br_if 0 (i32.ne (memory.grow 2 (i32.const 16)) (i32.const -1)))) unreachable))"#;
const THREADS: &str = r#"(module (import "wasi" "thread-spawn" (func (param i32) (result i32)))
    (func (export "_start")))"#;
const NAMESPACE: &str = r#"(module (import "env" "unshare" (func (param i32) (result i32)))
    (func (export "_start")))"#;
const RECURSION: &str = r#"(module (func $f (export "_start") (call $f)))"#;
const CODE_139: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const 139))))"#;
/// Asks the only call about sockets for one, and ends with what it answers.
const SOCKET: &str = r#"(module
    (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (call $exit (call $accept (i32.const 3) (i32.const 0) (i32.const 0)))))"#;
const NO_SUCH_DESCRIPTOR: i32 = 8;

/// There is no such call, and so the module is none that can run.
fn has_no_such_call(run: &Finished) -> bool {
    run.ending() == "never_started" && run.code() == 126
}

const fn module(promise: &'static str, source: Source, is_kept: fn(&Finished) -> bool) -> Module {
    Module {
        promise,
        source,
        is_kept,
    }
}

pub(crate) const MODULES: &[Module] = &[
    module("wall time", Source::Text(LOOP), |run| {
        stopped(run, "wall_time", 124)
    }),
    module("CPU time of a tree", Source::Text(LOOP), |run| {
        stopped(run, "cpu_time", 152)
    }),
    module("memory of one process", Source::Text(GROW), |run| {
        stopped(run, "memory", 137)
    }),
    module("memory of a tree", Source::Text(MEMORIES), |run| {
        stopped(run, "memory", 137)
    }),
    module(
        "processes and threads",
        Source::Text(THREADS),
        has_no_such_call,
    ),
    module("output", Source::Verb("flood"), |run| {
        stopped(run, "output", 153) && run.out().len() == 10 << 10
    }),
    module("scratch disk", Source::Verb("root"), |run| said(run, "")),
    module("open files", Source::Verb("open"), |run| run.code() != 0),
    module("CPUs shown are CPUs given", Source::Verb("cpus"), |run| {
        said(run, "1\n")
    }),
    module("partial output survives", Source::Verb("part"), |run| {
        stopped(run, "wall_time", 124) && run.out() == "part\n"
    }),
    module(
        "a signal is told from an exit code",
        Source::Text(RECURSION),
        |run| run.ending() == "signaled" && run.record()["signal"] == "SIGSEGV",
    ),
    module(
        "an exit code is told from a signal",
        Source::Text(CODE_139),
        |run| run.ending() == "exited" && run.code() == 139,
    ),
    module(
        "a missing program is told from a failing one",
        Source::Missing,
        |run| run.ending() == "never_started" && run.code() == 127,
    ),
    module(
        "daemons end with the run",
        Source::Text(THREADS),
        has_no_such_call,
    ),
    module("the environment is clean", Source::Verb("env"), |run| {
        said(run, "0\n")
    }),
    module("the root is read-only", Source::Verb("root"), |run| {
        said(run, "")
    }),
    module("other files are not seen", Source::Verb("files"), |run| {
        said(run, "")
    }),
    module("/tmp is private", Source::Verb("private"), |run| {
        run.code() == 0 && !std::path::Path::new(PRIVATE).exists()
    }),
    module(
        "other processes are not seen",
        Source::Verb("files"),
        |run| said(run, ""),
    ),
    module("no network but loopback", Source::Text(SOCKET), |run| {
        run.ending() == "exited" && run.code() == NO_SUCH_DESCRIPTOR
    }),
    module(
        "no namespace can be made",
        Source::Text(NAMESPACE),
        has_no_such_call,
    ),
];

impl Module {
    /// The file, and its arguments.
    pub(crate) fn command(&self, host: &Host) -> (PathBuf, Vec<String>) {
        match self.source {
            Source::Text(text) => {
                let name = self.promise.replace([' ', '/'], "-");
                let path = host.dir().join(format!("{name}.wat"));
                std::fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
                (path, Vec::new())
            }
            Source::Verb(verb) => {
                let args = [verb, PRIVATE].map(str::to_owned).to_vec();
                (Both::compile(PROGRAM).wasm(), args)
            }
            Source::Missing => (host.dir().join("absent.wasm"), Vec::new()),
        }
    }
}
