//! A pool in a directory of its own, and how the tests run things in it.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::{Interpreter, Way};
use cofferdam_engine::pipeline::{self, Evidence, Streams};
use cofferdam_engine::pool::{Pool, PoolBounds, Private, Seat};
use cofferdam_store::DataDir;

pub(crate) struct Place {
    // First, so that nothing of it is in use when the directory goes.
    pub(crate) pool: Pool,
    pub(crate) host: Arc<Host>,
    pub(crate) data: DataDir,
    _dir: tempfile::TempDir,
}

pub(crate) fn place(bounds: PoolBounds) -> Result<Place, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let host = Arc::new(Host::detect());
    let data = DataDir::at(dir.path().join("data"));
    let pool = Pool::start(
        Arc::clone(&host),
        data.clone(),
        bounds,
        vec![python(), Interpreter::python()],
    );
    Ok(Place {
        pool: pool.ok_or("no pool")?,
        host,
        data,
        _dir: dir,
    })
}

pub(crate) fn request(script: &str, limits: Limits) -> Request {
    Request {
        limits,
        ..Request::command(["/bin/sh", "-c", script])
    }
}

impl Place {
    /// Asks until a sandbox is there.
    pub(crate) fn seat(&self, request: &Request, private: Private) -> Result<Seat, String> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(seat) = self.pool.seat(request, Evidence::Full, private) {
                return Ok(seat);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("no sandbox came: {:?}", self.pool.figures()))
    }

    pub(crate) fn run(
        &self,
        seat: Option<Seat>,
        request: Request,
    ) -> Result<RunRecord, Box<dyn Error>> {
        let streams = Streams {
            result: Some(1000),
            evidence: Evidence::Full,
            ..Streams::kept(1 << 20)
        };
        let grant = Grant::new(request)?;
        Ok(pipeline::run_in(seat.into(), grant, streams, &self.host)?)
    }

    pub(crate) fn run_seated(
        &self,
        script: &str,
        limits: Limits,
    ) -> Result<RunRecord, Box<dyn Error>> {
        let request = request(script, limits);
        let seat = self.seat(&request, Private::Nothing)?;
        self.run(Some(seat), request)
    }
}

pub(crate) fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|found| {
            found
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Kills a process, and returns when the kernel has ended it.
pub(crate) fn kill_and_wait(pid: &str) {
    let number = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    let Some(number) = number else { return };
    let _ = rustix::process::kill_process(number, rustix::process::Signal::KILL);
    let is_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ") || stat.contains(") X "))
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !is_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn assert_nothing_is_left(data: &DataDir) {
    assert_eq!(children(), Vec::<String>::new());
    if let Ok(entries) = std::fs::read_dir(data.work()) {
        assert_eq!(entries.count(), 0);
    }
}

/// As the daemon keeps it.
pub(crate) fn python() -> Interpreter {
    Interpreter {
        name: "python3".to_owned(),
        way: Way::Copy,
        env: PYTHON_ENV
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        preload: vec!["json".to_owned(), "random".to_owned()],
        scripts: vec![("/work/main.py".to_owned(), KNOWN.to_owned())],
    }
}

/// A script that is compiled ahead.
pub(crate) const KNOWN: &str = "print('known')\n";

pub(crate) const PYTHON_ENV: [(&str, &str); 3] = [
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONUTF8", "1"),
    ("PYTHONUNBUFFERED", "1"),
];

pub(crate) const ROOMY: PoolBounds = PoolBounds {
    most: 4,
    fresh_for: Duration::from_secs(60),
    idle_for: Duration::from_secs(60),
};
