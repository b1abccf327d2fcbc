//! `cofferdam runs diff`: two runs compared, on a page or as JSON. 0 when they are the same, 1 when they differ, 2 when one is not found.

use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_store::{History, RunId, StoreError};
use cofferdam_workshop::TestsDiff;

use super::compare::{self, Artifacts, Comparison, Figure, Names, Scope, Side, Unit};
use super::unified::{LineKind, NotShown, StreamDiff};
use super::{Kept, open_history};
use crate::arguments::history::DiffArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::colour::{Colour, Paint};
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::{safe, safe_bytes};
use crate::terminal::time;

const EXIT_NOT_FOUND: u8 = 2;

pub(crate) fn diff(args: &DiffArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let history = open_history(kept)?;
    let (a, b) = match both(&history, args) {
        Ok(ids) => ids,
        Err(error) => return not_found(error),
    };
    let (left, right) = (history.get(a)?, history.get(b)?);
    let (left_output, right_output) = (history.output(a)?, history.output(b)?);
    let comparison = compare::compare(
        Side {
            run: &left,
            output: &left_output,
        },
        Side {
            run: &right,
            output: &right_output,
        },
        Scope::of(args),
        args.context,
    );
    let target = Target::of_stdout();
    failure::print(&if args.json {
        pretty(&comparison)?
    } else {
        page(&comparison, Paint::of(args.color, target))
    })?;
    Ok(ExitCode::from(u8::from(!comparison.same)))
}

fn both(history: &History, args: &DiffArgs) -> Result<(RunId, RunId), StoreError> {
    Ok((history.resolve(&args.a)?, history.resolve(&args.b)?))
}

/// As `diff` and `cmp` do: trouble is not a difference.
fn not_found(error: StoreError) -> Result<ExitCode, Failure> {
    let is_unknown = matches!(
        error,
        StoreError::NoSuchRun { .. } | StoreError::Ambiguous { .. }
    );
    let failure = Failure::from(error);
    if is_unknown {
        let _ = failure.report();
        Ok(ExitCode::from(EXIT_NOT_FOUND))
    } else {
        Err(failure)
    }
}

fn page(comparison: &Comparison, paint: Paint) -> String {
    let mut text = String::new();
    heads(&mut text, comparison, paint);
    if let Some(names) = comparison.environment.as_ref().filter(|n| !n.is_empty()) {
        environment(&mut text, names, paint);
    }
    if let Some(found) = comparison.artifacts.as_ref().filter(|a| !a.is_empty()) {
        artifacts(&mut text, found, paint);
    }
    if let Some(found) = &comparison.tests {
        tests(&mut text, found, paint);
    }
    for (name, diff) in [
        ("stdout", &comparison.stdout),
        ("stderr", &comparison.stderr),
    ] {
        let Some(diff) = diff else {
            continue;
        };
        if !diff.same {
            stream(&mut text, name, diff, comparison, paint);
        }
        not_kept(&mut text, name, diff);
    }
    usage(&mut text, &comparison.usage, paint);
    let sum = if comparison.same {
        paint.paint(Colour::Green, "the same")
    } else {
        let differences = comparison.differences.join(", ");
        paint.paint(Colour::Yellow, &format!("differ in {differences}"))
    };
    let _ = writeln!(text, "\n{sum}");
    text
}

/// Both runs; what they agree in is said once.
fn heads(text: &mut String, comparison: &Comparison, paint: Paint) {
    for (sign, colour, about) in [
        ('-', Colour::Red, &comparison.a),
        ('+', Colour::Green, &comparison.b),
    ] {
        let id = format!("{sign} {}", about.run_id);
        let at = time::exact(about.started_at);
        let _ = writeln!(text, "{}  {at}", paint.paint(colour, &id));
        let _ = writeln!(text, "    {}", safe(&about.command));
        let _ = writeln!(text, "    {}", safe(&about.ending));
    }
}

fn environment(text: &mut String, names: &Names, paint: Paint) {
    title(text, "ENVIRONMENT", paint);
    signed(text, '-', names.removed.iter(), paint);
    signed(text, '+', names.added.iter(), paint);
}

fn artifacts(text: &mut String, found: &Artifacts, paint: Paint) {
    title(text, "ARTIFACTS", paint);
    signed(text, '-', found.removed.iter(), paint);
    signed(text, '+', found.added.iter(), paint);
    signed(text, '~', found.changed.iter().map(|c| &c.path), paint);
}

fn tests(text: &mut String, found: &TestsDiff, paint: Paint) {
    if found.is_empty() && found.slower.is_empty() {
        return;
    }
    title(text, "TESTS", paint);
    let mut list = |what: &str, names: &[String], colour| {
        for name in names {
            let line = format!("{what:13}  {}", safe(name));
            let _ = writeln!(text, "  {}", paint.paint(colour, &line));
        }
    };
    list("newly failing", &found.newly_failing, Colour::Red);
    list("fixed", &found.fixed, Colour::Green);
    list("added", &found.added, Colour::Green);
    list("removed", &found.removed, Colour::Red);
    let slower = found.slower.iter().map(|slower| {
        let (a, b) = (
            amount::milliseconds(slower.a_ms),
            amount::milliseconds(slower.b_ms),
        );
        format!("{}: {a} → {b}", slower.name)
    });
    list("slower", &slower.collect::<Vec<_>>(), Colour::Yellow);
}

fn title(text: &mut String, title: &str, paint: Paint) {
    let _ = writeln!(text, "\n{}", paint.paint(Colour::Bold, title));
}

fn signed<'a>(
    text: &mut String,
    sign: char,
    names: impl Iterator<Item = &'a String>,
    paint: Paint,
) {
    let colour = match sign {
        '-' => Colour::Red,
        '+' => Colour::Green,
        _ => Colour::Yellow,
    };
    for name in names {
        let line = format!("{sign} {}", safe(name));
        let _ = writeln!(text, "  {}", paint.paint(colour, &line));
    }
}

/// A unified diff; everything in it is safe to show.
fn stream(text: &mut String, name: &str, diff: &StreamDiff, comparison: &Comparison, paint: Paint) {
    text.push('\n');
    if let Some(why) = diff.not_shown {
        let (a, b) = (amount::bytes(diff.a_bytes), amount::bytes(diff.b_bytes));
        let why = match why {
            NotShown::Binary => "binary",
            NotShown::TooLarge => "too large to compare line by line",
            NotShown::TooSlow => "too different to compare line by line",
            NotShown::NotText => "in bytes that are not text",
        };
        let _ = writeln!(text, "{name}: differ, {a} and {b} ({why})");
        return;
    }
    for (mark, about) in [("---", &comparison.a), ("+++", &comparison.b)] {
        let header = format!("{mark} {}/{name}", about.run_id);
        let _ = writeln!(text, "{}", paint.paint(Colour::Bold, &header));
    }
    for hunk in &diff.hunks {
        let _ = writeln!(text, "{}", paint.paint(Colour::Cyan, &hunk.header));
        for line in &hunk.lines {
            let shown = safe_bytes(line.text.as_bytes());
            let shown = match line.kind {
                LineKind::Same => format!(" {shown}"),
                LineKind::Removed => paint.paint(Colour::Red, &format!("-{shown}")),
                LineKind::Added => paint.paint(Colour::Green, &format!("+{shown}")),
            };
            let _ = writeln!(text, "{shown}");
            if !line.newline {
                text.push_str("\\ No newline at end of output\n");
            }
        }
    }
}

/// Nobody may take what is left for the whole.
fn not_kept(text: &mut String, name: &str, diff: &StreamDiff) {
    if diff.a_not_kept > 0 || diff.b_not_kept > 0 {
        let bytes = amount::bytes;
        let (a, b) = (bytes(diff.a_not_kept), bytes(diff.b_not_kept));
        let _ = writeln!(
            text,
            "\n{name}: {a} and {b} were not kept and are not compared"
        );
    }
}

fn usage(text: &mut String, figures: &[Figure], paint: Paint) {
    const fn column(title: &'static str, align: Align) -> Column {
        Column {
            title,
            align,
            room: Room::Fixed,
        }
    }
    let mut table = Table::new(&[
        column("USAGE", Align::Left),
        column("A", Align::Right),
        column("B", Align::Right),
        column("CHANGE", Align::Right),
    ]);
    for figure in figures {
        if figure.a.is_none() && figure.b.is_none() {
            continue;
        }
        let change = figure.change_percent.map(amount::percent);
        table.row(vec![
            Cell::new(figure.name.replace('_', " ")),
            Cell::new(value(figure.a, figure.unit)),
            Cell::new(value(figure.b, figure.unit)),
            Cell::new(change.unwrap_or_else(|| "-".to_owned())),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render(None, paint));
}

fn value(value: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    match unit {
        Unit::Milliseconds => amount::milliseconds(value),
        Unit::Bytes => amount::bytes_of(value),
        Unit::Number => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::model::{Outcome, StoredRun};

    use super::*;
    use crate::runs::sample::{self, err, out};

    fn compared(a: &StoredRun, b: &StoredRun) -> Comparison {
        let left = [out(0, b"one\ntwo\n"), err(1, b"same\n")];
        let right = [out(0, b"one\n\x1b[2Jtoo"), err(1, b"sa"), err(2, b"me\n")];
        let side = |run, output| Side { run, output };
        compare::compare(side(a, &left), side(b, &right), Scope::Everything, 3)
    }

    fn other() -> StoredRun {
        let mut b = sample::exited(3);
        b.opening.run_id = sample::id(2);
        b.opening.environment = vec!["LANG".to_owned(), "NEW".to_owned()];
        if let Outcome::Ended(closing) = &mut b.outcome {
            closing.usage.wall_ms = 1851.0;
            closing.artifacts = vec![
                sample::artifact("dist/app.js", b"2"),
                sample::artifact("evil\u{1b}", b""),
            ];
        }
        b
    }

    #[test]
    fn differences_are_told_whole() {
        let text = page(&compared(&sample::exited(0), &other()), Paint::Plain);
        let expected = "\
- 019a86e8-e000-7000-8000-000000000001  2025-11-15T09:46:40.000Z
    sh -c 'make all'
    exited with code 0
+ 019a86e8-e000-7000-8000-000000000002  2025-11-15T09:46:40.000Z
    sh -c 'make all'
    exited with code 3

ENVIRONMENT
  - CI
  + NEW

ARTIFACTS
  + evil\\u{1b}
  ~ dist/app.js

--- 019a86e8-e000-7000-8000-000000000001/stdout
+++ 019a86e8-e000-7000-8000-000000000002/stdout
@@ -1,2 +1,2 @@
 one
-two
+\\u{1b}[2Jtoo
\\ No newline at end of output

USAGE                A       B   CHANGE
duration        1.23 s  1.85 s  +50.0 %
cpu             900 ms  900 ms     same
memory peak     12 MiB  12 MiB     same
processes peak       7       7     same
output           2 KiB   2 KiB     same

differ in ending, stdout, environment, artifacts
";
        assert_eq!(text, expected);
    }

    #[test]
    fn colour_changes_nothing_that_is_said() {
        let comparison = compared(&sample::exited(0), &other());
        let mut coloured = page(&comparison, Paint::Colour);
        for code in [1, 31, 32, 33, 36, 0] {
            let code = format!("\u{1b}[{code}m");
            assert!(coloured.contains(&code), "{code:?}");
            coloured = coloured.replace(&code, "");
        }
        assert_eq!(coloured, page(&comparison, Paint::Plain));
    }

    #[test]
    fn the_same_is_said_with_its_usage() {
        let run = sample::exited(0);
        let output = [out(0, b"x\n")];
        let side = Side {
            run: &run,
            output: &output,
        };
        let text = page(
            &compare::compare(side, side, Scope::Everything, 3),
            Paint::Plain,
        );
        assert!(text.ends_with("\nthe same\n"), "{text}");
        assert!(!text.contains("@@") && text.contains("duration"), "{text}");
    }

    #[test]
    fn what_is_not_kept_is_not_called_the_same_in_silence() {
        let mut run = sample::exited(0);
        run.log.stderr.removed = 4096;
        let side = Side {
            run: &run,
            output: &[],
        };
        let comparison = compare::compare(side, side, Scope::Everything, 3);
        let text = page(&comparison, Paint::Plain);
        let said = "\nstderr: 4 KiB and 4 KiB were not kept and are not compared\n";
        assert!(comparison.same && text.contains(said), "{text}");
    }

    #[test]
    fn json_has_all_of_it() {
        let value = serde_json::to_value(compared(&sample::exited(0), &other())).unwrap();
        assert_eq!(value["schema"], "cofferdam.diff/1");
        assert_eq!(value["same"], false);
        assert_eq!(value["b"]["exit_code"], 3);
        assert_eq!(value["environment"]["added"][0], "NEW");
        assert_eq!(value["artifacts"]["changed"][0]["path"], "dist/app.js");
        assert_eq!(value["stdout"]["hunks"][0]["lines"][1]["kind"], "-");
        assert_eq!(value["stderr"]["same"], true);
        assert_eq!(value["usage"][0]["change_percent"], 50.0);
    }

    #[test]
    fn not_found_is_told_from_trouble() {
        let unknown = StoreError::NoSuchRun {
            asked: "x".to_owned(),
        };
        assert!(not_found(unknown).is_ok());
        let ambiguous = StoreError::Ambiguous {
            asked: "0".to_owned(),
            candidates: Vec::new(),
        };
        assert!(not_found(ambiguous).is_ok());
        let damaged = StoreError::Damaged {
            path: "x".into(),
            why: "y".to_owned(),
        };
        assert!(not_found(damaged).is_err());
    }
}
