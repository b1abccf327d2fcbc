//! The daemon's own log: one JSON object on a line, on standard error. Holds ids, routes and causes; never what a program wrote or was given.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Names what is logged, as in `info` or `cofferdam_server=debug`.
pub const VARIABLE: &str = "COFFERDAM_LOG";

/// Starts logging for this process; once. A process that logs already keeps its way.
pub fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_span_events(FmtSpan::NONE)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}
