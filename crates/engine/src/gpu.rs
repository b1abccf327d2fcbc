//! The device nodes of GPUs that a program is shown: the cards that were asked for, and what their driver needs beside them. The driver's libraries are where the distribution put them,
//! below /usr, which is shown in any case.

use std::path::{Path, PathBuf};

use cofferdam_contract::request::Gpus;

use crate::error::EngineError;

/// What NVIDIA's driver opens besides the cards.
const CONTROL: [&str; 4] = [
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
];
/// The kernel counts nodes for rendering from here.
const FIRST_RENDER: u32 = 128;
/// As many as the kernel has numbers for.
const MOST: u32 = 64;

/// How many of these cards this machine has. One that was named and is not there is an error.
pub fn count(gpus: &Gpus) -> Result<u32, EngineError> {
    counted(gpus, Path::new("/dev"))
}

fn counted(gpus: &Gpus, dev: &Path) -> Result<u32, EngineError> {
    // A card has one node or two; each is asked for by itself.
    let each = |number: u32| nodes(&Gpus::Numbered(vec![number]), dev);
    nodes(gpus, dev)?;
    Ok(match gpus {
        Gpus::None => 0,
        Gpus::Numbered(numbers) => u32::try_from(numbers.len()).unwrap_or(u32::MAX),
        Gpus::All => {
            let there = (0..MOST).filter(|number| each(*number).is_ok());
            u32::try_from(there.count()).unwrap_or(u32::MAX)
        }
    })
}

/// The nodes below `dev`, which is `/dev` everywhere but in tests. A GPU that was asked for and is not there is an error.
pub(crate) fn nodes(gpus: &Gpus, dev: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let numbers: Vec<u32> = match gpus {
        Gpus::None => return Ok(Vec::new()),
        Gpus::All => (0..MOST).collect(),
        Gpus::Numbered(numbers) => numbers.clone(),
    };
    let mut found = Vec::new();
    let mut has_nvidia = false;
    for number in &numbers {
        let card = dev.join(format!("nvidia{number}"));
        let render = dev.join(format!(
            "dri/renderD{}",
            FIRST_RENDER.saturating_add(*number)
        ));
        let (is_card, is_render) = (card.exists(), render.exists());
        has_nvidia |= is_card;
        if !is_card && !is_render && matches!(gpus, Gpus::Numbered(_)) {
            let why = format!(
                "there is no GPU {number}: neither `{}` nor `{}` exists",
                card.display(),
                render.display()
            );
            return Err(missing(why));
        }
        found.extend(is_card.then_some(card));
        found.extend(is_render.then_some(render));
    }
    if found.is_empty() {
        let why = format!(
            "there is no GPU: `{0}/nvidia0` and `{0}/dri/renderD128` do not exist",
            dev.display()
        );
        return Err(missing(why));
    }
    if has_nvidia {
        let control = CONTROL.iter().map(|name| dev.join(name));
        found.extend(control.filter(|node| node.exists()));
    }
    Ok(found)
}

fn missing(why: String) -> EngineError {
    EngineError::Unavailable {
        backend: "native",
        why,
        fix: "load the driver of the card, or leave --gpu out".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like /dev with two cards; nothing in it is a device.
    fn fake_dev() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dri")).unwrap();
        for node in [
            "nvidia0",
            "nvidia1",
            "nvidiactl",
            "nvidia-uvm",
            "dri/renderD129",
            "null",
        ] {
            std::fs::write(dir.path().join(node), "").unwrap();
        }
        dir
    }

    fn names(gpus: &Gpus, dev: &Path) -> Result<Vec<String>, String> {
        let found = nodes(gpus, dev).map_err(|error| error.to_string())?;
        let name = |node: &PathBuf| node.strip_prefix(dev).unwrap().display().to_string();
        Ok(found.iter().map(name).collect())
    }

    #[test]
    fn in_a_fake_directory_of_devices_only_what_was_asked_for_is_chosen() {
        let dev = fake_dev();
        let names = |gpus| names(&gpus, dev.path()).unwrap();
        assert_eq!(names(Gpus::None), Vec::<String>::new());
        assert_eq!(
            names(Gpus::Numbered(vec![0])),
            ["nvidia0", "nvidiactl", "nvidia-uvm"]
        );
        assert_eq!(
            names(Gpus::All),
            [
                "nvidia0",
                "nvidia1",
                "dri/renderD129",
                "nvidiactl",
                "nvidia-uvm"
            ]
        );
    }

    #[test]
    fn a_gpu_that_is_not_there_is_a_clear_error() {
        let dev = fake_dev();
        let error = names(&Gpus::Numbered(vec![0, 7]), dev.path()).unwrap_err();
        assert!(error.contains("there is no GPU 7"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error = names(&Gpus::All, empty.path()).unwrap_err();
        assert!(error.contains("there is no GPU:"), "{error}");
        let counted = |gpus, dev: &Path| counted(&gpus, dev).ok();
        assert_eq!(counted(Gpus::All, dev.path()), Some(2));
        assert_eq!(counted(Gpus::Numbered(vec![1]), dev.path()), Some(1));
        assert_eq!(counted(Gpus::None, empty.path()), Some(0));
        assert_eq!(counted(Gpus::All, empty.path()), None);
    }
}
