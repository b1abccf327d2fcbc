//! From what was asked on the command line to what the history is asked.

use std::time::Duration;

use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::units::Cap;
use cofferdam_store::database::{Query, StatusFilter};
use cofferdam_store::model::{RunKind, Status};
use cofferdam_store::{History, RunId};
use jiff::Timestamp;

use crate::arguments::history::ListArgs;
use crate::config::spelling;
use crate::failure::Failure;
use crate::terminal::text::safe;
use crate::terminal::time;

/// As many as one looks at.
const USUAL_LIMIT: usize = 50;

/// Limits that stop a run; the others only hold it back.
const STOPPING: [LimitName; 6] = [
    LimitName::WallTime,
    LimitName::CpuTime,
    LimitName::Memory,
    LimitName::Output,
    LimitName::Processes,
    LimitName::Disk,
];

/// Ids that stand in filters are looked up first. A whole one is believed: the run may have been removed since, and what is older than it, or was started by it, is there all the same.
pub(crate) fn query(args: &ListArgs, history: &History, now: Timestamp) -> Result<Query, Failure> {
    let resolve = |asked: &Option<String>| {
        let found = asked.as_deref().map(|asked| match asked.parse() {
            Ok(id) => Ok(id),
            Err(_) => history.resolve(asked),
        });
        found.transpose()
    };
    let ids = Ids {
        parent: resolve(&args.parent)?,
        before: resolve(&args.before)?,
    };
    Ok(with_ids(args, ids, now))
}

/// The runs that filters name.
#[derive(Debug, Clone, Copy, Default)]
struct Ids {
    parent: Option<RunId>,
    before: Option<RunId>,
}

fn with_ids(args: &ListArgs, ids: Ids, now: Timestamp) -> Query {
    let has_artifacts = match (args.with_artifacts, args.without_artifacts) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    };
    Query {
        since: args.since.map(|moment| moment.resolve(now)),
        until: args.until.map(|moment| moment.resolve(now)),
        statuses: args.status.clone(),
        exit_code: args.exit_code,
        command: args.command.clone(),
        tags: args.tag.clone(),
        kind: args.kind,
        backend: args.backend.clone(),
        parent: ids.parent,
        sender: None,
        longer_than: args.longer_than,
        shorter_than: args.shorter_than,
        has_artifacts,
        before: ids.before,
        limit: args.limit.unwrap_or(USUAL_LIMIT),
    }
}

/// Whether a query asks for anything but a number of runs.
pub(crate) fn is_filtered(query: &Query) -> bool {
    let unfiltered = Query {
        limit: query.limit,
        ..Query::default()
    };
    *query != unfiltered
}

/// A status, or the limit that stopped the run. Dashes are as good as underscores.
pub(crate) fn status(text: &str) -> Result<StatusFilter, String> {
    let wanted = text.trim().to_ascii_lowercase().replace('-', "_");
    if let Some(status) = Status::ALL.into_iter().find(|s| s.as_str() == wanted) {
        return Ok(StatusFilter::Status(status));
    }
    if let Some(limit) = STOPPING.into_iter().find(|l| l.as_str() == wanted) {
        return Ok(StatusFilter::Cause(limit.as_str().to_owned()));
    }
    Err(format!(
        "there is no status `{}`; write one of {}, or a limit: {}",
        shown(text),
        Status::ALL.map(Status::as_str).join(", "),
        STOPPING.map(LimitName::as_str).join(", "),
    ))
}

pub(crate) fn kind(text: &str) -> Result<RunKind, String> {
    let found = RunKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let known = RunKind::ALL.map(RunKind::as_str).join(", ");
        format!(
            "there is no kind of run `{}`; write one of {known}",
            shown(text)
        )
    })
}

/// `KEY` or `KEY=VALUE`.
pub(crate) fn tag(text: &str) -> Result<(String, Option<String>), String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text, None),
    };
    if key.is_empty() {
        return Err("a tag needs a name; write KEY or KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), value))
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        format!(
            "`{}` is not a number of runs; write one above 0",
            shown(text)
        )
    })
}

/// How long to keep: like every limit, with weeks, and `unlimited`.
pub(crate) fn age_bound(text: &str) -> Result<Cap<Duration>, String> {
    match text.trim().strip_suffix(['w', 'W']) {
        Some(_) => match time::age(text)? {
            Duration::ZERO => spelling::duration("0s"),
            age => Ok(Cap::AtMost(age)),
        },
        None => spelling::duration(text),
    }
}

/// Messages repeat the value.
fn shown(text: &str) -> String {
    crate::terminal::text::cut(&safe(text), 60)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::history::{RunsArgs, RunsVerb};
    use crate::arguments::{Cli, Verb};

    const NOW: Timestamp = Timestamp::constant(1_763_200_000, 0);

    fn list_args(flags: &[&str]) -> Option<ListArgs> {
        let words = ["cofferdam", "runs", "list"].iter().chain(flags);
        match Cli::try_parse_from(words).ok()?.verb {
            Verb::Runs(RunsArgs {
                verb: RunsVerb::List(args),
            }) => Some(*args),
            _ => None,
        }
    }

    fn asked(flags: &[&str]) -> Option<Query> {
        list_args(flags).map(|args| with_ids(&args, Ids::default(), NOW))
    }

    #[test]
    fn every_filter_reaches_the_query() {
        let found = asked(&[
            "--since=1h",
            "--until=2025-11-15T09:00",
            "--status=timeout,memory",
            "--status=never-started",
            "--exit-code=-1",
            "--command=npm *",
            "--tag=ci",
            "--tag=branch=a=b",
            "--kind=payload",
            "--backend=native",
            "--longer-than=2s",
            "--shorter-than=10s",
            "--without-artifacts",
            "--limit=7",
        ]);
        let expected = Query {
            since: "2025-11-15T08:46:40Z".parse().ok(),
            until: "2025-11-15T09:00:00Z".parse().ok(),
            statuses: vec![
                StatusFilter::Status(Status::Timeout),
                StatusFilter::Cause("memory".to_owned()),
                StatusFilter::Status(Status::NeverStarted),
            ],
            exit_code: Some(-1),
            command: Some("npm *".to_owned()),
            tags: vec![
                ("ci".to_owned(), None),
                ("branch".to_owned(), Some("a=b".to_owned())),
            ],
            kind: Some(RunKind::Payload),
            backend: Some("native".to_owned()),
            parent: None,
            sender: None,
            longer_than: Some(Duration::from_secs(2)),
            shorter_than: Some(Duration::from_secs(10)),
            has_artifacts: Some(false),
            before: None,
            limit: 7,
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn nothing_asked_is_the_newest_fifty() {
        let query = asked(&[]).unwrap();
        assert_eq!((query.limit, is_filtered(&query)), (50, false));
        assert!(!is_filtered(&asked(&["--limit", "3"]).unwrap()));
        assert!(is_filtered(&asked(&["--with-artifacts"]).unwrap()));
        let ids = Ids {
            before: Some(RunId::floor(NOW)),
            parent: None,
        };
        let args = list_args(&["--before", "latest"]).unwrap();
        assert_eq!(args.before.as_deref(), Some("latest"));
        assert_eq!(with_ids(&args, ids, NOW).before, ids.before);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for flags in [
            &["--status", "sad"][..],
            &["--status", ""],
            &["--kind", "x"],
            &["--tag", "=v"],
            &["--limit", "0"],
            &["--limit", "-1"],
            &["--since", "yesterday"],
            &["--longer-than", "x"],
            &["--exit-code", "zero"],
            &["--with-artifacts", "--without-artifacts"],
            &["surplus"],
        ] {
            assert_eq!(asked(flags), None, "{flags:?}");
        }
        assert!(status("sad\u{1b}[2J").unwrap_err().contains("wall_time"));
        assert!(!status("sad\u{1b}[2J").unwrap_err().contains('\u{1b}'));
        assert!(status(&"x".repeat(1 << 20)).unwrap_err().len() < 400);
    }

    #[test]
    fn weeks_are_an_age() {
        let week = Duration::from_secs(7 * 86_400);
        assert_eq!(age_bound("1w"), Ok(Cap::AtMost(week)));
        assert_eq!(age_bound("unlimited"), Ok(Cap::Unlimited));
        assert_eq!(age_bound("7d"), Ok(Cap::AtMost(week)));
        assert!(age_bound("0w").is_err());
        assert!(age_bound("xw").is_err());
    }
}
