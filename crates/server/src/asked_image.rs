//! The image that a request wants for its root: held against what the operator allows, and found before anything waits. None is ever fetched for a client.

use std::sync::Arc;

use cofferdam_contract::problem::Problem;
use cofferdam_contract::request::{BackendName, Request};
use cofferdam_images::{Rootfs, Store};
use cofferdam_store::DataDir;

use crate::submission::RunRequest;

/// Which images clients may name, and where they run.
#[derive(Debug, Clone, Default)]
pub struct Images {
    /// None unless the operator says so.
    pub allow: Vec<ImagePattern>,
    pub place: ImagePlace,
    /// Where unpacked ones are.
    pub dir: Option<DataDir>,
    /// How containers are made.
    #[cfg(feature = "docker")]
    pub docker: cofferdam_docker::Settings,
}

/// What an image is the root of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImagePlace {
    /// A sandbox of ours, with an image that was unpacked here.
    #[default]
    Native,
    /// A container, with an image that its daemon has.
    Docker,
}

/// A name as clients write it, or the beginning of one with `*` behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePattern(String);

impl std::str::FromStr for ImagePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        if text.is_empty() || text.len() > 300 || !name.bytes().all(is_plain) {
            return Err(
                "is no name of an image; write NAME:TAG, NAME@sha256:…, or a beginning with `*` behind it"
                    .to_owned(),
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl ImagePattern {
    fn admits(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.0,
        }
    }
}

impl ImagePlace {
    pub const fn backend(self) -> BackendName {
        match self {
            Self::Native => BackendName::Native,
            Self::Docker => BackendName::Docker,
        }
    }
}

/// What a run sees as its root.
#[derive(Debug, Clone, Default)]
pub(crate) enum RootWish {
    #[default]
    Hosts,
    /// Held from here on, so that nobody removes it before its turn.
    Unpacked(Arc<Rootfs>),
    /// By its name in the container daemon.
    Container(String),
}

impl RootWish {
    /// Gives a request what it runs in. Everything else of it has been said.
    pub(crate) fn give(&self, request: &mut Request) {
        match self {
            Self::Hosts => {}
            Self::Unpacked(image) => image.furnish(request),
            Self::Container(_) => request.backend = BackendName::Docker,
        }
    }

    pub(crate) fn unpacked(&self) -> Option<&Rootfs> {
        match self {
            Self::Unpacked(image) => Some(image),
            Self::Hosts | Self::Container(_) => None,
        }
    }

    /// What the container backend is asked for.
    pub(crate) fn container(&self) -> Option<&str> {
        match self {
            Self::Container(name) => Some(name),
            Self::Hosts | Self::Unpacked(_) => None,
        }
    }
}

/// The root that was asked for; every problem is told.
pub(crate) fn within(
    request: &RunRequest,
    images: &Images,
    problems: &mut Vec<Problem>,
) -> RootWish {
    let Some(name) = &request.image else {
        return RootWish::Hosts;
    };
    let mut refuse = |field: &str, fix: &str| problems.push(Problem::new(field, name, fix));
    if request.project.is_some() {
        let fix = "is given beside project, whose tools are this machine's; leave it out";
        refuse("image", fix);
        return RootWish::Hosts;
    }
    if !images.allow.iter().any(|pattern| pattern.admits(name)) {
        let fix = "is not among the images of this daemon; its operator lists them with `serve --image NAME`";
        refuse("image", fix);
        return RootWish::Hosts;
    }
    match images.place {
        ImagePlace::Docker => {
            if request.language.is_some() {
                let fix = "is for a command: in a container there is no channel for an answer; send a command";
                refuse("image", fix);
            }
            if request.pure {
                let fix = "is given beside pure, and what a container's image holds is not known here; leave one out";
                refuse("image", fix);
            }
            RootWish::Container(name.clone())
        }
        ImagePlace::Native => match images
            .dir
            .as_ref()
            .map(|dir| Rootfs::find(&Store::of(dir), name))
        {
            Some(Ok(found)) => RootWish::Unpacked(Arc::new(found)),
            Some(Err(error)) => {
                refuse("image", &error.to_string());
                RootWish::Hosts
            }
            None => {
                refuse("image", "there is no place for images here");
                RootWish::Hosts
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_admits_a_name_or_what_begins_like_it() {
        let admits = |pattern: &str, name: &str| {
            let pattern: ImagePattern = pattern.parse().unwrap();
            pattern.admits(name)
        };
        assert!(admits("python:3.13", "python:3.13"));
        assert!(!admits("python:3.13", "python:3.13-slim"));
        assert!(admits("python:*", "python:3.13") && admits("*", "anything"));
        assert!(!admits(
            "registry.example/ours/*",
            "registry.example/theirs/x"
        ));
        for bad in ["", "a b", "a*b", "é"] {
            assert!(bad.parse::<ImagePattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_operator_does_not_list_is_refused_and_nothing_is_listed_by_default() {
        let asked = |images: &Images, request: serde_json::Value| {
            let request: RunRequest = crate::body::typed(request).unwrap();
            let mut problems = Vec::new();
            let wish = within(&request, images, &mut problems);
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            (wish, said.join("\n"))
        };
        let plain = serde_json::json!({"command": ["true"], "image": "tool:1"});
        let (_, said) = asked(&Images::default(), plain.clone());
        assert!(said.contains("serve --image"), "{said}");

        let top = tempfile::tempdir().unwrap();
        let mut images = Images {
            allow: vec!["tool:*".parse().unwrap()],
            dir: Some(DataDir::at(top.path().join("data"))),
            ..Images::default()
        };
        let (_, said) = asked(&images, plain.clone());
        assert!(
            said.contains("there is no image `tool:1` unpacked here"),
            "{said}"
        );

        images.place = ImagePlace::Docker;
        let (wish, said) = asked(&images, plain);
        assert_eq!((wish.container(), said.as_str()), (Some("tool:1"), ""));
        let code =
            serde_json::json!({"language": "python", "code": "1", "pure": true, "image": "tool:1"});
        let (_, said) = asked(&images, code);
        assert!(said.contains("channel") && said.contains("pure"), "{said}");
    }
}
