//! `cofferdam import`: the runs of a bundle become runs of ours, all or none.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::History;
use cofferdam_store::bundle::{
    self, Existing, HistoryTarget, ImportMode, ImportOptions, Imported, Limits, PublicKey, Trust,
};
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::bundle::ImportArgs;
use crate::failure::{self, Failure};
use crate::runs::{Kept, open_history};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::progress::Progress;
use crate::terminal::text::safe;

pub(crate) fn import(args: &ImportArgs, places: Places) -> Result<ExitCode, Failure> {
    let options = ImportOptions {
        limits: Limits::default(),
        trust: trust(args)?,
        existing: if args.skip_existing {
            Existing::Skip
        } else {
            Existing::Refuse
        },
        mode: if args.dry_run {
            ImportMode::DryRun
        } else {
            ImportMode::Write
        },
    };
    let mut history: History = open_history(&Kept::find(places)?)?;
    let mut progress = Progress::new("checking");
    let mut target = HistoryTarget::new(&mut history);
    let imported = bundle::import(&mut target, &args.bundle, &options, &mut |done| {
        progress.at(done.files, done.of_files);
    })
    .map_err(Failure::about_file(
        &args.bundle,
        ErrorCode::InputUnreadable,
    ))?;
    progress.clear();
    failure::print(&if args.json {
        as_json(args, &imported)?
    } else {
        in_words(args, &imported)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn trust(args: &ImportArgs) -> Result<Trust, Failure> {
    if !args.trust.is_empty() {
        let keys = args.trust.iter().map(|text| text.parse::<PublicKey>());
        let keys: Result<_, _> = keys.collect();
        return Ok(Trust::Keys(keys?));
    }
    Ok(if args.require_signature {
        Trust::Signed
    } else {
        Trust::Anybody
    })
}

fn as_json(args: &ImportArgs, imported: &Imported) -> Result<String, Failure> {
    pretty(&json!({
        "schema": "cofferdam.imported/1",
        "dry_run": args.dry_run,
        "added": imported.added,
        "same": imported.same,
        "kept_ours": imported.kept_ours,
        "objects": imported.objects,
        "object_bytes": imported.object_bytes,
        "signed_by": imported.bundle.signed_by.as_ref().map(ToString::to_string),
        "provenance": imported.bundle.provenance,
    }))
}

fn in_words(args: &ImportArgs, imported: &Imported) -> String {
    let count = |runs: &[cofferdam_store::RunId]| {
        amount::count(u64::try_from(runs.len()).unwrap_or(u64::MAX), "run")
    };
    let verb = if args.dry_run { "would add" } else { "added" };
    let mut text = format!(
        "{verb} {}, {} of contents\n",
        count(&imported.added),
        amount::bytes(imported.object_bytes)
    );
    if !imported.same.is_empty() {
        text.push_str(&format!("{} already here\n", count(&imported.same)));
    }
    if !imported.kept_ours.is_empty() {
        let ours = count(&imported.kept_ours);
        text.push_str(&format!(
            "{ours} here with other contents, kept as they are here\n"
        ));
    }
    match &imported.bundle.signed_by {
        Some(key) => text.push_str(&format!("signed by {key}\n")),
        None => text.push_str("not signed\n"),
    }
    let host = safe(&imported.bundle.provenance.host);
    text.push_str(&format!(
        "exported on {host} at {}\n",
        imported.bundle.provenance.exported_at
    ));
    text
}
