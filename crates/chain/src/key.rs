//! A key of the chain: read from a file that only its owner may read, or from text; never shown. Signs what it is given.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use k256::ecdsa::SigningKey;

use crate::error::ChainError;

/// A secret, and the account that it stands for.
#[derive(Clone)]
pub struct Key {
    secret: SigningKey,
    address: Address,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.address)
    }
}

/// Longer than any key, with room for an end of line.
const LONGEST_FILE: u64 = 256;

impl Key {
    /// 64 hexadecimal digits, with or without `0x`. `from` says where they stood.
    pub fn from_hex(text: &str, from: &str) -> Result<Self, ChainError> {
        let wrong = || {
            ChainError::Key(format!(
                "{from} holds no key: 64 hexadecimal digits are expected"
            ))
        };
        let bytes: [u8; 32] = hex::decode_to_array(text.trim()).map_err(|_| wrong())?;
        let secret = SigningKey::from_slice(&bytes).map_err(|_| wrong())?;
        Ok(Self::new(secret))
    }

    /// A file that others may read is refused: whoever reads it has the money.
    pub fn from_file(path: &Path) -> Result<Self, ChainError> {
        let failed = |error: std::io::Error| {
            ChainError::Key(format!("cannot read the key `{}`: {error}", path.display()))
        };
        let file = OpenOptions::new().read(true).open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.mode() & 0o077 != 0 {
            return Err(ChainError::Key(format!(
                "others may read the key `{}`; take that from them with `chmod 600`",
                path.display()
            )));
        }
        let mut text = String::new();
        file.take(LONGEST_FILE)
            .read_to_string(&mut text)
            .map_err(failed)?;
        Self::from_hex(&text, &format!("`{}`", path.display()))
    }

    /// Makes a key and writes it to a new file.
    pub fn generate(path: &Path) -> Result<Self, ChainError> {
        let failed = |error: std::io::Error| {
            ChainError::Key(format!(
                "cannot write the key `{}`: {error}",
                path.display()
            ))
        };
        let secret = loop {
            let mut bytes = [0; 32];
            let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
            let got = got.map_err(|errno| failed(errno.into()))?;
            // One number in 2^128 is no key.
            if got == bytes.len()
                && let Ok(secret) = SigningKey::from_slice(&bytes)
            {
                break secret;
            }
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let text = format!("0x{}\n", hex::encode(secret.to_bytes()));
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            // Half a key would stand in the way of the next attempt.
            let _ = std::fs::remove_file(path);
            return Err(failed(error));
        }
        Ok(Self::new(secret))
    }

    pub const fn address(&self) -> Address {
        self.address
    }

    fn new(secret: SigningKey) -> Self {
        let point = secret.verifying_key().to_encoded_point(false);
        let bytes = point.as_bytes().get(1..).unwrap_or_default();
        let hash = keccak256(bytes);
        Self {
            address: Address::from_word(hash),
            secret,
        }
    }

    /// The signature over a hash: r, s and the parity of y.
    pub(crate) fn sign(&self, hash: B256) -> Result<(U256, U256, bool), ChainError> {
        let signed = self.secret.sign_prehash_recoverable(hash.as_slice());
        let (signature, recovery) =
            signed.map_err(|error| ChainError::Key(format!("cannot sign: {error}")))?;
        let (r, s) = signature.split_bytes();
        Ok((
            U256::from_be_slice(&r),
            U256::from_be_slice(&s),
            recovery.is_y_odd(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The first account of every development chain.
    const KNOWN: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    #[test]
    fn a_key_stands_for_the_account_that_everybody_computes() {
        let key = Key::from_hex(KNOWN, "a test").unwrap();
        assert_eq!(
            key.address().to_string(),
            "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
        );
        assert!(
            !format!("{key:?}").contains("ac0974"),
            "a secret is not shown"
        );
        for bad in ["", "0x12", "zz", &"0".repeat(64), &"f".repeat(64)] {
            let refused = Key::from_hex(bad, "a test").unwrap_err().to_string();
            assert!(refused.contains("a test holds no key"), "{refused}");
            assert!(bad.len() < 9 || !refused.contains(bad), "{refused}");
        }
    }

    #[test]
    fn a_key_is_made_for_its_owner_alone_and_one_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let made = Key::generate(&path).unwrap();
        assert_eq!(Key::from_file(&path).unwrap().address(), made.address());
        assert!(Key::generate(&path).is_err(), "a key is not overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Key::from_file(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        assert!(Key::from_file(&dir.path().join("none")).is_err());
    }
}
