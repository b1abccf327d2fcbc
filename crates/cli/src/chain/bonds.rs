//! The bonds behind a fleet: whether a worker has enough at stake, what was decided about it, and the thread that brings that onto the chain.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_chain::{
    Account, Address, B256, ChainError, Decision, HowLong, Key, Ledger, Node, Policy, Settler,
    settlement_id,
};
use cofferdam_contract::canonical::{self, Digest};
use cofferdam_contract::rules::{Deed, Rules};
use cofferdam_fleet::model::Enforcement;
use cofferdam_fleet::public::{Bonds, Decided, Part};
use cofferdam_store::DataDir;
use cofferdam_store::bundle::PublicKey;
use cofferdam_store::settlements::{Sender, Settlements};
use jiff::Timestamp;

use crate::failure::Failure;

/// How long what the chain said of an account is believed.
const FRESH: Duration = Duration::from_secs(5);

/// The chain that a fleet's rules are enforced on.
#[derive(Debug)]
pub(crate) struct OnChain {
    ledger: Ledger,
    outbox: Arc<Settlements>,
    rules: Rules,
    bond: BondTerms,
    seen: Seen,
}

/// What the chain said of accounts a moment ago. Accounts and no verdicts: several workers may name one account.
#[derive(Debug, Default)]
struct Seen(Mutex<HashMap<Address, (Instant, Account)>>);

impl Seen {
    /// The node is asked while nothing is locked: a slow answer about one account keeps nobody waiting who asks about another.
    fn look(
        &self,
        address: Address,
        ask: impl FnOnce() -> Result<Account, ChainError>,
    ) -> Result<Account, ChainError> {
        let known = |seen: &mut HashMap<Address, (Instant, Account)>| {
            // Whoever advertises chooses the addresses: what is old makes room.
            seen.retain(|_, (at, _)| at.elapsed() < FRESH);
            seen.get(&address).map(|(_, account)| account.clone())
        };
        if let Some(account) = known(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(account);
        }
        let account = ask()?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(address, (Instant::now(), account.clone()));
        Ok(account)
    }
}

/// Whether it was bound to this key: anybody can name any account.
fn stands_for(account: &Account, key: &PublicKey) -> bool {
    account.identity == Some(B256::from(key.bytes()))
}

/// What a worker has to have at stake, in wei.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BondTerms {
    /// In all.
    pub(crate) minimum: u128,
    /// Locked for each job; nothing where it is zero.
    pub(crate) job: u128,
}

impl BondTerms {
    fn for_slots(self, slots: u32) -> u128 {
        self.minimum.max(self.job.saturating_mul(u128::from(slots)))
    }

    /// Why an account is not enough for this worker.
    fn lacks(self, account: &Account, key: &PublicKey, slots: u32) -> Option<String> {
        let address = account.address;
        if !stands_for(account, key) {
            return Some(format!("the bond {address} does not stand for it"));
        }
        let has = account.stake_wei.saturating_sub(account.leaving_wei);
        let needs = self.for_slots(slots);
        (has < needs).then(|| {
            format!("its bond {address} is {has} wei, and {needs} are asked for with {slots} slots")
        })
    }
}

/// A digest as the chain writes it.
pub(crate) fn on_chain(digest: &Digest) -> B256 {
    digest.hex().parse().unwrap_or_default()
}

/// The contract of a fleet, if its rules are enforced on a chain.
pub(crate) fn ledger(node: Node, enforcement: &Enforcement) -> Result<Option<Ledger>, ChainError> {
    let Enforcement::Public {
        chain_id, contract, ..
    } = enforcement
    else {
        return Ok(None);
    };
    let address = contract.parse().map_err(|_| ChainError::Malformed {
        what: "the contract in the fleet's settings".to_owned(),
        why: format!("`{contract}` is no address"),
    })?;
    Ledger::open(node, address, Some(*chain_id)).map(Some)
}

impl OnChain {
    pub(crate) fn new(
        ledger: Ledger,
        dir: &DataDir,
        rules: Rules,
        bond: BondTerms,
    ) -> Result<Self, Failure> {
        let outbox = Settlements::open(dir, &ledger.place().to_string())?;
        Ok(Self {
            ledger,
            outbox: Arc::new(outbox),
            rules,
            bond,
            seen: Seen::default(),
        })
    }

    pub(crate) const fn outbox(&self) -> &Arc<Settlements> {
        &self.outbox
    }

    fn look(&self, address: Address) -> Result<Account, String> {
        let found = self.seen.look(address, || self.ledger.account(address));
        found.map_err(|error| error.to_string())
    }

    fn put(&self, part: &Part, fact: &str, decision: &Decision) -> Result<(), String> {
        let id = settlement_id(&part.worker, fact).to_string();
        let body = serde_json::to_string(decision).map_err(|error| error.to_string())?;
        let put = self.outbox.put(&id, &body, Timestamp::now());
        put.map(drop).map_err(|error| error.to_string())
    }

    /// The bond that stands for a worker. Who names none, or another's, has nothing to lose here; its quarantine stands.
    fn account(&self, part: &Part) -> Result<Option<Address>, String> {
        let (Some(address), Some(key)) = (named(part), &part.key) else {
            return Ok(None);
        };
        Ok(stands_for(&self.look(address)?, key).then_some(address))
    }

    fn decision(&self, decided: &Decided, account: Address) -> Option<Decision> {
        let named = (decided.part.worker.as_str(), account);
        let entry = &decided.entry;
        match entry.what {
            Deed::Confirmed => Some(Decision::confirmation(
                named,
                &decided.part.job,
                self.rules.success_reputation(),
            )),
            Deed::Offence(offence) => {
                let evidence = serde_json::to_value(entry).ok()?;
                let evidence = Digest::of(&canonical::to_bytes(&evidence).ok()?);
                let shares: Vec<Address> = decided
                    .beneficiaries
                    .iter()
                    .filter_map(|account| account.parse().ok())
                    .collect();
                Some(Decision::penalty(
                    named,
                    &decided.part.job,
                    (offence, self.rules.action(offence)),
                    &evidence,
                    &shares,
                ))
            }
            Deed::Lifted => None,
        }
    }
}

impl Bonds for OnChain {
    fn unfit(
        &self,
        account: Option<&str>,
        key: &PublicKey,
        slots: u32,
    ) -> Result<Option<String>, String> {
        let Some(account) = account else {
            return Ok(Some("it names no bond".to_owned()));
        };
        let Ok(address) = account.parse::<Address>() else {
            return Ok(Some(format!("its bond `{account}` is no account")));
        };
        Ok(self.bond.lacks(&self.look(address)?, key, slots))
    }

    fn bind(&self, part: &Part) -> Result<(), String> {
        if self.bond.job == 0 {
            return Ok(());
        }
        let Some(account) = self.account(part)? else {
            return Ok(());
        };
        let named = (part.worker.as_str(), account);
        let lock = Decision::lock(named, &part.job, self.bond.job, part.deadline);
        self.put(part, &locked(part), &lock)
    }

    fn take(&self, decided: &[Decided]) -> Result<(), String> {
        for one in decided {
            let account = self.account(&one.part)?;
            let Some(decision) = account.and_then(|account| self.decision(one, account)) else {
                continue;
            };
            // What a job can cost is what is locked for it, also where nobody saw that it was taken.
            if matches!(one.entry.what, Deed::Offence(_)) {
                self.bind(&one.part)?;
            }
            self.put(&one.part, &one.entry.id, &decision)?;
        }
        Ok(())
    }

    fn free(&self, parts: &[Part]) -> Result<(), String> {
        for part in parts {
            let Some(account) = named(part) else {
                continue;
            };
            let lock = settlement_id(&part.worker, &locked(part)).to_string();
            let lock = self.outbox.get(&lock).map_err(|error| error.to_string())?;
            if lock.is_some() {
                let release = Decision::release((&part.worker, account), &part.job);
                self.put(part, &format!("{}.RELEASE", part.id), &release)?;
            }
        }
        Ok(())
    }
}

/// What a worker says to be its bond.
fn named(part: &Part) -> Option<Address> {
    part.account.as_deref().and_then(|text| text.parse().ok())
}

/// The name of the fact that something is locked.
fn locked(part: &Part) -> String {
    format!("{}.LOCK", part.id)
}

/// Settles in a thread of its own, as long as this process lives.
pub(crate) fn settle_in_background(
    (ledger, outbox): (Ledger, Arc<Settlements>),
    key: Key,
    policy: Policy,
    told: fn(&str),
) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("settler".to_owned())
        .spawn(move || {
            let Some(_sender) = sender(&outbox, told) else {
                return;
            };
            let settler = Settler::new(ledger, key, outbox, policy);
            let wait = |pause: Duration| {
                std::thread::sleep(pause);
                true
            };
            if let Err(error) = settler.run(HowLong::ForEver, told, wait) {
                told(&format!("nothing is settled any more: {error}"));
            }
        })
        .map(drop)
        .map_err(|error| {
            Failure::io(
                cofferdam_contract::codes::ErrorCode::Internal,
                "cannot start the thread that settles",
                &error,
            )
        })
}

/// Waits for its turn: when the process that settles now ends, this one goes on.
fn sender(outbox: &Settlements, told: fn(&str)) -> Option<Sender> {
    let mut is_told = false;
    loop {
        match outbox.sender() {
            Ok(Some(sender)) => return Some(sender),
            Ok(None) if !is_told => {
                told("another process settles from this data directory");
                is_told = true;
            }
            Ok(None) => {}
            Err(error) => {
                told(&format!("nothing is settled: {error}"));
                return None;
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_chain::U256;

    use super::*;

    fn account(stands_for: &PublicKey) -> Account {
        Account {
            address: Address::repeat_byte(7),
            identity: Some(B256::from(stands_for.bytes())),
            stake_wei: 100,
            locked_wei: 0,
            leaving_wei: 0,
            leaves_at: 0,
            reputation: 50,
            credit_wei: U256::ZERO,
        }
    }

    const TERMS: BondTerms = BondTerms {
        minimum: 100,
        job: 60,
    };

    #[test]
    fn what_is_remembered_of_an_account_says_nothing_of_who_names_it() {
        let owner = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
            .parse()
            .unwrap();
        let thief = "PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw="
            .parse()
            .unwrap();
        let seen = Seen::default();
        let address = account(&owner).address;
        let first = seen.look(address, || Ok(account(&owner))).unwrap();
        assert_eq!(TERMS.lacks(&first, &owner, 1), None);
        let again = seen.look(address, || panic!("it was asked a moment ago"));
        let again = again.unwrap();
        assert!(
            TERMS
                .lacks(&again, &thief, 1)
                .is_some_and(|why| why.contains("does not stand for it"))
        );
        // More slots than the bond is good for, with the same account.
        assert!(
            TERMS
                .lacks(&again, &owner, 2)
                .is_some_and(|why| why.contains("120 are asked for with 2 slots"))
        );
        assert!(stands_for(&again, &owner) && !stands_for(&again, &thief));
    }
}
