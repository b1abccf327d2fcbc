//! `cofferdam runs list`.

use std::process::ExitCode;

use cofferdam_store::database::{Page, Query, RunSummary};
use cofferdam_store::model::Status;
use jiff::Timestamp;
use serde_json::json;

use super::{Kept, filters, open_history, words};
use crate::arguments::history::ListArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::colour::{Colour, Paint};
use crate::terminal::output::{self, Document};
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::{cut, safe};
use crate::terminal::time;

pub(crate) const SCHEMA: &str = "cofferdam.runs/1";

/// Wider tags are cut where anything is.
const TAGS_WIDTH: usize = 24;

pub(crate) fn list(args: &ListArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let now = Timestamp::now();
    let history = open_history(kept)?;
    let query = filters::query(args, &history, now)?;
    if args.count {
        let count = history.count(&query)?;
        failure::print(&counted(args, count)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let page = history.list(&query)?;
    if page.runs.is_empty() {
        output::note(nothing(&query));
    }
    let target = Target::of_stdout();
    failure::print(&rendered(args, &page, now, target)?)?;
    if let Some(more) = more(&page).filter(|_| target.is_terminal() && !args.json) {
        output::note(&more);
    }
    Ok(ExitCode::SUCCESS)
}

fn counted(args: &ListArgs, count: u64) -> Result<String, Failure> {
    if args.json {
        pretty(&json!({"schema": SCHEMA, "count": count}))
    } else {
        Ok(format!("{count}\n"))
    }
}

fn rendered(
    args: &ListArgs,
    page: &Page,
    now: Timestamp,
    target: Target,
) -> Result<String, Failure> {
    if args.json {
        return pretty(&Document {
            schema: SCHEMA,
            content: page,
        });
    }
    if page.runs.is_empty() {
        return Ok(String::new());
    }
    let columns = target.columns().filter(|_| !args.no_truncate);
    Ok(table(&page.runs, now, columns).render(columns, Paint::of(args.color, target)))
}

fn nothing(query: &Query) -> &'static str {
    if filters::is_filtered(query) {
        "no runs match"
    } else {
        "no runs yet; `cofferdam run -- …` makes one"
    }
}

fn more(page: &Page) -> Option<String> {
    let next = page.next?;
    let shown = page.runs.len();
    Some(format!(
        "{shown} shown; for older ones, add --before {next}"
    ))
}

const fn column(title: &'static str, align: Align, room: Room) -> Column {
    Column { title, align, room }
}

fn table(runs: &[RunSummary], now: Timestamp, columns: Option<usize>) -> Table {
    let mut table = Table::new(&[
        column("ID", Align::Left, Room::Fixed),
        column("STATUS", Align::Left, Room::Fixed),
        column("EXIT", Align::Right, Room::Drops(2)),
        column("STARTED", Align::Left, Room::Drops(4)),
        column("TOOK", Align::Right, Room::Drops(3)),
        column("FILES", Align::Right, Room::Drops(1)),
        column("TAGS", Align::Left, Room::Drops(0)),
        column("COMMAND", Align::Left, Room::Rest),
    ]);
    for run in runs {
        table.row(row(run, now, columns));
    }
    table
}

fn row(run: &RunSummary, now: Timestamp, columns: Option<usize>) -> Vec<Cell> {
    let status = words::status(run.status, run.cause.as_deref());
    let tags = tags(run);
    let tags = match columns {
        Some(_) => cut(&tags, TAGS_WIDTH),
        None => tags,
    };
    let files = match run.artifacts {
        0 => "-".to_owned(),
        files => files.to_string(),
    };
    vec![
        Cell::coloured(safe(&run.short_id), Colour::Cyan),
        Cell::coloured(status, words::colour(run.status)),
        Cell::new(words::exit(run.exit_code, run.signal.as_deref())),
        Cell::new(time::ago(run.started_at, now)),
        Cell::new(took(run, now)),
        Cell::new(files),
        Cell::new(tags),
        Cell::new(safe(&run.command)),
    ]
}

/// Of a run that goes on, so far.
fn took(run: &RunSummary, now: Timestamp) -> String {
    let so_far = || {
        let elapsed = now.duration_since(run.started_at).as_millis_f64();
        (run.status == Status::Running).then_some(elapsed)
    };
    let ms = run.duration_ms.or_else(so_far);
    ms.map_or_else(|| "-".to_owned(), amount::milliseconds)
}

fn tags(run: &RunSummary) -> String {
    if run.tags.is_empty() {
        return "-".to_owned();
    }
    let pair = |(key, value): (&String, &String)| match value.as_str() {
        "" => safe(key),
        value => format!("{}={}", safe(key), safe(value)),
    };
    let pairs: Vec<String> = run.tags.iter().map(pair).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample::{self, NOW};
    use crate::terminal::colour::When;
    use crate::terminal::size::Window;

    fn page() -> Page {
        let mut running = sample::summary(&sample::running(), "sleep 100");
        running.tags.clear();
        Page {
            runs: vec![
                running,
                sample::summary(&sample::out_of_memory(), "python3 -c 'x = [0] * 10**9'"),
                sample::summary(&sample::exited(3), "evil \u{1b}[2J\nname"),
            ],
            next: Some(sample::id(1)),
        }
    }

    fn shown(args: &ListArgs, columns: Option<usize>) -> String {
        let target = columns.map_or(Target::Pipe, |columns| {
            Target::Terminal(Window { columns, rows: 24 })
        });
        let args = ListArgs {
            color: When::Never,
            ..clone(args)
        };
        rendered(&args, &page(), NOW, target).unwrap_or_default()
    }

    fn clone(args: &ListArgs) -> ListArgs {
        ListArgs {
            json: args.json,
            no_truncate: args.no_truncate,
            ..ListArgs::default()
        }
    }

    const WIDE: &str = "\
ID             STATUS          EXIT  STARTED         TOOK  FILES  TAGS         COMMAND
019a86e8-e000  running            -  3 min ago  3 min 0 s      -  -            sleep 100
019a86e8-e000  limit (memory)     -  3 min ago     1.23 s      1  branch=main  python3 -c 'x = [0] * 10**9'
019a86e8-e000  failure            3  3 min ago     1.23 s      1  branch=main  evil \\u{1b}[2J\\nname
";

    #[test]
    fn a_pipe_gets_everything_aligned() {
        assert_eq!(shown(&ListArgs::default(), None), WIDE);
        let no_truncate = ListArgs {
            no_truncate: true,
            ..ListArgs::default()
        };
        assert_eq!(shown(&no_truncate, Some(40)), WIDE);
    }

    #[test]
    fn a_narrow_terminal_cuts_the_command_and_then_drops_columns() {
        let shown = |columns| shown(&ListArgs::default(), Some(columns));
        assert!(shown(100).lines().all(|line| line.chars().count() <= 100));
        assert!(
            shown(100).contains("python3 -c 'x = [0] …"),
            "{}",
            shown(100)
        );
        for (columns, gone, left) in [
            (92, "TAGS", "FILES"),
            (80, "FILES", "EXIT"),
            (75, "EXIT", "TOOK"),
            (65, "TOOK", "STARTED"),
            (55, "STARTED", "STATUS"),
        ] {
            let text = shown(columns);
            assert!(
                !text.contains(gone) && text.contains(left),
                "{columns}:\n{text}"
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= columns),
                "{text}"
            );
        }
        assert!(shown(20).contains("running"));
    }

    #[test]
    fn statuses_are_coloured() {
        let args = ListArgs {
            color: When::Always,
            ..ListArgs::default()
        };
        let text = rendered(&args, &page(), NOW, Target::Pipe).unwrap();
        assert!(text.contains("\u{1b}[34mrunning\u{1b}[0m"));
        assert!(text.contains("\u{1b}[33mlimit (memory)\u{1b}[0m"));
        assert!(text.contains("\u{1b}[31mfailure\u{1b}[0m"));
    }

    #[test]
    fn json_has_a_schema_and_exact_times() {
        let args = ListArgs {
            json: true,
            ..ListArgs::default()
        };
        let json: serde_json::Value = serde_json::from_str(&shown(&args, None)).unwrap();
        assert_eq!(json["schema"], "cofferdam.runs/1");
        assert_eq!(json["runs"][1]["cause"], "memory");
        assert_eq!(json["runs"][1]["started_at"], "2025-11-15T09:46:40Z");
        assert_eq!(json["next"], sample::id(1).to_string());
        let empty = Page {
            runs: Vec::new(),
            next: None,
        };
        let json = rendered(&args, &empty, NOW, Target::Pipe).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["runs"], json!([]));
        assert_eq!(json["next"], json!(null));
    }

    #[test]
    fn nothing_and_more_are_said() {
        let filtered = Query {
            exit_code: Some(0),
            ..Query::default()
        };
        assert_eq!(nothing(&filtered), "no runs match");
        assert!(nothing(&Query::default()).contains("cofferdam run"));
        let more = more(&page()).unwrap();
        assert!(more.starts_with("3 shown") && more.contains(&sample::id(1).to_string()));
        let json = ListArgs {
            json: true,
            ..ListArgs::default()
        };
        assert_eq!(
            counted(&ListArgs::default(), 7).ok().as_deref(),
            Some("7\n")
        );
        assert!(counted(&json, 7).is_ok_and(|text| text.contains("\"count\": 7")));
    }
}
