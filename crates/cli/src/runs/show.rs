//! `cofferdam runs show`: one run on a page.

use std::process::ExitCode;
use std::time::Duration;

use cofferdam_contract::ending::Stream;
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{ChangeKind, DenialKind};
use cofferdam_contract::units::{Bytes, format_duration};
use cofferdam_store::History;
use cofferdam_store::log::{self, Chunk};
use cofferdam_store::model::{Closing, Outcome, StoredRun, StreamKept, StreamSeen};
use jiff::Timestamp;
use serde_json::Value;

use super::lines::Lines;
use super::page::Page;
use super::{Kept, binary, find, open_history, words};
use crate::arguments::history::ShowArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::colour::Paint;
use crate::terminal::control::Filter;
use crate::terminal::output::Document;
use crate::terminal::size::Target;
use crate::terminal::{amount, text, time};

pub(crate) const SCHEMA: &str = "cofferdam.history/1";

/// How many lines of stderr a failure is worth.
const LAST_LINES: usize = 10;
const FEW: usize = 8;
const MOST_RULES: usize = 40;
/// A line for reading.
const LONGEST_LINE: usize = 4096;

pub(crate) fn show(args: &ShowArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let history = open_history(kept)?;
    let run = find(&history, &args.run)?;
    if args.json {
        failure::print(&json(&run)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::of(args.color, Target::of_stdout());
    let last = last_words(&history, &run)?;
    failure::print(&page(&run, &last, Timestamp::now(), paint))?;
    Ok(ExitCode::SUCCESS)
}

fn json(run: &StoredRun) -> Result<String, Failure> {
    pretty(&Document {
        schema: SCHEMA,
        content: run,
    })
}

/// Output is read only where it is shown.
fn last_words(history: &History, run: &StoredRun) -> Result<Vec<Chunk>, Failure> {
    if run.status.is_failure() {
        Ok(history.output(run.opening.run_id)?)
    } else {
        Ok(Vec::new())
    }
}

fn page(run: &StoredRun, output: &[Chunk], now: Timestamp, paint: Paint) -> String {
    let mut page = Page::new(paint);
    page.section("RUN");
    summary(&mut page, run, now);
    if let Outcome::Ended(closing) = &run.outcome {
        usage(&mut page, run, closing);
        limits(&mut page, run, closing);
        isolation(&mut page, closing);
        files(&mut page, run, closing);
    }
    circumstances(&mut page, run);
    last_of_stderr(&mut page, output, paint);
    hints(&mut page, run);
    page.finish()
}

fn summary(page: &mut Page, run: &StoredRun, now: Timestamp) {
    let opening = &run.opening;
    let both = |at: Timestamp| format!("{} ({})", time::exact(at), time::ago(at, now));
    page.field("id", &opening.run_id.to_string());
    page.field("command", &words::command(&opening.command));
    let status = words::status(run.status, run.outcome.cause());
    page.painted("status", &status, words::colour(run.status));
    page.field("ending", &words::ending(&run.outcome));
    page.field("started", &both(opening.started_at));
    match &run.outcome {
        Outcome::Running => {
            let so_far = now.duration_since(opening.started_at).as_millis_f64();
            page.field("running for", &amount::milliseconds(so_far));
        }
        Outcome::Interrupted { noticed_at } => page.field("noticed", &both(*noticed_at)),
        Outcome::Ended(closing) => {
            page.field("ended", &both(closing.ended_at));
            page.field("took", &amount::milliseconds(closing.usage.wall_ms));
        }
    }
    for (key, value) in &opening.tags {
        page.field("tag", &format!("{key}={value}"));
    }
    if let Some(parent) = opening.parent {
        page.field("parent", &parent.to_string());
    }
}

fn usage(page: &mut Page, run: &StoredRun, closing: &Closing) {
    let usage = &closing.usage;
    page.section("USAGE");
    page.field("cpu", &amount::milliseconds(usage.cpu_ms));
    let optional = |value: Option<u64>, show: fn(u64) -> String| {
        value.map_or_else(|| "not measured".to_owned(), show)
    };
    let bytes = amount::bytes;
    page.field("memory peak", &optional(usage.memory_peak_bytes, bytes));
    let number = |n: u64| n.to_string();
    page.field("processes", &optional(usage.processes_peak, number));
    page.field("scratch", &optional(usage.disk_bytes, bytes));
    page.field("stdout", &stream(closing.stdout, run.log.stdout));
    page.field("stderr", &stream(closing.stderr, run.log.stderr));
    if closing.redactions > 0 {
        let secrets = amount::count(closing.redactions, "secret");
        page.field("redacted", &format!("{secrets} taken out"));
    }
}

/// How much was written, and what is not there any more.
fn stream(seen: StreamSeen, kept: StreamKept) -> String {
    let mut text = amount::bytes(seen.bytes);
    if kept.binary {
        text.push_str(", binary");
    }
    if kept.removed > 0 {
        text.push_str(&format!(", {} cut out", amount::bytes(kept.removed)));
    }
    if seen.lost > 0 {
        text.push_str(&format!(", {} lost", amount::bytes(seen.lost)));
    }
    text
}

fn limits(page: &mut Page, run: &StoredRun, closing: &Closing) {
    page.section("LIMITS");
    for (name, by) in &closing.enforced_by {
        let text = match limit_value(&run.opening.policy, *name) {
            Some(value) => format!("{value}, by {by}"),
            None => by.to_string(),
        };
        page.field(name.as_str(), &text);
    }
}

/// A limit in words; the policy has it as a number whose unit its name says.
fn limit_value(policy: &Value, name: LimitName) -> Option<String> {
    let number = |unit: &str| policy.pointer(&format!("/limits/{name}{unit}"))?.as_u64();
    match name {
        LimitName::WallTime | LimitName::CpuTime => {
            number("_ms").map(|ms| format_duration(Duration::from_millis(ms)))
        }
        LimitName::Memory | LimitName::Output | LimitName::Disk => {
            number("_bytes").map(|bytes| Bytes::new(bytes).to_string())
        }
        LimitName::Processes | LimitName::OpenFiles => number("").map(|count| count.to_string()),
        LimitName::DiskIo => {
            let rates = policy.pointer("/limits/disk_io")?.as_str();
            rates.map(str::to_owned)
        }
        LimitName::Cpus => number("_milli").map(|milli| (milli as f64 / 1000.0).to_string()),
    }
}

fn isolation(page: &mut Page, closing: &Closing) {
    page.section("ISOLATION");
    for (part, by) in &closing.isolation {
        page.field(part, by);
    }
    page.section("DENIED");
    let denied: Vec<String> = closing
        .denials
        .iter()
        .map(|denial| {
            let kind = match denial.kind {
                DenialKind::Syscall => "system call",
                DenialKind::Network => "network",
                DenialKind::Filesystem => "file system",
            };
            let times = amount::count(denial.count, "time");
            format!("{kind}: {}, {times}", denial.what)
        })
        .collect();
    page.few(&denied, FEW, "`--json` shows them");
    if let Some(told) = &closing.network {
        network(page, told);
    }
    if let Some(told) = &closing.determinism {
        page.section("THE SAME EACH TIME");
        for (item, how) in told {
            page.field(item, how);
        }
    }
}

fn network(page: &mut Page, told: &NetworkRecord) {
    page.section("NETWORK");
    page.field("sent", &amount::bytes(told.sent_bytes));
    page.field("received", &amount::bytes(told.received_bytes));
    let events: Vec<String> = told
        .events
        .iter()
        .map(|event| {
            let port = event
                .port
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let why = event
                .why
                .as_ref()
                .map(|why| format!(", {why}"))
                .unwrap_or_default();
            format!("{} {}{port}{why}", event.outcome.as_str(), event.host)
        })
        .collect();
    page.few(&events, FEW, "`--json` shows them");
}

fn files(page: &mut Page, run: &StoredRun, closing: &Closing) {
    let id = run.opening.run_id;
    page.section("ARTIFACTS");
    let artifacts: Vec<String> = closing
        .artifacts
        .iter()
        .map(|artifact| {
            let size = amount::bytes(artifact.bytes);
            format!("{}  {size}, {}", artifact.path, artifact.media_type)
        })
        .collect();
    page.few(&artifacts, FEW, &format!("cofferdam artifacts list {id}"));
    page.section("NOT KEPT");
    let left_out: Vec<String> = closing
        .left_out
        .iter()
        .map(|left_out| format!("{}: {}", left_out.path, left_out.why))
        .collect();
    page.few(&left_out, FEW, "`--json` shows them");
    page.section("CHANGES");
    let changes = closing.changes.as_deref().unwrap_or_default();
    let changes: Vec<String> = changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                ChangeKind::Added => "added",
                ChangeKind::Modified => "modified",
                ChangeKind::Deleted => "deleted",
            };
            format!("{kind} {}", change.path)
        })
        .collect();
    page.few(&changes, FEW, "`--json` shows them");
}

fn circumstances(page: &mut Page, run: &StoredRun) {
    let opening = &run.opening;
    page.section("CIRCUMSTANCES");
    page.field("kind", opening.kind.as_str());
    page.field("backend", &opening.backend);
    if let Some(cwd) = &opening.cwd {
        page.field("directory", cwd);
    }
    if !opening.environment.is_empty() {
        page.field("variables", &opening.environment.join(" "));
    }
    let host = &opening.host;
    let place = format!("{}, Linux {}, uid {}", host.name, host.kernel, host.uid);
    page.field("host", &place);
    page.field("version", &opening.version);
    if opening.payload.is_some() {
        page.field("payload", "sealed; `--json` shows it");
    }
    page.section("POLICY");
    let mut rules = Vec::new();
    let mut policy = opening.policy.clone();
    // Each with what enforced it, above.
    if let Some(members) = policy.as_object_mut().filter(|_| ended(run)) {
        members.remove("limits");
    }
    flatten(&mut rules, "", &policy);
    page.few(&rules, MOST_RULES, "`--json` shows them");
}

fn ended(run: &StoredRun) -> bool {
    matches!(run.outcome, Outcome::Ended(_))
}

/// Nested objects as `workspace.access = rw`.
fn flatten(rules: &mut Vec<String>, path: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                flatten(rules, &path, member);
            }
        }
        Value::Null => {}
        Value::Array(list) if list.is_empty() => {}
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            rules.push(format!("{path} = {}", scalar(value)));
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn last_of_stderr(page: &mut Page, output: &[Chunk], paint: Paint) {
    let of_it = output.iter().filter(|chunk| chunk.stream == Stream::Stderr);
    let chunks: Vec<Chunk> = of_it.cloned().collect();
    page.section("END OF STDERR");
    if binary::is_binary(&log::stream(&chunks, Stream::Stderr)) {
        page.line("binary");
        return;
    }
    let lines = Lines::all(&chunks);
    let mut filter = Filter::new(paint);
    for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
        // A colour sequence must not be cut in two, so what is too long loses its colours.
        let shown = match line.content() {
            long if long.len() > LONGEST_LINE => text::cut(&text::safe_bytes(long), LONGEST_LINE),
            content => filter.line(content),
        };
        page.raw(&shown);
    }
}

fn hints(page: &mut Page, run: &StoredRun) {
    let id = run.opening.run_id;
    page.section("MORE");
    let follow = match run.outcome {
        Outcome::Running => " --follow",
        Outcome::Ended(_) | Outcome::Interrupted { .. } => "",
    };
    page.line(&format!("cofferdam runs logs {id}{follow}"));
    if let Outcome::Ended(closing) = &run.outcome
        && !closing.artifacts.is_empty()
    {
        page.line(&format!("cofferdam artifacts list {id}"));
    }
    page.line(&format!("cofferdam runs show {id} --json"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample::{self, NOW, err, out};

    #[test]
    fn a_failure_is_told_whole() {
        let output = [
            out(0, b"not this"),
            err(1, b"\x1b[31mbad\x1b[0m\x1b[2J\nwor"),
            err(2, b"se\n"),
        ];
        let text = page(&sample::exited(3), &output, NOW, Paint::Plain);
        let expected = "\
RUN
  id            019a86e8-e000-7000-8000-000000000001
  command       sh -c 'make all'
  status        failure
  ending        exited with code 3
  started       2025-11-15T09:46:40.000Z (3 min ago)
  ended         2025-11-15T09:46:41.234Z (2 min ago)
  took          1.23 s
  tag           branch=main
  parent        019a86e8-e000-7000-8000-000000000000

USAGE
  cpu           900 ms
  memory peak   12 MiB
  processes     7
  scratch       not measured
  stdout        1.95 KiB
  stderr        48 B
  redacted      1 secret taken out

LIMITS
  memory        64 MiB, by cgroup2

ISOLATION
  network       netns

DENIED
  system call: ptrace, 2 times

ARTIFACTS
  dist/app.js  1.5 KiB, text/javascript

NOT KEPT
  big.bin: larger than 10 MiB

CIRCUMSTANCES
  kind          command
  backend       native
  directory     /work
  variables     CI LANG
  host          box, Linux 6.1.0, uid 1000
  version       0.1.0

POLICY
  network = denied

END OF STDERR
  bad\\u{1b}[2J
  worse

MORE
  cofferdam runs logs 019a86e8-e000-7000-8000-000000000001
  cofferdam artifacts list 019a86e8-e000-7000-8000-000000000001
  cofferdam runs show 019a86e8-e000-7000-8000-000000000001 --json
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_limit_is_told_with_the_flag_that_raises_it() {
        let text = page(&sample::out_of_memory(), &[], NOW, Paint::Colour);
        assert!(text.contains("status        \u{1b}[33mlimit (memory)\u{1b}[0m"));
        assert!(text.contains("memory limit of 64 MiB reached; raise it with --memory"));
    }

    #[test]
    fn a_run_that_goes_on_can_be_followed() {
        let text = page(&sample::running(), &[], NOW, Paint::Plain);
        assert!(text.contains("running for   3 min 0 s"), "{text}");
        assert!(text.contains("--follow"), "{text}");
        assert!(!text.contains("USAGE"), "{text}");
        let text = page(&sample::interrupted(), &[], NOW, Paint::Plain);
        assert!(text.contains("noticed "), "{text}");
    }

    #[test]
    fn nothing_that_a_stranger_wrote_steers_the_terminal() {
        let mut run = sample::exited(1);
        let evil = "\u{1b}]0;x\u{7}\u{202e}\n".to_owned();
        run.opening.command = vec![evil.clone()];
        run.opening.cwd = Some(evil.clone());
        run.opening.environment = vec![evil.clone()];
        run.opening.tags = [(evil.clone(), evil.clone())].into();
        run.opening.policy = serde_json::json!({evil.clone(): [evil.clone()]});
        run.opening.backend = evil.clone();
        run.opening.version = evil.clone();
        run.opening.host.name = evil.clone();
        let Outcome::Ended(closing) = &mut run.outcome else {
            return;
        };
        closing.isolation = [(evil.clone(), evil.clone())].into();
        closing.denials[0].what = evil.clone();
        closing.artifacts[0].path = evil.clone();
        closing.artifacts[0].media_type = evil.clone();
        closing.left_out[0].path = evil.clone();
        closing.left_out[0].why = evil.clone();
        let output = [err(0, evil.as_bytes()), err(0, &[b'x'; 10_000])];
        let text = page(&run, &output, NOW, Paint::Plain);
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        assert!(!text.contains('\u{202e}'));
        assert!(text.lines().all(|line| line.len() < 5000));
    }

    #[test]
    fn json_is_the_stored_run_with_its_schema() {
        let run = sample::out_of_memory();
        let value: Value = serde_json::from_str(&json(&run).unwrap()).unwrap();
        assert_eq!(value["schema"], "cofferdam.history/1");
        assert_eq!(value["status"], "limit");
        assert_eq!(value["state"], "ended");
        assert_eq!(value["started_at"], "2025-11-15T09:46:40Z");
        let mut without = value;
        if let Some(members) = without.as_object_mut() {
            members.remove("schema");
        }
        assert_eq!(serde_json::from_value::<StoredRun>(without).unwrap(), run);
    }
}
