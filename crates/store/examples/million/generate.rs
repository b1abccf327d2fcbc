//! A history as years of use would leave it, the same one every time but for the date: skewed commands and statuses, log-normal durations, some tags, children and artifacts.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::UsageRecord;
use cofferdam_store::database::{KeptOutput, NewRun};
use cofferdam_store::log::{self, Chunk};
use cofferdam_store::model::{
    Artifact, ArtifactKind, Closing, Digest, HostFacts, LogFacts, Opening, Outcome, RunKind,
    StreamKept, StreamSeen,
};
use cofferdam_store::{History, RunId, StoreError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub(crate) const COMMANDS: u64 = 200_000;
/// These make up two thirds of all runs.
const HOT_COMMANDS: u64 = 2_000;
const BATCH: usize = 20_000;
/// From the first run to the last.
const SPAN: Duration = Duration::from_secs(2 * 365 * 86_400);

pub(crate) fn fill(history: &mut History, runs: usize) -> Result<(), StoreError> {
    let mut random = Random(0x5eed);
    let step = SPAN / u32::try_from(runs.max(1)).unwrap_or(u32::MAX);
    let mut at = Timestamp::now() - SignedDuration::try_from(SPAN).unwrap_or_default();
    let mut last: Option<RunId> = None;
    let mut made = 0;
    while made < runs {
        let size = BATCH.min(runs - made);
        let mut batch = Vec::with_capacity(size);
        for _ in 0..size {
            at += SignedDuration::try_from(step).unwrap_or_default();
            let run = run(&mut random, at, last);
            last = Some(run.opening.run_id);
            batch.push(run);
        }
        history.record(&batch)?;
        made += size;
    }
    let going_on: Vec<Opening> = (0..3)
        .map(|_| run(&mut random, Timestamp::now(), last).opening)
        .collect();
    history.begin(&going_on)
}

fn run(random: &mut Random, at: Timestamp, before: Option<RunId>) -> NewRun {
    let wall = random.log_normal_ms();
    let outcome = outcome(random, at, wall);
    let written = random.below(2000);
    let text = "a line of output, as programs write it\n".repeat(1 + random.index(8));
    let kept = u64::try_from(text.len()).unwrap_or(0);
    let output = log::encode(&[Chunk {
        stream: Stream::Stdout,
        at_micros: written,
        bytes: text.into_bytes(),
    }]);
    NewRun {
        opening: opening(random, at, before),
        outcome,
        log: LogFacts {
            stdout: StreamKept {
                bytes: kept,
                removed: 0,
                binary: false,
            },
            stderr: StreamKept::default(),
        },
        output: KeptOutput::Inline(output),
    }
}

fn opening(random: &mut Random, at: Timestamp, before: Option<RunId>) -> Opening {
    let number = if random.below(3) < 2 {
        random.below(HOT_COMMANDS).min(random.below(HOT_COMMANDS))
    } else {
        random.below(COMMANDS)
    };
    Opening {
        run_id: random.id(at),
        started_at: at,
        command: command(number),
        cwd: Some("/workspace".to_owned()),
        environment: ["PATH", "HOME", "LANG", "CI"].map(str::to_owned).to_vec(),
        kind: match random.below(100) {
            0..70 => RunKind::Command,
            70..85 => RunKind::Payload,
            85..95 => RunKind::Build,
            _ => RunKind::Test,
        },
        backend: match random.below(1000) {
            0..950 => "native",
            950..999 => "host",
            _ => "container",
        }
        .to_owned(),
        tags: tags(random),
        parent: before.filter(|_| random.below(50) == 0),
        sender: None,
        execution_id: None,
        policy: json!({
            "limits": {"wall_time_ms": 30_000, "memory_mb": 512, "processes": 64, "output_kb": 1024},
            "network": "denied",
            "root": "read_only",
            "workspace": "copy_on_write",
        }),
        payload: None,
        host: HostFacts {
            name: "builder-7".to_owned(),
            kernel: "6.12.0".to_owned(),
            uid: 1000,
        },
        version: "0.1.0".to_owned(),
    }
}

/// The command line with this number, as its arguments.
pub(crate) fn command(number: u64) -> Vec<String> {
    let line = match number % 8 {
        0 => format!("cargo test --package crate_{} case_{number}", number % 97),
        1 => format!(
            "python3 /work/jobs/job_{number}.py --seed {}",
            number % 1009
        ),
        2 => format!("make -j8 target-{number}"),
        3 => format!("sh -c grep -rn needle_{number} src"),
        4 => format!("npm run build:app-{number}"),
        5 => format!("node scripts/check-{number}.mjs --strict"),
        6 => format!("go test ./pkg/p{number}/..."),
        _ => format!("gcc -O2 -o out/prog{number} src/prog{number}.c"),
    };
    line.split(' ').map(str::to_owned).collect()
}

fn tags(random: &mut Random) -> BTreeMap<String, String> {
    let mut tags = BTreeMap::new();
    if random.below(10) == 0 {
        let value = match random.below(100) {
            0..70 => "ci",
            70..95 => "dev",
            _ => "prod",
        };
        tags.insert("env".to_owned(), value.to_owned());
        if random.below(10) == 0 {
            let ticket = format!("T-{}", random.below(5000));
            tags.insert("ticket".to_owned(), ticket);
        }
    }
    tags
}

fn outcome(random: &mut Random, at: Timestamp, wall_ms: f64) -> Outcome {
    let stopped = |cause: &str| EndingRecord::Stopped {
        cause: cause.to_owned(),
        limit: None,
        detail: "it went over its limit".to_owned(),
    };
    let exited = |code: i32| (EndingRecord::Exited, Some(code), None);
    let (ending, exit_code, signal) = match random.below(1000) {
        0..820 => exited(0),
        820..890 => exited(1),
        890..905 => exited(2),
        905..925 => exited(101),
        925..928 => exited(i32::try_from(3 + random.below(60)).unwrap_or(3)),
        928..935 => (EndingRecord::Signaled, None, Some("SIGSEGV".to_owned())),
        935..960 => (stopped("wall_time"), None, None),
        960..968 => (stopped("cpu_time"), None, None),
        968..984 => (stopped("memory"), None, None),
        984..986 => (stopped("output"), None, None),
        986..996 => (stopped("canceled"), None, None),
        996..998 => (
            EndingRecord::NeverStarted {
                code: ErrorCode::ProgramNotFound,
                step: "exec".to_owned(),
                message: "there is no such program".to_owned(),
                errno: Some(2),
            },
            None,
            None,
        ),
        _ => return Outcome::Interrupted { noticed_at: at },
    };
    Outcome::Ended(Box::new(Closing {
        results: None,
        network: None,
        determinism: None,
        ended_at: at + SignedDuration::try_from_secs_f64(wall_ms / 1000.0).unwrap_or_default(),
        ending,
        exit_code,
        signal,
        usage: UsageRecord {
            wall_ms,
            cpu_ms: wall_ms * 0.7,
            memory_peak_bytes: Some(1_000_000 + random.below(200_000_000)),
            processes_peak: Some(1 + random.below(8)),
            output_bytes: 100,
            disk_bytes: Some(random.below(1_000_000)),
        },
        enforced_by: BTreeMap::new(),
        isolation: [
            ("network", "netns"),
            ("files", "pivot_root"),
            ("calls", "seccomp"),
        ]
        .map(|(part, by)| (part.to_owned(), by.to_owned()))
        .into(),
        denials: Vec::new(),
        changes: None,
        redactions: 0,
        stdout: StreamSeen {
            bytes: random.below(10_000),
            lost: 0,
        },
        stderr: StreamSeen::default(),
        artifacts: artifacts(random),
        left_out: Vec::new(),
    }))
}

fn artifacts(random: &mut Random) -> Vec<Artifact> {
    if random.below(20) != 0 {
        return Vec::new();
    }
    let one = |index: u64| Artifact {
        path: format!("out/result-{index}.txt"),
        digest: Digest::of(&random.below(40_000).to_le_bytes()),
        bytes: 1000,
        media_type: "text/plain".to_owned(),
        kind: ArtifactKind::Added,
        mode: 0o644,
    };
    (0..2).map(one).collect()
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    fn unit(&mut self) -> f64 {
        Duration::from_nanos(self.below(1_000_000_000)).as_secs_f64()
    }

    /// Half of all below 400 ms, one of a hundred above half a minute.
    fn log_normal_ms(&mut self) -> f64 {
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (400.0 * (1.9 * normal).exp() * 1000.0).round() / 1000.0
    }

    fn id(&mut self, at: Timestamp) -> RunId {
        let mut bytes = *RunId::floor(at).as_bytes();
        let tail = self.next().to_le_bytes();
        let more = self.next().to_le_bytes();
        for (place, byte) in bytes.iter_mut().skip(6).zip(tail.into_iter().chain(more)) {
            *place = byte;
        }
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        RunId::from_bytes(bytes)
    }
}
