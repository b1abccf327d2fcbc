//! The JSON Schemas of everything that travels: payload, draft, envelope and run record. Derived from the types where a type says it
//! all, and from the list of wire fields where it does not; kept as files in docs/schemas by a test.

use std::sync::OnceLock;

use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::canonical::Digest;
use crate::envelope::ResultEnvelope;
use crate::ids::ID_PATTERN;
use crate::limits::Limits;
use crate::output_class::OutputClass;
use crate::output_format;
use crate::payload::{
    DETERMINISTIC, GPUS, MAX_SCOPE_BYTES, MAX_SEED, Presence, SEED, WIRE_FIELDS, WireField,
};
use crate::problem::Problem;
use crate::record::RunRecord;
use crate::task::Task;
use crate::units::Bytes;

/// Which of the two forms of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Draft,
    Sealed,
}

/// Every schema: its file name and its text, pretty, with a newline at the end.
pub fn documents() -> Vec<(&'static str, String)> {
    vec![
        ("payload.schema.json", pretty(&payload_schema())),
        ("draft.schema.json", pretty(&draft_schema())),
        ("envelope.schema.json", pretty(&envelope_schema())),
        ("run.schema.json", pretty(&run_schema())),
    ]
}

/// A sealed payload.
pub fn payload_schema() -> Value {
    payload_form(Form::Sealed)
}

/// A payload in the making.
pub fn draft_schema() -> Value {
    payload_form(Form::Draft)
}

pub fn envelope_schema() -> Value {
    derived::<ResultEnvelope>(reader(), "ResultEnvelope", "The answer to one payload.")
}

pub fn run_schema() -> Value {
    derived::<RunRecord>(
        writer(),
        "RunRecord",
        "The record of one run, as `cofferdam run --json` prints it.",
    )
}

/// What is wrong with the shape of an envelope.
pub(crate) fn envelope_problems(value: &Value) -> Vec<Problem> {
    static VALIDATOR: OnceLock<Result<Validator, String>> = OnceLock::new();
    match VALIDATOR.get_or_init(|| output_format::compile(&envelope_schema())) {
        Ok(validator) => output_format::problems(validator, value),
        Err(reason) => vec![Problem::new("the envelope's schema", "a bug", reason)],
    }
}

fn payload_form(form: Form) -> Value {
    let mut generator = reader();
    let properties: Map<String, Value> = WIRE_FIELDS
        .iter()
        .map(|field| {
            (
                field.name.to_owned(),
                field_schema(field.name, &mut generator),
            )
        })
        .collect();
    let (title, description) = match form {
        Form::Sealed => (
            "ExecutionPayload",
            "The order for one bounded run. Sealed: `digest` is SHA-256 over the canonical JSON (RFC 8785) of all other fields.",
        ),
        Form::Draft => (
            "Draft",
            "A payload in the making; `cofferdam` fills in what is left out and seals it.",
        ),
    };
    json!({
        "$schema": DIALECT,
        "title": title,
        "description": description,
        "type": "object",
        "properties": properties,
        "required": WIRE_FIELDS.iter().filter(|field| is_required(field, form)).map(|field| field.name).collect::<Vec<_>>(),
        "additionalProperties": false,
        "$defs": generator.take_definitions(true),
    })
}

fn is_required(field: &WireField, form: Form) -> bool {
    let presence = match form {
        Form::Draft => field.draft,
        Form::Sealed => field.sealed,
    };
    presence == Presence::Required
}

fn field_schema(name: &str, generator: &mut SchemaGenerator) -> Value {
    let id = |what: &str| json!({ "description": what, "type": "string", "pattern": ID_PATTERN });
    let time = |what: &str| json!({ "description": what, "type": "string", "format": "date-time", "pattern": "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d{1,9})?Z$" });
    let flag = |what: &str| json!({ "description": what, "type": "boolean", "default": false });
    let size = |what: &str, range: crate::limits::Range<Bytes>, unit: u64, default: u64| {
        let in_units = |bytes: Bytes| fraction(bytes.get(), unit);
        json!({ "description": what, "type": "number", "minimum": in_units(range.min), "maximum": in_units(range.max), "default": default })
    };
    let seconds = |what: &str, range: crate::limits::Range<std::time::Duration>, default: u64| json!({ "description": what, "type": "number", "minimum": range.min.as_secs_f64(), "maximum": range.max.as_secs(), "default": default });
    let count = |what: &str, range: crate::limits::Range<u64>, default: u64| json!({ "description": what, "type": "integer", "minimum": range.min, "maximum": range.max, "default": default });
    match name {
        "payload_id" => id("Unique; workers answer under it."),
        "contract_id" => id("The contract that this work belongs to."),
        "scope" => json!({
            "description": "What the work is about, for people.",
            "type": "string",
            "pattern": "\\S",
            "maxLength": MAX_SCOPE_BYTES,
        }),
        "task" => generator.subschema_for::<Task>().to_value(),
        "expected_output_format" => json!({
            "description": "The JSON Schema that stdout must satisfy as JSON, or true for any output. Nothing is fetched for it.",
            "type": ["object", "boolean"],
            "default": true,
        }),
        "max_runtime_seconds" => seconds("Wall time.", Limits::WALL_TIME, 300),
        "max_cpu_seconds" => seconds("CPU time of the whole process tree.", Limits::CPU_TIME, 60),
        "max_memory_mb" => size(
            "Memory of the whole process tree, in MiB; swap is off.",
            Limits::MEMORY,
            1 << 20,
            512,
        ),
        "max_output_size_kb" => size(
            "stdout and stderr together, and the output as canonical JSON, in KiB.",
            Limits::OUTPUT,
            1 << 10,
            100,
        ),
        "max_processes" => count(
            "Processes and threads alive at once.",
            Limits::PROCESSES,
            100,
        ),
        "max_open_files" => count("Open files per process.", Limits::OPEN_FILES, 1024),
        "max_disk_mb" => size("Scratch space, in MiB.", Limits::DISK, 1 << 20, 1024),
        "max_cpus" => json!({
            "description": "How many CPUs, such as 0.5 or 2, with at most three decimals; all of them when absent.",
            "type": "number",
            "minimum": fraction(Limits::CPUS_MILLI.min.into(), 1000),
            "maximum": fraction(Limits::CPUS_MILLI.max.into(), 1000),
        }),
        "network_allowed" => flag("Whether the work may use the network."),
        "filesystem_write" => flag(
            "Whether the work may change the workspace; its scratch space it may always write to.",
        ),
        GPUS => json!({
            "description": "GPUs that the work needs: `all` that it is given, or numbers such as `0` or `0,1`. Whoever runs it says which it is given. For commands and source code.",
            "type": "string",
            "pattern": "^(all|[0-9]{1,10}(,[0-9]{1,10})*)$",
        }),
        OutputClass::FIELD => OutputClass::schema(),
        "pure" => json!({
            "description": "true: the same answer each time, so that one that is known may be given again; false: another each time. Not with network_allowed or filesystem_write.",
            "type": "boolean",
        }),
        DETERMINISTIC => flag(
            "Whether it must be run so that it gives the same each time: fixed time, seeded randomness. Not with network_allowed, and not for a project.",
        ),
        SEED => json!({
            "description": "Where randomness begins in a deterministic run; 0 when absent.",
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_SEED,
        }),
        "created_at" => time("RFC 3339, UTC."),
        "deadline" => time(
            "RFC 3339, UTC; after it nobody starts the work. created_at plus max_runtime_seconds unless given.",
        ),
        "digest" => generator.subschema_for::<Digest>().to_value(),
        // A field without a line here would be a hole in the schema; a test sees it.
        _ => json!(false),
    }
}

/// Whole numbers stay whole: `1`, not `1.0`.
fn fraction(value: u64, unit: u64) -> Value {
    if value.is_multiple_of(unit) {
        json!(value / unit)
    } else {
        json!(value as f64 / unit as f64)
    }
}

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// For what we read: fields that have a default may be left out.
fn reader() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator()
}

/// For what we write: every field is there.
fn writer() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
}

fn derived<T: JsonSchema>(generator: SchemaGenerator, title: &str, description: &str) -> Value {
    let derived = generator.into_root_schema_for::<T>().to_value();
    let mut schema = Map::new();
    // Set first, so that a reader of the file sees them first.
    for (name, text) in [
        ("$schema", DIALECT),
        ("title", title),
        ("description", description),
    ] {
        schema.insert(name.to_owned(), json!(text));
    }
    for (name, value) in derived.as_object().into_iter().flatten() {
        schema.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Value::Object(schema)
}

fn pretty(schema: &Value) -> String {
    // Alternate form is pretty-printed JSON; a Value always prints.
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;

    use super::*;
    use crate::ending::{Ending, SetupFailure, SetupFailureKind, StopCause};
    use crate::envelope::tests::{envelope, run, sealed};
    use crate::ids::Entropy;
    use crate::seal::Draft;

    fn folder() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas"))
    }

    #[test]
    fn the_files_in_docs_are_current() {
        let bless = std::env::var_os("COFFERDAM_BLESS").is_some();
        for (name, text) in documents() {
            let path = folder().join(name);
            if bless {
                std::fs::create_dir_all(folder()).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                kept == text,
                "{} is out of date; run the tests with COFFERDAM_BLESS=1",
                path.display()
            );
        }
    }

    #[test]
    fn nothing_else_lies_beside_them() {
        let names: Vec<_> = documents()
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        for entry in std::fs::read_dir(folder()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                names.contains(&name),
                "docs/schemas/{name} is generated by nobody"
            );
        }
    }

    fn valid(schema: &Value, value: &Value) -> Result<(), Vec<Problem>> {
        let validator = output_format::compile(schema).unwrap();
        match output_format::problems(&validator, value) {
            found if found.is_empty() => Ok(()),
            found => Err(found),
        }
    }

    fn seal(draft: Value) -> Result<Value, crate::problem::Problems> {
        let now = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        Ok(Draft::from_value(draft)?
            .seal(now, Entropy([3; 16]))?
            .json()
            .clone())
    }

    fn draft() -> Value {
        json!({"contract_id": "C-1", "scope": "sum", "task": {"kind": "command", "argv": ["true"]}})
    }

    #[test]
    fn every_wire_field_has_a_schema() {
        for field in &WIRE_FIELDS {
            assert_ne!(
                field_schema(field.name, &mut reader()),
                json!(false),
                "{}",
                field.name
            );
        }
    }

    #[test]
    fn real_payloads_of_every_kind_are_accepted() {
        for task in [
            json!({"kind": "command", "argv": ["a", ""], "env": {"A": "b"}, "cwd": "/work", "stdin": "x"}),
            json!({"kind": "command", "argv": ["a"], "cwd": null}),
            json!({"kind": "source", "language": "python", "code": "1"}),
            json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA=", "args": ["a"]}),
            json!({"kind": "wasm", "module_base64": "AGFzbQEAAAA="}),
            json!({"kind": "project", "action": "test"}),
        ] {
            let mut draft = draft();
            draft["task"] = task.clone();
            assert_eq!(valid(&draft_schema(), &draft), Ok(()), "{task}");
            let payload = seal(draft).unwrap();
            assert_eq!(valid(&payload_schema(), &payload), Ok(()), "{task}");
            assert_eq!(
                valid(&draft_schema(), &payload),
                Ok(()),
                "a payload can be sealed again"
            );
        }
    }

    /// The schema and the reader must refuse the same things, or a document would pass one gate and fail at the other.
    #[test]
    fn schema_and_reader_refuse_the_same() {
        for (field, value) in [
            ("payload_id", json!("../x")),
            ("payload_id", json!(1)),
            ("contract_id", json!("")),
            ("scope", json!(" ")),
            ("scope", json!(null)),
            ("task", json!({"kind": "shell"})),
            ("task", json!({"kind": "command"})),
            ("task", json!({"kind": "command", "argv": []})),
            ("task", json!({"kind": "command", "argv": "ls"})),
            (
                "task",
                json!({"kind": "command", "argv": ["a"], "shell": true}),
            ),
            (
                "task",
                json!({"kind": "source", "language": "", "code": "1"}),
            ),
            ("task", json!({"kind": "project", "action": "deploy"})),
            ("task", json!({"kind": "project", "action": "run", "x": 1})),
            ("expected_output_format", json!("{}")),
            ("expected_output_format", json!(null)),
            ("max_runtime_seconds", json!(0)),
            ("max_runtime_seconds", json!("30")),
            ("max_runtime_seconds", json!(2_592_001)),
            ("max_cpu_seconds", json!(-1)),
            ("max_memory_mb", json!(0.5)),
            ("max_memory_mb", json!(null)),
            ("max_output_size_kb", json!(0)),
            ("max_processes", json!(1.5)),
            ("max_processes", json!(0)),
            ("max_open_files", json!(7)),
            ("max_disk_mb", json!(0.01)),
            ("max_cpus", json!(0)),
            ("max_cpus", json!(5000)),
            ("network_allowed", json!("no")),
            ("filesystem_write", json!(1)),
            ("gpus", json!(0)),
            ("gpus", json!("")),
            ("gpus", json!("some")),
            ("gpus", json!("0,")),
            ("pure", json!("yes")),
            ("pure", json!(null)),
            ("deterministic", json!("yes")),
            ("deterministic", json!(null)),
            ("seed", json!(-1)),
            ("seed", json!(0.5)),
            ("seed", json!("7")),
            ("seed", json!(1_u64 << 53)),
            ("output_class", json!("loose")),
            ("output_class", json!(null)),
            ("output_class", json!({"absolute_tolerance": -1})),
            ("output_class", json!({"relative_tolerance": 1})),
            ("output_class", json!({"relative_tolerance": "0.1"})),
            ("output_class", json!({"unordered_arrays": "/a"})),
            ("output_class", json!({"unordered_arrays": ["a"]})),
            ("output_class", json!({"unordered_arrays": ["/a~2"]})),
            ("output_class", json!({"tolerance": 1})),
            ("created_at", json!("2026-01-31")),
            ("deadline", json!("2026-01-31T12:00:00+01:00")),
            ("sudo", json!(true)),
        ] {
            let mut wrong = draft();
            wrong[field] = value.clone();
            assert!(
                valid(&draft_schema(), &wrong).is_err(),
                "the schema accepts {field} = {value}"
            );
            assert!(seal(wrong).is_err(), "the reader accepts {field} = {value}");
        }
        for field in WIRE_FIELDS
            .iter()
            .filter(|field| field.sealed == Presence::Required)
        {
            let mut payload = seal(draft()).unwrap();
            payload.as_object_mut().unwrap().shift_remove(field.name);
            assert!(
                valid(&payload_schema(), &payload).is_err(),
                "{} is missing",
                field.name
            );
        }
    }

    #[test]
    fn real_envelopes_are_accepted_and_bad_ones_refused() {
        let sealed = sealed(json!(true));
        let memory = Ending::Stopped(StopCause::Memory {
            limit: Bytes::new(64 << 20),
        });
        for ending in [
            Ending::Exited { code: 0 },
            Ending::Exited { code: 1 },
            memory,
        ] {
            let envelope = envelope(&sealed, &run(ending, b"hi", b"\xff"));
            let value = serde_json::to_value(envelope).unwrap();
            assert_eq!(valid(&envelope_schema(), &value), Ok(()));
            for field in [
                "result_id",
                "status",
                "proof_of_work",
                "completed_at",
                "logs",
            ] {
                let mut missing = value.clone();
                missing.as_object_mut().unwrap().shift_remove(field);
                assert!(
                    valid(&envelope_schema(), &missing).is_err(),
                    "{field} is missing"
                );
            }
        }
    }

    #[test]
    fn real_records_are_accepted_and_bad_ones_refused() {
        let kind = SetupFailureKind::Sandbox;
        let failure = SetupFailure {
            kind,
            step: "mount".into(),
            message: "no".into(),
            errno: None,
        };
        for ending in [
            Ending::Exited { code: 0 },
            Ending::Signaled { signal: 9 },
            Ending::Stopped(StopCause::Canceled),
            Ending::Stopped(StopCause::WallTime {
                limit: std::time::Duration::from_millis(1500),
            }),
            Ending::NeverStarted(failure),
        ] {
            let record = RunRecord::new(run(ending, b"hi", b"\xff"));
            let value = serde_json::to_value(record).unwrap();
            assert_eq!(valid(&run_schema(), &value), Ok(()));
            let changes = [
                ("schema", json!("cofferdam.run/2")),
                ("ending", json!({"kind": "bored"})),
                (
                    "ending",
                    json!({"kind": "stopped", "cause": "boredom", "limit": null, "detail": ""}),
                ),
                ("stdout", json!("hi")),
                ("enforced_by", json!({"memory": "magic"})),
                ("exit_code", json!("0")),
                ("usage", json!({})),
            ];
            for (field, wrong) in changes {
                let mut changed = value.clone();
                changed[field] = wrong.clone();
                assert!(valid(&run_schema(), &changed).is_err(), "{field} = {wrong}");
            }
        }
    }
}
