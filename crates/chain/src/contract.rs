//! The contract: its types, made from its source, its code as it was compiled, and why it refused.

use std::fmt;

use alloy_primitives::Bytes;
use alloy_sol_types::{SolInterface as _, SolValue as _};

use crate::error::ChainError;

#[allow(
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    reason = "written by a macro from the source of the contract"
)]
mod generated {
    alloy_sol_types::sol!(
        #[sol(all_derives)]
        "../../contracts/BondLedger.sol"
    );
}
pub use generated::BondLedger;
use generated::BondLedger::BondLedgerErrors as Errors;

const ARTIFACT: &str = include_str!("../../../contracts/BondLedger.json");
/// `Error(string)`: what a plain `require` says.
const PLAIN: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
/// `Panic(uint256)`: overflow and its like.
const PANIC: [u8; 4] = [0x4e, 0x48, 0x7b, 0x71];

/// What a transaction that makes the contract carries, before the arguments of its constructor.
pub fn creation_code() -> Result<Bytes, ChainError> {
    let damaged = |why: String| ChainError::Malformed {
        what: "the contract's artifact".to_owned(),
        why,
    };
    let artifact: serde_json::Value =
        serde_json::from_str(ARTIFACT).map_err(|error| damaged(error.to_string()))?;
    let code = artifact["bytecode"].as_str().unwrap_or_default();
    code.parse()
        .map_err(|_| damaged("it has no code".to_owned()))
}

/// Why the contract turned a call down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revert {
    pub kind: RevertKind,
    pub text: String,
}

/// What can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevertKind {
    /// It was done before.
    AlreadySettled,
    /// It may work later, when somebody has changed something.
    NotNow,
    /// There is not enough that is free; there may be more later.
    TooLittle,
    /// It will never work.
    Never,
}

impl fmt::Display for Revert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Revert {
    /// Reads what came back with a call that was turned down.
    pub fn read(data: &[u8]) -> Self {
        let never = |text: String| Self {
            kind: RevertKind::Never,
            text,
        };
        match Errors::abi_decode(data) {
            Ok(known) => Self::of(&known),
            Err(_) => match data.split_first_chunk::<4>() {
                Some((&PLAIN, rest)) => match String::abi_decode(rest) {
                    Ok(text) => never(format!("the contract says: {text}")),
                    Err(_) => never("the contract refused, without a readable reason".to_owned()),
                },
                Some((&PANIC, _)) => never("the contract failed in its own arithmetic".to_owned()),
                Some(_) | None => never("the contract refused, without a reason".to_owned()),
            },
        }
    }

    fn of(error: &Errors) -> Self {
        use RevertKind::{AlreadySettled, Never, NotNow, TooLittle};
        let (kind, text) = match error {
            Errors::AlreadySettled(_) => (AlreadySettled, "it was settled before".to_owned()),
            Errors::IsPaused(_) => (
                NotNow,
                "the contract is paused; its owner can resume it with `cofferdam chain resume`"
                    .to_owned(),
            ),
            Errors::NotSettler(error) => (
                NotNow,
                format!(
                    "{} may not settle; the owner can allow it with `cofferdam chain settler`",
                    error.caller
                ),
            ),
            Errors::NotOwner(error) => (
                NotNow,
                format!("{} is not the owner of the contract", error.caller),
            ),
            Errors::Reentered(_) => (
                NotNow,
                "the contract was called from within itself".to_owned(),
            ),
            Errors::NoAccount(error) => (Never, format!("{} has no bond", error.worker)),
            Errors::NoIdentity(_) => (Never, "the worker's public key is missing".to_owned()),
            Errors::OtherIdentity(error) => (
                Never,
                format!(
                    "this account stands for another worker, whose public key is {}; use another account",
                    error.known
                ),
            ),
            Errors::NothingToDo(_) => (Never, "there is nothing to do".to_owned()),
            Errors::TooMuch(error) => (
                TooLittle,
                format!(
                    "{} wei are asked for and {} are free",
                    error.asked, error.free
                ),
            ),
            Errors::TooEarly(error) => (
                NotNow,
                format!("not before {} (seconds since 1970)", error.from),
            ),
            Errors::AlreadyLocked(error) => {
                (Never, format!("the job {} has a lock already", error.job))
            }
            Errors::NotLocked(error) => (Never, format!("the job {} has no lock", error.job)),
            Errors::OutOfBounds(error) => (Never, format!("{} is out of bounds", error.what)),
            Errors::NotPaid(_) => (NotNow, "the receiver does not take the money".to_owned()),
        };
        Self { kind, text }
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256};
    use alloy_sol_types::SolError as _;

    use super::*;

    /// Types as a signature has them.
    fn listed(inputs: &serde_json::Value) -> String {
        let one = |input: &serde_json::Value| match input["type"].as_str().unwrap() {
            "tuple" => listed(&input["components"]),
            other => other.to_owned(),
        };
        let all: Vec<String> = inputs.as_array().unwrap().iter().map(one).collect();
        format!("({})", all.join(","))
    }

    #[test]
    fn the_types_and_the_artifact_are_of_the_same_contract() {
        let artifact: serde_json::Value = serde_json::from_str(ARTIFACT).unwrap();
        let abi = artifact["abi"].as_array().unwrap();
        let of_kind = |kind: &'static str| abi.iter().filter(move |entry| entry["type"] == kind);
        assert_eq!(of_kind("error").count(), Errors::SELECTORS.len());
        assert_eq!(
            of_kind("event").count(),
            BondLedger::BondLedgerEvents::SELECTORS.len()
        );
        for function in of_kind("function") {
            let signature = format!(
                "{}{}",
                function["name"].as_str().unwrap(),
                listed(&function["inputs"])
            );
            let hash = alloy_primitives::keccak256(signature.as_bytes());
            let selector: [u8; 4] = hash[..4].try_into().unwrap();
            assert!(
                BondLedger::BondLedgerCalls::SELECTORS.contains(&selector),
                "{signature}"
            );
        }
        assert!(creation_code().unwrap().len() > 5_000);
        assert_eq!(artifact["settings"]["metadata"]["bytecodeHash"], "none");
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let settled = BondLedger::AlreadySettled {
            settlement: B256::ZERO,
        };
        assert_eq!(
            Revert::read(&settled.abi_encode()).kind,
            RevertKind::AlreadySettled
        );
        let nobody = BondLedger::NoAccount {
            worker: Address::repeat_byte(0xab),
        };
        let told = Revert::read(&nobody.abi_encode());
        assert!(
            told.kind == RevertKind::Never && told.text.contains("has no bond"),
            "{told}"
        );
        let mut plain = PLAIN.to_vec();
        plain.extend("for a reason".to_owned().abi_encode());
        assert!(Revert::read(&plain).text.contains("for a reason"));
        for nothing in [&[][..], &[1, 2, 3], &[1, 2, 3, 4, 5]] {
            assert!(Revert::read(nothing).text.contains("without a reason"));
        }
    }
}
