//! Building an image by the daemon, from an archive that the caller made: the daemon's own builder, step by step, each of its words passed on as it comes.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bollard::query_parameters::{BuildImageOptionsBuilder, BuilderVersion};
use bytes::Bytes;
use cofferdam_engine::error::EngineError;
use futures_util::StreamExt as _;
use serde::Serialize;

use crate::course::on_this_thread;
use crate::daemon;
use crate::settings::Settings;

/// What is built.
pub struct Build<'a> {
    /// An archive with a `Dockerfile` at its top.
    pub context: Vec<u8>,
    /// `name:tag`.
    pub tag: &'a str,
    pub arguments: HashMap<String, String>,
    pub labels: HashMap<String, String>,
    pub cache: Cache,
    pub patience: Duration,
    /// Is told what the daemon says.
    pub hear: &'a mut dyn FnMut(&str),
}

/// Whether steps that were done before are done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    Used,
    Ignored,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Built {
    pub name: String,
    pub id: String,
    pub size_bytes: u64,
}

impl fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Build({})", self.tag)
    }
}

/// Builds it, and asks the daemon what has the name now.
pub fn build(build: Build<'_>, settings: &Settings) -> Result<Built, EngineError> {
    let Build {
        context,
        tag,
        arguments,
        labels,
        cache,
        patience,
        hear,
    } = build;
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        let client = daemon::patient(&client, patience);
        let options = BuildImageOptionsBuilder::default()
            .dockerfile("Dockerfile")
            .t(tag)
            .buildargs(&arguments)
            .labels(&labels)
            .nocache(cache == Cache::Ignored)
            .rm(true)
            .forcerm(true)
            .version(BuilderVersion::BuilderV1)
            .build();
        let body = bollard::body_full(Bytes::from(context));
        let building = async {
            let mut steps = client.build_image(options, None, Some(body));
            while let Some(step) = steps.next().await {
                let step = step.map_err(|error| failed(tag, daemon::reason(&error)))?;
                if let Some(error) = step.error_detail {
                    return Err(failed(tag, error.message.unwrap_or_default()));
                }
                if let Some(words) = step.stream.or(step.status) {
                    hear(&words);
                }
            }
            Ok(())
        };
        let built = tokio::time::timeout(patience, building).await;
        built.unwrap_or_else(|_| Err(failed(tag, "it took too long".to_owned())))?;
        let found = client.inspect_image(tag).await;
        let found = found.map_err(daemon::refused("look at the built image"))?;
        Ok(Built {
            name: tag.to_owned(),
            id: found.id.unwrap_or_default(),
            size_bytes: found.size.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
        })
    })?
}

fn failed(tag: &str, why: String) -> EngineError {
    daemon::unavailable(
        format!("`{tag}` could not be built: {}", why.trim()),
        "look at the last step that it shows; a base image that the daemon cannot get is given with --build-arg BASE=NAME".to_owned(),
    )
}
