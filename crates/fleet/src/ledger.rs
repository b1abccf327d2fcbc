//! Who carries out what the rules say. LOCAL: standings in a bucket of the fleet, with quarantines that expire and can be lifted. Other enforcers have their place in [`Enforcer`].

use std::sync::Arc;

use cofferdam_contract::rules::{Counted, Deed, Entry, Standing};
use jiff::Timestamp;

use crate::connect::Fleet;
use crate::coordinator::Trust;
use crate::error::FleetError;
use crate::model::Held;
use crate::names;
use crate::public::Bonds;
use crate::store::{self, Seen};

/// Who settles what is held for or against a worker. Every one of them counts an entry once, however often it is told.
#[derive(Debug)]
pub enum Enforcer {
    Local(LocalLedger),
    /// Bonds too.
    Public {
        local: LocalLedger,
        bonds: Arc<dyn Bonds>,
        /// Whose keys bonds have to stand for.
        trust: Trust,
    },
}

impl Enforcer {
    pub async fn settle(&self, held: &[Held]) -> Result<(), FleetError> {
        match self {
            Self::Local(ledger) | Self::Public { local: ledger, .. } => {
                for held in held {
                    ledger.count(&held.worker, held.entry.clone()).await?;
                }
                Ok(())
            }
        }
    }
}

/// The standings of a fleet's workers.
#[derive(Debug)]
pub struct LocalLedger {
    fleet: Fleet,
}

const STANDING: &str = "standing.";
const KEY: &str = "key.";
const ATTEMPTS: u32 = 64;

impl LocalLedger {
    pub fn new(fleet: &Fleet) -> Self {
        Self {
            fleet: fleet.clone(),
        }
    }

    pub(crate) const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub async fn standing(&self, worker: &str) -> Result<Standing, FleetError> {
        let seen: Option<Seen<Standing>> =
            store::get(&self.fleet.ledger, &key(STANDING, worker)).await?;
        Ok(seen.map(|seen| seen.value).unwrap_or_default())
    }

    /// All that there is something about.
    pub async fn standings(&self) -> Result<Vec<(String, Standing)>, FleetError> {
        let mut standings = Vec::new();
        for key in store::keys(&self.fleet.ledger).await? {
            let worker = key.strip_prefix(STANDING).and_then(names::untoken);
            if let Some(worker) = worker {
                let standing = self.standing(&worker).await?;
                standings.push((worker, standing));
            }
        }
        Ok(standings)
    }

    pub async fn quarantined(&self, now: Timestamp) -> Result<Vec<String>, FleetError> {
        let standings = self.standings().await?;
        let is_out =
            |(worker, standing): (String, Standing)| standing.is_quarantined(now).then_some(worker);
        Ok(standings.into_iter().filter_map(is_out).collect())
    }

    /// Ends a quarantine. What led to it stays in the history.
    pub async fn lift(&self, worker: &str, why: &str) -> Result<Standing, FleetError> {
        let seen: Option<Seen<Standing>> =
            store::get(&self.fleet.ledger, &key(STANDING, worker)).await?;
        if seen.is_none() {
            return Err(FleetError::NoSuchWorker {
                worker: worker.to_owned(),
            });
        }
        let now = Timestamp::now();
        let entry = Entry {
            id: format!("lifted.{}", now.as_nanosecond()),
            at: now,
            job: String::new(),
            what: Deed::Lifted,
            evidence: why.to_owned(),
        };
        self.count(worker, entry).await?;
        self.standing(worker).await
    }

    async fn count(&self, worker: &str, entry: Entry) -> Result<(), FleetError> {
        let key = key(STANDING, worker);
        let rules = &self.fleet.settings.rules;
        for _ in 0..ATTEMPTS {
            let seen: Option<Seen<Standing>> = store::get(&self.fleet.ledger, &key).await?;
            let (mut standing, revision) = match seen {
                Some(seen) => (seen.value, Some(seen.revision)),
                None => (Standing::default(), None),
            };
            if standing.count(rules, entry.clone()) == Counted::Before {
                return Ok(());
            }
            let written = match revision {
                Some(revision) => {
                    store::swap(&self.fleet.ledger, &key, &standing, revision).await?
                }
                None => store::create(&self.fleet.ledger, &key, &standing).await?,
            };
            if written.is_some() {
                return Ok(());
            }
        }
        Err(FleetError::Contended {
            what: format!("the standing of {worker}"),
        })
    }

    /// The key that a worker is known by: the one under which it was first seen. A name does not change hands.
    pub async fn pinned(
        &self,
        worker: &str,
        offered: Option<&str>,
    ) -> Result<Option<String>, FleetError> {
        let name = key(KEY, worker);
        let known: Option<Seen<String>> = store::get(&self.fleet.ledger, &name).await?;
        if let Some(known) = known {
            return Ok(Some(known.value));
        }
        let Some(offered) = offered else {
            return Ok(None);
        };
        store::create(&self.fleet.ledger, &name, &offered).await?;
        let known: Option<Seen<String>> = store::get(&self.fleet.ledger, &name).await?;
        Ok(known.map(|known| known.value))
    }
}

fn key(prefix: &str, worker: &str) -> String {
    format!("{prefix}{}", names::token(worker))
}
