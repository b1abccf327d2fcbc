//! A server, and processes that take part in a fleet.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::Desk;
use cofferdam_testkit::desk::json as read;
use cofferdam_testkit::nats::Nats;
use cofferdam_testkit::shape;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// How long a worker may be silent: longer than it is on a machine that does much else. Work that a test looks at while it is done takes longer than this.
pub(crate) const SILENCE: &str = "8s";

/// A process that goes with the test.
pub(crate) struct Guest(pub(crate) Child);

impl Guest {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Field {
    pub(crate) desk: Desk,
    pub(crate) nats: Nats,
}

impl Field {
    pub(crate) fn new(desk: Desk, silence: &str, more: &[&str]) -> Option<Self> {
        Some(Self::with(desk, Nats::start()?, silence, more))
    }

    pub(crate) fn with(desk: Desk, nats: Nats, silence: &str, more: &[&str]) -> Self {
        let field = Self { desk, nats };
        let url = field.nats.url();
        let quick = [
            "fleet",
            "--nats",
            &url,
            "init",
            "--grace",
            "1s",
            "--heartbeat-timeout",
            silence,
        ];
        field.desk.ok(&[&quick, more].concat());
        field
    }

    pub(crate) fn worker(&self, name: &str) -> Guest {
        self.spawned(name, self.desk.command())
    }

    /// Started by something else, which becomes it.
    pub(crate) fn worker_by(&self, name: &str, starter: &mut Command) -> Guest {
        let own = self.desk.command();
        let mut command = Command::new(starter.get_program());
        command.args(starter.get_args()).arg(own.get_program());
        command.env_clear();
        for (variable, value) in own.get_envs() {
            command.env(variable, value.unwrap_or_default());
        }
        command.current_dir(self.desk.root()).stdin(Stdio::null());
        self.spawned(name, command)
    }

    fn spawned(&self, name: &str, mut command: Command) -> Guest {
        let url = self.nats.url();
        command.args(["worker", "--nats", &url, "--name", name, "--slots", "1"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Guest(command.spawn().unwrap())
    }

    /// With these many workers ready.
    pub(crate) fn ready(&self, count: u64) {
        self.until("the workers are ready", || {
            self.fleet(&["status", "--json"])["workers_ready"] == count
        });
    }

    pub(crate) fn fleet(&self, args: &[&str]) -> Value {
        let url = self.nats.url();
        let done = self.desk.run([&["fleet", "--nats", &url], args].concat());
        shape::read(&[&["fleet"], args].concat(), &done.stdout).unwrap_or(Value::Null)
    }

    pub(crate) fn submit(&self, payload: &Path, more: &[&str]) -> Command {
        let mut command = self.desk.command();
        command
            .arg("submit")
            .arg(payload)
            .args(["--fleet", &self.nats.url(), "--json"])
            .args(more);
        command
    }

    /// What came of a payload, when it has ended.
    pub(crate) fn wait_for(&self, payload: &Path) -> (i32, Value) {
        let done = self.submit(payload, &["--wait"]).output().unwrap();
        read(&done)
    }

    pub(crate) fn until(&self, what: &str, so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so() {
            assert!(
                Instant::now() < deadline,
                "{what}: not in time; {}",
                self.fleet(&["status", "--json"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Who holds the first slot of a job.
    pub(crate) fn holder(&self, job: &str) -> Option<String> {
        let about = self.fleet(&["jobs", job, "--json"]);
        Some(
            about["claims"][0][1]["state"]["held"]["worker"]
                .as_str()?
                .to_owned(),
        )
    }
}

pub(crate) fn shell(id: &str, script: &str) -> Value {
    json!({
        "payload_id": id, "contract_id": "CONTRACT-1", "scope": "a test", "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/sh", "-c", script]},
    })
}
