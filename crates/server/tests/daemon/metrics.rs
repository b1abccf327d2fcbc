//! The metrics as Prometheus reads them: the text format, version 0.0.4, read strictly.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::support::{Daemon, Outcome};

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<Sample>,
}

/// Every family, or what is wrong with the page.
fn parse(text: &str) -> Outcome<BTreeMap<String, Family>> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut current = None;
    let mut helped: Option<String> = None;
    if !text.ends_with('\n') {
        return Err("the last line is not ended".into());
    }
    for line in text.lines() {
        let bad = |why: &str| format!("{why}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| bad("no help"))?;
            if help.trim().is_empty() || families.contains_key(name) || !is_name(name) {
                return Err(bad("bad help").into());
            }
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| bad("no type"))?;
            if helped.as_deref() != Some(name) || !["counter", "gauge", "histogram"].contains(&kind)
            {
                return Err(bad("bad type").into());
            }
            let family = families.entry(name.to_owned()).or_default();
            family.kind = kind.to_owned();
            current = Some(name.to_owned());
        } else {
            let sample = parse_sample(line).ok_or_else(|| bad("bad sample"))?;
            let name = current.as_deref().ok_or_else(|| bad("no family"))?;
            let family = families.get_mut(name).ok_or_else(|| bad("no family"))?;
            let rest = sample
                .name
                .strip_prefix(name)
                .ok_or_else(|| bad("of another family"))?;
            let is_fit = match family.kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&rest),
                "counter" => rest.is_empty() && name.ends_with("_total") && sample.value >= 0.0,
                _ => rest.is_empty(),
            };
            if !is_fit || !seen.insert((sample.name.clone(), sample.labels.clone())) {
                return Err(bad("does not fit its family, or is there twice").into());
            }
            family.samples.push(sample);
        }
    }
    Ok(families)
}

fn is_name(name: &str) -> bool {
    let may_stand = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.starts_with("cofferdam_") && name.bytes().all(may_stand)
}

fn parse_sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        None => (series, ""),
        Some((name, rest)) => (
            name,
            rest.strip_suffix('}').filter(|rest| !rest.is_empty())?,
        ),
    };
    let mut pairs = BTreeMap::new();
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        let (text, after) = after.split_once('"')?;
        let is_label = label.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_plain = !text.contains(['\\', '\n']);
        if !is_label || !is_plain || pairs.insert(label.to_owned(), text.to_owned()).is_some() {
            return None;
        }
        rest = match after.strip_prefix(',') {
            Some(more) => more,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(Sample {
        name: is_name(name).then(|| name.to_owned())?,
        labels: pairs,
        value: value.parse().ok()?,
    })
}

/// Buckets in the order of their ends, cumulative, with the last as large as the count.
fn check_histogram(name: &str, family: &Family) -> Outcome<()> {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        series.entry(labels).or_default().push(sample);
    }
    for (labels, samples) in series {
        let bad = |why: &str| format!("{name}{labels:?}: {why}");
        let of = |suffix: &str| {
            let name = format!("{name}{suffix}");
            samples.iter().filter(move |sample| sample.name == name)
        };
        let ends: Vec<f64> = of("_bucket")
            .filter_map(|sample| sample.labels.get("le")?.parse().ok())
            .collect();
        let counts: Vec<f64> = of("_bucket").map(|sample| sample.value).collect();
        if !ends.is_sorted_by(|a, b| a < b) || ends.last() != Some(&f64::INFINITY) {
            return Err(bad("the ends are not in order").into());
        }
        if ends.len() != counts.len() || !counts.is_sorted() {
            return Err(bad("the buckets are not cumulative").into());
        }
        let whole: Vec<f64> = of("_count").map(|sample| sample.value).collect();
        let sum: Vec<f64> = of("_sum").map(|sample| sample.value).collect();
        if counts.last() != whole.first() || whole.len() != 1 || sum.len() != 1 {
            return Err(bad("count and sum do not fit").into());
        }
    }
    Ok(())
}

#[test]
fn a_page_with_faults_is_not_taken_for_a_good_one() {
    for bad in [
        "cofferdam_a 1\n",
        "# HELP cofferdam_a x\n# TYPE cofferdam_a gauge\ncofferdam_a 1",
        "# HELP cofferdam_a x\n# TYPE cofferdam_a gauge\ncofferdam_a 1\ncofferdam_a 1\n",
        "# HELP cofferdam_a x\n# TYPE cofferdam_a counter\ncofferdam_a 1\n",
        "# TYPE cofferdam_a gauge\ncofferdam_a 1\n",
        "# HELP cofferdam_a x\n# TYPE cofferdam_a gauge\ncofferdam_a{b=\"1\" 1\n",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_page_of_metrics_is_read_strictly_and_has_what_is_promised() {
    let daemon = Daemon::start(|config| config.runs.queue = 0).unwrap();
    daemon
        .until("/health", |found| found["status"] == "healthy")
        .unwrap();
    let refused = daemon
        .post("/v1/runs", &json!({"command": ["true"]}))
        .unwrap();
    assert_eq!(refused.status, 503);
    drop(daemon);

    let daemon = Daemon::start(|config| config.runs.pool = None).unwrap();
    for body in [
        json!({"command": ["true"]}),
        json!({"command": ["sleep", "60"], "limits": {"wall_time_ms": 50}}),
        json!({"language": "c", "code": "int main(void) { return 0; }"}),
    ] {
        assert_eq!(
            daemon.post("/v1/runs", &body).unwrap().status,
            200,
            "{body}"
        );
    }
    daemon.get("/v1/runs/\"} 1\\n").unwrap();
    let text = daemon.get("/metrics").unwrap().text();
    let families = parse(&text).unwrap();
    for (name, family) in &families {
        if family.kind == "histogram" {
            check_histogram(name, family).unwrap();
        }
    }
    let one = |name: &str| {
        let family = families.get(&format!("cofferdam_{name}"));
        family
            .and_then(|family| family.samples.first())
            .map(|sample| sample.value)
    };
    for name in [
        "build_info",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_cpu_seconds_total",
        "runs_at_once_max",
    ] {
        assert!(one(name).is_some_and(|value| value > 0.0), "{name}\n{text}");
    }
    assert_eq!(one("queue_depth"), Some(0.0));
    assert!(one("pool_waiting").is_some() && one("pool_built_total").is_some());
    assert_eq!(one("runs_submitted_total"), Some(3.0));
    let labels = |name: &str, label: &str| -> BTreeSet<String> {
        let family = families.get(&format!("cofferdam_{name}"));
        let samples = family.map_or(&[][..], |family| &family.samples);
        samples
            .iter()
            .filter_map(|sample| sample.labels.get(label).cloned())
            .collect()
    };
    let causes = labels("runs_ended_total", "cause");
    assert_eq!(causes, ["exited", "wall_time"].map(str::to_owned).into());
    let phases = labels("run_phase_seconds", "phase");
    for phase in ["queued", "build", "sandbox", "program", "record", "total"] {
        assert!(phases.contains(phase), "{phase} of {phases:?}");
    }
}
