//! How fast disks are used: held by the kernel, said honestly, refused where there is no disk to hold.

use serde_json::{Value, json};

use cofferdam_testkit::desk::{code, told};
use cofferdam_testkit::{Desk, desk};

/// Two MiB, past the page cache.
const WRITE: &str = "dd if=/dev/zero of=/work/file bs=256k count=8 oflag=direct";
const READ: &str = "dd if=/work/file of=/dev/null bs=256k iflag=direct";
/// So much that it would take half a minute if it were held.
const THROUGH_THE_CACHE: &str = "dd if=/dev/zero of=/work/file bs=256k count=128";

fn timed(desk: &Desk, flags: &str, command: &str) -> (f64, Value) {
    let line = format!("run --no-history --json --workspace job:rw {flags} -- {command}");
    let done = desk.line(&line);
    assert_eq!(code(&done), 0, "{}", told(&done));
    let record: Value = serde_json::from_slice(&done.stdout).unwrap();
    let group = format!("cofferdam-{}", record["run_id"].as_str().unwrap());
    let blkio = std::path::Path::new("/sys/fs/cgroup/blkio");
    assert!(!blkio.join(group).exists(), "its group is left");
    let wall = record["usage"]["wall_ms"].as_f64().unwrap();
    (wall, record["enforced_by"]["disk_io"].clone())
}

fn is_v2() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

#[test]
fn a_disk_is_written_and_read_no_faster_than_was_allowed() {
    let desk = desk!();
    std::fs::create_dir(desk.path("job")).unwrap();
    let (free, by) = timed(&desk, "", WRITE);
    assert_eq!(by, "unlimited");
    let (slow, by) = timed(&desk, "--io-write-bps 1m", WRITE);
    assert_eq!(by, if is_v2() { "cgroup2" } else { "cgroup1-direct" });
    // Two MiB at one in a second; the first slice is free.
    assert!(
        (1500.0..60_000.0).contains(&slow) && slow > free,
        "{slow} ms, {free} ms"
    );
    let (slow, by) = timed(&desk, "--io-read-bps 1m", READ);
    assert_eq!(by, if is_v2() { "cgroup2" } else { "cgroup1" });
    assert!((1500.0..60_000.0).contains(&slow), "{slow} ms");
    let (slow, _) = timed(&desk, "--io-write-iops 4", WRITE);
    assert!((1000.0..60_000.0).contains(&slow), "{slow} ms");
}

#[test]
fn what_version_1_does_not_hold_is_not_claimed() {
    let desk = desk!();
    std::fs::create_dir(desk.path("job")).unwrap();
    let (fast, by) = timed(&desk, "--io-write-bps 1m", THROUGH_THE_CACHE);
    if !is_v2() {
        // Written through the page cache, at full speed; the record says that only direct writes are held.
        assert_eq!(by, "cgroup1-direct");
        assert!(fast < 15_000.0, "{fast} ms");
    }
}

#[test]
fn a_file_system_without_a_disk_refuses_the_limit_unless_it_is_waived() {
    let desk = desk!();
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    let workspace = shared.path().display();
    let line = format!("run --json --workspace {workspace} --io-read-bps 1m");
    let done = desk.line(&format!("{line} -- true"));
    assert_eq!(code(&done), 125, "{}", told(&done));
    assert!(
        told(&done).contains("no disk of its own"),
        "{}",
        told(&done)
    );
    assert!(
        told(&done).contains("[limit.unenforceable]"),
        "{}",
        told(&done)
    );
    let (status, record) = desk.json(&format!("{line} --waive disk-io -- true"));
    assert_eq!(
        (status, &record["enforced_by"]["disk_io"]),
        (0, &json!("waived"))
    );
    let wasm = desk.line("run --backend wasm --io-read-bps 1m nothing.wasm");
    assert_eq!(code(&wasm), 125, "{}", told(&wasm));
}

#[test]
fn rates_come_from_every_source_each_for_itself() {
    let desk = desk!();
    let file = desk.write(
        "c.yml",
        "sandbox:\n  limits: { disk_io: \"read_bps=1m,write_iops=50\" }\n",
    );
    let shown = desk
        .command()
        .env("COFFERDAM_DISK_IO", "write_bps=2m")
        .args([
            "config",
            "show",
            "--json",
            "--io-read-iops",
            "7",
            "--config",
        ])
        .arg(&file)
        .output()
        .unwrap();
    let rows: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let row = rows["settings"].as_array().unwrap().iter();
    let row = row
        .into_iter()
        .find(|row| row["setting"] == "sandbox.limits.disk_io");
    assert_eq!(
        row.unwrap()["value"],
        "read_bps=1048576,write_bps=2097152,read_iops=7,write_iops=50"
    );
    for bad in ["--io-read-bps 1", "--io-write-iops 0", "--io-read-bps lots"] {
        let done = desk.line(&format!("run {bad} -- true"));
        assert_eq!(code(&done), 125, "{}", told(&done));
    }
    let bad = desk.write("bad.yml", "sandbox:\n  limits: { disk_io: fast }\n");
    let done = desk.line(&format!("--config {} run -- true", bad.display()));
    assert!(
        told(&done).contains("write `read_bps=10m`"),
        "{}",
        told(&done)
    );
}
