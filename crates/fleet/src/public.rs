//! PUBLIC enforcement: what is decided goes to bonds as well as to the standings. Where the bonds are is the caller's; here is who stands behind a worker, and what is told of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Deed, Entry, Offence};
use cofferdam_store::bundle::PublicKey;
use jiff::Timestamp;

use crate::connect::Fleet;
use crate::coordinator::Trust;
use crate::error::FleetError;
use crate::ledger::{Enforcer, LocalLedger};
use crate::model::{Advert, Enforcement, JobRecord};
use crate::names;
use crate::store::{self, Seen};

/// Who holds bonds. Its functions block.
pub trait Bonds: Send + Sync + std::fmt::Debug + 'static {
    /// Why too little is at stake for a worker of this key with this account that does so many jobs at a time; `None` where enough is. An error where that cannot be found out now.
    fn unfit(
        &self,
        account: Option<&str>,
        key: &PublicKey,
        slots: u32,
    ) -> Result<Option<String>, String>;

    /// Has something of a worker's bond locked for a job that it has taken. Once, however often it is told.
    fn bind(&self, part: &Part) -> Result<(), String>;

    /// Takes what was decided, each once however often it is told. When this has returned, nothing of it is lost.
    fn take(&self, decided: &[Decided]) -> Result<(), String>;

    /// Has what was locked let go, after everything that was decided before.
    fn free(&self, parts: &[Part]) -> Result<(), String>;
}

/// What a worker has to do with a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub worker: String,
    /// What it is known by; `None` where it has never been seen.
    pub key: Option<PublicKey>,
    /// The account that it names; whether that stands for its key, the bonds have to find out. `None`: no bond is known for it.
    pub account: Option<String>,
    /// The job, by its payload.
    pub job: Digest,
    /// Which part of the job, for those who have to name it.
    pub id: String,
    pub deadline: Timestamp,
}

/// Something that is held for or against a worker, with what a bond has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub part: Part,
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
        let Self::Public {
            bonds,
            local,
            trust,
        } = self
        else {
            return Ok(());
        };
        let mut decided = Vec::new();
        for held in &record.entries {
            let beneficiaries = match held.entry.what {
                Deed::Offence(Offence::FailedVerification) => finders(local, record).await?,
                Deed::Offence(_) | Deed::Confirmed | Deed::Lifted => Vec::new(),
            };
            // The name of an entry is that of the part, and what it is.
            let id = held.entry.id.rsplit_once('.').map_or("", |(part, _)| part);
            decided.push(Decided {
                part: local.part(trust, record, (&held.worker, id)).await?,
                entry: held.entry.clone(),
                beneficiaries,
            });
        }
        let mut over = Vec::new();
        if record.end.is_some() {
            for (worker, id) in takers(local.fleet(), record).await? {
                over.push(local.part(trust, record, (&worker, &id)).await?);
            }
        }
        let bonds = Arc::clone(bonds);
        kept(move || {
            bonds.take(&decided)?;
            bonds.free(&over)
        })
        .await
    }

    /// A worker has taken a slot: something of its bond is locked for it.
    pub(crate) async fn bind(
        &self,
        record: &JobRecord,
        slot: u32,
        worker: &str,
    ) -> Result<(), FleetError> {
        let Self::Public {
            bonds,
            local,
            trust,
        } = self
        else {
            return Ok(());
        };
        let id = part_id(record, slot);
        let part = local.part(trust, record, (worker, &id)).await?;
        let bonds = Arc::clone(bonds);
        kept(move || bonds.bind(&part)).await
    }

    /// Why the answers of a worker do not count; `None` where they do.
    pub(crate) async fn unfit(
        &self,
        worker: &str,
        key: &PublicKey,
    ) -> Result<Option<String>, FleetError> {
        let Self::Public { bonds, local, .. } = self else {
            return Ok(None);
        };
        let account = local.bond_of(worker).await?;
        let slots = local.advert(worker).await?.map_or(1, |advert| advert.slots);
        let (bonds, key) = (Arc::clone(bonds), *key);
        let (asked, named) = (account.clone(), account);
        let ask = move || bonds.unfit(asked.as_deref(), &key, slots);
        let unfit = tokio::task::spawn_blocking(ask).await;
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

/// What has to be on a disk before anything goes on.
async fn kept(
    keep: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), FleetError> {
    let kept = tokio::task::spawn_blocking(keep).await;
    kept.map_err(|error| error.to_string())
        .and_then(|kept| kept)
        .map_err(FleetError::talk("cannot keep what is to be settled"))
}

fn part_id(record: &JobRecord, slot: u32) -> String {
    format!("{}.{slot}", record.job)
}

/// Everybody who has had a part in a job, however that ended.
async fn takers(
    fleet: &Fleet,
    record: &JobRecord,
) -> Result<BTreeSet<(String, String)>, FleetError> {
    let mut takers = BTreeSet::new();
    for (slot, claim) in fleet.claims(record).await? {
        let id = part_id(record, slot);
        takers.extend(claim.takers.into_iter().map(|worker| (worker, id.clone())));
    }
    for held in &record.entries {
        if let Some((id, _)) = held.entry.id.rsplit_once('.') {
            takers.insert((held.worker.clone(), id.to_owned()));
        }
    }
    Ok(takers)
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
        Ok(self.advert(worker).await?.and_then(|advert| advert.bond))
    }

    async fn advert(&self, worker: &str) -> Result<Option<Advert>, FleetError> {
        let key = format!("worker.{}", names::token(worker));
        let advert: Option<Seen<Advert>> = store::get(&self.fleet().workers, &key).await?;
        Ok(advert.map(|advert| advert.value))
    }

    /// The key under which a worker was first seen.
    pub(crate) async fn first_key(&self, worker: &str) -> Result<Option<PublicKey>, FleetError> {
        let offered = self.advert(worker).await?.map(|advert| advert.key);
        let pinned = self.pinned(worker, offered.as_deref()).await?;
        Ok(pinned.and_then(|key| key.parse().ok()))
    }

    async fn part(
        &self,
        trust: &Trust,
        record: &JobRecord,
        (worker, id): (&str, &str),
    ) -> Result<Part, FleetError> {
        let key = match trust {
            Trust::FirstUse => self.first_key(worker).await?,
            Trust::Listed(_) => trust.listed(worker),
        };
        Ok(Part {
            worker: worker.to_owned(),
            key,
            account: self.bond_of(worker).await?,
            job: record.digest,
            id: id.to_owned(),
            deadline: record.deadline,
        })
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
