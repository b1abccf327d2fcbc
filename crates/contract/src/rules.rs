//! The rules that workers are held to: what each offence leads to, as a table that can be configured, and what that does to a worker's standing. Pure: time comes from the caller, and
//! who carries an action out is somebody else.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};

/// What a worker did. A program that hits its limits is no offence of the worker that reports it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Offence {
    /// It let a run use more than its limits and did not say so.
    RuntimeViolation,
    /// Its answer is no envelope, or one that contradicts itself or the schema.
    MalformedResult,
    OutputTooLarge,
    /// The proof does not fit the output.
    BadProof,
    /// It answered for another payload, or in another's name.
    WrongPayload,
    /// It gave an answer again that it had given before.
    Replay,
    /// The others agree on another answer.
    FailedVerification,
    /// It had given signs of life, and then gave none.
    Stall,
    /// It took work and never gave a sign of life.
    Crash,
}

/// What an offence leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Whether what it runs for the job is ended.
    pub kill: bool,
    /// LOCAL: how long it gets no work.
    pub quarantine_seconds: u32,
    /// PUBLIC: the part of the bond that is lost, in hundredths of a percent.
    #[schemars(range(max = 10000))]
    pub slash_basis_points: u16,
    /// What is added to its reputation.
    #[schemars(range(min = -100, max = 100))]
    pub reputation: i16,
}

/// The whole table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rules {
    actions: BTreeMap<Offence, Action>,
    /// What a confirmed answer adds to the reputation.
    success_reputation: i16,
}

impl Offence {
    pub const ALL: [Self; 9] = [
        Self::RuntimeViolation,
        Self::MalformedResult,
        Self::OutputTooLarge,
        Self::BadProof,
        Self::WrongPayload,
        Self::Replay,
        Self::FailedVerification,
        Self::Stall,
        Self::Crash,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RuntimeViolation => "RUNTIME_VIOLATION",
            Self::MalformedResult => "MALFORMED_RESULT",
            Self::OutputTooLarge => "OUTPUT_TOO_LARGE",
            Self::BadProof => "BAD_PROOF",
            Self::WrongPayload => "WRONG_PAYLOAD",
            Self::Replay => "REPLAY",
            Self::FailedVerification => "FAILED_VERIFICATION",
            Self::Stall => "STALL",
            Self::Crash => "CRASH",
        }
    }

    const fn default_action(self) -> Action {
        let (quarantine_seconds, slash_basis_points, reputation) = match self {
            Self::RuntimeViolation => (0, 5_000, 0),
            Self::MalformedResult
            | Self::OutputTooLarge
            | Self::BadProof
            | Self::WrongPayload
            | Self::Replay => (HOUR, 8_000, -20),
            Self::FailedVerification => (HOUR, 10_000, -20),
            Self::Stall => (HOUR, 10_000, -20),
            Self::Crash => (HOUR / 2, 5_000, 0),
        };
        Action {
            kill: true,
            quarantine_seconds,
            slash_basis_points,
            reputation,
        }
    }
}

const HOUR: u32 = 3600;
/// A slip of the pen must not lock somebody out for a century.
const LONGEST_QUARANTINE: u32 = 366 * 24 * HOUR;
pub const REPUTATION_AT_FIRST: i16 = 50;
pub const REPUTATION_AT_MOST: i16 = 100;

impl Default for Rules {
    fn default() -> Self {
        let entry = |offence: Offence| (offence, offence.default_action());
        Self {
            actions: Offence::ALL.map(entry).into(),
            success_reputation: 5,
        }
    }
}

/// The configuration: what it does not name keeps its default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    actions: BTreeMap<Offence, WrittenAction>,
    success_reputation: Option<i16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAction {
    kill: Option<bool>,
    quarantine_seconds: Option<u32>,
    slash_basis_points: Option<u16>,
    reputation: Option<i16>,
}

impl Rules {
    /// Reads a table in which everything may be left out; says everything that is wrong with it.
    pub fn read(value: serde_json::Value) -> Result<Self, Problems> {
        let written: Written = serde_json::from_value(value).map_err(|error| {
            Problems::one(Problem::new("rules", "the table", error.to_string()))
        })?;
        let mut rules = Self::default();
        let mut found = Vec::new();
        let mut bounded = |field: String, value: i64, least: i64, most: i64| {
            if value < least || value > most {
                let fix = format!("is out of bounds; write {least} to {most}");
                found.push(Problem::new(field, value, fix));
            }
        };
        for (offence, said) in written.actions {
            let action = rules
                .actions
                .entry(offence)
                .or_insert(offence.default_action());
            let name = |field: &str| format!("rules.actions.{}.{field}", offence.as_str());
            action.kill = said.kill.unwrap_or(action.kill);
            action.quarantine_seconds =
                said.quarantine_seconds.unwrap_or(action.quarantine_seconds);
            action.slash_basis_points =
                said.slash_basis_points.unwrap_or(action.slash_basis_points);
            action.reputation = said.reputation.unwrap_or(action.reputation);
            let longest = i64::from(LONGEST_QUARANTINE);
            bounded(
                name("quarantine_seconds"),
                action.quarantine_seconds.into(),
                0,
                longest,
            );
            bounded(
                name("slash_basis_points"),
                action.slash_basis_points.into(),
                0,
                10_000,
            );
            bounded(name("reputation"), action.reputation.into(), -100, 0);
        }
        if let Some(reward) = written.success_reputation {
            bounded("rules.success_reputation".to_owned(), reward.into(), 0, 100);
            rules.success_reputation = reward;
        }
        Problems::check(found).map(|()| rules)
    }

    /// What a confirmed answer adds to the reputation.
    pub const fn success_reputation(&self) -> i16 {
        self.success_reputation
    }

    pub fn action(&self, offence: Offence) -> Action {
        let known = self.actions.get(&offence).copied();
        known.unwrap_or(offence.default_action())
    }
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::read(value).map_err(serde::de::Error::custom)
    }
}

/// One thing that is held for or against a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The same fact has the same name, so that it counts once however often it is told.
    pub id: String,
    /// RFC 3339, UTC.
    #[schemars(with = "String")]
    pub at: Timestamp,
    pub job: String,
    pub what: Deed,
    pub evidence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// An answer that was confirmed.
    Confirmed,
    Offence(Offence),
    /// A person ended its quarantine.
    Lifted,
}

/// How a worker stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    pub reputation: i16,
    /// Until then it gets no work.
    #[schemars(with = "Option<String>")]
    pub quarantined_until: Option<Timestamp>,
    pub confirmed: u64,
    pub offences: BTreeMap<Offence, u64>,
    /// The latest, oldest first.
    pub entries: Vec<Entry>,
}

/// How many entries a standing keeps.
pub const MOST_ENTRIES: usize = 200;

impl Default for Standing {
    fn default() -> Self {
        Self {
            reputation: REPUTATION_AT_FIRST,
            quarantined_until: None,
            confirmed: 0,
            offences: BTreeMap::new(),
            entries: Vec::new(),
        }
    }
}

/// Whether an entry changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Now,
    Before,
}

impl Standing {
    /// Counts an entry once. A quarantine is never made shorter by a further offence.
    pub fn count(&mut self, rules: &Rules, entry: Entry) -> Counted {
        if self.entries.iter().any(|known| known.id == entry.id) {
            return Counted::Before;
        }
        match entry.what {
            Deed::Confirmed => {
                self.confirmed = self.confirmed.saturating_add(1);
                self.add_reputation(rules.success_reputation);
            }
            Deed::Offence(offence) => {
                let count = self.offences.entry(offence).or_insert(0);
                *count = count.saturating_add(1);
                let action = rules.action(offence);
                self.add_reputation(action.reputation);
                self.quarantine(entry.at, action.quarantine_seconds);
            }
            Deed::Lifted => self.quarantined_until = None,
        }
        self.entries.push(entry);
        let surplus = self.entries.len().saturating_sub(MOST_ENTRIES);
        self.entries.drain(..surplus);
        Counted::Now
    }

    pub fn is_quarantined(&self, now: Timestamp) -> bool {
        self.quarantined_until.is_some_and(|until| now < until)
    }

    /// How much of its quarantine is left.
    pub fn quarantine_left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.quarantined_until?.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    fn add_reputation(&mut self, change: i16) {
        let changed = self.reputation.saturating_add(change);
        self.reputation = changed.clamp(0, REPUTATION_AT_MOST);
    }

    fn quarantine(&mut self, from: Timestamp, seconds: u32) {
        if seconds == 0 {
            return;
        }
        let length = SignedDuration::from_secs(seconds.into());
        let until = from.saturating_add(length).unwrap_or(Timestamp::MAX);
        self.quarantined_until = self.quarantined_until.max(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn entry(id: &str, second: i64, what: Deed) -> Entry {
        Entry {
            id: id.into(),
            at: at(second),
            job: "PAYLOAD-1".into(),
            what,
            evidence: "seen".into(),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_requirements() {
        let rules = Rules::default();
        for (offence, quarantine, slash, reputation) in [
            (Offence::RuntimeViolation, 0, 5_000, 0),
            (Offence::MalformedResult, 3600, 8_000, -20),
            (Offence::OutputTooLarge, 3600, 8_000, -20),
            (Offence::BadProof, 3600, 8_000, -20),
            (Offence::WrongPayload, 3600, 8_000, -20),
            (Offence::Replay, 3600, 8_000, -20),
            (Offence::FailedVerification, 3600, 10_000, -20),
            (Offence::Stall, 3600, 10_000, -20),
            (Offence::Crash, 1800, 5_000, 0),
        ] {
            let expected = Action {
                kill: true,
                quarantine_seconds: quarantine,
                slash_basis_points: slash,
                reputation,
            };
            assert_eq!(rules.action(offence), expected, "{offence:?}");
            assert_eq!(serde_json::to_value(offence).unwrap(), offence.as_str());
        }
        assert_eq!(rules.success_reputation, 5);
        assert_eq!(Standing::default().reputation, 50);
    }

    #[test]
    fn a_table_changes_what_it_names_and_every_problem_is_told_at_once() {
        let changed = Rules::read(json!({
            "actions": {"CRASH": {"quarantine_seconds": 7}, "STALL": {"reputation": -1, "kill": false}},
            "success_reputation": 2,
        }))
        .unwrap();
        assert_eq!(changed.action(Offence::Crash).quarantine_seconds, 7);
        assert_eq!(changed.action(Offence::Crash).slash_basis_points, 5_000);
        assert!(!changed.action(Offence::Stall).kill);
        assert_eq!(
            changed.action(Offence::BadProof),
            Offence::BadProof.default_action()
        );
        let written = serde_json::to_value(&changed).unwrap();
        assert_eq!(serde_json::from_value::<Rules>(written).unwrap(), changed);
        let bad = Rules::read(json!({
            "actions": {"CRASH": {"slash_basis_points": 10_001, "reputation": 3}},
            "success_reputation": -1,
        }));
        assert_eq!(bad.unwrap_err().iter().count(), 3);
        assert!(Rules::read(json!({"actions": {"SNEEZE": {}}})).is_err());
        assert!(Rules::read(json!({"actions": {"CRASH": {"kil": true}}})).is_err());
    }

    #[test]
    fn quarantine_expires_is_liftable_and_never_made_shorter() {
        let rules = Rules::default();
        let mut standing = Standing::default();
        standing.count(&rules, entry("a", 0, Deed::Offence(Offence::BadProof)));
        assert!(standing.is_quarantined(at(3599)) && !standing.is_quarantined(at(3600)));
        standing.count(&rules, entry("b", 60, Deed::Offence(Offence::Crash)));
        assert!(
            standing.is_quarantined(at(3599)),
            "a shorter one ends later"
        );
        assert_eq!(
            standing.quarantine_left(at(3590)),
            Some(Duration::from_secs(10))
        );
        standing.count(&rules, entry("c", 61, Deed::Lifted));
        assert!(!standing.is_quarantined(at(62)));
        assert_eq!((standing.reputation, standing.entries.len()), (30, 3));
        standing.count(
            &rules,
            entry("d", 70, Deed::Offence(Offence::RuntimeViolation)),
        );
        assert_eq!(standing.quarantined_until, None, "a kill and no quarantine");
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            Just(Deed::Confirmed),
            Just(Deed::Lifted),
            (0..Offence::ALL.len()).prop_map(|n| Deed::Offence(Offence::ALL[n])),
        ]
    }

    proptest! {
        #[test]
        fn reputation_stays_in_bounds_and_a_fact_counts_once(deeds in prop::collection::vec((0u32..30, 0i64..9000, deed()), 0..60)) {
            let rules = Rules::default();
            let (mut once, mut twice) = (Standing::default(), Standing::default());
            for (id, second, what) in deeds {
                let before = once.quarantined_until;
                let entry = entry(&id.to_string(), second, what);
                let first = once.count(&rules, entry.clone());
                twice.count(&rules, entry.clone());
                prop_assert_eq!(twice.count(&rules, entry), Counted::Before);
                prop_assert!((0..=REPUTATION_AT_MOST).contains(&once.reputation));
                if first == Counted::Now && what != Deed::Lifted {
                    prop_assert!(once.quarantined_until >= before);
                }
            }
            prop_assert_eq!(&once, &twice);
            let counted = once.confirmed + once.offences.values().sum::<u64>();
            prop_assert!(counted <= u64::try_from(once.entries.len()).unwrap());
            let read: Standing = serde_json::from_value(serde_json::to_value(&once).unwrap()).unwrap();
            prop_assert_eq!(read, once);
        }

        #[test]
        fn no_table_makes_a_reputation_leave_its_bounds(change in -100i16..=0, reward in 0i16..=100, deeds in prop::collection::vec(deed(), 0..40)) {
            let rules = Rules::read(json!({"actions": {"STALL": {"reputation": change}}, "success_reputation": reward})).unwrap();
            let mut standing = Standing::default();
            for (n, what) in deeds.into_iter().enumerate() {
                standing.count(&rules, entry(&n.to_string(), 0, what));
                prop_assert!((0..=REPUTATION_AT_MOST).contains(&standing.reputation));
            }
        }
    }
}
