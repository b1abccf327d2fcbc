//! A report that is written into a file while tests run, counted as it grows. The file is a stranger's: opened beneath the directory that is held, without following a link.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_project::Beneath;
use cofferdam_project::report::{MAX_REPORT, Tally};

use crate::watcher::Watcher;

const EVERY: Duration = Duration::from_millis(100);

/// Looks until it goes, and once more then.
#[derive(Debug)]
pub(crate) struct Follow {
    stop: Option<Sender<()>>,
    looker: Option<JoinHandle<()>>,
}

impl Follow {
    pub(crate) fn begin(
        dir: &Path,
        name: &str,
        tally: Tally,
        to: Arc<dyn Watcher>,
    ) -> std::io::Result<Self> {
        let dir = Beneath::open(dir)?;
        let name = name.to_owned();
        let (stop, stopped) = mpsc::channel();
        let looker = std::thread::Builder::new()
            .name("follow".to_owned())
            .spawn(move || {
                let mut reader = Reader {
                    dir,
                    name,
                    file: None,
                    read: 0,
                    tally,
                };
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                    reader.look(&*to);
                }
                reader.look(&*to);
            })?;
        Ok(Self {
            stop: Some(stop),
            looker: Some(looker),
        })
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(looker) = self.looker.take() {
            let _ = looker.join();
        }
    }
}

struct Reader {
    dir: Beneath,
    name: String,
    file: Option<File>,
    read: u64,
    tally: Tally,
}

impl Reader {
    fn look(&mut self, to: &dyn Watcher) {
        if self.file.is_none() {
            self.file = self.dir.file(&self.name).ok();
        }
        let Some(file) = &mut self.file else {
            return;
        };
        let before = self.tally.counts();
        let mut piece = vec![0; 64 << 10];
        while self.read < MAX_REPORT {
            match file.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    self.read += u64::try_from(read).unwrap_or(u64::MAX);
                    self.tally.push(piece.get(..read).unwrap_or_default());
                }
            }
        }
        if self.tally.counts() != before {
            to.counted(self.tally.counts());
        }
    }
}
