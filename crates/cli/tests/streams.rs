//! Standard streams: nothing is lost, nothing is invented, a flood costs the flooder, and a reader that goes away ends the run.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cofferdam_testkit::{Need, Way, host};
use serde_json::json;

const DETAIL: &str = "stopped: output limit of 100 KiB reached while writing to stdout; raise it with --output-limit";

#[test]
fn a_flood_is_stopped_at_the_limit() {
    let host = host!();
    for way in Way::all() {
        for (stream, script) in [("stdout", "exec yes"), ("stderr", "exec yes >&2")] {
            let run = host
                .launch(["run", "--output-limit", "100k", "--", "sh", "-c", script])
                .way(way)
                .json()
                .finish();
            run.assert_stopped("output", 153, &DETAIL.replace("stdout", stream));
            assert_eq!(
                run.record()[stream]["data"].as_str().unwrap().len(),
                100 << 10,
                "{way:?}"
            );
            assert_eq!(run.record()[stream]["truncated"], true);
            assert!(run.usage("output_bytes") > f64::from(100 << 10), "{way:?}");
            assert_eq!(run.enforced_by("output"), "supervisor");
        }
    }
}

#[test]
fn both_streams_share_the_limit() {
    let host = host!();
    let script = "yes | head -c 60000; yes | head -c 60000 >&2; sleep 60";
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--output-limit",
                "100k",
                "--timeout",
                "5s",
                "--",
                "sh",
                "-c",
                script,
            ])
            .way(way)
            .json()
            .finish();
        run.assert_stopped("output", 153, &DETAIL.replace("stdout", "stderr"));
        let kept = |stream: &str| run.record()[stream]["data"].as_str().unwrap().len();
        assert_eq!(
            (kept("stdout"), kept("stderr")),
            (60000, (100 << 10) - 60000),
            "{way:?}"
        );
    }
}

#[test]
fn exactly_the_limit_is_allowed_and_one_byte_more_is_not() {
    let host = host!();
    let args = |bytes| {
        [
            "run",
            "--output-limit",
            "100k",
            "--",
            "head",
            "-c",
            bytes,
            "/dev/zero",
        ]
    };
    for way in Way::all() {
        // Many times, since the last byte and the end of the program race each other to us.
        for _ in 0..10 {
            for (bytes, ending, code) in [("102400", "exited", 0), ("102401", "output", 153)] {
                let run = host.launch(args(bytes)).way(way).json().finish();
                let kept = run.out().len();
                assert_eq!(
                    (run.ending(), run.code(), kept),
                    (ending, code, 102_400),
                    "{way:?}: {bytes} bytes were written"
                );
                let streamed = host.launch(args(bytes)).way(way).finish();
                assert_eq!(
                    (streamed.code(), streamed.stdout.len()),
                    (code, 102_400),
                    "{way:?}: {bytes} bytes were written"
                );
            }
        }
    }
}

#[test]
fn a_streamed_flood_passes_exactly_the_limit_and_says_why_it_ends() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--output-limit", "100k", "--", "yes"])
            .way(way)
            .finish();
        assert_eq!((run.code(), run.stdout.len()), (153, 100 << 10), "{way:?}");
        assert_eq!(run.err(), format!("cofferdam: {DETAIL}\n"), "{way:?}");
    }
}

#[test]
fn discarded_output_is_counted_and_the_run_goes_on() {
    let host = host!();
    for way in Way::all() {
        let script = "head -c 5000000 /dev/zero; echo end >&2; exit 4";
        let args = [
            "run",
            "--output-limit",
            "100k",
            "--on-output-limit",
            "discard",
            "--",
            "sh",
            "-c",
            script,
        ];
        let run = host.launch(args).way(way).json().finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("exited", 4),
            "{way:?}: {run:#?}"
        );
        assert_eq!(
            run.record()["stdout"]["original_bytes"],
            5_000_000,
            "{way:?}"
        );
        assert_eq!(
            host.launch(args).way(way).finish().stdout.len(),
            100 << 10,
            "{way:?}"
        );
    }
}

/// Scripts write to /dev/stdout and /dev/stderr, which opens the pipe anew.
#[test]
fn the_streams_can_be_opened_by_name() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--",
                "sh",
                "-c",
                "echo out >/dev/stdout; echo err >/dev/stderr; echo too | tee /proc/self/fd/2",
            ])
            .way(way)
            .finish();
        assert_eq!(
            (run.out().as_str(), run.err().as_str(), run.code()),
            ("out\ntoo\n", "err\ntoo\n", 0),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn a_flood_into_a_pipe_that_was_closed_and_opened_again_is_still_counted() {
    let host = host!(Need::Python);
    let script = "
import os
while True:
    fd = os.open('/proc/self/fd/1', os.O_WRONLY); os.write(fd, b'x' * 65536); os.close(fd)
";
    let run = host.json([
        "run",
        "--output-limit",
        "100k",
        "--timeout",
        "5s",
        "--",
        "python3",
        "-c",
        script,
    ]);
    run.assert_stopped("output", 153, DETAIL);
}

#[test]
fn everything_arrives_whole_and_in_order() {
    let host = host!(Need::Python);
    let script = "
import sys
for n in range(200000): print(n)
print('err', file=sys.stderr)
";
    let expected: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", script])
            .way(way)
            .finish();
        assert!(
            run.out() == expected,
            "{way:?}: {} bytes of {}",
            run.stdout.len(),
            expected.len()
        );
        assert_eq!((run.err().as_str(), run.code()), ("err\n", 0));
        let path = host.dir().join(format!("out-{way:?}"));
        host.launch(["run", "--", "python3", "-c", script])
            .way(way)
            .stdout_to(std::fs::File::create(&path).unwrap())
            .finish();
        assert!(
            std::fs::read_to_string(&path).unwrap() == expected,
            "{way:?}: a file"
        );
        let kept = host
            .launch(["run", "--capture", "4m", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        assert!(kept.out() == expected, "{way:?}: a record");
    }
}

/// The program has ended and its reader takes its time: what is in the pipes must wait for it.
#[test]
fn a_slow_reader_loses_nothing() {
    let host = host!();
    for way in Way::all() {
        let (mut ours, theirs) = std::io::pipe().unwrap();
        let run = host
            .launch(["run", "--", "head", "-c", "120000", "/dev/zero"])
            .way(way)
            .stdout_to(theirs)
            .start();
        // The program's 120,000 bytes fit into two pipes, so it ends before anything is read; then the reader sleeps on for a while.
        let until = Instant::now() + Duration::from_millis(700);
        while Instant::now() < until && !run.is_over() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let early = run.is_over();
        let mut all = Vec::new();
        ours.read_to_end(&mut all).unwrap();
        let finished = run.finish();
        assert_eq!(
            (all.len(), early),
            (120_000, false),
            "{way:?}: {finished:#?}"
        );
        assert_eq!(finished.code(), 0);
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run() {
    let host = host!();
    for way in Way::all() {
        let mut run = host
            .launch(["run", "--timeout", "20s", "--", "yes"])
            .way(way)
            .start();
        run.await_output("y\n");
        run.close_stdout();
        let run = run.finish();
        assert_eq!(run.code(), 130, "{way:?}: {run:#?}");
        assert!(!run.err().contains("panicked"), "{run:#?}");
    }
}

/// Nobody cancelled it: the disk behind stdout is full, and that is what must be said.
#[test]
fn output_that_cannot_be_written_is_an_error_of_ours() {
    let host = host!();
    for way in Way::all() {
        for json in [false, true] {
            let full = std::fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap();
            let launch = host
                .launch(["run", "--", "echo", "hello"])
                .way(way)
                .stdout_to(full);
            let run = if json { launch.json() } else { launch }.finish();
            run.assert_refused(125, "output.write_failed");
        }
    }
}

#[test]
fn bytes_that_are_not_text_survive_the_record() {
    let host = host!();
    let run = host.json(["run", "--", "printf", "\\377\\376\\000x"]);
    assert_eq!(
        run.record()["stdout"],
        json!({"data": "//4AeA==", "encoding": "base64", "truncated": false, "original_bytes": 4})
    );
}

#[test]
fn capture_keeps_the_beginning() {
    let host = host!();
    let run = host.json(["run", "--capture", "5", "--", "printf", "123456789"]);
    assert_eq!(
        run.record()["stdout"],
        json!({"data": "12345", "encoding": "utf-8", "truncated": true, "original_bytes": 9})
    );
    run.assert_success();
}

#[test]
fn stdin_reaches_the_program_whole() {
    let host = host!();
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1])
        .collect();
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "cat"])
            .way(way)
            .stdin(bytes.clone())
            .finish();
        assert!(run.stdout == bytes, "{way:?}: {} bytes", run.stdout.len());
        let path = host.dir().join("input");
        std::fs::write(&path, &bytes).unwrap();
        let run = host
            .launch(["run", "--stdin", path.to_str().unwrap(), "--", "cat"])
            .way(way)
            .finish();
        assert!(
            run.stdout == bytes,
            "{way:?}: {} bytes of a file",
            run.stdout.len()
        );
        let none = host
            .launch(["run", "--stdin", "none", "--", "cat"])
            .way(way)
            .stdin(bytes.clone())
            .finish();
        assert_eq!((none.stdout.len(), none.code()), (0, 0), "{way:?}");
    }
}

#[test]
fn a_program_that_does_not_read_its_input_is_not_held_up() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--timeout",
                "5s",
                "--",
                "sh",
                "-c",
                "exec <&-; echo done",
            ])
            .way(way)
            .stdin(vec![0; 4 << 20])
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("done\n", 0),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn a_conversation_over_stdin_and_stdout_works() {
    let host = host!();
    for way in Way::all() {
        let (ours, mut pipe) = std::io::pipe().unwrap();
        let mut run = host
            .launch([
                "run",
                "--",
                "sh",
                "-c",
                "while read line; do echo \"<$line>\"; done",
            ])
            .way(way)
            .stdin_from(ours)
            .start();
        for word in ["one", "two", "three"] {
            writeln!(pipe, "{word}").unwrap();
            run.await_output(&format!("<{word}>"));
        }
        drop(pipe);
        run.finish().assert_success();
    }
}

#[test]
fn closed_standard_streams_of_the_caller_are_no_accident() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--",
                "sh",
                "-c",
                "cat; echo out; echo err >&2; exit 6",
            ])
            .way(way)
            .from_shell("exec \"$@\" <&- >&- 2>&-")
            .finish();
        assert_eq!(
            (run.code(), run.stdout.len(), run.stderr.len()),
            (6, 0, 0),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn a_socket_as_stdout_works() {
    let host = host!();
    for way in Way::all() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let run = host
            .launch(["run", "--", "head", "-c", "1000000", "/dev/zero"])
            .way(way)
            .stdout_to(OwnedFd::from(theirs))
            .start();
        let mut all = Vec::new();
        ours.read_to_end(&mut all).unwrap();
        assert_eq!((all.len(), run.finish().code()), (1_000_000, 0), "{way:?}");
    }
}
