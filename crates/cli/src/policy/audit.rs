//! `cofferdam policy audit`: which runs of the history would break a rule of the mode in force. The history says by which backend a run went and what network it had; from where its
//! image came and who was told is not kept.

use std::collections::BTreeMap;
use std::process::ExitCode;

use cofferdam_contract::mode::{Deed, Mode, NetworkReach, Rule, Violation};
use cofferdam_store::History;
use cofferdam_store::database::{Query, RunSummary};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arguments::Places;
use crate::arguments::policy::AuditArgs;
use crate::config::spelling;
use crate::failure::{self, Failure};
use crate::runs::{Kept, open_history};
use crate::seal::pretty;
use crate::terminal::waiting::Waiting;

const SCHEMA: &str = "cofferdam.policy.audit/1";
/// So many are asked for at a time.
const PAGE: usize = 1000;

#[derive(Default)]
struct Findings {
    looked_at: u64,
    by_rule: BTreeMap<Rule, u64>,
    /// The newest first, as many as are listed.
    listed: Vec<(RunSummary, Vec<Violation>)>,
    broken: u64,
}

pub(super) fn audit(args: &AuditArgs, places: Places) -> Result<ExitCode, Failure> {
    let mode = super::in_force(&places)?;
    let now = Timestamp::now();
    let since = args.since.map(|moment| moment.resolve(now));
    let findings = match mode {
        Some(mode) => {
            let _waiting = Waiting::on("looking at runs");
            let history = open_history(&Kept::find(places)?)?;
            look(&history, mode, since, args.limit)?
        }
        None => Findings::default(),
    };
    let text = match args.json {
        true => pretty(&document(mode, &findings))?,
        false => told(mode, &findings),
    };
    failure::print(&text)?;
    Ok(ExitCode::from(u8::from(findings.broken > 0)))
}

fn look(
    history: &History,
    mode: Mode,
    since: Option<Timestamp>,
    limit: usize,
) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut query = Query {
        since,
        limit: PAGE,
        ..Query::default()
    };
    loop {
        let page = history.list(&query)?;
        for run in page.runs {
            findings.looked_at += 1;
            let network = network(history, &run)?;
            let found = violations(mode, &run.backend, network);
            if found.is_empty() {
                continue;
            }
            findings.broken += 1;
            for violation in &found {
                *findings.by_rule.entry(violation.rule).or_default() += 1;
            }
            if findings.listed.len() < limit {
                findings.listed.push((run, found));
            }
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => return Ok(findings),
        }
    }
}

fn network(history: &History, run: &RunSummary) -> Result<NetworkReach, Failure> {
    let kept = history.get(run.run_id)?;
    Ok(reach(&kept.opening.policy["network"]))
}

/// As it is kept. What is not understood is taken for the most, so that it is not passed over.
fn reach(kept: &Value) -> NetworkReach {
    match kept.as_str() {
        Some("denied" | "none") => NetworkReach::None,
        Some("allowed" | "full") => NetworkReach::Full,
        Some(list) if list.starts_with("allow=") => NetworkReach::Listed,
        _ if kept.is_null() => NetworkReach::None,
        _ => NetworkReach::Full,
    }
}

fn violations(mode: Mode, backend: &str, network: NetworkReach) -> Vec<Violation> {
    let mut found = mode.violations([Deed::Network(network)]);
    match spelling::backend(backend) {
        Ok(known) => found.extend(mode.violations([Deed::Run(known)])),
        // A backend of a newer version is none that this mode could allow.
        Err(_) => found.push(Violation {
            mode,
            rule: Rule::Backend,
            why: format!("the {backend} backend is not known here"),
            fix: "look at it with the version that ran it".to_owned(),
        }),
    }
    found.sort_by_key(|violation| violation.rule);
    found
}

fn document(mode: Option<Mode>, findings: &Findings) -> Value {
    let by_rule: BTreeMap<&str, u64> = findings
        .by_rule
        .iter()
        .map(|(rule, count)| (rule.as_str(), *count))
        .collect();
    let run = |(run, violations): &(RunSummary, Vec<Violation>)| {
        json!({
            "run_id": run.run_id,
            "started_at": run.started_at,
            "command": run.command,
            "backend": run.backend,
            "violations": violations,
        })
    };
    json!({
        "schema": SCHEMA,
        "mode": mode,
        "runs": findings.looked_at,
        "violating": findings.broken,
        "by_rule": by_rule,
        "listed": findings.listed.iter().map(run).collect::<Vec<_>>(),
    })
}

fn told(mode: Option<Mode>, findings: &Findings) -> String {
    let Some(mode) = mode else {
        return "no mode is in force, so that there is no rule to break; name one with --mode\n"
            .to_owned();
    };
    let mut text = String::new();
    for (run, violations) in &findings.listed {
        let rules: Vec<&str> = violations.iter().map(|found| found.rule.as_str()).collect();
        let line = format!(
            "{}  {}  {}  {}  {}",
            run.short_id,
            run.started_at,
            rules.join(","),
            run.backend,
            run.command
        );
        text.push_str(&failure::visible(&line));
        text.push('\n');
    }
    let rules: Vec<String> = findings
        .by_rule
        .iter()
        .map(|(rule, count)| format!("{rule} {count}"))
        .collect();
    let by_rule = match rules.is_empty() {
        true => String::new(),
        false => format!(" ({})", rules.join(", ")),
    };
    text.push_str(&format!(
        "{} of {} runs would break a rule of mode {mode}{by_rule}\n",
        findings.broken, findings.looked_at
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_run_is_held_against_the_rules() {
        let rules = |mode: Mode, backend: &str, network: Value| -> Vec<Rule> {
            violations(mode, backend, reach(&network))
                .iter()
                .map(|found| found.rule)
                .collect()
        };
        assert_eq!(rules(Mode::AirGapped, "native", json!("denied")), []);
        assert_eq!(
            rules(Mode::AirGapped, "host", json!("denied")),
            [Rule::Backend]
        );
        assert_eq!(
            rules(Mode::LocalOnly, "docker", json!("allow=x:443")),
            [Rule::Backend, Rule::Network]
        );
        assert_eq!(
            rules(Mode::Docker, "teleport", json!("none")),
            [Rule::Backend]
        );
        assert_eq!(rules(Mode::AirGapped, "wasm", Value::Null), []);
    }
}
