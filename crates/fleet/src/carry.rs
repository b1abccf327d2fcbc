//! Documents too large for a message: they lie in the object store under the digest of what they are.

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::strict_json::MAX_BYTES;
use tokio::io::AsyncReadExt as _;

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::model::Carried;

/// What a message holds at most; the server's own bound is a megabyte for all of it.
const INLINE: usize = 96 << 10;
/// The largest document that is fetched: whoever wrote it is not trusted with our memory.
pub const LARGEST: usize = MAX_BYTES;

impl Fleet {
    /// Puts a document where others find it.
    pub(crate) async fn carry(&self, text: String) -> Result<Carried, FleetError> {
        if text.len() <= INLINE {
            return Ok(Carried::Inline { text });
        }
        let sha256 = Digest::of(text.as_bytes());
        let name = sha256.hex();
        let put = self.objects.put(name.as_str(), &mut text.as_bytes()).await;
        put.map_err(FleetError::talk("cannot store a large document"))?;
        Ok(Carried::Object {
            name,
            bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
            sha256,
        })
    }

    /// Gets a document. One that is larger than it may be, or another than was said, is an error and never half a document.
    pub(crate) async fn fetch(&self, carried: &Carried) -> Result<Vec<u8>, FleetError> {
        let (name, sha256) = match carried {
            Carried::Inline { text } => return Ok(text.clone().into_bytes()),
            Carried::Object { name, sha256, .. } => (name, sha256),
        };
        let damaged = |why: String| FleetError::Damaged {
            what: format!("object {name}"),
            why,
        };
        let object = self.objects.get(name.as_str()).await;
        let object = object.map_err(FleetError::talk("cannot get a large document"))?;
        let mut bytes = Vec::new();
        let most = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
        let read = object.take(most).read_to_end(&mut bytes).await;
        read.map_err(|error| damaged(error.to_string()))?;
        if bytes.len() > LARGEST {
            return Err(damaged(format!("it has more than {LARGEST} bytes")));
        }
        if Digest::of(&bytes) != *sha256 {
            return Err(damaged("it is not what its digest says".to_owned()));
        }
        Ok(bytes)
    }
}
