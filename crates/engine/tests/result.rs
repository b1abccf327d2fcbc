//! The library as a daemon uses it: an answer apart from what is printed, and many runs in one process.

use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Evidence, Streams};

fn run(script: &str, result: Option<usize>) -> Result<RunRecord, Box<dyn std::error::Error>> {
    let request = Request::command(["/bin/sh", "-c", script]);
    let streams = Streams {
        result,
        evidence: Evidence::Full,
        ..Streams::kept(1 << 20)
    };
    Ok(pipeline::run(
        Grant::new(request)?,
        streams,
        &Host::detect(),
    )?)
}

#[test]
fn an_answer_is_kept_apart_from_what_is_printed() {
    let record = run("echo printed; echo $COFFERDAM_RESULT_FD >&3", Some(100)).unwrap();
    assert_eq!(record.stdout.data, "printed\n");
    assert_eq!(record.result.unwrap().data, "3\n");
    assert_eq!(record.usage.output_bytes, 8);
}

#[test]
fn without_a_channel_there_is_no_descriptor() {
    let record = run("echo x >&3; echo ${COFFERDAM_RESULT_FD-unset}", None).unwrap();
    assert_eq!(record.stdout.data, "unset\n");
    assert_eq!(record.result, None);
}

#[test]
fn an_answer_has_a_limit_of_its_own_and_never_holds_the_run_up() {
    let flood = "head -c 3000000 /dev/zero | tr '\\0' x >&3; echo done";
    let record = run(flood, Some(1000)).unwrap();
    assert_eq!(record.stdout.data, "done\n", "{record:?}");
    let result = record.result.unwrap();
    assert_eq!(
        (result.data.len(), result.original_bytes),
        (1000, 3_000_000)
    );
    assert!(result.truncated);
    let record = run("exec 3>&-; echo done", Some(1000)).unwrap();
    assert_eq!(record.result.unwrap().data, "");
}

#[test]
fn what_a_program_starts_can_be_kept_from_the_channel() {
    // A background process that outlives the program must not keep the answer open.
    let record = run("sleep 60 & echo answer >&3", Some(1000)).unwrap();
    assert_eq!(record.result.unwrap().data, "answer\n");
}

#[test]
fn runs_of_one_process_go_on_at_the_same_time_as_different_users() {
    let threads: Vec<_> = (0..8)
        .map(|n| {
            std::thread::spawn(move || {
                let record = run(&format!("sleep 0.1; echo {n} >&3"), Some(10)).ok()?;
                let uid = record.isolation.get("uid")?.clone();
                Some((record.result?.data, uid))
            })
        })
        .collect();
    let mut uids = std::collections::BTreeSet::new();
    let is_root = rustix::process::geteuid().is_root();
    for (n, thread) in threads.into_iter().enumerate() {
        let (answer, uid) = thread.join().unwrap().unwrap();
        assert_eq!(answer, format!("{n}\n"));
        assert!(uids.insert(uid) || !is_root);
    }
}
