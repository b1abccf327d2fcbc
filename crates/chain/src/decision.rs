//! What a fleet has decided about a worker, in the form in which it is settled, and the names and numbers that the chain knows it by. Pure.

use alloy_primitives::{Address, B256, Bytes};
use alloy_sol_types::SolCall as _;
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Action, Offence};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::contract::BondLedger;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    Slash {
        /// The name that the fleet has for it, for people.
        name: String,
        worker: Address,
        job: B256,
        offence: Offence,
        basis_points: u16,
        /// How much of it is lost.
        reputation: u8,
        evidence: B256,
        beneficiaries: Vec<Address>,
    },
    Confirm {
        name: String,
        worker: Address,
        job: B256,
        reputation: u8,
    },
    /// Binds a part of a bond to a job.
    Lock {
        name: String,
        worker: Address,
        job: B256,
        #[serde(with = "decimal")]
        wei: u128,
        /// Seconds since 1970; from then on everybody may end it.
        until: u64,
    },
    /// Lets go of what is bound to a job.
    Release {
        name: String,
        worker: Address,
        job: B256,
    },
}

/// An amount is larger than the numbers that every reader of JSON keeps exactly: it is written as text.
mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(wei: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(wei)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u128, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The number that an offence has on the chain. They are never changed: events of old blocks keep their meaning.
pub const fn reason_code(offence: Offence) -> u8 {
    match offence {
        Offence::RuntimeViolation => 1,
        Offence::MalformedResult => 2,
        Offence::OutputTooLarge => 3,
        Offence::BadProof => 4,
        Offence::WrongPayload => 5,
        Offence::Replay => 6,
        Offence::FailedVerification => 7,
        Offence::Stall => 8,
        Offence::Crash => 9,
    }
}

/// The name of a fact: whoever tells it again tells it by the same name, and it counts once.
pub fn settlement_id(worker: &str, fact: &str) -> B256 {
    let text = format!(
        "cofferdam.settlement/1\n{}\n{worker}\n{fact}\n",
        worker.len()
    );
    digest(&Digest::of(text.as_bytes()))
}

/// A digest as the chain writes it.
pub(crate) fn digest(digest: &Digest) -> B256 {
    digest.hex().parse().unwrap_or_default()
}

impl Decision {
    /// A penalty by the rules. Those who found out share in it, the worker itself never.
    pub fn penalty(
        (name, worker): (&str, Address),
        job: &Digest,
        (offence, action): (Offence, Action),
        evidence: &Digest,
        beneficiaries: &[Address],
    ) -> Self {
        let mut others: Vec<Address> = Vec::new();
        for other in beneficiaries {
            let is_fit = *other != worker && *other != Address::ZERO && !others.contains(other);
            if is_fit && others.len() < MOST_BENEFICIARIES {
                others.push(*other);
            }
        }
        Self::Slash {
            name: name.to_owned(),
            worker,
            job: digest(job),
            offence,
            basis_points: action.slash_basis_points.min(WHOLE),
            reputation: u8::try_from(action.reputation.unsigned_abs()).unwrap_or(u8::MAX),
            evidence: digest(evidence),
            beneficiaries: others,
        }
    }

    pub fn confirmation((name, worker): (&str, Address), job: &Digest, reputation: i16) -> Self {
        Self::Confirm {
            name: name.to_owned(),
            worker,
            job: digest(job),
            reputation: u8::try_from(reputation.clamp(0, 100)).unwrap_or(0),
        }
    }

    /// Binds so much to a job. Until a day after the job's deadline, as far as the contract allows: then whoever has forgotten it keeps nobody's money.
    pub fn lock(
        (name, worker): (&str, Address),
        job: &Digest,
        wei: u128,
        deadline: Timestamp,
    ) -> Self {
        let now = Timestamp::now().as_second();
        let until = deadline.as_second().saturating_add(DAY);
        let until = until.clamp(now.saturating_add(DAY), now.saturating_add(LONGEST_LOCK));
        Self::Lock {
            name: name.to_owned(),
            worker,
            job: digest(job),
            wei,
            until: u64::try_from(until).unwrap_or(0),
        }
    }

    pub fn release((name, worker): (&str, Address), job: &Digest) -> Self {
        Self::Release {
            name: name.to_owned(),
            worker,
            job: digest(job),
        }
    }

    /// Whether this has to wait until the chain has another one, which was decided before: what is locked is locked first, and let go last.
    pub(crate) fn comes_after(&self, earlier: &Self) -> bool {
        let is_ordered =
            matches!(earlier, Self::Lock { .. }) || matches!(self, Self::Release { .. });
        is_ordered && self.about() == earlier.about()
    }

    const fn about(&self) -> (&Address, &B256) {
        match self {
            Self::Slash { worker, job, .. }
            | Self::Confirm { worker, job, .. }
            | Self::Lock { worker, job, .. }
            | Self::Release { worker, job, .. } => (worker, job),
        }
    }

    pub(crate) fn call(&self, settlement: B256) -> Bytes {
        match self {
            Self::Slash {
                worker,
                job,
                offence,
                basis_points,
                reputation,
                evidence,
                beneficiaries,
                ..
            } => BondLedger::slashCall {
                penalty: BondLedger::Penalty {
                    settlement,
                    worker: *worker,
                    job: *job,
                    basisPoints: *basis_points,
                    reason: reason_code(*offence),
                    reputation: *reputation,
                    evidence: *evidence,
                    beneficiaries: beneficiaries.clone(),
                },
            }
            .abi_encode()
            .into(),
            Self::Confirm {
                worker,
                job,
                reputation,
                ..
            } => BondLedger::confirmCall {
                settlement,
                worker: *worker,
                job: *job,
                reputation: *reputation,
            }
            .abi_encode()
            .into(),
            Self::Lock {
                worker,
                job,
                wei,
                until,
                ..
            } => BondLedger::lockForCall {
                settlement,
                job: *job,
                worker: *worker,
                amount: *wei,
                until: *until,
            }
            .abi_encode()
            .into(),
            Self::Release { worker, job, .. } => BondLedger::releaseForCall {
                settlement,
                job: *job,
                worker: *worker,
            }
            .abi_encode()
            .into(),
        }
    }
}

/// As in the contract.
const MOST_BENEFICIARIES: usize = 64;
const WHOLE: u16 = 10_000;
const DAY: i64 = 24 * 3600;
/// A little less than the contract's, whose clock is not ours.
const LONGEST_LOCK: i64 = 59 * DAY;

#[cfg(test)]
mod tests {
    use cofferdam_contract::rules::Rules;

    use super::*;

    #[test]
    fn every_offence_has_a_number_of_its_own_that_is_never_zero() {
        let mut codes: Vec<u8> = Offence::ALL.map(reason_code).into();
        codes.sort_unstable();
        assert_eq!(codes, (1..=9).collect::<Vec<u8>>());
        assert_eq!(reason_code(Offence::BadProof), 4);
    }

    #[test]
    fn a_fact_has_one_name_and_two_facts_have_two() {
        let name = settlement_id("w1", "JOB.0.STALL");
        assert_eq!(name, settlement_id("w1", "JOB.0.STALL"));
        for other in [
            settlement_id("w2", "JOB.0.STALL"),
            settlement_id("w1", "JOB.1.STALL"),
            settlement_id("w1\nJOB.0", "STALL"),
        ] {
            assert_ne!(name, other);
        }
        assert_eq!(
            digest(&Digest::of(b"")).to_string(),
            "0xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_penalty_is_that_of_the_rules_and_nobody_shares_in_its_own() {
        let [worker, other] = [1, 2].map(Address::repeat_byte);
        let action = Rules::default().action(Offence::BadProof);
        let job = Digest::of(b"job");
        let shares = [other, worker, other, Address::ZERO];
        let made = Decision::penalty(
            ("w", worker),
            &job,
            (Offence::BadProof, action),
            &job,
            &shares,
        );
        let Decision::Slash {
            basis_points,
            reputation,
            beneficiaries,
            ..
        } = &made
        else {
            panic!("{made:?}");
        };
        assert_eq!((*basis_points, *reputation), (8_000, 20));
        assert_eq!(*beneficiaries, [other]);
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), made);
    }

    #[test]
    fn what_is_locked_is_locked_first_and_let_go_last_and_not_for_ever() {
        let [worker, other] = [1, 2].map(Address::repeat_byte);
        let (job, now) = (Digest::of(b"job"), Timestamp::now());
        let lock = |who| Decision::lock(("w", who), &job, u128::MAX, Timestamp::MAX);
        let confirm = Decision::confirmation(("w", worker), &job, 5);
        let release = Decision::release(("w", worker), &job);
        assert!(confirm.comes_after(&lock(worker)) && release.comes_after(&lock(worker)));
        assert!(release.comes_after(&confirm) && !confirm.comes_after(&confirm));
        assert!(!confirm.comes_after(&lock(other)) && !release.comes_after(&lock(other)));
        let made = lock(worker);
        let text = serde_json::to_string(&made).unwrap();
        assert!(text.contains(&format!("\"{}\"", u128::MAX)), "{text}");
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), made);
        for (deadline, days) in [(Timestamp::MAX, 59), (Timestamp::UNIX_EPOCH, 1)] {
            let Decision::Lock { until, .. } = Decision::lock(("w", worker), &job, 1, deadline)
            else {
                panic!("it is one");
            };
            let left = i64::try_from(until).unwrap() - now.as_second();
            assert!((days * DAY..days * DAY + 60).contains(&left), "{left}");
        }
    }
}
