//! Keys: reading, making and using them. Ed25519 over the bytes of the manifest. A secret key is never shown.
//!
//! A key file holds 32 bytes as 64 hexadecimal digits or as base64, or PEM as `openssl genpkey -algorithm ed25519` writes it. The latter is PKCS#8, which for this one algorithm is
//! always the same 16 bytes with the key after them; a public key in PEM likewise has 12 bytes before it.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};

use crate::data_dir::write_new;
use crate::error::StoreError;
use crate::random;

use super::format::{SignatureRecord, refused};

const ALGORITHM: &str = "ed25519";
/// SEQUENCE { INTEGER 0, SEQUENCE { OID 1.3.101.112 }, OCTET STRING { OCTET STRING of 32 bytes … } }
const SECRET_DER: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes … }
const PUBLIC_DER: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// Far more than a key needs.
const LONGEST_KEY_FILE: u64 = 4096;

/// Signs bundles and receipts.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

/// Who signed. Written as base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl SigningKey {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// Reads a key file. One that others can read is refused: whoever reads it can sign in your name.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let failed = || StoreError::io("read the key file", path);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking())
            .open(path)
            .map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        if !metadata.is_file() {
            return Err(invalid(path, "not a regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            let why = format!(
                "others can read or change this key file (mode {:03o}); run `chmod 600 {}`, and make a new key if others may have read it",
                metadata.mode() & 0o777,
                path.display()
            );
            return Err(invalid(path, &why));
        }
        let mut text = String::new();
        file.take(LONGEST_KEY_FILE)
            .read_to_string(&mut text)
            .map_err(failed())?;
        let seed = secret_bytes(&text).map_err(|why| invalid(path, why))?;
        Ok(Self::from_seed(&seed))
    }

    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, manifest: &[u8]) -> SignatureRecord {
        SignatureRecord {
            algorithm: ALGORITHM.to_owned(),
            public_key: self.public_key().to_string(),
            signature: BASE64.encode(&self.0.sign(manifest).to_bytes()),
        }
    }

    /// Over a message that says itself what it is for: nothing else that this key signs may be the same bytes.
    pub fn sign_message(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    pub(crate) fn to_pem(&self) -> String {
        pem("PRIVATE KEY", &SECRET_DER, self.0.as_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.public_key())
    }
}

/// Makes a key and writes it to a new file that its owner alone can read, in PEM, so that openssl can use it too.
pub fn generate_key(path: &Path) -> Result<PublicKey, StoreError> {
    let seed = random::bytes().map_err(StoreError::io("get random bytes for", path))?;
    let key = SigningKey::from_seed(&seed);
    let written = write_new(path, key.to_pem().as_bytes(), 0o600);
    written.map_err(StoreError::io("write the new key file", path))?;
    Ok(key.public_key())
}

/// A key file must not make us wait: it could be a pipe.
fn nonblocking() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn invalid(path: &Path, why: &str) -> StoreError {
    StoreError::Invalid {
        field: "sign key",
        value: path.display().to_string(),
        why: why.to_owned(),
    }
}

/// The reasons never quote the text: it may be most of a key.
fn secret_bytes(text: &str) -> Result<[u8; 32], &'static str> {
    let text = text.trim();
    if text.contains("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return Err(
            "an OpenSSH key; make one with `openssl genpkey -algorithm ed25519`, or let cofferdam make one",
        );
    }
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
        return Err(
            "an encrypted key; write it without a passphrase with `openssl pkey`, readable by you alone",
        );
    }
    if text.starts_with("-----BEGIN ") {
        return from_pem(text, "PRIVATE KEY", &SECRET_DER)
            .ok_or("not an Ed25519 key as `openssl genpkey -algorithm ed25519` writes it");
    }
    raw_bytes(text)
        .ok_or("not a key: 64 hexadecimal digits, 32 bytes as base64, or PEM (PKCS#8) are")
}

fn raw_bytes(text: &str) -> Option<[u8; 32]> {
    let bytes = match text.len() {
        64 => HEXLOWER_PERMISSIVE.decode(text.as_bytes()),
        _ => BASE64.decode(text.as_bytes()),
    };
    bytes.ok()?.try_into().ok()
}

fn pem(label: &str, prefix: &[u8], key: &[u8; 32]) -> String {
    let body = BASE64.encode(&[prefix, key].concat());
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

fn from_pem(text: &str, label: &str, prefix: &[u8]) -> Option<[u8; 32]> {
    let body = text
        .strip_prefix(&format!("-----BEGIN {label}-----"))?
        .strip_suffix(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = BASE64.decode(body.as_bytes()).ok()?;
    der.strip_prefix(prefix)?.try_into().ok()
}

impl PublicKey {
    /// Whether this key signed these bytes.
    pub fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        self.0.verify_strict(message, &signature).is_ok()
    }

    /// The key itself.
    pub fn bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The first 16 hexadecimal digits of the SHA-256 over the key's bytes.
    pub fn id(&self) -> String {
        let digest = cofferdam_contract::canonical::Digest::of(self.0.as_bytes());
        digest.hex().chars().take(16).collect()
    }

    /// PEM, for `openssl pkeyutl -verify -pubin -inkey`.
    pub fn to_pem(&self) -> String {
        pem("PUBLIC KEY", &PUBLIC_DER, self.0.as_bytes())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let text = text.trim();
        let bytes = match text.starts_with("-----BEGIN ") {
            true => from_pem(text, "PUBLIC KEY", &PUBLIC_DER),
            false => raw_bytes(text),
        };
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        // A weak key fits signatures that nobody made.
        key.filter(|key| !key.is_weak())
            .map(Self)
            .ok_or_else(|| StoreError::Invalid {
                field: "public key",
                value: text.chars().take(80).collect(),
                why: "not an Ed25519 public key: 32 bytes as base64 or hexadecimal digits, or PEM"
                    .to_owned(),
            })
    }
}

/// Whose signature this is, if it fits.
pub(super) fn verify(record: &SignatureRecord, manifest: &[u8]) -> Result<PublicKey, StoreError> {
    if record.algorithm != ALGORITHM {
        return Err(refused(format!(
            "it is signed with `{}`, and only {ALGORITHM} is known",
            record.algorithm.escape_debug()
        )));
    }
    let key: PublicKey = record
        .public_key
        .parse()
        .map_err(|_| refused("the public key in signature.json is not an Ed25519 key"))?;
    let signature = BASE64
        .decode(record.signature.as_bytes())
        .ok()
        .and_then(|bytes| Signature::from_slice(&bytes).ok())
        .ok_or_else(|| refused("the signature in signature.json is not 64 bytes as base64"))?;
    match key.0.verify_strict(manifest, &signature) {
        Ok(()) => Ok(key),
        Err(_) => Err(refused(format!(
            "the signature of {key} does not fit the manifest: one of them was changed"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn write(dir: &Path, text: &str, mode: u32) -> std::path::PathBuf {
        let path = dir.join("key");
        let _ = fs::remove_file(&path);
        let written = fs::write(&path, text);
        assert!(written.is_ok());
        assert!(fs::set_permissions(&path, Permissions::from_mode(mode)).is_ok());
        path
    }

    /// RFC 8032, section 7.1, test 1.
    const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    #[test]
    fn every_form_of_a_key_is_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let seed = raw_bytes(SEED).unwrap();
        let key = SigningKey::from_seed(&seed);
        assert_eq!(key.public_key(), PUBLIC.parse().unwrap());
        assert_eq!(key.public_key(), key.public_key().to_pem().parse().unwrap());
        for text in [
            SEED.to_owned(),
            SEED.to_uppercase(),
            format!("{}\n", BASE64.encode(&seed)),
            key.to_pem(),
        ] {
            let read = SigningKey::read(&write(dir.path(), &text, 0o600)).unwrap();
            assert_eq!(read.public_key(), key.public_key());
        }
        assert!(!format!("{key:?}").contains(&SEED[..8]));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o644, 0o640, 0o602] {
            let error = SigningKey::read(&write(dir.path(), SEED, mode)).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        assert!(SigningKey::read(&write(dir.path(), SEED, 0o400)).is_ok());
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        let dir = tempfile::tempdir().unwrap();
        for (text, why) in [
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret", "OpenSSH"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nsecret", "encrypted"),
            (
                "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----",
                "Ed25519",
            ),
            ("secret", "not a key"),
            ("", "not a key"),
        ] {
            let error = SigningKey::read(&write(dir.path(), text, 0o600)).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(why) && !said.contains("secret"), "{said}");
        }
        assert!(SigningKey::read(dir.path()).is_err());
    }

    #[test]
    fn a_new_key_is_private_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let public = generate_key(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::read(&path).unwrap().public_key(), public);
        let before = fs::read(&path).unwrap();
        assert!(generate_key(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_ne!(generate_key(&dir.path().join("other")).unwrap(), public);
    }

    #[test]
    fn a_weak_public_key_is_no_key() {
        assert!(BASE64.encode(&[0; 32]).parse::<PublicKey>().is_err());
        let mut one = [0; 32];
        one[0] = 1;
        assert!(BASE64.encode(&one).parse::<PublicKey>().is_err());
    }
}
