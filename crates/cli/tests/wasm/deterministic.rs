//! `--deterministic`: whatever a program asks of the world, the answer is the same each time.

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Need, Way, host};

use crate::{run_args, wat};

/// Prints everything that usually differs: times, sleeps, random bytes, addresses, NaNs.
pub(crate) const NOISY: &str = r#"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 3; i++) {
        struct timespec wall, mono;
        clock_gettime(CLOCK_REALTIME, &wall); clock_gettime(CLOCK_MONOTONIC, &mono);
        printf("%lld.%09ld %lld.%09ld\n", (long long)wall.tv_sec, wall.tv_nsec, (long long)mono.tv_sec, mono.tv_nsec);
        sleep(3600);
    }
    unsigned char bytes[16]; getentropy(bytes, sizeof bytes);
    for (int i = 0; i < 16; i++) printf("%02x", bytes[i]);
    printf("\n%p %p\n", (void *)bytes, malloc(10));
    volatile double zero = 0; double nan = zero / zero; uint64_t bits; memcpy(&bits, &nan, 8);
    printf("%llx\n", (unsigned long long)bits);
    return 0;
}"#;

/// What time it is, and nothing that takes any.
const CLOCK: &str = r#"
#include <stdio.h>
#include <time.h>
int main(void) { printf("%lld\n", (long long)time(0)); return 0; }"#;

#[test]
fn a_program_that_prints_time_randomness_and_addresses_prints_the_same_each_time() {
    let host = host!(Need::WasiCompiler);
    let module = Both::compile(NOISY).wasm();
    let mut seen = Vec::new();
    for way in Way::all() {
        for _ in 0..2 {
            let run = host
                .launch(run_args(&["--deterministic"], &module, &[]))
                .way(way)
                .json()
                .finish();
            run.assert_success();
            assert_eq!(run.enforced_by("cpu_time"), "wasm-fuel");
            // Two hours of sleep in no time.
            assert!(run.usage("wall_ms") < 60_000.0, "{run:#?}");
            seen.push((run.out(), run.record()["determinism"].clone()));
        }
    }
    let (out, account) = &seen[0];
    assert!(seen.iter().all(|other| other == &seen[0]), "{seen:#?}");
    assert!(out.starts_with("946684800."), "{out}");
    let hours: Vec<&str> = out
        .lines()
        .take(3)
        .map(|line| line.split('.').next().unwrap())
        .collect();
    assert_eq!(hours, ["946684800", "946688400", "946692000"], "{out}");
    assert!(
        account["instructions"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 1000
    );
    let clock = Both::compile(CLOCK).wasm();
    let time = |flags: &[&str]| host.run(run_args(flags, &clock, &[])).out();
    assert_eq!(time(&["--deterministic"]), "946684800\n");
    let free: i64 = time(&[]).trim().parse().unwrap();
    assert!(free > 1_600_000_000, "only where it was asked for: {free}");
}

#[test]
fn another_seed_gives_other_randomness_and_the_same_one_does_not() {
    let host = host!(Need::WasiCompiler);
    let module = Both::compile(NOISY).wasm();
    let out = |seed: &str| {
        host.run(run_args(&["--deterministic", "--seed", seed], &module, &[]))
            .out()
    };
    let (zero, seven) = (out("0"), out("7"));
    assert_eq!(seven, out("7"));
    assert_ne!(zero, seven);
}

#[test]
fn input_is_read_whole_and_refused_where_it_is_too_much() {
    let host = host!(Need::WasiCompiler);
    let source = r#"
#include <stdio.h>
int main(void) { long n = 0; while (getchar() != EOF) n++; printf("%ld\n", n); return 0; }"#;
    let module = Both::compile(source).wasm();
    let run = |bytes: usize| {
        let args = run_args(&["--deterministic"], &module, &[]);
        host.launch(args).stdin(vec![b'x'; bytes]).finish()
    };
    assert_eq!(run(200_000).out(), "200000\n");
    let refused = run((64 << 20) + 1);
    assert_eq!(refused.code(), 125, "{refused:#?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("more than 64 MiB"));
}

#[test]
fn cpu_time_is_counted_in_instructions_and_ends_at_the_same_one() {
    let host = host!();
    // Counts in memory and prints nothing; the count of instructions is in the record.
    let module = wat(
        &host,
        "loop",
        r#"(module (func (export "_start") (loop br 0)))"#,
    );
    let run = || {
        let flags = ["--deterministic", "--cpu-time", "10ms"];
        let run = host.json(run_args(&flags, &module, &[]));
        run.assert_stopped(
            "cpu_time",
            152,
            "stopped: CPU time limit of 10 ms used up; raise it with --cpu-time",
        );
        run.record()["determinism"]["instructions"].clone()
    };
    let first = run();
    assert_eq!(first, run());
    assert!(
        first
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            .abs_diff(10_000_000)
            < 1000,
        "{first}"
    );
}

/// Lists a directory and says what it knows of each file.
pub(crate) const LISTING: &str = r#"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
int main(void) {
    DIR *d = opendir("."); struct dirent *e;
    while ((e = readdir(d))) {
        struct stat s; stat(e->d_name, &s);
        printf("%s %llu %llu %lld %lld\n", e->d_name, (unsigned long long)e->d_ino, (unsigned long long)s.st_ino, (long long)s.st_mtim.tv_sec, (long long)(S_ISREG(s.st_mode) ? s.st_size : 0));
    }
    return 0;
}"#;

#[test]
fn files_look_the_same_in_whatever_order_and_when_they_were_made() {
    let host = host!(Need::WasiCompiler);
    let module = Both::compile(LISTING).wasm();
    // More than fit into one call of the libc's.
    let names: Vec<String> = (0..300)
        .map(|i| format!("file-{:03}", i * 7919 % 300))
        .collect();
    let list = |dir: &str, names: &mut dyn Iterator<Item = &String>| {
        let dir = host.dir().join(dir);
        std::fs::create_dir(&dir).unwrap();
        for name in names {
            std::fs::write(dir.join(name), name).unwrap();
        }
        let flags = ["--deterministic", "--workspace", dir.to_str().unwrap()];
        let run = host.run(run_args(&flags, &module, &[]));
        assert_eq!(run.code(), 0, "{run:#?}");
        run.out()
    };
    let one = list("one", &mut names.iter());
    let other = list("other", &mut names.iter().rev());
    assert_eq!(one, other);
    let listed: Vec<&str> = one
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let mut expected: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .chain([".", ".."])
        .collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert!(
        one.lines().all(|line| line.contains(" 946684800 ")),
        "{one}"
    );
}
