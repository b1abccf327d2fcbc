//! What is counted, and how Prometheus reads it. Labels only take values from lists of ours, so that no client can make the series grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_contract::ending::Ending;
use cofferdam_engine::pool;
use cofferdam_observe::Figures;

use crate::live::{Ended, Outcome};
use crate::process::Process;
use crate::runner::Load;
use crate::trace::{RunPhase, RunTrace};

/// Upper ends, in seconds. A sandbox takes about a millisecond, a long run an hour.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0,
];

/// All counters of one daemon.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    submitted: u64,
    refused: BTreeMap<&'static str, u64>,
    ended: BTreeMap<&'static str, u64>,
    /// Of projects, by how they ended.
    tests: BTreeMap<&'static str, u64>,
    phases: BTreeMap<&'static str, Histogram>,
    requests: BTreeMap<Request, u64>,
    request_seconds: BTreeMap<String, Histogram>,
    /// By kind and what came of it.
    reports: BTreeMap<(&'static str, &'static str), u64>,
    report_seconds: Histogram,
    outbox: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        for (bucket, upper) in self.buckets.iter_mut().zip(BUCKETS) {
            if seconds <= upper {
                *bucket += 1;
            }
        }
    }
}

impl Metrics {
    pub(crate) fn submitted(&self) {
        self.counts().submitted += 1;
    }

    /// How many reports wait, and how large they are together.
    pub(crate) fn outbox(&self, messages: u64, bytes: u64) {
        self.counts().outbox = Some((messages, bytes));
    }

    /// What came of an attempt to deliver a report.
    pub(crate) fn reported(&self, kind: &'static str, outcome: &'static str) {
        *self.counts().reports.entry((kind, outcome)).or_default() += 1;
    }

    /// How long a report took from the outbox to its peer.
    pub(crate) fn delivered(&self, after: Duration) {
        self.counts().report_seconds.observe(after.as_secs_f64());
    }

    /// Was not taken on; the code is one of ours.
    pub(crate) fn refused(&self, code: &'static str) {
        *self.counts().refused.entry(code).or_default() += 1;
    }

    pub(crate) fn ended(&self, ended: &Ended, trace: &RunTrace) {
        let mut counts = self.counts();
        *counts.ended.entry(cause(&ended.outcome)).or_default() += 1;
        if let Outcome::Finished(finished) = &ended.outcome
            && let Some(done) = &finished.project
        {
            for status in ["passed", "failed", "skipped"] {
                let count = done.outcome["counts"][status].as_u64().unwrap_or(0);
                *counts.tests.entry(status).or_default() += count;
            }
        }
        let mut observe = |phase, seconds: f64| {
            counts
                .phases
                .entry(phase)
                .or_default()
                .observe(seconds.max(0.0));
        };
        observe("queued", ended.queued.as_secs_f64());
        observe("total", ended.total.as_secs_f64());
        if let Outcome::Finished(finished) = &ended.outcome {
            let program = finished.record.usage.wall_ms / 1000.0;
            let run = trace.took(RunPhase::Run);
            observe("program", program);
            if let Some(run) = run {
                observe("sandbox", run.as_secs_f64() - program);
            }
        }
        for phase in [RunPhase::Build, RunPhase::Record, RunPhase::Callback] {
            if let Some(took) = trace.took(phase) {
                observe(phase.name(), took.as_secs_f64());
            }
        }
    }

    pub(crate) fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let known = ["GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS"];
        let method = known.into_iter().find(|known| *known == method);
        let mut counts = self.counts();
        let request = Request {
            method: method.unwrap_or("other"),
            route: route.to_owned(),
            status,
        };
        *counts.requests.entry(request).or_default() += 1;
        counts
            .request_seconds
            .entry(route.to_owned())
            .or_default()
            .observe(took.as_secs_f64());
    }

    /// In the text format, version 0.0.4.
    pub(crate) fn render(
        &self,
        load: Load,
        uptime: Duration,
        spans: Option<Figures>,
        pool: Option<pool::Figures>,
    ) -> String {
        let counts = self.counts();
        let mut page = Page::default();
        page.about_process();
        if let Some(pool) = pool {
            page.about_pool(&pool);
        }
        if let Some(spans) = spans {
            page.about_spans(&spans);
        }
        page.one(
            "uptime_seconds",
            "gauge",
            "Since the start.",
            uptime.as_secs_f64(),
        );
        page.one(
            "runs_active",
            "gauge",
            "Runs that go on.",
            as_f64(load.running),
        );
        page.one(
            "runs_at_once_max",
            "gauge",
            "Runs that may go on at once.",
            as_f64(load.at_once),
        );
        page.one(
            "queue_depth",
            "gauge",
            "Runs that wait.",
            as_f64(load.queued),
        );
        let reserved = load.memory_taken as f64;
        let help = "Sum of the memory limits of running work.";
        page.one("memory_reserved_bytes", "gauge", help, reserved);
        let submitted = counts.submitted as f64;
        page.one(
            "runs_submitted_total",
            "counter",
            "Runs taken on.",
            submitted,
        );
        page.head(
            "runs_refused_total",
            "counter",
            "Runs not taken on, by reason.",
        );
        for (reason, count) in &counts.refused {
            let labels = format!("reason=\"{reason}\"");
            page.line("runs_refused_total", &labels, *count as f64);
        }
        page.head("runs_ended_total", "counter", "Runs that ended, by cause.");
        for (cause, count) in &counts.ended {
            page.line(
                "runs_ended_total",
                &format!("cause=\"{cause}\""),
                *count as f64,
            );
        }
        page.head(
            "project_tests_total",
            "counter",
            "Tests of projects, by how they ended.",
        );
        for (status, count) in &counts.tests {
            let labels = format!("status=\"{status}\"");
            page.line("project_tests_total", &labels, *count as f64);
        }
        page.head(
            "run_phase_seconds",
            "histogram",
            "How long runs took, by phase.",
        );
        for (phase, histogram) in &counts.phases {
            page.histogram(
                "run_phase_seconds",
                &format!("phase=\"{phase}\""),
                histogram,
            );
        }
        page.head(
            "http_requests_total",
            "counter",
            "Requests, by route and status.",
        );
        for (request, count) in &counts.requests {
            let Request {
                method,
                route,
                status,
            } = request;
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            page.line("http_requests_total", &labels, *count as f64);
        }
        page.head(
            "http_request_seconds",
            "histogram",
            "How long answers took, by route.",
        );
        for (route, histogram) in &counts.request_seconds {
            page.histogram(
                "http_request_seconds",
                &format!("route=\"{route}\""),
                histogram,
            );
        }
        if let Some((messages, bytes)) = counts.outbox {
            page.reports(&counts, messages, bytes);
        }
        page.text
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn cause(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Failed(_) => "refused",
        Outcome::CanceledInQueue => "canceled",
        Outcome::Expired => "deadline",
        Outcome::Finished(finished) => match &finished.record.ending {
            Ending::Exited { .. } => "exited",
            Ending::Signaled { .. } => "signaled",
            Ending::NeverStarted(_) => "never_started",
            Ending::Stopped(cause) => cause.name(),
        },
    }
}

#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    fn about_process(&mut self) {
        self.head("build_info", "gauge", "What runs here; always 1.");
        let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
        self.line("build_info", version, 1.0);
        let process = Process::read();
        let mut told = |name, help, value: Option<f64>| {
            if let Some(value) = value {
                self.one(name, "gauge", help, value);
            }
        };
        let resident = process.resident_bytes.map(|bytes| bytes as f64);
        let (open, most) = (process.open_files, process.most_files);
        told(
            "process_resident_memory_bytes",
            "Memory of the daemon itself.",
            resident,
        );
        told(
            "process_open_fds",
            "Descriptors that are open.",
            open.map(as_f64),
        );
        told(
            "process_max_fds",
            "Descriptors that may be open.",
            most.map(|most| most as f64),
        );
        told("process_start_time_seconds", "Since 1970.", process.started);
        told(
            "process_threads",
            "Threads of the daemon.",
            process.threads.map(|count| count as f64),
        );
        if let Some(seconds) = process.cpu_seconds {
            let help = "Time on CPUs, the daemon's own.";
            self.one("process_cpu_seconds_total", "counter", help, seconds);
        }
    }

    fn about_pool(&mut self, pool: &pool::Figures) {
        let help = "Sandboxes that stand ready or are being built.";
        self.one("pool_waiting", "gauge", help, as_f64(pool.waiting));
        let help = "Runs, by whether a sandbox stood ready for them.";
        self.head("pool_asked_total", "counter", help);
        for (found, count) in [("ready", pool.taken), ("none", pool.missed)] {
            let labels = format!("found=\"{found}\"");
            self.line("pool_asked_total", &labels, count as f64);
        }
        let help = "Sandboxes built ahead, by how that went.";
        self.head("pool_built_total", "counter", help);
        for (result, count) in [("stands", pool.built), ("failed", pool.failed)] {
            let labels = format!("result=\"{result}\"");
            self.line("pool_built_total", &labels, count as f64);
        }
    }

    fn about_spans(&mut self, spans: &Figures) {
        let help = "Spans, by what became of them.";
        self.head("otlp_spans_total", "counter", help);
        for (result, count) in [("exported", spans.exported), ("dropped", spans.dropped)] {
            let labels = format!("result=\"{result}\"");
            self.line("otlp_spans_total", &labels, count as f64);
        }
        let help = "Spans that wait for the collector.";
        self.one("otlp_spans_waiting", "gauge", help, as_f64(spans.waiting));
        let help = "Requests that the collector did not take.";
        self.one(
            "otlp_failures_total",
            "counter",
            help,
            spans.failures as f64,
        );
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP cofferdam_{name} {help}");
        let _ = writeln!(self.text, "# TYPE cofferdam_{name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        let _ = writeln!(self.text, "cofferdam_{name} {value}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.text, "cofferdam_{name}{{{labels}}} {value}");
    }

    fn reports(&mut self, counts: &Counts, messages: u64, bytes: u64) {
        let help = "Reports that wait to be delivered.";
        self.one("outbox_messages", "gauge", help, messages as f64);
        let help = "Size of the reports that wait.";
        self.one("outbox_bytes", "gauge", help, bytes as f64);
        let help = "Attempts to deliver a report, by kind and outcome.";
        self.head("reports_total", "counter", help);
        for ((kind, outcome), count) in &counts.reports {
            let labels = format!("kind=\"{kind}\",outcome=\"{outcome}\"");
            self.line("reports_total", &labels, *count as f64);
        }
        let help = "From the outbox to the peer.";
        self.head("report_seconds", "histogram", help);
        self.histogram(
            "report_seconds",
            "outcome=\"delivered\"",
            &counts.report_seconds,
        );
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for (count, upper) in histogram.buckets.iter().zip(BUCKETS) {
            self.line(&bucket, &format!("{labels},le=\"{upper}\""), *count as f64);
        }
        let count = histogram.count as f64;
        self.line(&bucket, &format!("{labels},le=\"+Inf\""), count);
        self.line(&format!("{name}_sum"), labels, histogram.sum);
        self.line(&format!("{name}_count"), labels, count);
    }
}

fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_methods_are_bounded() {
        let metrics = Metrics::default();
        metrics.answered("GET", "/health", 200, Duration::from_millis(2));
        metrics.answered("BREW", "/health", 405, Duration::from_secs(2));
        let load = Load {
            running: 1,
            queued: 2,
            at_once: 3,
            memory_taken: 4,
        };
        let text = metrics.render(load, Duration::from_secs(1), None, None);
        for line in [
            "cofferdam_queue_depth 2",
            "cofferdam_http_requests_total{method=\"other\",route=\"/health\",status=\"405\"} 1",
            "cofferdam_http_request_seconds_bucket{route=\"/health\",le=\"0.001\"} 0",
            "cofferdam_http_request_seconds_bucket{route=\"/health\",le=\"0.0025\"} 1",
            "cofferdam_http_request_seconds_bucket{route=\"/health\",le=\"5\"} 2",
            "cofferdam_http_request_seconds_bucket{route=\"/health\",le=\"+Inf\"} 2",
            "cofferdam_http_request_seconds_count{route=\"/health\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
