//! `cofferdam images`: what the container daemon has to run in.

use std::process::ExitCode;

use cofferdam_contract::mode::Deed;
use cofferdam_contract::request::BackendName;
use cofferdam_docker::images::{self, ListedImage, Prune};

use crate::arguments::images::{ImagesArgs, ImagesVerb};
use crate::arguments::{ContainerArgs, Places};
use crate::config::DockerKey;
use crate::containers;
use crate::failure::{self, Failure};
use crate::policy;
use crate::seal::pretty;
use crate::terminal::amount;

pub(crate) fn images(args: &ImagesArgs, places: Places) -> Result<ExitCode, Failure> {
    let (settings, merged) =
        containers::load(&places, BackendName::Docker, &ContainerArgs::default())?;
    let pull = match &args.verb {
        ImagesVerb::Pull { .. } => Some(Deed::Pull),
        ImagesVerb::List { .. } | ImagesVerb::Prune { .. } => None,
    };
    let daemon = Deed::Daemon(merged.docker.get(DockerKey::Host));
    policy::refuse(merged.mode.value, [daemon].into_iter().chain(pull))?;
    let text = match &args.verb {
        ImagesVerb::List { json } => {
            let found = images::list(&settings)?;
            if *json {
                pretty(&found)?
            } else {
                table(&found)
            }
        }
        ImagesVerb::Pull { image, json } => {
            let pulled = images::pull(image, &settings)?;
            if *json {
                pretty(&pulled)?
            } else {
                format!("{}\n", pulled.digests.first().unwrap_or(&pulled.id))
            }
        }
        ImagesVerb::Prune { unused, json } => {
            let which = match unused {
                true => Prune::Unused,
                false => Prune::Nameless,
            };
            let pruned = images::prune(which, &settings)?;
            if *json {
                pretty(&pruned)?
            } else {
                let (count, freed) = (pruned.removed.len(), amount::bytes(pruned.freed_bytes));
                format!("removed {count}, freed {freed}\n")
            }
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(images: &[ListedImage]) -> String {
    let name = |image: &ListedImage| match image.names.is_empty() {
        true => "-".to_owned(),
        false => image.names.join(" "),
    };
    let names: Vec<String> = images.iter().map(name).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).max("IMAGE".len());
    let mut text = format!("{:width$}  {:>8}  PINNED AS\n", "IMAGE", "SIZE");
    for (name, image) in names.iter().zip(images) {
        let size = amount::bytes(image.size_bytes);
        let pinned = image.digests.first().unwrap_or(&image.id);
        text.push_str(&failure::visible(&format!(
            "{name:width$}  {size:>8}  {pinned}"
        )));
        text.push('\n');
    }
    text
}
