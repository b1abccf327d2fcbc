//! PUBLIC enforcement: what is decided goes to bonds as well as to the standings. Where the bonds are is the caller's; here is who stands behind a worker, and what is told of it.

use std::sync::Arc;

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Deed, Entry, Offence};
use cofferdam_store::bundle::PublicKey;

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::ledger::{Enforcer, LocalLedger};
use crate::model::{Advert, Enforcement, JobRecord};
use crate::names;
use crate::store::{self, Seen};

/// Who holds bonds. Its functions block.
pub trait Bonds: Send + Sync + std::fmt::Debug + 'static {
    /// Why nothing is at stake for a worker of this key with this account; `None` where enough is. An error where that cannot be found out now.
    fn unfit(&self, account: Option<&str>, key: &PublicKey) -> Result<Option<String>, String>;

    /// Takes what was decided, each once however often it is told. When this has returned, nothing of it is lost.
    fn take(&self, decided: &[Decided]) -> Result<(), String>;
}

/// Something that is held for or against a worker, with what a bond has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub worker: String,
    /// `None`: no bond is known for it.
    pub account: Option<String>,
    /// The job, by its payload.
    pub job: Digest,
    pub entry: Entry,
    /// The accounts of those who found it out.
    pub beneficiaries: Vec<String>,
}

/// In the ledger's bucket.
const BOND: &str = "bond.";

impl Enforcer {
    /// Tells everybody who has to know, bonds last: a worker that lost its bond is in quarantine already.
    pub(crate) async fn settle_record(&self, record: &JobRecord) -> Result<(), FleetError> {
        self.settle(&record.entries).await?;
        let Self::Public { bonds, local } = self else {
            return Ok(());
        };
        let mut decided = Vec::new();
        for held in &record.entries {
            let beneficiaries = match held.entry.what {
                Deed::Offence(Offence::FailedVerification) => finders(local, record).await?,
                Deed::Offence(_) | Deed::Confirmed | Deed::Lifted => Vec::new(),
            };
            decided.push(Decided {
                worker: held.worker.clone(),
                account: local.bond_of(&held.worker).await?,
                job: record.digest,
                entry: held.entry.clone(),
                beneficiaries,
            });
        }
        let bonds = Arc::clone(bonds);
        let taken = tokio::task::spawn_blocking(move || bonds.take(&decided)).await;
        taken
            .map_err(|error| error.to_string())
            .and_then(|taken| taken)
            .map_err(FleetError::talk("cannot keep what is to be settled"))
    }

    /// Why the answers of a worker do not count; `None` where they do.
    pub(crate) async fn unfit(
        &self,
        worker: &str,
        key: &PublicKey,
    ) -> Result<Option<String>, FleetError> {
        let Self::Public { bonds, local } = self else {
            return Ok(None);
        };
        let account = local.bond_of(worker).await?;
        let (bonds, key) = (Arc::clone(bonds), *key);
        let (asked, named) = (account.clone(), account);
        let unfit = tokio::task::spawn_blocking(move || bonds.unfit(asked.as_deref(), &key)).await;
        let unfit = unfit
            .map_err(|error| error.to_string())
            .and_then(|unfit| unfit)
            .map_err(FleetError::talk("cannot ask about a bond"))?;
        if unfit.is_none()
            && let Some(account) = named
        {
            local.pin_bond(worker, &account).await?;
        }
        Ok(unfit)
    }
}

/// Those who agreed on what somebody else answered wrongly.
async fn finders(local: &LocalLedger, record: &JobRecord) -> Result<Vec<String>, FleetError> {
    let mut accounts = Vec::new();
    for held in &record.entries {
        if held.entry.what == Deed::Confirmed {
            accounts.extend(local.bond_of(&held.worker).await?);
        }
    }
    Ok(accounts)
}

impl LocalLedger {
    /// The account that stands for a worker: the one that was good when its first answer counted. Until then, the one that it names. A worker does not change it to lose another.
    pub async fn bond_of(&self, worker: &str) -> Result<Option<String>, FleetError> {
        let fleet: &Fleet = self.fleet();
        let pinned: Option<Seen<String>> = store::get(&fleet.ledger, &bond_key(worker)).await?;
        if let Some(pinned) = pinned {
            return Ok(Some(pinned.value));
        }
        let advert = format!("worker.{}", names::token(worker));
        let advert: Option<Seen<Advert>> = store::get(&fleet.workers, &advert).await?;
        Ok(advert.and_then(|advert| advert.value.bond))
    }

    async fn pin_bond(&self, worker: &str, account: &str) -> Result<(), FleetError> {
        store::create(&self.fleet().ledger, &bond_key(worker), &account)
            .await
            .map(|_| ())
    }
}

fn bond_key(worker: &str) -> String {
    format!("{BOND}{}", names::token(worker))
}

impl Enforcement {
    pub const fn is_public(&self) -> bool {
        matches!(self, Self::Public { .. })
    }
}
