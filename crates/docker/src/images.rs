//! The images that a daemon has: listed, pulled, and removed when no container uses them.

use std::io::Write;

use bollard::models::ImageDeleteResponseItem;
use bollard::query_parameters::{ListImagesOptions, PruneImagesOptionsBuilder, RemoveImageOptions};
use cofferdam_engine::error::EngineError;
use futures_util::StreamExt as _;
use serde::Serialize;

use crate::course::on_this_thread;
use crate::settings::Settings;
use crate::{daemon, image};

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedImage {
    /// `name:tag`; empty for one that has lost its name.
    pub names: Vec<String>,
    pub id: String,
    /// `name@sha256:…`, by which it can be pinned.
    pub digests: Vec<String>,
    pub size_bytes: u64,
    /// Seconds since 1970.
    pub created: i64,
}

/// What pruning came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// What was removed: ids and names.
    pub removed: Vec<String>,
    pub freed_bytes: u64,
}

/// Which images are pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those without a name.
    Nameless,
    /// Every one that no container uses.
    Unused,
}

pub fn list(settings: &Settings) -> Result<Vec<ListedImage>, EngineError> {
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        let found = client.list_images(None::<ListImagesOptions>).await;
        let found = found.map_err(daemon::refused("list the images"))?;
        let named = |name: &String| !name.contains("<none>");
        let mut images: Vec<ListedImage> = found
            .into_iter()
            .map(|image| ListedImage {
                names: image.repo_tags.into_iter().filter(named).collect(),
                id: image.id,
                digests: image.repo_digests.into_iter().filter(named).collect(),
                size_bytes: u64::try_from(image.size).unwrap_or(0),
                created: image.created,
            })
            .collect();
        images.sort_by(|a, b| a.names.cmp(&b.names).then_with(|| a.id.cmp(&b.id)));
        Ok(images)
    })?
}

/// Gets an image, also when it is there already: its name may mean a newer one.
pub fn pull(name: &str, settings: &Settings) -> Result<ListedImage, EngineError> {
    image::check(name)?;
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        image::pull(&client, name, settings).await?;
        let found = client.inspect_image(name).await;
        let found = found.map_err(daemon::refused("look at the pulled image"))?;
        Ok(ListedImage {
            names: found.repo_tags.unwrap_or_default(),
            id: found.id.unwrap_or_default(),
            digests: found.repo_digests.unwrap_or_default(),
            size_bytes: found.size.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            created: 0,
        })
    })?
}

/// Removes a name, and the image with its last one.
pub fn remove(name: &str, settings: &Settings) -> Result<Vec<String>, EngineError> {
    image::check(name)?;
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        let removed = client.remove_image(name, None::<RemoveImageOptions>, None);
        let removed = removed.await.map_err(daemon::refused("remove the image"))?;
        let what = |item: ImageDeleteResponseItem| item.deleted.or(item.untagged);
        Ok(removed.into_iter().filter_map(what).collect())
    })?
}

/// Whether the daemon has an image of this name.
pub fn has(name: &str, settings: &Settings) -> Result<bool, EngineError> {
    image::check(name)?;
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        match client.inspect_image(name).await {
            Ok(_) => Ok(true),
            Err(error) if daemon::status(&error) == Some(404) => Ok(false),
            Err(error) => Err(daemon::refused("look for the image")(error)),
        }
    })?
}

/// Writes an image as an archive, at most so many bytes of it.
pub fn export(
    name: &str,
    to: &mut dyn Write,
    at_most: u64,
    settings: &Settings,
) -> Result<(), EngineError> {
    image::check(name)?;
    let broken = |why: String| {
        let fix = "look at the daemon's log, and at the room on the disk".to_owned();
        daemon::unavailable(format!("`{name}` did not come whole: {why}"), fix)
    };
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        let client = daemon::patient(&client, settings.pull_patience);
        let mut left = at_most;
        let mut pieces = std::pin::pin!(client.export_image(name));
        loop {
            // The client's patience is for the beginning of an answer.
            let piece = tokio::time::timeout(settings.pull_patience, pieces.next()).await;
            let piece = piece.map_err(|_| broken("the daemon stopped in the middle".to_owned()))?;
            let Some(piece) = piece else { return Ok(()) };
            let piece = piece.map_err(daemon::refused("take the image out"))?;
            let rest = left.checked_sub(piece.len() as u64);
            left = rest.ok_or_else(|| broken(format!("it is larger than {at_most} bytes")))?;
            to.write_all(&piece)
                .map_err(|error| broken(error.to_string()))?;
        }
    })?
}

pub fn prune(which: Prune, settings: &Settings) -> Result<Pruned, EngineError> {
    on_this_thread(async {
        let client = daemon::connect(settings).await?.client;
        let client = daemon::patient(&client, settings.pull_patience);
        let is_nameless = match which {
            Prune::Nameless => "true",
            Prune::Unused => "false",
        };
        let filters = std::collections::HashMap::from([("dangling", vec![is_nameless])]);
        let how = PruneImagesOptionsBuilder::default()
            .filters(&filters)
            .build();
        let pruned = client.prune_images(Some(how)).await;
        let pruned = pruned.map_err(daemon::refused("remove unused images"))?;
        let removed = pruned.images_deleted.unwrap_or_default();
        Ok(Pruned {
            removed: removed
                .into_iter()
                .filter_map(|item| item.deleted.or(item.untagged))
                .collect(),
            freed_bytes: pruned
                .space_reclaimed
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(0),
        })
    })?
}
