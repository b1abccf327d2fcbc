//! A fleet whose rules are enforced on a chain: its settings, what a coordinator settles with, and what a worker asks before a run has network.

use std::sync::Arc;

use cofferdam_chain::Ledger;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::NetworkReach;
use cofferdam_contract::seal::Sealed;
use cofferdam_fleet::Fleet;
use cofferdam_fleet::model::Enforcement;
use cofferdam_fleet::public::Bonds;
use cofferdam_fleet::worker::{Refusal, Whose};

use super::way::say;
use crate::arguments::Places;
use crate::arguments::chain::{EnforcementArg, PublicArgs, SettlingArgs, ToChainArgs};
use crate::chain::bonds::{self, BondTerms, OnChain};
use crate::chain::place::{Beginning, Place};
use crate::chain::policy_of;
use crate::failure::Failure;
use crate::history;
use crate::keys;

/// Who enforces the rules from now on; nothing where nobody said. Where no contract is named it is one on a chain of the fleet's own, which begins here.
pub(super) fn enforcement(
    args: &PublicArgs,
    places: &Places,
) -> Result<Option<Enforcement>, Failure> {
    let Some(wanted) = args.enforcement else {
        return Ok(None);
    };
    let job_bond = args.job_bond.unwrap_or(args.minimum_bond);
    if job_bond > args.minimum_bond {
        let fix = "is more than a worker has to have; raise --minimum-bond, or lower it";
        return Err(Failure::problem(
            "--job-bond",
            &format!("{job_bond}wei"),
            fix,
        ));
    }
    let (chain_id, contract) = match (wanted, args.contract, args.chain_id) {
        (EnforcementArg::Local, _, _) => return Ok(Some(Enforcement::Local)),
        (EnforcementArg::Public, Some(contract), Some(chain_id)) => (chain_id, contract),
        (EnforcementArg::Public, _, _) => {
            let own = Place::of(None, places, Beginning::Wanted)?;
            let place = own.with_contract()?.place();
            (place.chain, place.contract)
        }
    };
    Ok(Some(Enforcement::Public {
        chain_id,
        contract: contract.to_string(),
        minimum_bond: args.minimum_bond.to_string(),
        job_bond: job_bond.to_string(),
    }))
}

/// What a coordinator settles with; nothing where the fleet enforces its rules itself. Begins to settle.
pub(super) fn bonds(
    fleet: &Fleet,
    args: &SettlingArgs,
    places: &Places,
) -> Result<Option<Arc<dyn Bonds>>, Failure> {
    let settings = fleet.settings().clone();
    let Enforcement::Public {
        minimum_bond,
        job_bond,
        chain_id,
        ..
    } = &settings.enforcement
    else {
        return Ok(None);
    };
    let place = Place::of_fleet(args.chain.chain_rpc.as_deref(), places, *chain_id)?;
    let place = place.ok_or_else(|| {
        let message = format!(
            "this fleet enforces its rules on the chain {chain_id}, which is not the one of this data directory: name a node of it with --chain-rpc"
        );
        Failure::new(ErrorCode::InputInvalid, message)
    })?;
    let bond = BondTerms {
        minimum: wei(minimum_bond)?,
        job: wei(job_bond)?,
    };
    let key = place.key(args.chain_key_file.as_deref())?;
    let dir = history::place(places.data_dir.clone()).ok_or_else(keys::nowhere)?;
    let policy = policy_of(&args.how, args.chain_max_fee);
    let (asks, settles) = match (
        bonds::ledger(place.node(), &settings.enforcement)?,
        bonds::ledger(place.node(), &settings.enforcement)?,
    ) {
        (Some(asks), Some(settles)) => (asks, settles),
        _ => return Ok(None),
    };
    if !settles.is_settler(key.address())? {
        say(&format!(
            "{} may not settle yet; what is decided waits until the owner allows it with `cofferdam chain settler`",
            key.address()
        ));
    }
    let on_chain = OnChain::new(asks, &dir, settings.rules.clone(), bond)?;
    let outbox = Arc::clone(on_chain.outbox());
    bonds::settle_in_background((settles, outbox), key, policy, say)?;
    Ok(Some(Arc::new(on_chain)))
}

fn wei(text: &str) -> Result<u128, Failure> {
    text.parse().map_err(|_| {
        let message =
            format!("the fleet's settings ask for a bond of `{text}`, which is no number");
        Failure::new(ErrorCode::ConfigInvalid, message)
    })
}

/// What is asked before a run has network.
#[derive(Debug)]
pub(super) enum Permission {
    /// The fleet does not ask.
    NotNeeded,
    /// The contract is asked.
    Asked(Box<Ledger>),
    /// It would have to be asked, and there is no way to it.
    Unknown,
}

impl Permission {
    pub(super) fn of(fleet: &Fleet, args: &ToChainArgs, places: &Places) -> Result<Self, Failure> {
        let Enforcement::Public { chain_id, .. } = &fleet.settings().enforcement else {
            return Ok(Self::NotNeeded);
        };
        let place = Place::of_fleet(args.chain_rpc.as_deref(), places, *chain_id)?;
        let Some(place) = place else {
            say(
                "this fleet enforces its rules on a chain, and there is no --chain-rpc: payloads with network are left to others",
            );
            return Ok(Self::Unknown);
        };
        let ledger = bonds::ledger(place.node(), &fleet.settings().enforcement)?;
        Ok(ledger.map_or(Self::NotNeeded, |ledger| Self::Asked(Box::new(ledger))))
    }

    /// A payload without network needs no permission.
    pub(super) fn ask(&self, sealed: &Sealed) -> Result<(), Refusal> {
        let wants = NetworkReach::from(&sealed.payload().network);
        if wants == NetworkReach::None {
            return Ok(());
        }
        let refused = |reason: String, whose: Whose| Err(Refusal { reason, whose });
        match self {
            Self::NotNeeded => Ok(()),
            Self::Unknown => refused(
                "it cannot ask the contract whether this may have network".to_owned(),
                Whose::Worker,
            ),
            Self::Asked(ledger) => {
                let job = bonds::on_chain(&sealed.digest());
                match ledger.network_permitted(job) {
                    Ok(true) => Ok(()),
                    Ok(false) => refused(
                        format!(
                            "the contract {} does not permit network for this payload ({}); `cofferdam chain permit` does",
                            ledger.place().contract,
                            sealed.digest()
                        ),
                        Whose::Payload,
                    ),
                    Err(error) => refused(
                        format!(
                            "the contract cannot be asked whether this may have network: {error}"
                        ),
                        Whose::Worker,
                    ),
                }
            }
        }
    }
}
