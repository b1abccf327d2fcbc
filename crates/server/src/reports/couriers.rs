//! The couriers as the daemon starts them: which token they show, and what their doings become in the log and in the metrics.

use std::sync::Arc;

use cofferdam_callback::courier::Observer;
use cofferdam_callback::token::TokenFiles;
use cofferdam_callback::{Bearer, Courier, Event, Settings, Tokens};
use cofferdam_store::StoreError;
use cofferdam_store::outbox::Outbox;

use crate::config::{Callbacks, TokenSource};
use crate::metrics::Metrics;

pub(super) fn start(
    outbox: &Outbox,
    config: &Callbacks,
    metrics: &Arc<Metrics>,
) -> Result<Courier, StoreError> {
    let settings = Settings {
        policy: config.policy.clone(),
        timeouts: config.timeouts,
        schedule: config.schedule.clone(),
        observer: observer(metrics),
        ..Settings::default()
    };
    Courier::start(outbox.clone(), tokens(config), settings)
}

fn tokens(config: &Callbacks) -> Arc<dyn Tokens> {
    match &config.token {
        Some(TokenSource::File(path)) => Arc::new(TokenFiles {
            files: [(Callbacks::TOKEN.to_owned(), path.clone())].into(),
        }),
        Some(TokenSource::Given(bearer)) => {
            let bearer = bearer.clone();
            Arc::new(move |_: &str| -> Result<Bearer, String> { Ok(bearer.clone()) })
        }
        None => Arc::new(|name: &str| -> Result<Bearer, String> {
            Err(format!("no token `{name}` is configured"))
        }),
    }
}

fn observer(metrics: &Arc<Metrics>) -> Observer {
    let metrics = Arc::clone(metrics);
    Arc::new(move |event: &Event<'_>| match event {
        Event::Delivered {
            run, kind, after, ..
        } => {
            metrics.reported(kind.as_str(), "delivered");
            metrics.delivered(*after);
            tracing::debug!(run, kind = kind.as_str(), ?after, "a report was delivered");
        }
        Event::Failed {
            run,
            kind,
            attempt,
            why,
            again_at,
        } => {
            metrics.reported(kind.as_str(), "failed");
            tracing::warn!(run, kind = kind.as_str(), attempt, why, %again_at, "a report was not delivered; it is tried again");
        }
        Event::GivenUp {
            run,
            kind,
            attempt,
            why,
        } => {
            metrics.reported(kind.as_str(), "given_up");
            tracing::error!(
                run,
                kind = kind.as_str(),
                attempt,
                why,
                "a report was given up; it is kept"
            );
        }
        Event::Trouble(error) => tracing::error!(%error, "the outbox cannot be used"),
        _ => {}
    })
}
