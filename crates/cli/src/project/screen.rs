//! What a person sees while the steps of a project run, and what is kept of each.

use std::io::Write as _;
use std::path::PathBuf;

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::RunRecord;
use cofferdam_engine::pipeline::Recording;
use cofferdam_project::report::Counts;
use cofferdam_workshop::{Begun, Watcher, WorkError};

use crate::arguments::HistoryArgs;
use crate::config::{HistorySettings, Switch};
use crate::history;
use crate::terminal::counts_line::CountsLine;

#[derive(Debug)]
pub(super) struct Screen {
    prints: Prints,
    shows: Shows,
    args: HistoryArgs,
    data_dir: Option<PathBuf>,
    settings: HistorySettings,
}

/// What goes to standard output while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prints {
    Nothing,
    /// What a program prints is what whoever started it wants.
    AsItIs,
}

/// On standard error: standard output is for what came of it.
#[derive(Debug)]
enum Shows {
    Nothing,
    Words,
    /// A terminal.
    Line(CountsLine),
}

impl Screen {
    pub(super) fn new(
        prints: Prints,
        is_quiet: bool,
        args: HistoryArgs,
        data_dir: Option<PathBuf>,
        settings: HistorySettings,
    ) -> Self {
        let shows = match CountsLine::of_stderr() {
            _ if is_quiet => Shows::Nothing,
            // A line that is drawn would stand between what it prints.
            _ if prints == Prints::AsItIs => Shows::Words,
            Some(line) => Shows::Line(line),
            None => Shows::Words,
        };
        Self {
            prints,
            shows,
            args,
            data_dir,
            settings,
        }
    }
}

impl Watcher for Screen {
    fn recording(&self) -> Result<Option<Recording>, WorkError> {
        history::recording(&self.args, self.data_dir.clone(), &self.settings).map_err(Into::into)
    }

    fn began(&self, step: &Begun<'_>) {
        if let Shows::Line(line) = &self.shows {
            line.began(step.manifest, step.attempt, step.counts);
        }
    }

    fn said(&self, stream: Stream, bytes: &[u8]) {
        if (self.prints, stream) == (Prints::AsItIs, Stream::Stdout) {
            let mut stdout = std::io::stdout().lock();
            let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
            return;
        }
        match &self.shows {
            Shows::Nothing => {}
            // A person who has gone away is no reason to stop the tool.
            Shows::Words => drop(std::io::stderr().write_all(bytes)),
            Shows::Line(line) => line.write(bytes),
        }
    }

    fn counted(&self, counts: Counts) {
        if let Shows::Line(line) = &self.shows {
            line.counted(counts);
        }
    }

    fn ended(&self, record: &RunRecord) {
        history::tell_unrecorded(record);
        let is_kept = !self.args.no_history && self.settings.enabled.value == Switch::On;
        let kept_in = history::place(self.data_dir.clone()).filter(|_| is_kept);
        history::afterwards(record, kept_in.as_ref(), &self.settings);
    }
}
