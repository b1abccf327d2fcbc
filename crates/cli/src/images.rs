//! `cofferdam images`: what there is to run in, in the container daemon and unpacked here.

#[cfg_attr(not(feature = "docker"), path = "images/absent.rs")]
mod daemon;
mod ours;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::Deed;
use cofferdam_contract::request::BackendName;
use cofferdam_images::digest::Digest;
use cofferdam_images::reference::Reference;
use cofferdam_images::registry::{self, Transport};
use cofferdam_images::store::Prune;
use cofferdam_images::{Bounds, Progress, Store, archive};
use serde::Serialize;
use serde_json::json;

use crate::arguments::images::{
    BoundArgs, ImagesArgs, ImagesVerb, ImportArgs, PullArgs, StoreName,
};
use crate::arguments::{ContainerArgs, Places};
use crate::config::DockerKey;
use crate::containers::{self, Settings};
use crate::failure::{self, Failure};
use crate::history;
use crate::policy;
use crate::rootfs;
use crate::terminal::amount;
use crate::terminal::bar::Bar;
use crate::terminal::output::document;
use crate::terminal::waiting::Waiting;

const SCHEMA: &str = "cofferdam.images/1";

/// One image, wherever it is.
#[derive(Debug, Serialize)]
struct Listed {
    store: &'static str,
    names: Vec<String>,
    id: String,
    /// `name@sha256:…`, by which it can be pinned.
    digests: Vec<String>,
    size_bytes: u64,
    /// Seconds since 1970: when it was made, or unpacked here.
    created: i64,
}

/// What went.
#[derive(Debug, Default, Serialize)]
struct Gone {
    removed: Vec<String>,
    freed_bytes: u64,
    /// Ids of unpacked images that a run uses.
    in_use: Vec<String>,
}

pub(crate) fn images(args: &ImagesArgs, places: Places) -> Result<ExitCode, Failure> {
    let gets = match &args.verb {
        // What an image is built on may have to be got.
        ImagesVerb::Pull(_) | ImagesVerb::Build(_) => Some(Deed::Pull),
        ImagesVerb::List { .. }
        | ImagesVerb::Import(_)
        | ImagesVerb::Rm { .. }
        | ImagesVerb::Prune { .. } => None,
    };
    policy::refuse(policy::in_force(&places)?, gets)?;
    let dir = history::place(places.data_dir.clone());
    let store = || rootfs::store(dir.as_ref());
    let settings = || {
        let args = ContainerArgs::default();
        let (settings, merged) = containers::load(&places, BackendName::Docker, &args)?;
        let daemon = Deed::Daemon(merged.docker.get(DockerKey::Host));
        policy::refuse(merged.mode.value, [daemon])?;
        Ok(settings)
    };
    let text = match &args.verb {
        ImagesVerb::List { json } => list(&store()?, settings, *json)?,
        ImagesVerb::Pull(args) => pull(args, store, settings)?,
        ImagesVerb::Import(args) => import(args, &store()?, settings)?,
        ImagesVerb::Build(args) => daemon::build(args, &settings()?)?,
        ImagesVerb::Rm {
            images,
            store: only,
            json,
        } => remove(images, *only, *json, &store()?, settings)?,
        ImagesVerb::Prune {
            unused,
            store: only,
            json,
        } => prune(*unused, *only, *json, &store()?, settings)?,
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(
    store: &Store,
    settings: impl Fn() -> Result<Settings, Failure>,
    json: bool,
) -> Result<String, Failure> {
    let mut all: Vec<Listed> = store.list()?.into_iter().map(ours::listed).collect();
    let found = settings().map_err(|failure| failure.words());
    match found.and_then(|settings| daemon::list(&settings).map_err(|why| why.to_string())) {
        Ok(found) => all.extend(found),
        // Said, and no reason to hide what is here.
        Err(why) => tell(&format!(
            "the container daemon's images are not shown: {why}"
        )),
    }
    match json {
        true => document(SCHEMA, &json!({ "images": all })),
        false => Ok(table(&all)),
    }
}

fn pull(
    args: &PullArgs,
    store: impl Fn() -> Result<Store, Failure>,
    settings: impl Fn() -> Result<Settings, Failure>,
) -> Result<String, Failure> {
    // Whoever names our own store does not care how the daemon is reached.
    let to = match args.store {
        Some(store) => store,
        None if daemon::answers(&settings()?) => StoreName::Docker,
        None => StoreName::Native,
    };
    if to == StoreName::Docker {
        if args.plain_http || args.credentials.is_some() || args.ca.is_some() {
            let fix = "is for our own store, and this goes to the container daemon, which has settings of its own; add --store native";
            return Err(Failure::problem(
                "--plain-http, --credentials, --ca",
                "",
                fix,
            ));
        }
        let pulled = daemon::pull(&args.image, &settings()?)?;
        return told(&pulled, args.json);
    }
    let name = Reference::parse(&args.image)?;
    let how = registry::Settings {
        transport: match args.plain_http {
            true => Transport::Plain,
            false => Transport::Encrypted,
        },
        credentials: args.credentials.clone(),
        authority: args.ca.clone(),
        progress: Some(bar("pulling")),
    };
    let got = registry::pull(&store()?, &name, &how, &bounds(&args.bounds))?;
    told(&ours::listed(got), args.json)
}

fn import(
    args: &ImportArgs,
    store: &Store,
    settings: impl Fn() -> Result<Settings, Failure>,
) -> Result<String, Failure> {
    let name = args.name.as_deref().map(Reference::parse).transpose()?;
    let bounds = bounds(&args.bounds);
    let read = |path: &Path, name: Option<&Reference>| {
        archive::import(store, path, name, &bounds, Some(bar("unpacking")))
    };
    let got = match (&args.file, &args.docker) {
        (Some(file), _) => read(file, name.as_ref())?,
        (None, Some(image)) => {
            // An id names nothing.
            let own = Reference::parse(image).ok();
            let own = own.filter(|own| own.digest.is_none() && Digest::parse(image).is_none());
            let file = ours::Passing::new()?;
            let waiting = Waiting::on("fetching from the container daemon");
            daemon::export(image, file.file(), args.bounds.max_size.get(), &settings()?)?;
            drop(waiting);
            read(&file.path(), name.or(own).as_ref())?
        }
        (None, None) => {
            let message = "FILE: name a file, or an image of the daemon with --docker";
            return Err(Failure::new(ErrorCode::InputInvalid, message));
        }
    };
    let got: Vec<Listed> = got.into_iter().map(ours::listed).collect();
    if args.json {
        return document(SCHEMA, &json!({ "images": got }));
    }
    got.iter().map(|image| told(image, false)).collect()
}

fn remove(
    images: &[String],
    only: Option<StoreName>,
    json: bool,
    store: &Store,
    settings: impl Fn() -> Result<Settings, Failure>,
) -> Result<String, Failure> {
    let mut gone = Gone::default();
    let _waiting = Waiting::on("removing images");
    for image in images {
        let removed = remove_one(image, only, store, &settings, &mut gone);
        if let Err(failure) = removed {
            // Whoever named several has to know which of them are gone.
            if !gone.removed.is_empty() {
                tell(&format!("removed before: {}", gone.removed.join(", ")));
            }
            return Err(failure);
        }
    }
    said(&gone, json)
}

fn remove_one(
    image: &str,
    only: Option<StoreName>,
    store: &Store,
    settings: impl Fn() -> Result<Settings, Failure>,
    gone: &mut Gone,
) -> Result<(), Failure> {
    let mut is_found = false;
    if only != Some(StoreName::Docker) {
        match store.remove(image) {
            Ok(removed) => {
                gone.removed.extend(removed.removed);
                gone.freed_bytes += removed.freed_bytes;
                is_found = true;
            }
            Err(cofferdam_images::ImageError::Absent { .. }) if only.is_none() => {}
            Err(cofferdam_images::ImageError::Unreadable { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(other) => return Err(other.into()),
        }
    }
    match (only, is_found) {
        (Some(StoreName::Native), true) => {}
        (Some(StoreName::Native), false) => {
            let fix = "is not unpacked here; `cofferdam images list` shows what is";
            return Err(Failure::problem("IMAGE", image, fix));
        }
        // What was meant is gone; the daemon may have one of that name too.
        (None, true) => match settings() {
            Ok(settings) if daemon::has(image, &settings) => {
                gone.removed.extend(daemon::remove(image, &settings)?);
            }
            Ok(_) => {}
            Err(why) => tell(&format!(
                "an image of the container daemon would stay: {}",
                why.words()
            )),
        },
        (Some(StoreName::Docker), _) | (None, false) => {
            gone.removed.extend(daemon::remove(image, &settings()?)?);
        }
    }
    Ok(())
}

fn prune(
    unused: bool,
    only: Option<StoreName>,
    json: bool,
    store: &Store,
    settings: impl Fn() -> Result<Settings, Failure>,
) -> Result<String, Failure> {
    let mut gone = Gone::default();
    if only != Some(StoreName::Docker) {
        let which = match unused {
            true => Prune::Unused,
            false => Prune::Nameless,
        };
        let removed = store.prune(which)?;
        gone = Gone {
            removed: removed.removed,
            freed_bytes: removed.freed_bytes,
            in_use: removed.in_use,
        };
    }
    if only != Some(StoreName::Native) {
        let pruned = settings().and_then(|settings| daemon::prune(unused, &settings));
        match pruned {
            Ok((removed, freed)) => {
                gone.removed.extend(removed);
                gone.freed_bytes += freed;
            }
            Err(error) if only.is_some() => return Err(error),
            Err(error) => tell(&format!(
                "the container daemon's images stay: {}",
                error.words()
            )),
        }
    }
    said(&gone, json)
}

fn bounds(args: &BoundArgs) -> Bounds {
    Bounds {
        bytes: args.max_size.get(),
        ..Bounds::within(args.timeout)
    }
}

/// Whoever looks at a terminal sees how far it has come.
fn bar(what: &'static str) -> Progress {
    let bar = Arc::new(Mutex::new(Bar::new(what)));
    Progress(Arc::new(move |done, of| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.at(done, of);
    }))
}

fn told(image: &Listed, json: bool) -> Result<String, Failure> {
    if json {
        return document(SCHEMA, image);
    }
    let pinned = image.digests.first().or_else(|| image.names.first());
    let pinned = pinned.unwrap_or(&image.id);
    Ok(format!("{}\n", failure::visible(pinned)))
}

fn said(gone: &Gone, json: bool) -> Result<String, Failure> {
    if json {
        return document(SCHEMA, gone);
    }
    let (count, freed) = (gone.removed.len(), amount::bytes(gone.freed_bytes));
    let used = match gone.in_use.len() {
        0 => String::new(),
        n => format!(", {n} in use by runs"),
    };
    Ok(format!("removed {count}, freed {freed}{used}\n"))
}

fn tell(line: &str) {
    use std::io::Write as _;
    let line = failure::visible(&failure::without_secrets(line));
    let _ = writeln!(std::io::stderr(), "cofferdam: {line}");
}

fn table(images: &[Listed]) -> String {
    let name = |image: &Listed| match image.names.is_empty() {
        true => "-".to_owned(),
        false => image.names.join(" "),
    };
    let names: Vec<String> = images.iter().map(name).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).max("IMAGE".len());
    let mut text = format!(
        "{:width$}  {:6}  {:>8}  PINNED AS\n",
        "IMAGE", "STORE", "SIZE"
    );
    for (name, image) in names.iter().zip(images) {
        let size = amount::bytes(image.size_bytes);
        let pinned = image.digests.first().unwrap_or(&image.id);
        let store = image.store;
        text.push_str(&failure::visible(&format!(
            "{name:width$}  {store:6}  {size:>8}  {pinned}"
        )));
        text.push('\n');
    }
    text
}
