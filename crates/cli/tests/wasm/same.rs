//! Real C programs, compiled for both worlds: the same output and the same end, native and in WebAssembly.

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Finished, Host, Need, host};

use crate::run_args;

/// What a caller sees of a run, whatever ran it.
#[track_caller]
fn both(host: &Host, source: &str, args: &[&str], stdin: &[u8]) -> [Finished; 2] {
    let program = Both::compile(source);
    let mount = format!("{}:/p:ro", program.dir.display());
    let mut native = vec!["run", "--mount", &mount, "--", "/p/program"];
    native.extend(args);
    let native = host.launch(native).json().stdin(stdin).finish();
    let wasm = host
        .launch(run_args(&[], &program.wasm(), args))
        .json()
        .stdin(stdin)
        .finish();
    let seen = |run: &Finished| {
        let record = run.record();
        let parts = ["exit_code", "signal", "stdout", "stderr"];
        (run.code(), parts.map(|part| record[part].clone()))
    };
    assert_eq!(seen(&native), seen(&wasm), "{wasm:#?}");
    [native, wasm]
}

#[test]
fn arguments_input_output_and_exit_codes_are_the_same() {
    let host = host!(Need::WasiCompiler, Need::Gcc);
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%d:%s\n", i, argv[i]);
    char line[256]; long sum = 0; int n = 0;
    while (fgets(line, sizeof line, stdin)) { sum += strtol(line, 0, 10); n++; }
    printf("%d lines, sum %ld\n", n, sum);
    fprintf(stderr, "to stderr\n");
    return argc > 1 ? atoi(argv[1]) : 0;
}"#;
    for code in ["0", "3", "255", "-1"] {
        both(
            &host,
            source,
            &[code, "two words", "", "ü"],
            b"1\n22\n333\n",
        );
    }
}

#[test]
fn sorting_floats_and_big_numbers_are_the_same() {
    let host = host!(Need::WasiCompiler, Need::Gcc);
    let source = r#"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static int order(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }
int main(void) {
    static double v[2000]; uint64_t s = 88172645463325252ull;
    for (int i = 0; i < 2000; i++) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; v[i] = (double)(int64_t)s / 1e12; }
    qsort(v, 2000, sizeof *v, order);
    for (int i = 0; i < 2000; i += 97) printf("%.17g %a %.3e\n", v[i], v[i], v[i]);
    printf("%.15f %.15f %.15f\n", sqrt(2), fabs(-1.5), floor(-2.5));
    uint64_t fib[2] = {0, 1}; for (int i = 0; i < 90; i++) { uint64_t t = fib[0] + fib[1]; fib[0] = fib[1]; fib[1] = t; }
    printf("%llu\n", (unsigned long long)fib[1]);
    return 0;
}"#;
    both(&host, source, &[], b"");
}

#[test]
fn a_mebibyte_goes_through_byte_for_byte() {
    let host = host!(Need::WasiCompiler, Need::Gcc);
    let source = r#"
#include <stdio.h>
int main(void) { int c; while ((c = getchar()) != EOF) putchar(c ^ 0x20); return 0; }"#;
    let input: Vec<u8> = (0..1 << 20)
        .map(|i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let program = Both::compile(source);
    let run = host
        .launch(run_args(&[], &program.wasm(), &[]))
        .stdin(input.clone())
        .finish();
    let expected: Vec<u8> = input.iter().map(|byte| byte ^ 0x20).collect();
    assert_eq!(run.code(), 0);
    assert!(run.stdout == expected, "{} bytes", run.stdout.len());
}

#[test]
fn programs_that_break_down_end_by_the_same_signal() {
    let host = host!(Need::WasiCompiler, Need::Gcc);
    let abort = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) { printf("before\n"); fflush(stdout); abort(); }"#;
    let [_, wasm] = both(&host, abort, &[], b"");
    assert_eq!(wasm.record()["signal"], "SIGABRT");
    assert_eq!(
        wasm.record()["trap"],
        "wasm `unreachable` instruction executed"
    );
    let divide = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { volatile int zero = argc - 1; volatile int one = 1; printf("%d\n", one / zero); return 0; }"#;
    let [_, wasm] = both(&host, divide, &[], b"");
    assert_eq!(wasm.record()["trap"], "integer divide by zero");
    let recurse = r#"
static int down(volatile int *p) { volatile int here[64]; here[0] = *p + 1; return down(here) + here[0]; }
int main(void) { volatile int zero = 0; return down(&zero); }"#;
    let [_, wasm] = both(&host, recurse, &[], b"");
    assert_eq!(wasm.record()["signal"], "SIGSEGV");
}

#[test]
fn a_program_out_of_memory_ends_the_same() {
    let host = host!(Need::WasiCompiler, Need::Gcc);
    let source = r#"
#include <stdlib.h>
#include <string.h>
char *volatile kept;
int main(void) { for (;;) { char *p = malloc(1 << 20); if (!p) return 9; memset(p, 1, 1 << 20); kept = p; } }"#;
    let program = Both::compile(source);
    let mount = format!("{}:/p:ro", program.dir.display());
    let memory = ["--memory", "64m"];
    let native = host.json(
        [
            &["run"],
            &memory[..],
            &["--mount", &mount, "--", "/p/program"],
        ]
        .concat(),
    );
    let wasm = host.json(run_args(&memory, &program.wasm(), &[]));
    for run in [native, wasm] {
        assert_eq!((run.ending(), run.code()), ("memory", 137), "{run:#?}");
    }
}
