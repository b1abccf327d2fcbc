//! The name of an image: `HOST/NAME:TAG`, `NAME:TAG`, `NAME@sha256:…`, or an id. There is no registry that a name without one means.

use std::fmt;

use crate::digest::Digest;
use crate::error::ImageError;

/// A name that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// `host` or `host:port`, where the name has one.
    pub registry: Option<String>,
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

const LONGEST: usize = 512;

impl Reference {
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let bad = |why| ImageError::Name {
            text: text.chars().take(200).collect(),
            why,
        };
        if text.is_empty() || text.len() > LONGEST {
            return Err(bad("it is empty or too long"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::parse(digest);
                let why = "what follows `@` is not sha256: and 64 hexadecimal digits";
                (rest, Some(digest.ok_or_else(|| bad(why))?))
            }
            None => (text, None),
        };
        let is_host = |first: &str| first == "localhost" || first.contains(['.', ':']);
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if is_host(first) => (Some(first.to_owned()), rest),
            _ => (None, rest),
        };
        if registry.as_deref().is_some_and(|host| !is_address(host)) {
            return Err(bad("its registry is not HOST or HOST:PORT"));
        }
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        if !repository.split('/').all(is_part) {
            return Err(bad("names are made of a-z, 0-9, `.`, `_`, `-` and `/`"));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("its tag has characters that no tag has"));
        }
        Ok(Self {
            registry,
            repository: repository.to_owned(),
            tag,
            digest,
        })
    }

    /// With a tag always, without a digest: what a tag is kept by.
    pub fn tagged(&self) -> String {
        format!(
            "{}:{}",
            self.place(),
            self.tag.as_deref().unwrap_or("latest")
        )
    }

    /// By which this very content can be asked for.
    pub fn pinned(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.place())
    }

    /// What a registry is asked for: the digest where there is one.
    pub(crate) fn wanted(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }

    fn place(&self) -> String {
        match &self.registry {
            Some(registry) => format!("{registry}/{}", self.repository),
            None => self.repository.clone(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_part(part: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_inner = |b: u8| is_plain(b) || matches!(b, b'.' | b'_' | b'-');
    part.bytes().all(is_inner)
        && part.bytes().next().is_some_and(is_plain)
        && part.bytes().next_back().is_some_and(is_plain)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_inner = |b: u8| is_word(b) || matches!(b, b'.' | b'-');
    tag.len() <= 128 && tag.bytes().all(is_inner) && tag.bytes().next().is_some_and(is_word)
}

fn is_address(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let is_label = |label: &str| {
        label.bytes().all(is_inner) && label.bytes().next().is_some_and(|b| b != b'-')
    };
    let v6 = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let name = match v6 {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.split('.').all(is_label),
    };
    name && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_everybody_writes_them() {
        let read = |text: &str| Reference::parse(text).unwrap();
        assert_eq!(read("busybox").tagged(), "busybox:latest");
        assert_eq!(read("team/tool:1.2").registry, None);
        let full = read("localhost:5000/team/tool:v1");
        assert_eq!(full.registry.as_deref(), Some("localhost:5000"));
        assert_eq!(full.repository, "team/tool");
        assert_eq!(full.wanted(), "v1");
        let digest = Digest::of(b"x");
        let pinned = read(&format!("[::1]:5000/a@{digest}"));
        assert_eq!(pinned.wanted(), digest.to_string());
        assert_eq!(pinned.to_string(), format!("[::1]:5000/a@{digest}"));
        assert_eq!(read("a:b").pinned(&digest), format!("a@{digest}"));
    }

    #[test]
    fn what_could_be_a_path_or_an_address_of_something_else_is_no_name() {
        let long = "a".repeat(600);
        for bad in [
            "",
            "A",
            "../etc",
            "a/../b",
            "/a",
            "a/",
            "a:",
            "a:../x",
            "a@sha256:1",
            "a b",
            "a\n",
            "ho st.x/a",
            "x.y:99999/a",
            "user@host.x/a",
            "x.y/a?b",
            "-a",
            "a:b:c",
            &long,
        ] {
            assert!(Reference::parse(bad).is_err(), "{bad:?}");
        }
    }
}
