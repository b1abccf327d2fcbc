//! A run that is over, as its caller saw it.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;

/// What `cofferdam` returned and printed.
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// With `--json`.
    pub record: Option<Value>,
    /// From the start of the process until its end was seen.
    pub wall: Duration,
}

impl Finished {
    /// The exit code; panics when a signal ended `cofferdam` itself.
    #[track_caller]
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => panic!(
                "signal {:?} ended cofferdam itself: {self:#?}",
                self.status.signal()
            ),
        }
    }

    /// What the program wrote to stdout: from the record if there is one.
    #[track_caller]
    pub fn out(&self) -> String {
        self.stream("stdout", &self.stdout)
    }

    #[track_caller]
    pub fn err(&self) -> String {
        self.stream("stderr", &self.stderr)
    }

    fn stream(&self, name: &str, passed: &[u8]) -> String {
        match &self.record {
            Some(record) => record[name]["data"].as_str().unwrap_or_default().to_owned(),
            None => String::from_utf8_lossy(passed).into_owned(),
        }
    }

    #[track_caller]
    pub fn record(&self) -> &Value {
        match &self.record {
            Some(record) => record,
            None => panic!("no record was printed: {self:#?}"),
        }
    }

    /// `exited`, `signaled`, `never_started`, or the cause of a stop.
    #[track_caller]
    pub fn ending(&self) -> &str {
        let ending = &self.record()["ending"];
        ending["cause"]
            .as_str()
            .or(ending["kind"].as_str())
            .unwrap_or_default()
    }

    #[track_caller]
    pub fn enforced_by(&self, limit: &str) -> &str {
        self.record()["enforced_by"][limit]
            .as_str()
            .unwrap_or_default()
    }

    #[track_caller]
    pub fn usage(&self, figure: &str) -> f64 {
        let value = &self.record()["usage"][figure];
        value
            .as_f64()
            .unwrap_or_else(|| panic!("usage.{figure} is {value}: {self:#?}"))
    }

    /// How often each call was refused: `ptrace` → 2.
    #[track_caller]
    pub fn denied(&self, what: &str) -> u64 {
        let denials = self.record()["denials"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        denials
            .iter()
            .filter(|denial| denial["what"] == what)
            .filter_map(|denial| denial["count"].as_u64())
            .sum()
    }

    /// What a verb printed with `--json`.
    #[track_caller]
    pub fn told(&self) -> Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:#?}"),
        }
    }

    /// The members of a list in what a verb printed with `--json`.
    #[track_caller]
    pub fn told_list(&self, name: &str) -> Vec<Value> {
        match self.told().get_mut(name).map(Value::take) {
            Some(Value::Array(members)) => members,
            _ => panic!("no list `{name}`: {self:#?}"),
        }
    }

    /// The program ended by itself with 0.
    #[track_caller]
    pub fn assert_success(&self) -> &Self {
        assert_eq!(self.code(), 0, "{self:#?}");
        if self.record.is_some() {
            assert_eq!(self.ending(), "exited", "{self:#?}");
        }
        self
    }

    /// The limit fired: cause, exit code, and the line that names limit, value and flag.
    #[track_caller]
    pub fn assert_stopped(&self, cause: &str, code: i32, detail: &str) -> &Self {
        assert_eq!(self.ending(), cause, "{self:#?}");
        assert_eq!(self.code(), code, "{self:#?}");
        assert_eq!(self.record()["ending"]["detail"], detail, "{self:#?}");
        assert_eq!(self.record()["exit_code"], Value::Null, "{self:#?}");
        self
    }

    /// `cofferdam` refused or failed: each line on stderr begins with its name and ends with the code, nothing is on stdout.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, error: &str) -> &Self {
        let text = String::from_utf8_lossy(&self.stderr);
        assert_eq!(self.code(), code, "{self:#?}");
        assert!(!text.is_empty(), "nothing was said: {self:#?}");
        let ending = format!(" [{error}]");
        for line in text.lines() {
            assert!(
                line.starts_with("cofferdam: ") && line.ends_with(&ending),
                "a line that is not ours: {line:?}\n{self:#?}"
            );
        }
        assert!(!text.contains("panicked"), "{self:#?}");
        assert_eq!(String::from_utf8_lossy(&self.stdout), "", "{self:#?}");
        self
    }
}

/// For the message of a test that failed: everything, but no flood.
impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {:?}", self.status, self.wall)?;
        match &self.record {
            None => writeln!(
                f,
                "stdout: {}",
                shorten(&String::from_utf8_lossy(&self.stdout))
            )?,
            Some(record) => {
                let mut record = record.clone();
                for stream in ["stdout", "stderr"] {
                    if let Some(Value::String(data)) = record[stream].get_mut("data") {
                        *data = shorten(data);
                    }
                }
                writeln!(f, "{record}")?;
            }
        }
        write!(
            f,
            "stderr: {}",
            shorten(&String::from_utf8_lossy(&self.stderr))
        )
    }
}

fn shorten(text: &str) -> String {
    const KEEP: usize = 1500;
    match text.char_indices().nth(KEEP) {
        Some((cut, _)) => format!("{}… ({} bytes)", &text[..cut], text.len()),
        None => text.to_owned(),
    }
}
