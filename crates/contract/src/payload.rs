//! `ExecutionPayload`: the order for one bounded run, read from its JSON. Immutable: it is only ever handed out by a
//! [`Sealed`](crate::seal::Sealed), which has checked the digest. Reading reports every problem at once.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use crate::decimal::Decimal;
use crate::enforcement::LimitName;
use crate::fields::Fields;
use crate::ids::id_problem;
use crate::limits::Limits;
use crate::output_class::OutputClass;
use crate::output_format::OutputFormat;
use crate::problem::Problem;
use crate::request::{Gpus, Network};
use crate::task::Task;
use crate::units::{Bytes, Cap, CpuShare};

/// The order for one bounded run.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionPayload {
    pub payload_id: String,
    pub contract_id: String,
    /// What the work is about, for people.
    pub scope: String,
    pub expected_output_format: OutputFormat,
    pub limits: Limits,
    pub network: Network,
    pub filesystem_write: FilesystemWrite,
    /// What it asks for; whoever runs it says what it gets.
    pub gpus: Gpus,
    pub created_at: Timestamp,
    /// After this nobody starts it any more.
    pub deadline: Timestamp,
    pub task: Task,
    /// When two answers count as the same.
    pub output_class: OutputClass,
    pub purity: Purity,
    /// Where randomness begins, if it must be run so that it gives the same each time.
    pub seed: Option<u64>,
}

/// What whoever wrote the payload says about running it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purity {
    #[default]
    Unsaid,
    /// The same answer each time: one that is known may be given again.
    Pure,
    /// Another answer each time; two of them cannot be compared.
    Varies,
}

/// Whether the work may change the workspace. Its private scratch space it may always write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesystemWrite {
    Denied,
    Allowed,
}

pub const MAX_SCOPE_BYTES: usize = 64 << 10;
pub(crate) const DETERMINISTIC: &str = "deterministic";
pub(crate) const SEED: &str = "seed";
pub(crate) const GPUS: &str = "gpus";
/// The largest whole number that every reader of JSON has exactly.
pub(crate) const MAX_SEED: u64 = (1 << 53) - 1;

/// One field of the payload's JSON.
pub(crate) struct WireField {
    pub(crate) name: &'static str,
    pub(crate) sealed: Presence,
    pub(crate) draft: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

/// Every field, in the order in which sealing writes them.
pub(crate) const WIRE_FIELDS: [WireField; 23] = {
    use Presence::{Optional, Required};
    const fn field(name: &'static str, sealed: Presence, draft: Presence) -> WireField {
        WireField {
            name,
            sealed,
            draft,
        }
    }
    [
        field("payload_id", Required, Optional),
        field("contract_id", Required, Required),
        field("scope", Required, Required),
        field("task", Required, Required),
        field("expected_output_format", Required, Optional),
        field("max_runtime_seconds", Required, Optional),
        field("max_cpu_seconds", Required, Optional),
        field("max_memory_mb", Required, Optional),
        field("max_output_size_kb", Required, Optional),
        field("max_processes", Optional, Optional),
        field("max_open_files", Optional, Optional),
        field("max_disk_mb", Optional, Optional),
        field("max_cpus", Optional, Optional),
        field("network_allowed", Optional, Optional),
        field("filesystem_write", Optional, Optional),
        field(GPUS, Optional, Optional),
        field(OutputClass::FIELD, Optional, Optional),
        field("pure", Optional, Optional),
        field(DETERMINISTIC, Optional, Optional),
        field(SEED, Optional, Optional),
        field("created_at", Required, Optional),
        field("deadline", Required, Optional),
        field("digest", Required, Optional),
    ]
};

/// The field of the payload that sets a limit.
pub const fn limit_field(limit: LimitName) -> &'static str {
    match limit {
        LimitName::WallTime => "max_runtime_seconds",
        LimitName::CpuTime => "max_cpu_seconds",
        LimitName::Memory => "max_memory_mb",
        LimitName::Output => "max_output_size_kb",
        LimitName::Processes => "max_processes",
        LimitName::Disk => "max_disk_mb",
        LimitName::OpenFiles => "max_open_files",
        LimitName::Cpus => "max_cpus",
        // No payload says it; whoever runs one may.
        LimitName::DiskIo => "disk_io",
    }
}

impl ExecutionPayload {
    /// Reads the whole object; the digest has been looked at before.
    pub(crate) fn read(map: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::new(map, "");
        let payload_id = read_id(&mut fields, "payload_id");
        let contract_id = read_id(&mut fields, "contract_id");
        let scope = read_scope(&mut fields);
        let task = read_task(&mut fields);
        let format = read_format(&mut fields);
        let limits = read_limits(&mut fields);
        let network = match fields.flag("network_allowed") {
            // How much that is, is for whoever runs it to say.
            true => Network::full(),
            false => Network::Denied,
        };
        let filesystem_write = match fields.flag("filesystem_write") {
            true => FilesystemWrite::Allowed,
            false => FilesystemWrite::Denied,
        };
        let gpus = read_gpus(&mut fields, task.as_ref());
        let output_class = read_output_class(&mut fields);
        let purity = read_purity(&mut fields, &network, filesystem_write);
        let seed = read_seed(&mut fields, &network, task.as_ref());
        let (created_at, deadline) = read_times(&mut fields);
        let _known = fields.optional("digest");
        let payload = || {
            Some(Self {
                payload_id: payload_id?,
                contract_id: contract_id?,
                scope: scope?,
                expected_output_format: format?,
                limits,
                network,
                filesystem_write,
                gpus,
                created_at: created_at?,
                deadline: deadline?,
                task: task?,
                output_class,
                purity,
                seed,
            })
        };
        match (payload(), fields.finish()) {
            (Some(payload), found) if found.is_empty() => Ok(payload),
            (_, found) => Err(found),
        }
    }

    /// Whether an answer that is known may be given again: it is declared pure, or must be the same each time and changes nothing.
    pub fn may_be_answered_again(&self) -> bool {
        match self.purity {
            Purity::Pure => true,
            Purity::Varies => false,
            Purity::Unsaid => {
                self.seed.is_some() && self.filesystem_write == FilesystemWrite::Denied
            }
        }
    }
}

fn read_id(fields: &mut Fields<'_>, name: &'static str) -> Option<String> {
    let id = fields.text(name)?;
    if let Some(fix) = id_problem(id) {
        fields.problem(name, id, fix);
    }
    Some(id.to_owned())
}

fn read_scope(fields: &mut Fields<'_>) -> Option<String> {
    let scope = fields.text("scope")?;
    if scope.trim().is_empty() {
        fields.problem(
            "scope",
            scope,
            "is empty; say in a few words what the work is about",
        );
    }
    if scope.len() > MAX_SCOPE_BYTES {
        fields.problem(
            "scope",
            scope,
            format!("is longer than {MAX_SCOPE_BYTES} bytes; shorten it"),
        );
    }
    Some(scope.to_owned())
}

fn read_task(fields: &mut Fields<'_>) -> Option<Task> {
    match Task::read(fields.object("task")?) {
        Ok(task) => Some(task),
        Err(found) => {
            fields.add(found);
            None
        }
    }
}

fn read_format(fields: &mut Fields<'_>) -> Option<OutputFormat> {
    let value = fields.required("expected_output_format")?;
    match OutputFormat::read(value) {
        Ok(format) => Some(format),
        Err(fix) => {
            fields.problem("expected_output_format", value, fix);
            None
        }
    }
}

fn read_output_class(fields: &mut Fields<'_>) -> OutputClass {
    let read = fields.optional(OutputClass::FIELD).map(OutputClass::read);
    match read {
        Some(Err(found)) => {
            fields.add(found);
            OutputClass::default()
        }
        Some(Ok(class)) => class,
        None => OutputClass::default(),
    }
}

fn read_gpus(fields: &mut Fields<'_>, task: Option<&Task>) -> Gpus {
    let Some(text) = fields.optional_text(GPUS) else {
        return Gpus::None;
    };
    if let Some(Task::Wasm(_) | Task::Project(_)) = task {
        let fix = "only commands and source code can use a GPU; leave it out";
        fields.problem(GPUS, text, fix);
    }
    match Gpus::read(text) {
        Ok(gpus) => gpus,
        Err(fix) => {
            fields.problem(GPUS, text, fix);
            Gpus::None
        }
    }
}

/// What can change or be changed from outside is not pure, whatever is said.
fn read_purity(fields: &mut Fields<'_>, network: &Network, write: FilesystemWrite) -> Purity {
    let Some(value) = fields.optional("pure") else {
        return Purity::Unsaid;
    };
    match value.as_bool() {
        Some(false) => Purity::Varies,
        Some(true) => {
            if *network != Network::Denied || write == FilesystemWrite::Allowed {
                let fix = "contradicts network_allowed or filesystem_write; leave one of them out";
                fields.problem("pure", value, fix);
            }
            Purity::Pure
        }
        None => {
            fields.problem("pure", value, "is not a boolean; write true or false");
            Purity::Unsaid
        }
    }
}

/// What cannot be had is refused here, before anybody has run it.
fn read_seed(fields: &mut Fields<'_>, network: &Network, task: Option<&Task>) -> Option<u64> {
    let is_asked = fields.flag(DETERMINISTIC);
    let number = fields.optional_number(SEED);
    if !is_asked {
        if let Some(number) = number {
            let fix = "is for a deterministic run; say `deterministic: true`, or leave it out";
            fields.problem(SEED, number, fix);
        }
        return None;
    }
    if *network != Network::Denied {
        let fix = "contradicts network_allowed: what comes over a network is never the same; leave one of them out";
        fields.problem(DETERMINISTIC, true, fix);
    }
    if let Some(Task::Project(_)) = task {
        let fix = "a project's steps cannot be made to give the same each time; leave it out";
        fields.problem(DETERMINISTIC, true, fix);
    }
    let Some(number) = number else {
        return Some(0);
    };
    let seed = Decimal::parse(&number.to_string()).ok().and_then(whole);
    let seed = seed.filter(|seed| *seed <= MAX_SEED);
    if seed.is_none() {
        let fix = format!("is not a whole number from 0 to {MAX_SEED}; write one such as 7");
        fields.problem(SEED, number, fix);
    }
    seed
}

/// Limits that cannot be read keep their default for the moment: their problem is noted, so that they are never used.
fn read_limits(fields: &mut Fields<'_>) -> Limits {
    let mut limits = Limits::DEFAULT;
    let mut given = Vec::new();
    for limit in LimitName::ALL {
        if limit == LimitName::DiskIo {
            continue;
        }
        let name = limit_field(limit);
        let number = match limit {
            LimitName::WallTime | LimitName::CpuTime | LimitName::Memory | LimitName::Output => {
                fields.number(name)
            }
            LimitName::Processes
            | LimitName::Disk
            | LimitName::OpenFiles
            | LimitName::Cpus
            | LimitName::DiskIo => fields.optional_number(name),
        };
        let Some(number) = number else { continue };
        match set_limit(&mut limits, limit, number) {
            Some(()) => given.push((limit, number)),
            None => fields.problem(name, number, limit_fix(limit)),
        }
    }
    let as_given = |problem: Problem| {
        let number = given
            .iter()
            .find(|(limit, _)| limit.as_str() == problem.field);
        number.map(|(limit, number)| Problem::new(limit_field(*limit), number, problem.fix))
    };
    fields.add(limits.problems().into_iter().filter_map(as_given));
    limits
}

const fn limit_fix(limit: LimitName) -> &'static str {
    match limit {
        LimitName::WallTime | LimitName::CpuTime => {
            "is not a number of seconds that can be used; write one such as 30 or 0.5"
        }
        LimitName::Memory | LimitName::Disk => {
            "is not a number of megabytes that can be used; write one such as 512"
        }
        LimitName::Output => "is not a number of kilobytes that can be used; write one such as 100",
        LimitName::Processes | LimitName::OpenFiles => {
            "is not a whole number that can be used; write one such as 100"
        }
        LimitName::DiskIo => "is not part of a payload; remove it",
        LimitName::Cpus => {
            "is not a number of CPUs that can be used; write one such as 0.5 or 2, with at most three decimals"
        }
    }
}

fn set_limit(limits: &mut Limits, limit: LimitName, number: &Number) -> Option<()> {
    let number = Decimal::parse(&number.to_string()).ok()?;
    match limit {
        LimitName::WallTime => limits.wall_time = Cap::AtMost(seconds(number)?),
        LimitName::CpuTime => limits.cpu_time = Cap::AtMost(seconds(number)?),
        LimitName::Memory => limits.memory = Cap::AtMost(bytes(number, 1 << 20)?),
        LimitName::Output => limits.output = Cap::AtMost(bytes(number, 1 << 10)?),
        LimitName::Disk => limits.disk = Cap::AtMost(bytes(number, 1 << 20)?),
        LimitName::Processes => limits.processes = Cap::AtMost(whole(number)?),
        LimitName::OpenFiles => limits.open_files = Cap::AtMost(whole(number)?),
        LimitName::DiskIo => return None,
        LimitName::Cpus => {
            let milli = number.times(1000).filter(|scaled| scaled.exact)?.floor;
            limits.cpus = Cap::AtMost(CpuShare::from_milli(u32::try_from(milli).ok()?)?);
        }
    }
    Some(())
}

fn seconds(number: Decimal) -> Option<Duration> {
    let nanos = number.times(1_000_000_000)?.floor;
    let rest = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(
        u64::try_from(nanos / 1_000_000_000).ok()?,
        rest,
    ))
}

fn bytes(number: Decimal, unit: u64) -> Option<Bytes> {
    u64::try_from(number.times(unit)?.floor)
        .ok()
        .map(Bytes::new)
}

fn whole(number: Decimal) -> Option<u64> {
    u64::try_from(number.times(1).filter(|scaled| scaled.exact)?.floor).ok()
}

fn read_times(fields: &mut Fields<'_>) -> (Option<Timestamp>, Option<Timestamp>) {
    let created_at = read_time(fields, "created_at");
    let deadline = read_time(fields, "deadline");
    if let (Some(created_at), Some(deadline)) = (created_at, deadline)
        && deadline <= created_at
    {
        fields.problem(
            "deadline",
            deadline,
            format!("is not after created_at ({created_at}); write a later time"),
        );
    }
    (created_at, deadline)
}

fn read_time(fields: &mut Fields<'_>, name: &'static str) -> Option<Timestamp> {
    let text = fields.text(name)?;
    let time = parse_utc(text);
    if time.is_none() {
        fields.problem(
            name,
            text,
            "is not an RFC 3339 time in UTC; write one such as 2026-01-31T12:00:00Z",
        );
    }
    time
}

/// RFC 3339 in UTC, and only that: jiff itself also reads spaces, offsets and zone names.
pub(crate) fn parse_utc(text: &str) -> Option<Timestamp> {
    let shape = text.bytes().enumerate().all(|(i, b)| match i {
        4 | 7 => b == b'-',
        10 => b == b'T',
        13 | 16 => b == b':',
        19 => b == b'.' || b == b'Z',
        _ => b.is_ascii_digit() || b == b'Z',
    });
    let ends_once = text.len() >= 20 && text.find('Z') == Some(text.len() - 1);
    if shape && ends_once {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_in_utc_is_a_time() {
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.123Z",
            "2026-01-31T12:00:00.123456789Z",
        ] {
            assert_eq!(
                parse_utc(text).map(|time| time.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "",
            "Z",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-01-31t12:00:00z",
            "2026-01-31T12:00:00+00:00",
            "2026-01-31T12:00:00Z[UTC]",
            "2026-02-30T12:00:00Z",
            "2026-01-31T25:00:00Z",
            "2026-01-31T12:00Z",
            "20260131T120000Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00ZZ",
            "+002026-01-31T12:00:00Z",
            "-02026-01-31T12:00Z",
            "1769860800",
            "2026-01-31T12:00:00,5Z",
        ] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_become_limits_exactly() {
        let read = |limit, json: &str| {
            let mut limits = Limits::DEFAULT;
            let number: Number = serde_json::from_str(json).unwrap();
            set_limit(&mut limits, limit, &number).map(|()| limits)
        };
        let wall = |json| read(LimitName::WallTime, json).and_then(|l| l.wall_time.at_most());
        assert_eq!(wall("0.1"), Some(Duration::from_millis(100)));
        assert_eq!(wall("300.0"), Some(Duration::from_secs(300)));
        assert_eq!(wall("1e2"), Some(Duration::from_secs(100)));
        assert_eq!(wall("-1"), None);
        assert_eq!(wall("1e300"), None);
        let memory = |json| read(LimitName::Memory, json).and_then(|l| l.memory.at_most());
        assert_eq!(memory("512"), Some(Bytes::new(512 << 20)));
        assert_eq!(memory("1.5"), Some(Bytes::new(3 << 19)));
        assert_eq!(memory("-0.0"), None);
        let processes = |json| read(LimitName::Processes, json).and_then(|l| l.processes.at_most());
        assert_eq!(processes("7"), Some(7));
        assert_eq!(processes("7.0"), Some(7));
        assert_eq!(processes("7.5"), None);
        let cpus = |json| read(LimitName::Cpus, json).and_then(|l| l.cpus.at_most());
        assert_eq!(cpus("1.5"), CpuShare::from_milli(1500));
        assert_eq!(cpus("0"), None);
        assert_eq!(cpus("1.0001"), None);
    }
}
