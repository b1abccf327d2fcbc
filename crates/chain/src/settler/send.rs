//! Sending: a new transaction for what waits, more money for what is stuck, the same again for what the node has lost.

use std::time::Duration;

use alloy_primitives::{B256, U256};
use cofferdam_store::settlements::{Settlement, State};
use jiff::Timestamp;

use super::{LATER, SOON, Settler, Tick, Urgency, damaged, later};
use crate::contract::RevertKind;
use crate::decision::Decision;
use crate::error::ChainError;
use crate::ledger::{affordable, with_room};
use crate::node::{Call, Fees, Head};
use crate::transaction::Transaction;

impl Settler {
    /// Sends what waits. False where it stays as it is, or is refused for good.
    pub(super) fn begin(
        &self,
        one: &mut Settlement,
        (nonce, urgency): (u64, Urgency),
        head: &Head,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<bool, ChainError> {
        let fees = match affordable(self.ledger.node().fees(head)?, self.policy.max_fee) {
            Ok(fees) => fees,
            Err(error) => {
                self.put_off(one, (error.to_string(), LATER), now, tick)?;
                return Ok(false);
            }
        };
        match self.send(one, nonce, fees, now) {
            Ok(()) => Ok(true),
            Err(ChainError::Reverted { revert }) => {
                match revert.kind {
                    // The next look finds it.
                    RevertKind::AlreadySettled => {}
                    RevertKind::NotNow => self.put_off(one, (revert.text, LATER), now, tick)?,
                    // What is locked for other jobs is let go in a moment.
                    RevertKind::TooLittle if urgency == Urgency::None => {
                        self.put_off(one, (revert.text, SOON), now, tick)?;
                    }
                    // What it was to be locked for is decided: that goes on without it.
                    RevertKind::TooLittle | RevertKind::Never => {
                        tick.said
                            .push(format!("settlement {} cannot be made: {revert}", one.id));
                        tick.refused += 1;
                        one.progress.note = Some(revert.text);
                        one.state = State::Refused;
                        self.outbox.update(one, now)?;
                    }
                }
                Ok(false)
            }
            Err(error @ ChainError::Refused { .. }) if one.state == State::Waiting => {
                self.put_off(one, (error.to_string(), LATER), now, tick)?;
                Ok(false)
            }
            // It is written down and perhaps sent: the next look goes on with it.
            Err(ChainError::Refused { message, .. }) => {
                tick.said.push(format!("settlement {}: {message}", one.id));
                one.progress.note = Some(message);
                self.outbox.update(one, now)?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sees to one that is under way: lost by the node, or too cheap for too long.
    pub(super) fn push(
        &self,
        one: &mut Settlement,
        head: &Head,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<(), ChainError> {
        let Some(nonce) = one.progress.nonce else {
            return Ok(());
        };
        let known = match one.progress.hashes.last() {
            Some(hash) => self.ledger.node().knows(hash)?,
            None => false,
        };
        let waited = now.as_millisecond().saturating_sub(one.progress.sent_ms);
        let long = i64::try_from(self.policy.bump_after.as_millis()).unwrap_or(i64::MAX);
        if known && waited < long {
            return Ok(());
        }
        // One that is lost again and again is too cheap: its time goes on.
        let is_taken_back = one.progress.sent_ms == 0;
        if !known && let Some(raw) = one.progress.raw.clone() {
            if is_taken_back {
                one.progress.sent_ms = now.as_millisecond();
            }
            match self.ledger.node().send(&raw) {
                Ok(()) if waited < long || is_taken_back => {
                    self.outbox.update(one, now)?;
                    return Ok(());
                }
                Ok(()) => {}
                Err(ChainError::Refused { message, .. }) if is_too_cheap(&message) => {}
                // More money for each unit of gas does not help: an account that is empty, or a number that was used, which the next look finds out.
                Err(ChainError::Refused { message, .. }) => {
                    return self.told(one, message, now, tick);
                }
                Err(ChainError::Reverted { revert }) => {
                    return self.told(one, revert.text, now, tick);
                }
                Err(error) => return Err(error),
            }
        }
        let Some(fees) = self.dearer(one, head, now, tick)? else {
            return Ok(());
        };
        match self.send(one, nonce, fees, now) {
            Ok(()) => {
                tick.said.push(format!(
                    "settlement {} waited for {} s; now {} wei are offered for each unit of gas",
                    one.id,
                    waited / 1000,
                    fees.max
                ));
                Ok(())
            }
            // Settled meanwhile, paused, or a number that was used: the next look finds out.
            Err(ChainError::Reverted { revert }) => self.noted(one, revert.text, now),
            Err(ChainError::Refused { message, .. }) => self.noted(one, message, now),
            Err(error) => Err(error),
        }
    }

    /// More than before, by what nodes ask of a replacement and a little more; or nothing, when that is more than may be paid.
    fn dearer(
        &self,
        one: &mut Settlement,
        head: &Head,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<Option<Fees>, ChainError> {
        let usual = self.ledger.node().fees(head)?;
        let more = |fee: u128| fee.saturating_add(fee / 4).saturating_add(1);
        let wanted = Fees {
            max: usual.max.max(more(one.progress.max_fee)),
            priority: usual.priority.max(more(one.progress.priority_fee)),
        };
        let cap = self.policy.max_fee.unwrap_or(u128::MAX);
        // Less than an eighth more is turned down by every node.
        let least = one
            .progress
            .max_fee
            .saturating_add(one.progress.max_fee / 8);
        if cap <= least {
            let note = format!(
                "it waits for a cheaper time: at most {cap} wei may be offered for each unit of gas"
            );
            if one.progress.note.as_ref() != Some(&note) {
                tick.said.push(format!("settlement {}: {note}", one.id));
            }
            self.noted(one, note, now)?;
            return Ok(None);
        }
        let max = wanted.max.min(cap);
        Ok(Some(Fees {
            max,
            priority: wanted.priority.min(max),
        }))
    }

    /// Signs, writes down, sends. In this order: what was sent is known after a crash.
    fn send(
        &self,
        one: &mut Settlement,
        nonce: u64,
        fees: Fees,
        now: Timestamp,
    ) -> Result<(), ChainError> {
        let settlement: B256 = one.id.parse().map_err(|_| damaged(one))?;
        let decision: Decision = serde_json::from_str(&one.body).map_err(|_| damaged(one))?;
        let data = decision.call(settlement);
        let place = self.ledger.place();
        let gas = self.ledger.node().estimate(&Call {
            from: Some(self.key.address()),
            to: Some(place.contract),
            value: U256::ZERO,
            data: &data,
        })?;
        let transaction = Transaction {
            chain: place.chain,
            nonce,
            priority_fee: fees.priority,
            max_fee: fees.max,
            gas: with_room(gas),
            to: Some(place.contract),
            value: U256::ZERO,
            data,
        };
        let signed = transaction.sign(&self.key)?;
        one.state = State::Sent;
        one.progress.nonce = Some(nonce);
        one.progress.raw = Some(signed.raw_hex());
        one.progress.hashes.push(signed.hash.to_string());
        one.progress.max_fee = fees.max;
        one.progress.priority_fee = fees.priority;
        one.progress.sent_ms = now.as_millisecond();
        one.progress.note = None;
        self.outbox.update(one, now)?;
        self.ledger.node().send(&signed.raw_hex())
    }

    fn put_off(
        &self,
        one: &mut Settlement,
        (why, wait): (String, Duration),
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<(), ChainError> {
        if one.progress.note.as_ref() != Some(&why) {
            tick.said
                .push(format!("settlement {} has to wait: {why}", one.id));
        }
        one.progress.not_before_ms = later(now, wait);
        self.noted(one, why, now)
    }

    /// The same for ever is told and written once.
    fn told(
        &self,
        one: &mut Settlement,
        why: String,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<(), ChainError> {
        if one.progress.note.as_ref() == Some(&why) {
            return Ok(());
        }
        tick.said.push(format!("settlement {}: {why}", one.id));
        self.noted(one, why, now)
    }

    fn noted(&self, one: &mut Settlement, why: String, now: Timestamp) -> Result<(), ChainError> {
        one.progress.note = Some(why);
        Ok(self.outbox.update(one, now)?)
    }
}

/// Whether a node says that more has to be offered. There is no number for it: these are the words that nodes use.
fn is_too_cheap(message: &str) -> bool {
    let message = message.to_lowercase();
    ["underpriced", "fee too low", "less than block base fee"]
        .iter()
        .any(|words| message.contains(words))
}
