//! Compiled code on disk: used again, never believed without its keyed hash.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use cofferdam_testkit::{Finished, Host, Way, host};

use crate::{run_args, wat};

const HELLO: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\06\00\00\00hello\n")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

fn run(host: &Host, way: Way) -> Finished {
    let module = wat(host, "hello", HELLO);
    let run = host
        .launch(run_args(&[], &module, &[]))
        .way(way)
        .json()
        .finish();
    run.assert_success();
    assert_eq!(run.out(), "hello\n");
    run
}

fn entries(host: &Host, way: Way) -> Vec<PathBuf> {
    let dir = host.history(way).join("wasm");
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some()).collect()
}

#[test]
fn the_second_run_finds_it_and_nobody_else_can_read_it() {
    let host = host!();
    for way in Way::all() {
        let code = |run: &Finished| {
            run.record()["isolation"]["code"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let first = code(&run(&host, way));
        // The two ways of root share their history.
        assert!(
            first.starts_with("compiled") || way == Way::RootWithoutCgroups,
            "{first}"
        );
        assert_eq!(code(&run(&host, way)), "from the cache");
        for path in [host.history(way).join("wasm/key")]
            .into_iter()
            .chain(entries(&host, way))
        {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{path:?}");
        }
    }
}

#[test]
fn what_somebody_changed_is_compiled_again_and_not_run() {
    let host = host!();
    run(&host, Way::Root);
    let [entry] = &entries(&host, Way::Root)[..] else {
        panic!("one entry");
    };
    let whole = fs::read(entry).unwrap();
    // The machine code itself, the hash, and the end.
    for at in [whole.len() / 2, 20, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        fs::write(entry, changed).unwrap();
        let again = run(&host, Way::Root);
        let code = again.record()["isolation"]["code"].as_str().unwrap();
        assert_eq!(code, "compiled in the native sandbox", "byte {at}");
    }
    fs::write(entry, &whole[..whole.len() - 100]).unwrap();
    run(&host, Way::Root);
    let again = run(&host, Way::Root);
    assert_eq!(again.record()["isolation"]["code"], "from the cache");
}
