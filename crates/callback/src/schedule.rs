//! When to try again, and what an attempt came to. Pure: the same attempt at the same moment gives the same answer.

use std::time::Duration;

use cofferdam_store::outbox::{Delivery, Retry};
use jiff::Timestamp;

use crate::client::Attempt;

/// The waits after failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// After the first failure, the second, and so on.
    pub first: Vec<Duration>,
    /// After those, for as long as a message is younger than `slow_after`.
    pub then: Duration,
    pub slow_after: Duration,
    pub slow: Duration,
    /// A message this old is given up, once it has been tried `at_least` times: a clock that jumps ahead makes nothing old by itself.
    pub give_up_after: Duration,
    pub at_least: u32,
    /// However long a peer asks us to wait.
    pub longest_wait: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        let day = 24 * 60 * 60;
        Self {
            first: [1, 2, 4, 8, 10].map(Duration::from_secs).to_vec(),
            then: Duration::from_secs(30),
            slow_after: Duration::from_secs(day),
            slow: Duration::from_secs(5 * 60),
            give_up_after: Duration::from_secs(7 * day),
            at_least: 10,
            longest_wait: Duration::from_secs(60 * 60),
        }
    }
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The peer has it.
    Delivered {
        answer: String,
    },
    Retry(Retry),
    GiveUp {
        why: String,
        /// As in [`Retry`].
        peer_until: Option<Timestamp>,
    },
}

/// Whose fault it probably is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Peer,
    Message,
}

/// So many failures in a row are the peer's, whatever they look like.
const SUSPICIOUS: u32 = 3;
/// A name that led to an address which may not be spoken to is asked about so often.
const ADDRESS_ATTEMPTS: u32 = 5;

impl Schedule {
    /// The wait after so many failures of something that is this old.
    pub fn wait(&self, failures: u32, age: Duration) -> Duration {
        let nth = usize::try_from(failures.max(1) - 1).unwrap_or(usize::MAX);
        match self.first.get(nth) {
            Some(wait) => *wait,
            None if age < self.slow_after => self.then,
            None => self.slow,
        }
    }

    /// | answer | what follows |
    /// | --- | --- |
    /// | 2xx, complete | delivered |
    /// | 409 | delivered: the peer has it |
    /// | 408, 500 and other 5xx, 3xx | again later; the peer is suspected, and after three in a row left alone |
    /// | 401, 429, 502, 503, 504 | again later, and nothing else goes to this peer until then; `Retry-After` is heeded |
    /// | network, time, half an answer, what is not HTTP | the same |
    /// | no token to show | the same |
    /// | any other 4xx | given up, with the beginning of the answer |
    /// | the URL is not allowed | given up |
    /// | its name leads to an address that is not allowed | five attempts, then given up |
    pub fn judge(&self, attempt: &Attempt, delivery: &Delivery, now: Timestamp) -> Verdict {
        let asked = match attempt {
            Attempt::Answered { retry_after, .. } => *retry_after,
            _ => None,
        };
        let (why, fault) = match attempt {
            Attempt::Answered { status, answer, .. } => match status {
                200..=299 | 409 => {
                    return Verdict::Delivered {
                        answer: format!("{status}"),
                    };
                }
                401 | 429 | 502 | 503 | 504 => (described(*status, answer), Fault::Peer),
                408 | 500..=599 | 300..=399 => (described(*status, answer), Fault::Message),
                _ => {
                    return Verdict::GiveUp {
                        why: described(*status, answer),
                        peer_until: None,
                    };
                }
            },
            Attempt::Broken { why } => (why.clone(), Fault::Peer),
            Attempt::Unauthorised { why } => (why.clone(), Fault::Peer),
            Attempt::Refused { why } => {
                return Verdict::GiveUp {
                    why: why.clone(),
                    peer_until: None,
                };
            }
            Attempt::RefusedAddress { why } if delivery.attempt >= ADDRESS_ATTEMPTS => {
                return Verdict::GiveUp {
                    why: why.clone(),
                    peer_until: None,
                };
            }
            Attempt::RefusedAddress { why } => (why.clone(), Fault::Message),
        };
        self.again(why, fault, asked, delivery, now)
    }

    fn again(
        &self,
        why: String,
        fault: Fault,
        asked: Option<Duration>,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Verdict {
        let age = Duration::try_from(now.duration_since(delivery.created)).unwrap_or_default();
        let failures = delivery.peer_failures.saturating_add(1);
        let asked = asked.unwrap_or_default().min(self.longest_wait);
        let hold = || later(now, self.wait(failures, Duration::ZERO).max(asked));
        let peer_until = (fault == Fault::Peer || failures >= SUSPICIOUS).then(hold);
        if age >= self.give_up_after && delivery.attempt >= self.at_least {
            let why = format!(
                "not delivered in {} days, {} attempts; the last one: {why}",
                age.as_secs() / 86_400,
                delivery.attempt
            );
            return Verdict::GiveUp { why, peer_until };
        }
        Verdict::Retry(Retry {
            why,
            at: later(now, self.wait(delivery.attempt, age).max(asked)),
            peer_until,
        })
    }
}

fn described(status: u16, answer: &str) -> String {
    if answer.is_empty() {
        format!("answered {status}")
    } else {
        format!("answered {status}: {answer}")
    }
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}
