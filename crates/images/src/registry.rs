//! Images from a registry, by its HTTP interface (version 2). Encrypted, but for registries on this machine or where somebody says otherwise; what comes is compared with its digest,
//! so that whoever is in between can withhold an image and not exchange one.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::bounds::{Bounds, LONGEST_DOCUMENT};
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::get::{self, Found, Progress, Told};
use crate::manifest::{self, ACCEPTED, Descriptor, Manifest};
use crate::reference::Reference;
use crate::store::{Store, Stored};

/// How a registry is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub transport: Transport,
    /// Where names and passwords are.
    pub credentials: Option<PathBuf>,
    /// Certificates that are believed instead of the public ones. Whoever names them wants encryption, also on this machine.
    pub authority: Option<PathBuf>,
    pub progress: Option<Progress>,
}

/// Whether anybody on the way may listen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// But for registries on this machine.
    #[default]
    Encrypted,
    /// On this machine as well.
    EncryptedHereToo,
    /// Somebody said so.
    Plain,
}

const CONNECTING: Duration = Duration::from_secs(10);
/// Without a byte.
const QUIET: Duration = Duration::from_secs(30);
const DEEPEST: usize = 3;

/// Gets an image into the store, and returns it with the names that it now has.
pub fn pull(
    store: &Store,
    name: &Reference,
    settings: &Settings,
    bounds: &Bounds,
) -> Result<Stored, ImageError> {
    let Some(registry) = &name.registry else {
        return Err(ImageError::Name {
            text: name.to_string(),
            why: "it has no registry in front, and there is none that is meant then",
        });
    };
    let credentials = match &settings.credentials {
        Some(path) => Credentials::read(path, registry)?,
        None => None,
    };
    let authority = settings.authority.as_deref().map(roots).transpose()?;
    let transport = match (settings.transport, &authority) {
        (Transport::Plain, _) => Transport::Plain,
        (_, Some(_)) => Transport::EncryptedHereToo,
        (other, None) => other,
    };
    let mut client = Client {
        agent: agent(registry, transport, authority),
        base: base(registry, transport),
        registry,
        name,
        transport,
        credentials,
        token: None,
        until: bounds.until,
    };
    let (manifest, digest) = client.manifest()?;
    let config = client.document("blobs", &manifest.config)?;
    let mut names = vec![name.pinned(&digest)];
    if name.digest.is_none() || name.tag.is_some() {
        names.push(name.tagged());
    }
    // A stranger says how large they are.
    let sizes = manifest.layers.iter().map(|layer| layer.size);
    let total = sizes.fold(0, u64::saturating_add);
    let found = Found {
        config,
        layers: manifest
            .layers
            .iter()
            .map(|layer| Some(layer.digest.clone()))
            .collect(),
        names,
    };
    let mut done = 0;
    let stored = get::put(store, &found, &bounds.left(), &mut |at| {
        let Some(layer) = manifest.layers.get(at) else {
            return Ok(Box::new(io::empty()));
        };
        let body = client.blob(layer)?;
        let told = Told::new(body, done, total, settings.progress.clone());
        done = layer.size.saturating_add(done);
        Ok(Box::new(told))
    })?;
    if let Some(Progress(tell)) = &settings.progress {
        tell(total, total);
    }
    Ok(stored)
}

struct Client<'a> {
    agent: Agent,
    base: String,
    registry: &'a str,
    name: &'a Reference,
    transport: Transport,
    credentials: Option<Credentials>,
    /// What the registry's own words made us get, as a header says it.
    token: Option<String>,
    until: Instant,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl Client<'_> {
    /// The manifest for this machine, and the digest of what the name itself means.
    fn manifest(&mut self) -> Result<(Manifest, Digest), ImageError> {
        let what = format!("the manifest of `{}`", self.name);
        let wanted = self.name.wanted();
        let bytes = self.short(&format!("manifests/{wanted}"))?;
        let first = Digest::of(&bytes);
        if self
            .name
            .digest
            .as_ref()
            .is_some_and(|pinned| *pinned != first)
        {
            let why = format!("it has the digest {first}");
            return Err(ImageError::refused(what, why));
        }
        let mut found = manifest::read(&what, &bytes)?;
        for _ in 0..DEEPEST {
            match found {
                manifest::Found::Manifest(manifest) => return Ok((manifest, first)),
                manifest::Found::Elsewhere(next) => {
                    found = manifest::read(&what, &self.document("manifests", &next)?)?;
                }
            }
        }
        Err(ImageError::refused(
            what,
            "its indexes point at one another",
        ))
    }

    /// A small thing by its digest, which must be right.
    fn document(&mut self, kind: &str, wanted: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let bytes = self.short(&format!("{kind}/{}", wanted.digest))?;
        if Digest::of(&bytes) != wanted.digest {
            let why = format!("what came for {} is something else", wanted.digest);
            return Err(ImageError::refused(format!("`{}`", self.name), why));
        }
        Ok(bytes)
    }

    fn short(&mut self, path: &str) -> Result<Vec<u8>, ImageError> {
        let body = self.get(path)?.into_body().into_reader();
        let mut bytes = Vec::new();
        let read = body.take(LONGEST_DOCUMENT + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.unreachable(&error.to_string()))?;
        if bytes.len() as u64 > LONGEST_DOCUMENT {
            let why = "a description of it is too long";
            return Err(ImageError::refused(format!("`{}`", self.name), why));
        }
        Ok(bytes)
    }

    fn blob(&mut self, wanted: &Descriptor) -> Result<impl Read + use<>, ImageError> {
        let response = self.get(&format!("blobs/{}", wanted.digest))?;
        // A registry that sends more than it said would fill the disk of whoever believes it.
        Ok(response.into_body().into_reader().take(wanted.size))
    }

    /// Asks, and once more with a token where the registry wants one: a token that was good for one layer can be too old for the next.
    fn get(&mut self, path: &str) -> Result<Response<Body>, ImageError> {
        let response = self.ask(path)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.checked(response);
        }
        let challenge = response.headers().get("www-authenticate");
        let challenge = challenge
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        self.token = Some(self.authorization(challenge)?);
        let response = self.ask(path)?;
        self.checked(response)
    }

    fn ask(&self, path: &str) -> Result<Response<Body>, ImageError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.unreachable("it took too long; allow more time with --timeout"));
        }
        let url = format!("{}/v2/{}/{path}", self.base, self.name.repository);
        let mut request = self.agent.get(url).header("accept", ACCEPTED);
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let answer = request.config().timeout_global(Some(left)).build().call();
        answer.map_err(|error| self.unreachable(&error.to_string()))
    }

    fn checked(&self, response: Response<Body>) -> Result<Response<Body>, ImageError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (why, fix) = match status {
            StatusCode::NOT_FOUND => (
                "it has no such image".to_owned(),
                "check its name and its tag",
            ),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (
                "it wants to know who asks".to_owned(),
                "name a file with a user and a password for it with --credentials",
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                ("it was asked too often".to_owned(), "try again later")
            }
            other => (format!("it answered {other}"), "look at its log"),
        };
        Err(ImageError::Denied {
            registry: self.registry.to_owned(),
            name: self.name.to_string(),
            why,
            fix,
        })
    }

    /// What the registry's challenge wants: our password, or a token that somebody else gives for it.
    fn authorization(&self, challenge: &str) -> Result<String, ImageError> {
        let denied = |why: String| ImageError::Denied {
            registry: self.registry.to_owned(),
            name: self.name.to_string(),
            why,
            fix: "name a file with a user and a password for it with --credentials",
        };
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            let own = self.credentials.as_ref().map(Credentials::basic);
            return own.ok_or_else(|| denied("it wants to know who asks".to_owned()));
        }
        let realm = parameter(rest, "realm").filter(|_| scheme.eq_ignore_ascii_case("bearer"));
        let Some(realm) = realm else {
            return Err(denied(
                "it asks for something that is not known here".to_owned(),
            ));
        };
        if !self.may_be_told(&realm) {
            return Err(denied(format!(
                "it sends us to `{realm}` for a token, which is not encrypted"
            )));
        }
        let scope = format!("repository:{}:pull", self.name.repository);
        let mut request = self.agent.get(&realm).query("scope", scope);
        if let Some(service) = parameter(rest, "service") {
            request = request.query("service", service);
        }
        if let Some(own) = &self.credentials {
            request = request.header("authorization", own.basic());
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_secs(1));
        let answer = request.config().timeout_global(Some(left)).build().call();
        let answer = answer.map_err(|error| self.unreachable(&error.to_string()))?;
        let body = self.checked(answer)?.into_body().into_reader();
        let token: Token = serde_json::from_reader(body.take(LONGEST_DOCUMENT))
            .map_err(|_| denied("what it sent us to gives no token".to_owned()))?;
        let token = token.token.or(token.access_token);
        let token = token.ok_or_else(|| denied("what it sent us to gives no token".to_owned()))?;
        Ok(format!("Bearer {token}"))
    }

    /// A password goes over an encrypted connection, to this machine from a registry on it, or where somebody said that it may; nowhere else.
    fn may_be_told(&self, realm: &str) -> bool {
        let Ok(realm) = realm.parse::<Uri>() else {
            return false;
        };
        let is_here = realm.host().is_some_and(is_this_machine);
        match realm.scheme_str() {
            Some("https") => true,
            Some("http") if self.base.starts_with("http://") => {
                self.transport == Transport::Plain || is_here
            }
            _ => false,
        }
    }

    fn unreachable(&self, why: &str) -> ImageError {
        let hint = match (self.transport, self.base.starts_with("https://")) {
            (Transport::Encrypted, true) => " (by https; --plain-http speaks to one without)",
            _ => "",
        };
        ImageError::Unreachable {
            registry: self.registry.to_owned(),
            why: format!("{why}{hint}"),
        }
    }
}

/// The certificates in a file, of which there must be one.
fn roots(path: &Path) -> Result<RootCerts, ImageError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(ImageError::unreadable(path))?;
    let read = file.take(LONGEST_DOCUMENT).read_to_end(&mut text);
    read.map_err(ImageError::unreadable(path))?;
    let what = || format!("the authority `{}`", path.display());
    let mut found: Vec<Certificate<'static>> = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(ImageError::refused(what(), "it is not in PEM form")),
        }
    }
    if found.is_empty() {
        return Err(ImageError::refused(what(), "it has no certificate in it"));
    }
    Ok(RootCerts::new_with_certs(&found))
}

/// `name="value"` of a challenge.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let key = key.trim_matches([' ', ',']);
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

fn base(registry: &str, transport: Transport) -> String {
    let scheme = match (transport, is_this_machine(registry)) {
        (Transport::Encrypted, false) | (Transport::EncryptedHereToo, _) => "https",
        (Transport::Plain, _) | (Transport::Encrypted, true) => "http",
    };
    format!("{scheme}://{registry}")
}

/// Redirections are followed where they stay encrypted; without encryption anybody could make one.
fn agent(registry: &str, transport: Transport, authority: Option<RootCerts>) -> Agent {
    let is_encrypted = base(registry, transport).starts_with("https://");
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(is_encrypted)
        .max_redirects(if is_encrypted { 5 } else { 0 })
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECTING))
        .timeout_recv_response(Some(QUIET));
    if is_this_machine(registry) {
        config = config.proxy(None);
    }
    if let Some(roots) = authority {
        config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
    }
    config.build().into()
}

/// By its name: what a name of somebody else resolves to is not asked.
fn is_this_machine(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear_unless_somebody_says_so() {
        for own in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:5000",
        ] {
            assert!(
                base(own, Transport::Encrypted).starts_with("http://"),
                "{own}"
            );
        }
        for other in [
            "10.0.0.1:5000",
            "registry.test",
            "localhost.test:5000",
            "127.0.0.1.test",
        ] {
            assert!(
                base(other, Transport::Encrypted).starts_with("https://"),
                "{other}"
            );
            assert!(
                base(other, Transport::Plain).starts_with("http://"),
                "{other}"
            );
        }
    }

    #[test]
    fn a_challenge_is_taken_apart() {
        let text = r#"realm="https://auth.test/token",service="a, b",scope="repository:x:pull""#;
        assert_eq!(parameter(text, "realm").unwrap(), "https://auth.test/token");
        assert_eq!(parameter(text, "service").unwrap(), "a, b");
        assert_eq!(parameter(text, "scope").unwrap(), "repository:x:pull");
        assert_eq!(parameter(text, "nothing"), None);
        assert_eq!(parameter("realm=\"broken", "realm"), None);
    }
}
