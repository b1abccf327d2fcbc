//! `cofferdam artifacts`: the files that a run left, listed, written to the disk, printed.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::collect::names::unescape;
use cofferdam_store::model::{Artifact, ArtifactKind, Outcome, StoredRun};
use cofferdam_store::{History, StoreError};
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::history::{
    ArtifactsArgs, ArtifactsCatArgs, ArtifactsGetArgs, ArtifactsListArgs, ArtifactsVerb,
};
use crate::failure::{self, Failure};
use crate::runs::{Kept, contents, find, is_binary, open_history, preview};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::colour::{Colour, Paint, When};
use crate::terminal::control::Filter;
use crate::terminal::output;
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::safe;

pub(crate) const SCHEMA: &str = "cofferdam.artifacts/1";

pub(crate) fn artifacts(args: &ArtifactsArgs, places: Places) -> Result<ExitCode, Failure> {
    let history = open_history(&Kept::find(places)?)?;
    match &args.verb {
        ArtifactsVerb::List(args) => list(args, &history)?,
        ArtifactsVerb::Get(args) => get(args, &history)?,
        ArtifactsVerb::Cat(args) => cat(args, &history)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ArtifactsListArgs, history: &History) -> Result<(), Failure> {
    let run = find(history, &args.run)?;
    if kept(&run).is_empty() {
        output::note("this run left no files");
    }
    if args.json {
        return failure::print(&json(&run)?);
    }
    if !kept(&run).is_empty() {
        let target = Target::of_stdout();
        let paint = Paint::of(args.color, target);
        failure::print(&table(kept(&run)).render(target.columns(), paint))?;
    }
    let left_out = match &run.outcome {
        Outcome::Ended(closing) => closing.left_out.len(),
        Outcome::Running | Outcome::Interrupted { .. } => 0,
    };
    if left_out > 0 {
        let id = run.opening.run_id;
        let files = amount::count(u64::try_from(left_out).unwrap_or(u64::MAX), "file");
        output::note(&format!(
            "{files} not kept; `cofferdam runs show {id}` says why"
        ));
    }
    Ok(())
}

fn kept(run: &StoredRun) -> &[Artifact] {
    match &run.outcome {
        Outcome::Ended(closing) => &closing.artifacts,
        Outcome::Running | Outcome::Interrupted { .. } => &[],
    }
}

fn json(run: &StoredRun) -> Result<String, Failure> {
    let left_out = match &run.outcome {
        Outcome::Ended(closing) => closing.left_out.as_slice(),
        Outcome::Running | Outcome::Interrupted { .. } => &[],
    };
    pretty(&json!({
        "schema": SCHEMA,
        "run_id": run.opening.run_id,
        "artifacts": kept(run),
        "left_out": left_out,
    }))
}

fn table(artifacts: &[Artifact]) -> Table {
    const fn column(title: &'static str, align: Align, room: Room) -> Column {
        Column { title, align, room }
    }
    let mut table = Table::new(&[
        column("SIZE", Align::Right, Room::Fixed),
        column("CHANGE", Align::Left, Room::Drops(2)),
        column("TYPE", Align::Left, Room::Drops(1)),
        column("SHA-256", Align::Left, Room::Drops(0)),
        column("PATH", Align::Left, Room::Rest),
    ]);
    for artifact in artifacts {
        let change = match artifact.kind {
            ArtifactKind::Added => "added",
            ArtifactKind::Changed => "changed",
        };
        let digest: String = artifact.digest.to_string().chars().take(16).collect();
        table.row(vec![
            Cell::new(amount::bytes(artifact.bytes)),
            Cell::new(change),
            Cell::new(safe(&artifact.media_type)),
            Cell::coloured(digest, Colour::Dim),
            Cell::new(safe(&artifact.path)),
        ]);
    }
    table
}

fn get(args: &ArtifactsGetArgs, history: &History) -> Result<(), Failure> {
    let run = find(history, &args.run)?;
    let artifact = named(&run, &args.path)?;
    let bytes = contents(history, &artifact.digest)?;
    if args.output.as_deref() == Some(Path::new("-")) {
        if args.json {
            let fix = "goes to standard output itself; leave --json out";
            return Err(Failure::problem("-o", "-", fix));
        }
        return output::write_stdout(&bytes).map(|_| ());
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => own_name(artifact)?,
    };
    write_new(&path, &bytes, artifact.mode)?;
    if args.json {
        let told = json!({ "schema": SCHEMA, "run_id": run.opening.run_id, "artifact": artifact, "written": path });
        return failure::print(&pretty(&told)?);
    }
    let size = amount::bytes(artifact.bytes);
    output::note(&format!("{} ({size})", safe(&path.to_string_lossy())));
    Ok(())
}

fn cat(args: &ArtifactsCatArgs, history: &History) -> Result<(), Failure> {
    let run = find(history, &args.run)?;
    let bytes = contents(history, &named(&run, &args.path)?.digest)?;
    let target = Target::of_stdout();
    if target.is_terminal() {
        let shown = for_terminal(&bytes, Paint::of(When::Auto, target));
        return output::write_stdout(shown.as_bytes()).map(|_| ());
    }
    output::write_stdout(&bytes).map(|_| ())
}

/// Nothing in a file steers the terminal either.
fn for_terminal(bytes: &[u8], paint: Paint) -> String {
    if is_binary(bytes) {
        return preview(bytes);
    }
    let mut filter = Filter::new(paint);
    let mut shown = String::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        shown.push_str(&filter.line(line.strip_suffix(b"\n").unwrap_or(line)));
        shown.push('\n');
    }
    shown
}

fn named<'a>(run: &'a StoredRun, path: &str) -> Result<&'a Artifact, StoreError> {
    let wanted = path.strip_prefix("./").unwrap_or(path);
    let mut artifacts = kept(run).iter();
    artifacts
        .find(|artifact| artifact.path == wanted)
        .ok_or_else(|| StoreError::NoSuchArtifact {
            run: run.opening.run_id.to_string(),
            path: path.to_owned(),
        })
}

/// The last part of its path, in the current directory: a path of a stranger leads nowhere else.
fn own_name(artifact: &Artifact) -> Result<PathBuf, Failure> {
    let name = artifact.path.rsplit('/').next().unwrap_or_default();
    // A text that no name is written as leads to no file.
    let bytes = unescape(name).unwrap_or_default();
    let fit = !bytes.is_empty()
        && !matches!(bytes.as_slice(), b"." | b"..")
        && !bytes.iter().any(|byte| matches!(byte, b'/' | 0));
    if fit {
        Ok(Path::new(".").join(std::ffi::OsString::from_vec(bytes)))
    } else {
        let fix = "this is no name for a file; say where it goes with -o";
        Err(Failure::problem("PATH", &artifact.path, fix))
    }
}

/// Never over a file that is there, nor through a link.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let failed = |error: &io::Error| {
        let what = format!("cannot write `{}`", path.display());
        Failure::io(ErrorCode::OutputWriteFailed, &what, error)
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode & 0o755)
        .open(path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::problem(
                "-o",
                &path.to_string_lossy(),
                "this exists and is not overwritten; name another file",
            ),
            _ => failed(&error),
        })?;
    file.write_all(bytes).map_err(|error| {
        // Half a file is worse than none.
        let _ = std::fs::remove_file(path);
        failed(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample;

    #[test]
    fn artifacts_are_listed_with_their_path_last() {
        let evil = sample::artifact("a\u{1b}[2J\n", b"2");
        let list = [sample::artifact("dist/app.js", b"1"), evil];
        let expected = "   SIZE  CHANGE  TYPE             SHA-256           PATH
1.5 KiB  added   text/javascript  6b86b273ff34fce1  dist/app.js
1.5 KiB  added   text/javascript  d4735e3a265e16ee  a\\u{1b}[2J\\n
";
        assert_eq!(table(&list).render(None, Paint::Plain), expected);
        let narrow = table(&list).render(Some(30), Paint::Plain);
        assert!(narrow.starts_with("   SIZE  CHANGE  PATH"), "{narrow}");
    }

    #[test]
    fn json_has_what_is_kept_and_what_is_not() {
        let value = |run: &StoredRun| -> serde_json::Value {
            serde_json::from_str(&json(run).unwrap_or_default()).unwrap_or_default()
        };
        let whole = value(&sample::exited(0));
        assert_eq!(whole["schema"], "cofferdam.artifacts/1");
        assert_eq!(whole["artifacts"][0]["path"], "dist/app.js");
        assert_eq!(whole["left_out"][0]["path"], "big.bin");
        assert_eq!(value(&sample::running())["artifacts"], json!([]));
    }

    #[test]
    fn an_artifact_is_found_by_its_path() {
        let run = sample::exited(0);
        assert!(named(&run, "dist/app.js").is_ok());
        assert!(named(&run, "./dist/app.js").is_ok());
        let missing = named(&run, "../dist/app.js").unwrap_err();
        assert!(missing.to_string().contains("artifacts list"), "{missing}");
    }

    #[test]
    fn a_path_leads_nowhere_but_here() {
        let name = |path: &str| own_name(&sample::artifact(path, b"")).ok();
        assert_eq!(name("a/b/c.txt"), Some("./c.txt".into()));
        for path in ["a/..", "..", ".", "", "a/", "\\x2fetc", "\\x00"] {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        assert!(write_new(&path, b"one", 0o4755).is_ok());
        assert!(write_new(&path, b"two", 0o644).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(write_new(&link, b"three", 0o644).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        use std::os::unix::fs::PermissionsExt as _;
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0);
    }

    #[test]
    fn a_terminal_is_not_steered_by_a_file() {
        let shown = for_terminal(b"a\x1b[2J\nb", Paint::Plain);
        assert_eq!(shown, "a\\u{1b}[2J\nb\n");
        assert!(for_terminal(b"\0\x1b", Paint::Plain).starts_with("binary, 2 "));
    }
}
