//! Brings what was decided onto the chain, each once. What is sent is written down before, with its number among the sender's transactions; what the chain has is asked of the contract, by
//! the name of the fact. So a crash between any two steps, a block that is taken back, and a second one that settles the same lead to the same end.

mod send;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use cofferdam_store::settlements::{Settlement, Settlements, State};
use jiff::Timestamp;

use crate::decision::Decision;
use crate::error::ChainError;
use crate::key::Key;
use crate::ledger::Ledger;
use crate::node::Head;

/// How it is done.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How many blocks make a settlement certain, its own included.
    pub confirmations: u64,
    /// How long a transaction may wait for a block before more is offered for it.
    pub bump_after: Duration,
    /// For each unit of gas, in wei.
    pub max_fee: Option<u128>,
    /// How many are under way at a time.
    pub window: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            confirmations: 12,
            bump_after: Duration::from_secs(60),
            max_fee: None,
            window: 16,
        }
    }
}

#[derive(Debug)]
pub struct Settler {
    ledger: Ledger,
    key: Key,
    outbox: Arc<Settlements>,
    policy: Policy,
}

/// How long it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowLong {
    /// Until everything is certain.
    UntilDone,
    ForEver,
}

/// What one look came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tick {
    /// How many are not certain yet.
    pub open: usize,
    pub settled: usize,
    pub refused: usize,
    /// What a person should hear.
    pub said: Vec<String>,
}

/// Whether others have to wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    None,
    Awaited,
}

const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(15);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Settler {
    pub const fn new(ledger: Ledger, key: Key, outbox: Arc<Settlements>, policy: Policy) -> Self {
        Self {
            ledger,
            key,
            outbox,
            policy,
        }
    }

    /// Looks at everything that is open, once, and does what can be done now.
    pub fn tick(&self, now: Timestamp) -> Result<Tick, ChainError> {
        let mut tick = Tick::default();
        let (mut open, unread): (Vec<_>, Vec<_>) =
            self.outbox.open_ones()?.into_iter().partition(is_read);
        // What nobody can read keeps nothing else waiting.
        for mut one in unread {
            let why = damaged(&one).to_string();
            tick.said.push(why.clone());
            tick.refused += 1;
            one.progress.note = Some(why);
            one.state = State::Refused;
            self.outbox.update(&one, now)?;
        }
        if open.is_empty() {
            return Ok(tick);
        }
        // The count comes first: what it counts is then seen in the contract too.
        let count = self.ledger.node().count(self.key.address())?;
        let mut head = self.ledger.node().head()?;
        if open.iter().any(|one| one.state != State::Waiting) {
            head.final_number = self.ledger.node().final_number()?;
        }
        for one in &mut open {
            self.look(one, count, &head, now, &mut tick)?;
        }
        let mut taken = numbers(&open, count);
        for one in &mut open {
            if one.state == State::Sent {
                self.push(one, &head, now, &mut tick)?;
            }
        }
        // What the chain does not have yet, in the order in which it was decided.
        let mut before: Vec<Decision> = Vec::new();
        let wanted: Vec<Option<Decision>> = open.iter().map(decision).collect();
        for (place, one) in open.iter_mut().enumerate() {
            let Some(Some(decision)) = wanted.get(place) else {
                return Err(damaged(one));
            };
            let is_due = one.progress.not_before_ms <= now.as_millisecond();
            let has_to_wait = before.iter().any(|earlier| decision.comes_after(earlier));
            if matches!(one.state, State::Waiting | State::Sent) {
                before.push(decision.clone());
            }
            let is_full = taken.len() >= self.policy.window;
            if one.state != State::Waiting || !is_due || has_to_wait || is_full {
                continue;
            }
            let nonce = (count..)
                .find(|nonce| !taken.contains(nonce))
                .unwrap_or(count);
            let mut later = wanted.iter().skip(place + 1).flatten();
            let urgency = match later.any(|later| later.comes_after(decision)) {
                true => Urgency::Awaited,
                false => Urgency::None,
            };
            if self.begin(one, (nonce, urgency), &head, now, &mut tick)? {
                taken.insert(nonce);
            }
            if one.state == State::Refused {
                before.pop();
            }
        }
        tick.open = open
            .iter()
            .filter(|one| matches!(one.state, State::Waiting | State::Sent | State::Seen))
            .count();
        Ok(tick)
    }

    /// For ever, or until everything is certain. A node that is away is waited for; `told` hears of trouble, once while it lasts. `wait` sleeps and says whether to go on.
    pub fn run(
        &self,
        how_long: HowLong,
        told: impl Fn(&str),
        mut wait: impl FnMut(Duration) -> bool,
    ) -> Result<Tick, ChainError> {
        let mut sum = Tick::default();
        let mut last = String::new();
        let mut pause = Duration::from_millis(250);
        loop {
            let said = match self.tick(Timestamp::now()) {
                Ok(tick) => {
                    sum.open = tick.open;
                    sum.settled += tick.settled;
                    sum.refused += tick.refused;
                    pause = Duration::from_millis(match tick.open {
                        0 => 1000,
                        _ => 250,
                    });
                    if how_long == HowLong::UntilDone && tick.open == 0 {
                        for line in &tick.said {
                            told(line);
                        }
                        return Ok(sum);
                    }
                    tick.said.join("; ")
                }
                Err(error @ ChainError::Store(_)) => return Err(error),
                Err(error) => {
                    pause = (pause * 2).min(LONGEST_WAIT);
                    error.to_string()
                }
            };
            if said != last && !said.is_empty() {
                told(&said);
            }
            last = said;
            if !wait(pause) {
                return Ok(sum);
            }
        }
    }

    /// Compares one with what the contract knows.
    fn look(
        &self,
        one: &mut Settlement,
        count: u64,
        head: &Head,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<(), ChainError> {
        let before = one.clone();
        let settlement = one.id.parse().map_err(|_| damaged(one))?;
        match self.ledger.settled_in(settlement)? {
            Some(block) => {
                one.progress.block = Some(block);
                one.progress.note = None;
                let depth = head.number.saturating_sub(block).saturating_add(1);
                one.state = State::Seen;
                let is_deep = head.number >= block && depth >= self.policy.confirmations;
                // A chain that takes nothing back may have no further block.
                if is_deep || head.final_number >= Some(block) {
                    one.state = State::Settled;
                    tick.settled += 1;
                }
            }
            None => self.missing(one, count, now, tick)?,
        }
        if *one != before {
            self.outbox.update(one, now)?;
        }
        Ok(())
    }

    /// The contract does not have it. What was under way may have come to nothing.
    fn missing(
        &self,
        one: &mut Settlement,
        count: u64,
        now: Timestamp,
        tick: &mut Tick,
    ) -> Result<(), ChainError> {
        let is_spent = one.progress.nonce.is_some_and(|nonce| nonce < count);
        if one.state == State::Seen {
            tick.said.push(format!(
                "the chain took the settlement {} back; it is sent again",
                one.id
            ));
            one.progress.block = None;
            one.progress.sent_ms = 0;
            one.state = match one.progress.nonce {
                Some(_) => State::Sent,
                None => State::Waiting,
            };
        }
        if one.state == State::Sent && is_spent {
            let note = self.why_not(one)?;
            tick.said.push(format!("settlement {}: {note}", one.id));
            let again = one.progress.attempts.saturating_add(1);
            one.progress.attempts = again;
            one.progress.nonce = None;
            one.progress.raw = None;
            one.progress.note = Some(note);
            one.progress.not_before_ms = later(now, waiting(again));
            one.state = State::Waiting;
        }
        Ok(())
    }

    fn why_not(&self, one: &Settlement) -> Result<String, ChainError> {
        for hash in one.progress.hashes.iter().rev() {
            if let Some(receipt) = self.ledger.node().receipt(hash)? {
                let what = if receipt.succeeded {
                    "was done and taken back"
                } else {
                    "failed"
                };
                return Ok(format!("its transaction {hash} {what}"));
            }
        }
        Ok("another transaction of this account took its number".to_owned())
    }
}

fn numbers(open: &[Settlement], count: u64) -> BTreeSet<u64> {
    let under_way = open.iter().filter(|one| one.state == State::Sent);
    let numbers = under_way.filter_map(|one| one.progress.nonce);
    numbers.filter(|nonce| *nonce >= count).collect()
}

fn waiting(attempts: u32) -> Duration {
    Duration::from_secs(1 << attempts.min(6)).min(LONGEST_WAIT)
}

fn later(now: Timestamp, wait: Duration) -> i64 {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    now.as_millisecond().saturating_add(wait)
}

fn is_read(one: &Settlement) -> bool {
    one.id.parse::<B256>().is_ok() && decision(one).is_some()
}

fn decision(one: &Settlement) -> Option<Decision> {
    serde_json::from_str(&one.body).ok()
}

fn damaged(one: &Settlement) -> ChainError {
    ChainError::Malformed {
        what: format!("the settlement {}", one.id),
        why: "it was not written by this version".to_owned(),
    }
}
