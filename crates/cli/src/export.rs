//! `cofferdam export`: runs as one file for another machine.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::bundle::{
    self, Artifacts, ExportOptions, Exported, GitProvenance, HistorySource, IfPresent, Limits,
    Provenance,
};
use cofferdam_store::database::Query;
use cofferdam_store::{History, RunId};
use jiff::Timestamp;
use rustix::fs::OFlags;
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::bundle::ExportArgs;
use crate::failure::{self, Failure};
use crate::keys;
use crate::runs::{Kept, open_history};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::progress::Progress;
use crate::terminal::text::safe;

pub(crate) fn export(args: &ExportArgs, places: Places) -> Result<ExitCode, Failure> {
    check_output(args)?;
    let dir = crate::history::place(places.data_dir.clone());
    let sign = args.sign.as_deref();
    let sign = sign.map(|key| keys::signing(key, dir.as_ref()));
    let history = open_history(&Kept::find(places)?)?;
    let runs = chosen(args, &history)?;
    let options = ExportOptions {
        artifacts: if args.no_artifacts {
            Artifacts::Without
        } else {
            Artifacts::With
        },
        sign: sign.transpose()?,
        provenance: provenance(),
        if_present: if args.force {
            IfPresent::Replace
        } else {
            IfPresent::Refuse
        },
        limits: Limits::default(),
    };
    let mut progress = Progress::new("exporting");
    let source = HistorySource::new(&history);
    let exported = bundle::export(&source, &runs, &options, &args.output, &mut |done| {
        progress.at(done.files, done.of_files);
    })
    .map_err(Failure::about_file(
        &args.output,
        ErrorCode::OutputWriteFailed,
    ))?;
    progress.clear();
    failure::print(&if args.json {
        as_json(&exported)?
    } else {
        in_words(&exported)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Before the work. When the file gets its name, it is found out once more.
fn check_output(args: &ExportArgs) -> Result<(), Failure> {
    let refused = |fix| Failure::problem("--output", &args.output.to_string_lossy(), fix);
    if args.output == Path::new("-") {
        return Err(refused("a bundle is a file; name one"));
    }
    if !args.force && args.output.symlink_metadata().is_ok() {
        return Err(refused(
            "this exists; replace it with --force, or name another file",
        ));
    }
    Ok(())
}

/// The runs that are meant, oldest first. Nothing is chosen by saying nothing: an export of everything is asked for by name.
fn chosen(args: &ExportArgs, history: &History) -> Result<Vec<RunId>, Failure> {
    if !args.runs.is_empty() {
        let ids = args.runs.iter().map(|asked| history.resolve(asked));
        return Ok(ids.collect::<Result<_, _>>()?);
    }
    let is_asked = args.all || args.last.is_some() || args.since.is_some() || args.until.is_some();
    if !is_asked {
        return Err(Failure::problem(
            "which runs",
            "none",
            "name runs, or say --last N, --since TIME or --all",
        ));
    }
    let now = Timestamp::now();
    let wanted = args.last.unwrap_or(usize::MAX);
    let mut query = Query {
        since: args.since.map(|moment| moment.resolve(now)),
        until: args.until.map(|moment| moment.resolve(now)),
        ..Query::default()
    };
    let mut ids = Vec::new();
    while ids.len() < wanted {
        query.limit = (wanted - ids.len()).min(1000);
        let page = history.list(&query)?;
        ids.extend(page.runs.iter().map(|run| run.run_id));
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    ids.reverse();
    if ids.is_empty() {
        return Err(Failure::problem(
            "which runs",
            "",
            "no run matches; `cofferdam runs list` shows them",
        ));
    }
    Ok(ids)
}

fn provenance() -> Provenance {
    let system = rustix::system::uname();
    Provenance {
        host: system.nodename().to_string_lossy().into_owned(),
        user: None,
        exported_at: Timestamp::now(),
        cofferdam_version: env!("CARGO_PKG_VERSION").to_owned(),
        git: std::env::current_dir().ok().as_deref().and_then(git),
    }
}

/// What the repository that we stand in says of itself, read from its files. Nothing is run and no setting is obeyed: the directory may be a stranger's.
fn git(from: &Path) -> Option<GitProvenance> {
    let dir: PathBuf = from
        .ancestors()
        .map(|dir| dir.join(".git"))
        .find(|dir| dir.is_dir())?;
    let head = short_text(&dir.join("HEAD"))?;
    let head = head.trim();
    let branch = head.strip_prefix("ref: refs/heads/").map(str::to_owned);
    let commit = match head.strip_prefix("ref: ") {
        None => Some(head.to_owned()),
        Some(name) => reference(&dir, name),
    };
    Some(GitProvenance {
        remote_url: short_text(&dir.join("config")).and_then(|text| origin(&text)),
        commit: commit.filter(|commit| commit.bytes().all(|b| b.is_ascii_hexdigit())),
        branch,
    })
}

fn reference(dir: &Path, name: &str) -> Option<String> {
    let is_plain = name.starts_with("refs/") && !name.split('/').any(|part| part == "..");
    if !is_plain {
        return None;
    }
    if let Some(text) = short_text(&dir.join(name)) {
        return Some(text.trim().to_owned());
    }
    let packed = short_text(&dir.join("packed-refs"))?;
    let line = packed
        .lines()
        .find(|line| line.split_once(' ').is_some_and(|(_, found)| found == name))?;
    line.split_once(' ').map(|(commit, _)| commit.to_owned())
}

/// The `url` below `[remote "origin"]`.
fn origin(config: &str) -> Option<String> {
    let mut lines = config.lines().map(str::trim);
    lines.find(|line| *line == "[remote \"origin\"]")?;
    lines
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "url").then(|| value.trim().to_owned())
        })
}

fn short_text(path: &Path) -> Option<String> {
    use std::io::Read as _;
    const LONGEST: u64 = 1 << 20;
    // The directory may be a stranger's: neither a pipe is waited for, nor a link followed.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn as_json(exported: &Exported) -> Result<String, Failure> {
    pretty(&json!({
        "schema": "cofferdam.exported/1",
        "path": exported.path.to_string_lossy(),
        "runs": exported.runs,
        "bytes": exported.bytes,
        "artifact_bytes": exported.artifact_bytes,
        "skipped": exported.skipped,
        "missing": exported.missing,
    }))
}

fn in_words(exported: &Exported) -> String {
    let mut text = format!(
        "{}: {}, {}\n",
        safe(&exported.path.to_string_lossy()),
        amount::count(
            u64::try_from(exported.runs.len()).unwrap_or(u64::MAX),
            "run"
        ),
        amount::bytes(exported.bytes),
    );
    for skipped in &exported.skipped {
        text.push_str(&format!("left out {}: {}\n", skipped.run_id, skipped.why));
    }
    for missing in &exported.missing {
        text.push_str(&format!(
            "missing {}: {}\n",
            missing.digest,
            safe(&missing.why)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_and_not_obeyed() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join(".git");
        std::fs::create_dir_all(dir.join("refs/heads")).unwrap();
        std::fs::write(dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(dir.join("refs/heads/main"), "abc123\n").unwrap();
        let config = "[core]\n\tfsmonitor = evil\n[remote \"origin\"]\n\turl = https://example.org/x.git\n[x]\n";
        std::fs::write(dir.join("config"), config).unwrap();
        let below = place.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let found = git(&below).unwrap();
        assert_eq!(found.branch.as_deref(), Some("main"));
        assert_eq!(found.commit.as_deref(), Some("abc123"));
        assert_eq!(
            found.remote_url.as_deref(),
            Some("https://example.org/x.git")
        );
        std::fs::write(dir.join("HEAD"), "ref: refs/../../../etc/passwd\n").unwrap();
        assert_eq!(git(&below).unwrap().commit, None);
    }

    #[test]
    fn neither_a_pipe_nor_a_link_in_a_strangers_repository_is_read() {
        let place = tempfile::tempdir().unwrap();
        let (pipe, link) = (place.path().join("HEAD"), place.path().join("config"));
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert_eq!((short_text(&pipe), short_text(&link)), (None, None));
    }
}
