//! What is asked for, what is told about it, and what a program that wants to make trouble can do with the answers.

use std::fs;

use cofferdam_testkit::{Need, Way, host};
use serde_json::{Value, json};

const PYTHON: &str =
    "import os, random, time; print(time.time(), os.urandom(4).hex(), random.random())";

#[test]
fn the_record_says_of_every_item_whether_it_is_fixed_and_of_no_other_run() {
    let host = host!(Need::Python);
    for way in Way::all() {
        let run = |flags: &[&str]| {
            let args = [&["run"], flags, &["--", "/usr/bin/python3", "-c", PYTHON]].concat();
            host.launch(args).way(way).json().finish()
        };
        let fixed = run(&["--deterministic", "--seed", "7"]);
        fixed.assert_success();
        let told = fixed.record()["determinism"].as_object().unwrap();
        let is_told = |how: &Value| {
            let words = ["fixed: ", "seeded: ", "not fixed: "];
            words
                .iter()
                .any(|word| how.as_str().unwrap().starts_with(word))
        };
        assert!(told.values().all(is_told), "{told:#?}");
        let kind = |item: &str| told[item].as_str().unwrap().split(':').next().unwrap();
        let kinds = [
            "clock",
            "waits",
            "random",
            "random_at_start",
            "addresses",
            "directories",
            "order",
        ]
        .map(kind);
        let expected = [
            "fixed",
            "fixed",
            "seeded",
            "seeded",
            "fixed",
            "fixed",
            "not fixed",
        ];
        assert_eq!(kinds, expected, "{way:?}: {told:#?}");
        assert!(!told.contains_key("unanswered"), "{told:#?}");
        assert!(fixed.out().starts_with("946684800."), "{}", fixed.out());
        let free = run(&[]);
        assert_eq!(free.record()["determinism"], Value::Null);
        assert!(!free.out().starts_with("946684800."), "{}", free.out());
    }
}

#[test]
fn another_seed_gives_other_randomness_at_the_same_time() {
    let host = host!(Need::Python);
    let out = |seed: &str| {
        let args = [
            "run",
            "--deterministic",
            "--seed",
            seed,
            "--",
            "/usr/bin/python3",
            "-c",
            PYTHON,
        ];
        let run = host.run(args);
        run.assert_success();
        let out = run.out();
        out.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (seven, eight) = (out("7"), out("8"));
    assert_eq!(seven, out("7"));
    assert_eq!(seven[0], eight[0], "the time");
    assert_ne!(seven[1], eight[1]);
    assert_ne!(seven[2], eight[2]);
}

#[test]
fn backends_that_cannot_promise_it_refuse_and_name_one_that_can() {
    let host = host!();
    for backend in ["host", "bubblewrap", "gvisor"] {
        let run = host.run(["run", "--backend", backend, "--deterministic", "--", "true"]);
        run.assert_refused(125, "input.invalid");
        let told = run.err();
        assert!(
            told.contains("deterministic") && told.contains("--backend native"),
            "{told}"
        );
    }
    let run = host.run(["run", "--seed", "7", "--", "true"]);
    assert_eq!(run.code(), 125, "a seed of nothing: {run:#?}");
}

#[test]
fn a_payload_and_source_code_give_the_same_each_time() {
    let host = host!(Need::Python);
    let answer = "import json, os, time; print(json.dumps([time.time(), os.urandom(4).hex()]))";
    let draft = json!({
        "contract_id": "C",
        "scope": "a test",
        "task": {"kind": "command", "argv": ["/usr/bin/python3", "-c", answer]},
    });
    let path = host.dir().join("draft.json");
    fs::write(&path, draft.to_string()).unwrap();
    let sealed = host.run(["seal", path.to_str().unwrap()]);
    sealed.assert_success();
    let payload = host.dir().join("payload.json");
    fs::write(&payload, sealed.out()).unwrap();
    let claimed = host.dir().join("envelope.json");
    let execute = |flags: &[&str]| {
        let args = [&["execute", payload.to_str().unwrap()], flags].concat();
        let run = host.run(args);
        run.assert_success();
        fs::write(&claimed, run.out()).unwrap();
        let envelope: Value = serde_json::from_str(&run.out()).unwrap();
        envelope["output"].clone()
    };
    let fixed = execute(&["--deterministic"]);
    assert_eq!(fixed, execute(&["--deterministic"]));
    let verify = |flags: &[&str]| {
        let paths = [payload.to_str().unwrap(), claimed.to_str().unwrap()];
        let args = [&["verify"], &paths[..], &["--rerun"], flags].concat();
        host.run(args).code()
    };
    assert_eq!(verify(&["--deterministic"]), 0);
    assert_ne!(verify(&["--deterministic", "--seed", "9"]), 0);
    assert_ne!(fixed, execute(&["--deterministic", "--seed", "9"]));
    assert_ne!(fixed, execute(&[]));

    let code = host.dir().join("main.py");
    fs::write(&code, PYTHON).unwrap();
    let run = |flags: &[&str]| {
        let file = code.to_str().unwrap();
        let run = host.run([&["run", "--language", "python"], flags, &[file]].concat());
        run.assert_success();
        run.out()
    };
    assert_eq!(run(&["--deterministic"]), run(&["--deterministic"]));
    assert_ne!(run(&["--deterministic"]), run(&[]));
}

#[test]
fn limits_end_a_deterministic_run_in_real_time() {
    let host = host!(Need::Python);
    let forever = "import time\nwhile True: time.time()";
    for argv in [&["sleep", "1000"][..], &["/usr/bin/python3", "-c", forever]] {
        let args = [
            &["run", "--deterministic", "--timeout", "500ms", "--"],
            argv,
        ]
        .concat();
        let run = host.json(args);
        assert_eq!(run.ending(), "wall_time", "{run:#?}");
    }
}

#[test]
fn nobody_waits_for_a_random_device_that_takes_nothing() {
    let host = host!();
    for way in Way::all() {
        let script = "for d in /dev/urandom /dev/random; do echo x 2>&1 >$d || echo refused; done; od -An -N4 -tx1 /dev/random";
        let run = host
            .launch([
                "run",
                "--deterministic",
                "--timeout",
                "10s",
                "--",
                "sh",
                "-c",
                script,
            ])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        assert_eq!(run.out().matches("refused").count(), 2, "{}", run.out());
    }
}

/// Pointers that lead nowhere, descriptors that are none, its own clock functions overwritten, answers asked for again and again.
const TROUBLE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static void expect(const char *what, long got, int wanted) {
    int error = got < 0 ? errno : 0;
    if (error != wanted) { printf("%s: %ld, errno %d and not %d\n", what, got, error, wanted); exit(1); }
}
int main(void) {
    long bad[] = {1, -1, 0x7ffffffff000, (long)0xffffffff80000000, 0};
    for (int i = 0; i < 4; i++) {
        expect("clock_gettime", syscall(SYS_clock_gettime, 0, bad[i]), EFAULT);
        expect("gettimeofday", syscall(SYS_gettimeofday, bad[i], 0), EFAULT);
        expect("time", syscall(SYS_time, bad[i]), EFAULT);
        expect("getrandom", syscall(SYS_getrandom, bad[i], 16, 0), EFAULT);
        expect("sysinfo", syscall(SYS_sysinfo, bad[i]), EFAULT);
        expect("getrusage", syscall(SYS_getrusage, 0, bad[i]), EFAULT);
        expect("getcpu", syscall(SYS_getcpu, bad[i], 0, 0), EFAULT);
        expect("sched_getaffinity", syscall(SYS_sched_getaffinity, 0, 8, bad[i]), EFAULT);
        expect("nanosleep", syscall(SYS_nanosleep, bad[i], 0), EFAULT);
        expect("clock_nanosleep", syscall(SYS_clock_nanosleep, 1, 1, bad[i], 0), EFAULT);
        expect("ppoll", syscall(SYS_ppoll, 0, 0, bad[i], 0, 0), EFAULT);
    }
    expect("clock", syscall(SYS_clock_gettime, 99, bad), EINVAL);
    expect("flags", syscall(SYS_getrandom, bad, 8, 64), EINVAL);
    expect("no descriptor", syscall(SYS_getdents64, 77, bad, 40), EBADF);
    expect("negative", syscall(SYS_getdents64, -1, bad, 40), EBADF);
    expect("no directory", syscall(SYS_getdents64, 1, bad, 40), ENOTDIR);
    int dir = open("/usr", O_RDONLY);
    expect("no room", syscall(SYS_getdents64, dir, bad, 2), EINVAL);
    expect("nowhere", syscall(SYS_getdents64, dir, 1L, 4096), EFAULT);
    struct { long s, n; } odd[] = {{-1, 0}, {0, -1}, {0, 2000000000}, {(long)(~0UL >> 1), 999999999}};
    expect("negative time", syscall(SYS_nanosleep, &odd[0], 0), EINVAL);
    expect("negative part", syscall(SYS_nanosleep, &odd[1], 0), EINVAL);
    expect("large part", syscall(SYS_nanosleep, &odd[2], 0), EINVAL);
    char *much = malloc(8 << 20);
    long got = 0, all = 0;
    while (all < 8 << 20 && (got = syscall(SYS_getrandom, much + all, (8 << 20) - all, 0)) > 0) all += got;
    if (all != 8 << 20) return 1;
    char *code = (char *)getauxval(AT_SYSINFO_EHDR);
    char nonsense[64];
    memset(nonsense, 0xff, 64);
    int own = open("/proc/self/mem", O_RDWR);
    expect("own memory", pwrite(own, nonsense, 64, (long)code), 0);
    unsigned long base;
    syscall(SYS_arch_prctl, 0x1003, &base);
    for (int i = 0; i < 100; i++) expect("arch_prctl", syscall(SYS_arch_prctl, 0x1002, base), 0);
    munmap(code, 8192);
    expect("arch_prctl without", syscall(SYS_arch_prctl, 0x1002, base), 0);
    printf("fine\n");
    return 0;
}"#;

#[test]
fn a_program_that_asks_nonsense_gets_the_errors_of_the_kernel_and_harms_only_itself() {
    let host = host!(Need::Gcc);
    let source = host.dir().join("trouble.c");
    fs::write(&source, TROUBLE).unwrap();
    for way in Way::all() {
        let place = host.workspace(way);
        let program = place.join("trouble");
        let gcc = std::process::Command::new("gcc")
            .args(["-O1", "-w", "-o"])
            .args([&program, &source])
            .status();
        assert!(gcc.unwrap().success());
        host.give(&place, way);
        let workspace = place.to_str().unwrap();
        let run = host
            .launch([
                "run",
                "--deterministic",
                "--workspace",
                workspace,
                "--",
                "/work/trouble",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(run.out(), "fine\n", "{way:?}: {run:#?}");
        run.assert_success();
    }
}

#[test]
fn a_program_that_hides_its_memory_has_the_machines_time_and_the_record_says_so() {
    let host = host!(Need::Python, Need::UnprivilegedUser);
    let hidden = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(time.time())";
    let run = host
        .launch([
            "run",
            "--deterministic",
            "--",
            "/usr/bin/python3",
            "-c",
            hidden,
        ])
        .way(Way::User)
        .json()
        .finish();
    run.assert_success();
    assert!(!run.out().starts_with("946684800."), "{}", run.out());
    let told = &run.record()["determinism"]["unanswered"];
    assert!(told.as_str().unwrap().starts_with("not fixed: "), "{told}");
}
