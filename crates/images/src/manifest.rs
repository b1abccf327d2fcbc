//! What a registry or an archive says an image is made of: an index of platforms, a manifest, and the digests and sizes in it.

use serde::Deserialize;

use crate::bounds::MOST_LAYERS;
use crate::digest::Digest;
use crate::error::ImageError;

/// What a registry is asked for, newest first.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// A thing by its digest and size.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    #[serde(default)]
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// A manifest, or an index of them: told apart by what they have.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
}

/// What a document turned out to be.
#[derive(Debug)]
pub(crate) enum Found {
    Manifest(Manifest),
    /// The one for this machine.
    Elsewhere(Descriptor),
}

/// One image.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// Reads either.
pub(crate) fn read(what: &str, bytes: &[u8]) -> Result<Found, ImageError> {
    let refused = |why: String| ImageError::refused(what, why);
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| refused(format!("it is no manifest: {error}")))?;
    match document {
        Document {
            manifests: Some(manifests),
            ..
        } => Ok(Found::Elsewhere(choose(what, manifests)?)),
        Document {
            config: Some(config),
            layers: Some(layers),
            ..
        } => {
            if layers.len() > MOST_LAYERS {
                return Err(refused(format!("it has more than {MOST_LAYERS} layers")));
            }
            Ok(Found::Manifest(Manifest { config, layers }))
        }
        Document { .. } => Err(refused(
            "it is a manifest of a kind that is not known".to_owned(),
        )),
    }
}

/// The one for this machine, or the only one there is.
fn choose(what: &str, manifests: Vec<Descriptor>) -> Result<Descriptor, ImageError> {
    let own = architecture();
    let fits = |one: &Descriptor| match &one.platform {
        Some(platform) => platform.os == "linux" && platform.architecture == own,
        None => false,
    };
    let named = manifests.iter().find(|one| fits(one)).cloned();
    let only = match manifests.as_slice() {
        [one] if one.platform.is_none() => Some(one.clone()),
        _ => None,
    };
    named.or(only).ok_or_else(|| {
        let why = format!("it has nothing for linux on {own}");
        ImageError::refused(what, why)
    })
}

/// As images call it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_for_this_machine_is_chosen_and_no_other() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let own = architecture();
        let index = |second: &str| {
            format!(
                r#"{{"manifests":[{{"digest":"{a}","size":1,"platform":{{"os":"windows","architecture":"{own}"}}}},
                {{"digest":"{b}","size":2,"platform":{{"os":"linux","architecture":"{second}"}}}}]}}"#
            )
        };
        match read("x", index(own).as_bytes()).unwrap() {
            Found::Elsewhere(found) => assert_eq!(found.digest, b),
            Found::Manifest(_) => panic!("an index"),
        }
        let error = read("x", index("s390x").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("nothing for linux"), "{error}");
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"config":{"digest":"sha256:../x"},"layers":[]}"#,
        ] {
            assert!(read("x", bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
