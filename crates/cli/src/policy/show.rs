//! `cofferdam policy show`: each rule with what it allows, what is set now, and who set it.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::{Deed, Mode, NetworkReach, Rule, Violation};
use cofferdam_contract::network::Network;
use cofferdam_contract::problem::Problems;
use serde_json::{Value, json};

use crate::arguments::Places;
use crate::config::{self, DockerKey, Merged, Origin, ServeKey};
use crate::failure::{self, Failure};
use crate::seal::pretty;

const SCHEMA: &str = "cofferdam.policy/1";

pub(super) fn show(json: bool, places: &Places) -> Result<ExitCode, Failure> {
    let mut merged = super::load(places)?;
    let mut problems = Vec::new();
    merged
        .serve
        .environment(&|name| std::env::var_os(name), &mut problems);
    Problems::check(problems)
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    let rows = rows(&merged);
    let breaks = rows.iter().any(|row| row.violation.is_some());
    let text = match json {
        true => pretty(&document(&merged, &rows))?,
        false => table(&merged, &rows),
    };
    failure::print(&text)?;
    Ok(ExitCode::from(u8::from(breaks)))
}

/// One rule, with what the settings would have it do.
pub(super) struct Row {
    pub(super) rule: Rule,
    allows: String,
    value: String,
    origin: Origin,
    pub(super) violation: Option<Violation>,
}

/// What the daemon and its runs would do, rule by rule.
pub(super) fn rows(merged: &Merged) -> Vec<Row> {
    let mode = merged.mode.value;
    let docker = |key| {
        let (value, origin) = merged.docker.said(key);
        (value.to_owned(), origin.clone())
    };
    let served = |key: ServeKey| {
        let value = merged.serve.text(key).unwrap_or("none").to_owned();
        (value, merged.serve.origin(key).clone())
    };
    let backend = merged.backend.value;
    // What a daemon gives at most; a run of one's own says it with a flag.
    let net = served(ServeKey::Net);
    let reach = net.0.parse::<Network>();
    let reach = reach.map_or(NetworkReach::None, |network| NetworkReach::from(&network));
    let plane = served(ServeKey::ControlPlane);
    let traces = served(ServeKey::OtlpEndpoint);
    let pull = docker(DockerKey::Pull);
    let daemon = docker(DockerKey::Host);
    let settings = [
        (
            (backend.as_str().to_owned(), merged.backend.origin.clone()),
            Some(Deed::Run(backend)),
        ),
        (net.clone(), Some(Deed::Network(reach))),
        (pull.clone(), (pull.0 != "never").then_some(Deed::Pull)),
        (daemon.clone(), Some(Deed::Daemon(&daemon.0))),
        (
            plane.clone(),
            (plane.0 != "none").then_some(Deed::Callback(&plane.0)),
        ),
        (
            traces.clone(),
            (traces.0 != "none").then_some(Deed::Traces(&traces.0)),
        ),
    ];
    let rules = allows(mode).into_iter();
    rules
        .zip(settings)
        .map(|((rule, allows), ((value, origin), deed))| Row {
            rule,
            allows,
            value,
            origin,
            // What only containers need is no matter where none may be started.
            violation: mode
                .filter(|mode| concerns(*mode, rule))
                .zip(deed)
                .and_then(|(mode, deed)| mode.check(deed).err()),
        })
        .collect()
}

fn concerns(mode: Mode, rule: Rule) -> bool {
    let contains = mode
        .check(Deed::Run(cofferdam_contract::request::BackendName::Docker))
        .is_ok();
    contains || !matches!(rule, Rule::Pull | Rule::Daemon)
}

fn allows(mode: Option<Mode>) -> Vec<(Rule, String)> {
    match mode {
        Some(mode) => mode.allowed().rows().into(),
        None => Rule::ALL
            .into_iter()
            .filter(|rule| *rule != Rule::Mode)
            .map(|rule| (rule, "anything".to_owned()))
            .collect(),
    }
}

fn document(merged: &Merged, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "rule": row.rule,
            "allows": row.allows,
            "value": row.value,
            "origin": config::origin(&row.origin),
            "violation": row.violation,
        })
    };
    json!({
        "schema": SCHEMA,
        "mode": merged.mode.value,
        "origin": config::origin(&merged.mode.origin),
        "rules": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn table(merged: &Merged, rows: &[Row]) -> String {
    let mut text = match merged.mode.value {
        Some(mode) => format!("mode {mode} ({})\n\n", merged.mode.origin),
        None => "no mode: nothing is forbidden beyond what each backend refuses\n\n".to_owned(),
    };
    let head = ["RULE", "ALLOWS", "SET", "ORIGIN"].map(str::to_owned);
    let body = rows.iter().map(|row| {
        [
            row.rule.to_string(),
            row.allows.clone(),
            row.value.clone(),
            row.origin.to_string(),
        ]
    });
    let lines: Vec<[String; 4]> = std::iter::once(head).chain(body).collect();
    let mut widths = [0; 4];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let [first, second, third, _] = widths;
    for [rule, allows, value, origin] in &lines {
        let line = format!("{rule:first$}  {allows:second$}  {value:third$}  {origin}");
        text.push_str(&failure::visible(line.trim_end()));
        text.push('\n');
    }
    for violation in rows.iter().filter_map(|row| row.violation.as_ref()) {
        text.push('\n');
        text.push_str(&failure::visible(&violation.to_string()));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_contract::limits::Limits;
    use cofferdam_contract::request::BackendName;

    use super::*;

    #[test]
    fn every_rule_of_the_table_is_shown_with_its_setting() {
        let mut merged = Merged::built_in(Limits::DEFAULT);
        let all: Vec<Rule> = rows(&merged).iter().map(|row| row.rule).collect();
        assert_eq!(all, Rule::ALL.get(1..).unwrap());
        assert!(table(&merged, &rows(&merged)).starts_with("no mode"));
        merged.mode.value = Some(Mode::AirGapped);
        let broken: Vec<Rule> = rows(&merged)
            .into_iter()
            .filter_map(|row| row.violation.map(|found| found.rule))
            .collect();
        // The built-in default of a container's settings is replaced when the configuration is read.
        assert_eq!(broken, [Rule::Pull]);
        merged.mode.value = Some(Mode::LocalOnly);
        merged.backend.value = BackendName::Host;
        let shown = table(&merged, &rows(&merged));
        assert!(
            shown.contains("rule `backend`: the host backend is not allowed"),
            "{shown}"
        );
        assert_eq!(shown.matches("mode local-only, rule").count(), 1, "{shown}");
        // A line of its own, below the table.
        let last = shown
            .strip_suffix('\n')
            .and_then(|shown| shown.rsplit_once("\n\n"));
        let is_alone =
            |line: &str| line.starts_with("mode local-only, rule") && !line.contains(['\n', '\\']);
        assert!(last.is_some_and(|(_, last)| is_alone(last)), "{shown}");
    }
}
