//! A fleet whose rules are enforced on a chain: its settings, what a coordinator settles with, and what a worker asks before a run has network.

use std::sync::Arc;

use cofferdam_chain::Ledger;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::{Deed, NetworkReach};
use cofferdam_contract::seal::Sealed;
use cofferdam_fleet::Fleet;
use cofferdam_fleet::model::Enforcement;
use cofferdam_fleet::public::Bonds;
use cofferdam_fleet::worker::{Refusal, Whose};

use super::way::say;
use crate::arguments::Places;
use crate::arguments::chain::{EnforcementArg, PublicArgs, SettlingArgs, ToChainArgs};
use crate::chain::bonds::{self, OnChain};
use crate::chain::{policy_of, signing};
use crate::failure::Failure;
use crate::history;
use crate::keys;
use crate::policy;

/// The settings of a new fleet.
pub(super) fn enforcement(args: &PublicArgs) -> Enforcement {
    match (args.enforcement, args.contract, args.chain_id) {
        (EnforcementArg::Public, Some(contract), Some(chain_id)) => Enforcement::Public {
            chain_id,
            contract: contract.to_string(),
            minimum_bond: args.minimum_bond.to_string(),
        },
        (EnforcementArg::Public | EnforcementArg::Local, _, _) => Enforcement::Local,
    }
}

/// What a coordinator settles with; nothing where the fleet enforces its rules itself. Begins to settle.
pub(super) fn bonds(
    fleet: &Fleet,
    args: &SettlingArgs,
    places: &Places,
) -> Result<Option<Arc<dyn Bonds>>, Failure> {
    let settings = fleet.settings().clone();
    let Enforcement::Public { minimum_bond, .. } = &settings.enforcement else {
        return Ok(None);
    };
    let rpc = rpc(&args.chain, places)?.ok_or_else(|| {
        let message =
            "this fleet enforces its rules on a chain: name a node of it with --chain-rpc";
        Failure::new(ErrorCode::InputInvalid, message)
    })?;
    let minimum = minimum_bond.parse().map_err(|_| {
        let message =
            format!("the fleet's settings ask for a bond of `{minimum_bond}`, which is no number");
        Failure::new(ErrorCode::ConfigInvalid, message)
    })?;
    let key = signing(args.chain_key_file.as_deref())?;
    let dir = history::place(places.data_dir.clone()).ok_or_else(keys::nowhere)?;
    let policy = policy_of(&args.how, args.chain_max_fee);
    let (asks, settles) = match (
        bonds::ledger(&rpc, &settings.enforcement)?,
        bonds::ledger(&rpc, &settings.enforcement)?,
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
    let on_chain = OnChain::new(asks, &dir, settings.rules.clone(), minimum)?;
    let outbox = Arc::clone(on_chain.outbox());
    bonds::settle_in_background((settles, outbox), key, policy, say)?;
    Ok(Some(Arc::new(on_chain)))
}

/// Whether the node may be spoken to, by the mode that is in force.
fn rpc(args: &ToChainArgs, places: &Places) -> Result<Option<String>, Failure> {
    if let Some(url) = &args.chain_rpc {
        policy::refuse(policy::in_force(places)?, [Deed::Daemon(url)])?;
    }
    Ok(args.chain_rpc.clone())
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
        if !fleet.settings().enforcement.is_public() {
            return Ok(Self::NotNeeded);
        }
        let Some(rpc) = rpc(args, places)? else {
            say(
                "this fleet enforces its rules on a chain, and there is no --chain-rpc: payloads with network are left to others",
            );
            return Ok(Self::Unknown);
        };
        let ledger = bonds::ledger(&rpc, &fleet.settings().enforcement)?;
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
