//! The images of the container daemon, and building them there.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use cofferdam_docker::build::{Build, Built, Cache};
use cofferdam_docker::images::{self, ListedImage, Prune};
use cofferdam_images::build_context;
use cofferdam_images::reference::Reference;
use serde_json::json;

use super::Listed;
use crate::arguments::images::BuildArgs;
use crate::containers::Settings;
use crate::failure::{self, Failure};
use crate::terminal::amount;
use crate::terminal::output::document;

/// Those that come with this binary, each by the name of its directory; the base of the others first.
const OURS: [(&str, &str); 5] = [
    ("base", include_str!("../../../../images/base/Dockerfile")),
    (
        "python",
        include_str!("../../../../images/python/Dockerfile"),
    ),
    ("node", include_str!("../../../../images/node/Dockerfile")),
    ("java", include_str!("../../../../images/java/Dockerfile")),
    (
        "dotnet",
        include_str!("../../../../images/dotnet/Dockerfile"),
    ),
];

/// Its maker has a registry of its own, which nobody is sent to unasked.
const BASELESS: &str = "dotnet";

pub(super) fn answers(settings: &Settings) -> bool {
    cofferdam_docker::examine(settings).is_ok()
}

pub(super) fn list(settings: &Settings) -> Result<Vec<Listed>, String> {
    let found = images::list(settings).map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(listed).collect())
}

pub(super) fn has(name: &str, settings: &Settings) -> bool {
    images::has(name, settings).unwrap_or(false)
}

pub(super) fn pull(name: &str, settings: &Settings) -> Result<Listed, Failure> {
    Ok(listed(images::pull(name, settings)?))
}

pub(super) fn remove(name: &str, settings: &Settings) -> Result<Vec<String>, Failure> {
    Ok(images::remove(name, settings)?)
}

pub(super) fn prune(unused: bool, settings: &Settings) -> Result<(Vec<String>, u64), Failure> {
    let which = match unused {
        true => Prune::Unused,
        false => Prune::Nameless,
    };
    let pruned = images::prune(which, settings)?;
    Ok((pruned.removed, pruned.freed_bytes))
}

pub(super) fn export(
    name: &str,
    mut to: &File,
    at_most: u64,
    settings: &Settings,
) -> Result<(), Failure> {
    Ok(images::export(name, &mut to, at_most, settings)?)
}

pub(super) fn build(args: &BuildArgs, settings: &Settings) -> Result<String, Failure> {
    let arguments = args.build_arg.iter().map(|text| argument(text));
    let arguments: HashMap<String, String> = arguments.collect::<Result<_, _>>()?;
    let has_base = arguments.contains_key("BASE");
    let own = OURS.iter().map(|(name, _)| (*name).to_owned());
    let all: Vec<String> = own.filter(|name| name != BASELESS || has_base).collect();
    if args.what.iter().any(|name| name == BASELESS) && !has_base {
        let fix = "has no base of its own; say which image holds the SDK with --build-arg BASE=HOST/NAME:TAG";
        return Err(Failure::problem("NAME", BASELESS, fix));
    }
    let wanted = match args.what.as_slice() {
        [] => &all,
        some => some,
    };
    if let (Some(name), false) = (&args.name, wanted.len() == 1) {
        let fix = "is one name, and there are several images to build; name one of them";
        return Err(Failure::problem("--name", name, fix));
    }
    // Whatever is wrong with one is known before any is built.
    let contexts: Vec<(String, Vec<u8>)> = wanted
        .iter()
        .map(|what| context(what, args.name.as_deref()))
        .collect::<Result<_, _>>()?;
    let mut built = Vec::new();
    for (tag, context) in contexts {
        built.push(cofferdam_docker::build::build(
            Build {
                context,
                tag: &tag,
                arguments: arguments.clone(),
                labels: HashMap::from([("cofferdam.image".to_owned(), tag.clone())]),
                cache: match args.no_cache {
                    true => Cache::Ignored,
                    false => Cache::Used,
                },
                patience: args.timeout,
                hear: &mut pass_on,
            },
            settings,
        )?);
    }
    if args.json {
        return document(super::SCHEMA, &json!({ "images": built }));
    }
    Ok(built.iter().map(line).collect())
}

/// The name that an image gets, and what it is built from.
fn context(what: &str, tag: Option<&str>) -> Result<(String, Vec<u8>), Failure> {
    let own = OURS.iter().find(|(name, _)| *name == what);
    let (called, context) = match own {
        Some((name, text)) => {
            let context = build_context::of_dockerfile(text)?;
            (format!("cofferdam/{name}"), context)
        }
        None => {
            let path = Path::new(what);
            if !path.is_dir() {
                let known = OURS.map(|(name, _)| name).join(", ");
                let fix = format!("is neither a directory nor one of ours: {known}");
                return Err(Failure::problem("NAME|DIR", what, fix));
            }
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let name = whole.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default().to_lowercase();
            (name, build_context::of_directory(path)?)
        }
    };
    let tag = Reference::parse(tag.unwrap_or(&called))?;
    Ok((tag.tagged(), context))
}

fn argument(text: &str) -> Result<(String, String), Failure> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or_else(|| {
        Failure::problem(
            "--build-arg",
            text,
            "write NAME=VALUE, such as BASE=debian:trixie-slim",
        )
    })?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The daemon's words are a stranger's: they come as lines, and steer no terminal.
fn pass_on(words: &str) {
    let mut stderr = std::io::stderr();
    for line in words.lines().filter(|line| !line.trim().is_empty()) {
        let _ = writeln!(stderr, "{}", failure::visible(line));
    }
}

fn line(built: &Built) -> String {
    let (name, id) = (&built.name, &built.id);
    format!("{name}  {}  {id}\n", amount::bytes(built.size_bytes))
}

fn listed(image: ListedImage) -> Listed {
    Listed {
        store: "docker",
        names: image.names,
        id: image.id,
        digests: image.digests,
        size_bytes: image.size_bytes,
        created: image.created,
    }
}
