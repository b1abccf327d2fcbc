//! Finding the image of a run: by name, by digest or by id; pulled when the daemon does not have it and that is allowed. A run uses the image's id, so that nobody
//! exchanges what a name means in between.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_engine::error::EngineError;
use futures_util::StreamExt as _;

use crate::daemon;
use crate::settings::{Progress, Pull, Settings};

/// What a run needs to know of its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// As it was asked for.
    pub(crate) name: String,
    /// `sha256:…` of its configuration.
    pub(crate) id: String,
    /// Digests that registries know it by.
    pub(crate) digests: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) volumes: Vec<String>,
}

/// Finds it, or says why it cannot be had.
pub(crate) async fn find(client: &Docker, settings: &Settings) -> Result<Image, EngineError> {
    let name = settings.image.as_deref().unwrap_or_default();
    check(name)?;
    match client.inspect_image(name).await {
        Ok(found) => described(name, found),
        Err(error) if daemon::status(&error) == Some(404) => match settings.pull {
            Pull::Never => Err(absent(
                name,
                "and this run may use local images only".to_owned(),
                "pull it first with `cofferdam images pull`, or allow it with sandbox.docker.pull: missing",
            )),
            Pull::Missing if is_id(name) => Err(absent(
                name,
                "and an id cannot be pulled".to_owned(),
                "name the image with its registry and digest",
            )),
            Pull::Missing => {
                pull(client, name, settings).await?;
                let found = client.inspect_image(name).await;
                described(
                    name,
                    found.map_err(daemon::refused("look at the pulled image"))?,
                )
            }
        },
        Err(error) => Err(daemon::refused("look for the image")(error)),
    }
}

/// Gets an image from its registry.
pub(crate) async fn pull(
    client: &Docker,
    name: &str,
    settings: &Settings,
) -> Result<(), EngineError> {
    check(name)?;
    let mut asked = CreateImageOptionsBuilder::default().from_image(name);
    if !name.contains('@') && !has_tag(name) {
        // Without a tag the daemon would pull every one there is.
        asked = asked.tag("latest");
    }
    let client = daemon::patient(client, settings.pull_patience);
    let pulling = async {
        let mut layers = Layers::default();
        let mut steps = client.create_image(Some(asked.build()), None, None);
        while let Some(step) = steps.next().await {
            layers.note(step?, settings.progress.as_ref());
        }
        layers.finish(settings.progress.as_ref());
        Ok::<(), Error>(())
    };
    let pulled = tokio::time::timeout(settings.pull_patience, pulling).await;
    let pulled = pulled.unwrap_or(Err(Error::RequestTimeoutError));
    pulled.map_err(|error| {
        absent(
            name,
            format!(
                "and it could not be pulled: {}",
                daemon::reason(&error)
            ),
            "check its name and that the daemon reaches its registry, or use an image that is there (`cofferdam images list`)",
        )
    })
}

/// How far each layer has come. Registries send several at once.
#[derive(Debug, Default)]
struct Layers(HashMap<String, (u64, u64)>);

impl Layers {
    fn note(&mut self, step: CreateImageInfo, to: Option<&Progress>) {
        let (Some(id), Some(detail)) = (step.id, step.progress_detail) else {
            return;
        };
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let (Some(current), Some(total)) = (number(detail.current), number(detail.total)) else {
            return;
        };
        // Extracting is told in the same way and begins anew; a bar that goes back helps nobody.
        let layer = self.0.entry(id).or_default();
        *layer = (layer.0.max(current.min(total)), layer.1.max(total));
        self.tell(to);
    }

    fn finish(&mut self, to: Option<&Progress>) {
        for (done, total) in self.0.values_mut() {
            *done = *total;
        }
        self.tell(to);
    }

    fn tell(&self, to: Option<&Progress>) {
        if let Some(Progress(tell)) = to {
            let sum = |pick: fn(&(u64, u64)) -> u64| self.0.values().map(pick).sum();
            tell(sum(|layer| layer.0), sum(|layer| layer.1));
        }
    }
}

fn described(name: &str, found: ImageInspect) -> Result<Image, EngineError> {
    let config = found.config.unwrap_or_default();
    let image = Image {
        name: name.to_owned(),
        id: found.id.unwrap_or_default(),
        digests: found.repo_digests.unwrap_or_default(),
        env: config.env.unwrap_or_default(),
        volumes: config.volumes.unwrap_or_default(),
    };
    match pinned(name) {
        // The daemon found it by the digest; that it says so itself costs nothing to check.
        Some(digest) if image.id != digest && !image.has_digest(digest) => {
            let why = format!("the daemon's image has {} instead", image.known_by());
            Err(absent(
                name,
                why,
                "remove that image, or name the digest that you mean",
            ))
        }
        _ => Ok(image),
    }
}

impl Image {
    fn has_digest(&self, digest: &str) -> bool {
        let of = |known: &String| pinned(known) == Some(digest);
        self.digests.iter().any(of)
    }

    /// The digest of a registry, or the id of an image that never was in one.
    pub(crate) fn known_by(&self) -> &str {
        self.digests
            .first()
            .and_then(|known| pinned(known))
            .unwrap_or(&self.id)
    }
}

/// The digest in `name@sha256:…`.
fn pinned(name: &str) -> Option<&str> {
    name.split_once('@').map(|(_, digest)| digest)
}

fn is_id(name: &str) -> bool {
    name.starts_with("sha256:")
}

/// A colon before the last slash is a registry's port.
fn has_tag(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.contains(':')
}

/// The daemon would put it into a path of its API as it is.
pub(crate) fn check(name: &str) -> Result<(), EngineError> {
    let problem = |fix: &str| Problem::new("image", name, fix);
    let is_allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/' | b':' | b'@')
    };
    let mut found = Vec::new();
    if name.is_empty() {
        found.push(problem(
            "names no image; say which with --image or sandbox.docker.image",
        ));
    } else if name.len() > 512
        || !name.bytes().all(is_allowed)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || name.split('/').any(|part| part.is_empty() || part == "..")
    {
        found.push(problem(
            "is not the name of an image; write one such as python:3.13, name@sha256:… or sha256:…",
        ));
    }
    if let Some(digest) = pinned(name).or(Some(name).filter(|name| is_id(name))) {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            found.push(problem(
                "has a digest that is none; write sha256: and 64 hex digits",
            ));
        }
    }
    Ok(Problems::check(found)?)
}

fn absent(name: &str, why: String, fix: &str) -> EngineError {
    daemon::unavailable(
        format!("the daemon does not have the image `{name}`, {why}"),
        fix.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_that_are_none_are_refused_before_the_daemon_is_asked() {
        let id = DIGEST;
        let pinned = format!("registry.example:5000/a/b@{DIGEST}");
        for good in [
            "busybox",
            "python:3.13",
            "localhost:5000/x/y:z",
            id,
            &pinned,
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a b",
            "a?x=y",
            "../../info",
            "a/../b",
            "/a",
            "-x",
            "a//b",
            "x@sha256:12",
            "sha256:xyz",
            "a\n",
        ] {
            let error = check(bad).unwrap_err();
            assert!(matches!(error, EngineError::Invalid(_)), "{bad}");
        }
    }

    #[test]
    fn a_colon_before_the_last_slash_is_a_port() {
        assert!(!has_tag("localhost:5000/x"));
        assert!(has_tag("localhost:5000/x:1"));
        assert!(has_tag("x:1"));
        assert!(!has_tag("x"));
    }

    #[test]
    fn an_image_with_another_digest_is_not_the_one_that_was_pinned() {
        let found = || ImageInspect {
            id: Some("sha256:aa".to_owned()),
            repo_digests: Some(vec![format!("x@{DIGEST}")]),
            ..Default::default()
        };
        let pinned = format!("x@{DIGEST}");
        assert_eq!(described(&pinned, found()).unwrap().known_by(), DIGEST);
        let other = format!("x@{}", DIGEST.replace('0', "1"));
        let error = described(&other, found()).unwrap_err().to_string();
        assert!(error.contains("instead"), "{error}");
    }

    #[test]
    fn progress_adds_up_over_layers_and_never_goes_back() {
        use std::sync::{Arc, Mutex};
        let told = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&told);
        let progress = Progress(Arc::new(move |done, of| {
            to.lock().unwrap().push((done, of))
        }));
        let step = |id: &str, current, total| CreateImageInfo {
            id: Some(id.to_owned()),
            progress_detail: Some(bollard::models::ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            ..Default::default()
        };
        let mut layers = Layers::default();
        for step in [step("a", 5, 10), step("b", 20, 20), step("a", 1, 10)] {
            layers.note(step, Some(&progress));
        }
        layers.finish(Some(&progress));
        let told = told.lock().unwrap().clone();
        assert_eq!(told, [(5, 10), (25, 30), (25, 30), (30, 30)]);
    }
}
