//! Large things lie in the object store, each under the name of its job, and go when the job is gone; messages have no room for them.

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::strict_json::MAX_BYTES;

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::judge::Published;
use crate::model::{Carried, JobRecord};
use crate::names;
use crate::store;

/// What a message holds at most; the server's own bound is a megabyte for all of it.
const INLINE: usize = 96 << 10;
/// The largest document that is fetched: whoever wrote it is not trusted with our memory.
pub const LARGEST: usize = MAX_BYTES;
/// The largest request of a daemon, its files included.
pub const LARGEST_REQUEST: usize = 256 << 20;
/// The largest record of a run, what it wrote included.
pub const LARGEST_RECORD: usize = 128 << 20;

impl Fleet {
    /// Puts a document where others find it.
    pub(crate) async fn carry(&self, job: &str, text: String) -> Result<Carried, FleetError> {
        if text.len() <= INLINE {
            return Ok(Carried::Inline { text });
        }
        self.carry_bytes(job, text.as_bytes()).await
    }

    /// The same for what need not be text.
    pub(crate) async fn carry_bytes(&self, job: &str, bytes: &[u8]) -> Result<Carried, FleetError> {
        let sha256 = Digest::of(bytes);
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let name = format!("{}.{}", names::token(job), sha256.hex());
        let known = match self.described(&name).await {
            Err(FleetError::Damaged { .. }) => None,
            known => known?,
        };
        // Written again it would be taken from whoever reads it just now.
        if known.is_none_or(|known| known.size != bytes.len()) {
            self.keep(&name, bytes).await?;
        }
        Ok(Carried::Object {
            name,
            bytes: length,
            sha256,
        })
    }

    /// Gets a document. One that is larger than it may be, or another than was said, is an error and never half a document.
    pub(crate) async fn fetch(&self, carried: &Carried) -> Result<Vec<u8>, FleetError> {
        self.fetch_at_most(carried, LARGEST).await
    }

    /// The same, with another bound.
    pub async fn fetch_at_most(
        &self,
        carried: &Carried,
        largest: usize,
    ) -> Result<Vec<u8>, FleetError> {
        let (name, sha256) = match carried {
            Carried::Inline { text } => return Ok(text.clone().into_bytes()),
            Carried::Object { name, sha256, .. } => (name, sha256),
        };
        let bytes = self.contents(name, largest).await?;
        if Digest::of(&bytes) != *sha256 {
            return Err(FleetError::Damaged {
                what: format!("object {name}"),
                why: "it is not what its digest says".to_owned(),
            });
        }
        Ok(bytes)
    }

    /// The same for what is said to have so many bytes: no more of it is fetched, and no less of it will do.
    pub async fn fetch_exactly(
        &self,
        carried: &Carried,
        bytes: u64,
    ) -> Result<Vec<u8>, FleetError> {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        let fetched = self.fetch_at_most(carried, most).await?;
        if fetched.len() == most {
            return Ok(fetched);
        }
        Err(FleetError::Damaged {
            what: "a file that a run left".to_owned(),
            why: format!(
                "it is said to have {bytes} bytes, and has {}",
                fetched.len()
            ),
        })
    }

    /// The files that came with an answer.
    pub async fn files_of(&self, published: &Published) -> Result<Vec<Carried>, FleetError> {
        match &published.files {
            Some(list) => {
                let bytes = self.fetch(list).await?;
                store::read(&bytes, || "the list of an answer's files".to_owned())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Whether what a message names is there.
    pub(crate) async fn has(&self, carried: &Carried) -> Result<bool, FleetError> {
        let Carried::Object { name, .. } = carried else {
            return Ok(true);
        };
        match self.described(name).await {
            Ok(info) => Ok(info.is_some()),
            Err(FleetError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what a job has in the object store: its payload, its request, and what came with its answers. What is left where this fails goes with its age.
    pub async fn release(&self, record: &JobRecord) -> Result<(), FleetError> {
        let mut carried = vec![record.payload.clone()];
        carried.extend(record.request.clone());
        for slot in &record.slots {
            let subject = names::results_of(&record.job, slot.number);
            let answers: Vec<Published> = self.all_of(&self.results, subject).await?;
            for answer in answers {
                match self.files_of(&answer).await {
                    Ok(files) => carried.extend(files),
                    Err(error @ FleetError::Talk { .. }) => return Err(error),
                    // A list that is none names nothing.
                    Err(_) => {}
                }
                carried.push(answer.envelope);
                carried.extend(answer.more);
                carried.extend(answer.files);
            }
        }
        for one in carried {
            let Carried::Object { name, .. } = one else {
                continue;
            };
            // Only its own: a worker writes these names.
            if !name.starts_with(&format!("{}.", names::token(&record.job))) {
                continue;
            }
            self.discard(&name).await?;
        }
        Ok(())
    }
}
