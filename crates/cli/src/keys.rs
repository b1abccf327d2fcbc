//! `cofferdam keys`: keys by name, and how the other verbs find one. A secret key goes to a file or nowhere.

use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::DataDir;
use cofferdam_store::bundle::{PublicKey, SigningKey};
use cofferdam_store::keyring::{self, Holds, KeyList, KeyRing, ListedKey};
use serde::Serialize;
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::keys::{KeysArgs, KeysVerb, TrustArgs};
use crate::failure::{self, Failure};
use crate::fleet::say;
use crate::history;
use crate::terminal::output::document;

pub(crate) fn keys(args: &KeysArgs, places: Places) -> Result<ExitCode, Failure> {
    let dir = history::place(places.data_dir).ok_or_else(nowhere)?;
    let ring = KeyRing::of(&dir);
    let text = match &args.verb {
        KeysVerb::Generate { name, json } => told(&ring.generate(name)?, *json)?,
        KeysVerb::List { json } => {
            let found = ring.list()?;
            tell_of_unreadable(&found);
            list(&found.keys, *json)?
        }
        KeysVerb::Show { name, pem, json } => {
            let key = ring.find(name)?;
            match pem {
                true => to_pem(&key)?,
                false => told(&key, *json)?,
            }
        }
        KeysVerb::Import { name, file, json } => {
            let key = ring.import(name, file);
            let about = Failure::about_file(file, ErrorCode::InputUnreadable);
            told(&key.map_err(about)?, *json)?
        }
        KeysVerb::Export {
            name,
            output,
            secret,
        } => return export(&ring, name, output.as_deref(), *secret),
        KeysVerb::Remove { name, json } => {
            ring.remove(name)?;
            match json {
                true => document("cofferdam.keys/1", &json!({ "removed": name }))?,
                false => String::new(),
            }
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn tell_of_unreadable(found: &KeyList) {
    for (name, why) in &found.unreadable {
        let code = why.code().as_str();
        say(&format!("the key `{name}` is left out: {why} [{code}]"));
    }
}

fn export(
    ring: &KeyRing,
    name: &str,
    output: Option<&Path>,
    secret: bool,
) -> Result<ExitCode, Failure> {
    match (output, secret) {
        (Some(output), true) => {
            let about = Failure::about_file(output, ErrorCode::OutputWriteFailed);
            ring.export_secret(name, output).map_err(about)?;
        }
        (Some(output), false) => {
            let pem = to_pem(&ring.find(name)?)?;
            let written = std::fs::File::create_new(output)
                .and_then(|mut file| std::io::Write::write_all(&mut file, pem.as_bytes()));
            let what = format!("cannot write `{}`", output.display());
            written.map_err(|error| Failure::io(ErrorCode::OutputWriteFailed, &what, &error))?;
        }
        (None, _) => failure::print(&to_pem(&ring.find(name)?)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn to_pem(key: &ListedKey) -> Result<String, Failure> {
    Ok(key.public_key.parse::<PublicKey>()?.to_pem())
}

fn told(key: &ListedKey, json: bool) -> Result<String, Failure> {
    match json {
        true => document("cofferdam.key/1", key),
        false => Ok(format!("{}\n", key.public_key)),
    }
}

fn list(keys: &[ListedKey], json: bool) -> Result<String, Failure> {
    if json {
        return document("cofferdam.keys/1", &json!({ "keys": keys }));
    }
    let mut text = String::new();
    let longest = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
    for key in keys {
        let holds = match key.holds {
            Holds::Secret => "signs",
            Holds::Public => "trusted",
        };
        let (name, id, public) = (&key.name, &key.id, &key.public_key);
        text.push_str(&format!("{name:longest$}  {holds:7}  {id}  {public}\n"));
    }
    Ok(text)
}

/// To sign with: a name of the ring, or a file.
pub(crate) fn signing(key: &Path, dir: Option<&DataDir>) -> Result<SigningKey, Failure> {
    if let (Some(name), Some(dir)) = (key.to_str(), dir) {
        let ring = KeyRing::of(dir);
        if ring.has_secret(name) {
            return Ok(ring.signing(name)?);
        }
    }
    SigningKey::read(key).map_err(Failure::about_file(key, ErrorCode::InputUnreadable))
}

/// Whose signatures count, and what has to be signed.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// With the names they have here.
    known: Vec<(String, PublicKey)>,
    /// Only these, where any were named.
    named: Option<Vec<PublicKey>>,
}

/// Who signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Signer {
    pub(crate) key: String,
    pub(crate) key_id: String,
    /// As the key is called here; null for one that is not known here.
    pub(crate) name: Option<String>,
    /// Whether it is one of those that count.
    pub(crate) trusted: bool,
}

impl Trust {
    pub(crate) fn new(args: &TrustArgs, dir: Option<&DataDir>) -> Result<Self, Failure> {
        let ring = dir.map(KeyRing::of);
        let mut trust = Self::default();
        // A damaged key of the ring, or a ring that cannot be read, must not stand in the way of checking with another.
        let listed = ring.as_ref().and_then(|ring| ring.list().ok());
        let listed = listed.unwrap_or_default();
        tell_of_unreadable(&listed);
        for key in listed.keys {
            trust.known.push((key.name, key.public_key.parse()?));
        }
        let mut named = Vec::new();
        if args.require_signature {
            named.extend(trust.known.iter().map(|(_, key)| *key));
        }
        for text in &args.key {
            let key = public(text, ring.as_ref())?;
            named.push(key);
        }
        if let Some(file) = &args.trusted {
            let about = Failure::about_file(file, ErrorCode::InputUnreadable);
            let read = keyring::read_trusted(file).map_err(about)?;
            named.extend(read.iter().map(|(_, key)| *key));
            trust.known.extend(read);
        }
        let is_asked = args.require_signature || !args.key.is_empty() || args.trusted.is_some();
        trust.named = is_asked.then_some(named);
        Ok(trust)
    }

    /// Whether something unsigned is refused.
    pub(crate) const fn is_required(&self) -> bool {
        self.named.is_some()
    }

    pub(crate) fn signer(&self, key: PublicKey) -> Signer {
        let known = self.known.iter().find(|(_, known)| *known == key);
        Signer {
            key: key.to_string(),
            key_id: key.id(),
            name: known.map(|(name, _)| name.clone()),
            trusted: match &self.named {
                Some(named) => named.contains(&key),
                None => known.is_some(),
            },
        }
    }
}

/// A name of the ring, the key itself, or a file that holds it.
fn public(text: &str, ring: Option<&KeyRing>) -> Result<PublicKey, Failure> {
    if let Some(found) = ring.and_then(|ring| ring.find(text).ok()) {
        return Ok(found.public_key.parse()?);
    }
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    let read = std::fs::read_to_string(text).ok();
    let key = read.and_then(|text| text.parse().ok());
    key.ok_or_else(|| {
        let fix = "is neither a name that `cofferdam keys list` shows, nor a public key, nor a file with one";
        Failure::problem("--key", text, fix)
    })
}

pub(crate) fn nowhere() -> Failure {
    Failure::problem(
        "--data-dir",
        "",
        "says where this is kept; name a directory",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_key_does_not_hide_the_others() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let ring = KeyRing::of(&dir);
        let good = ring.generate("good").unwrap();
        let damaged = ring.generate("damaged").unwrap();
        let keys = place.path().join("keys");
        for entry in std::fs::read_dir(&keys).unwrap() {
            let path = entry.unwrap().path();
            if path.file_stem().is_some_and(|name| name == "damaged") {
                std::fs::write(&path, "nonsense").unwrap();
            }
        }
        let asked = TrustArgs {
            key: Vec::new(),
            trusted: None,
            require_signature: true,
        };
        let trust = Trust::new(&asked, Some(&dir)).unwrap();
        let counts = |key: &ListedKey| trust.signer(key.public_key.parse().unwrap()).trusted;
        assert!(counts(&good) && !counts(&damaged));
    }
}
