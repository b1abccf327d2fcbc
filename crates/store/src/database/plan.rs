//! How a question becomes SQL: what must hold, and which index is walked.
//!
//! Every way to walk is measured first, up to [`ENOUGH`] entries, and the shortest is taken. All of them carry what the other conditions need, so that an entry that is refused costs
//! a fraction of a microsecond. Most of them lie in the order of the ids and stop when a page is full; the others are sorted, and only taken when they are short.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::fault::Fault;
use super::query::Query;
use super::run_row::{facets, unsigned};
use crate::id::RunId;
use jiff::{SignedDuration, Timestamp};

/// From here on, a way to walk counts as long.
pub(crate) const ENOUGH: u64 = if cfg!(test) { 40 } else { 65_536 };

/// With more facets than this, the runs are walked instead of each facet's.
const MANY_FACETS: usize = if cfg!(test) { 6 } else { 1024 };

/// How far a run's beginning may lie from the time in its id. Further away, the id decides.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// What must hold of a run, apart from its command.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    /// Both included.
    pub(crate) low: u128,
    pub(crate) high: u128,
    border: Option<Border>,
    facets: Option<Vec<i64>>,
    facet_runs: u64,
    tags: Vec<(String, Option<String>)>,
    parent: Option<RunId>,
    sender: Option<String>,
    longer: Option<i64>,
    shorter: Option<i64>,
    /// Of the whole history.
    pub(crate) total: u64,
}

/// Ids outside of `sure` are near a border, and the exact time decides.
#[derive(Debug, Clone)]
struct Border {
    since: i64,
    until: i64,
    sure: (u128, u128),
}

/// An index to walk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Walk {
    Runs,
    Facets(Vec<i64>),
    Commands(Vec<i64>),
    Parent(RunId),
    Sender(String),
    Tag(String, String),
    /// Not in the order of ids.
    TagKey(String),
    /// Not in the order of ids.
    Duration,
}

/// A statement with what is bound to it: the key, the lowest and highest id, the number of rows, then the rest.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) sql: String,
    pub(crate) rest: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Ids with their commands, newest first.
    Rows,
    Count,
}

impl Conditions {
    /// `None` when no run can fit.
    pub(crate) fn new(connection: &Connection, query: &Query) -> Result<Option<Self>, Fault> {
        let all = facets(connection)?;
        let total = all.iter().map(|(_, _, runs)| runs).sum();
        let wanted = || all.iter().filter(|(_, facet, _)| query.wants_facet(facet));
        let facet_runs = wanted().map(|(_, _, runs)| runs).sum();
        let mut by_size: Vec<(u64, i64)> = wanted().map(|(id, _, runs)| (*runs, *id)).collect();
        // The largest first: it fills the page, and the others have little to add.
        by_size.sort_unstable_by(|a, b| b.cmp(a));
        let facets = (query.asks_for_facets() && facet_runs < total)
            .then(|| by_size.into_iter().map(|(_, id)| id).collect());
        let before = query.before.map(number);
        let (low, high, border) = times(query);
        let micros =
            |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let conditions = Self {
            low,
            high: match before {
                Some(0) => return Ok(None),
                Some(before) => high.min(before - 1),
                None => high,
            },
            border,
            facets,
            facet_runs,
            tags: query.tags.clone(),
            parent: query.parent,
            sender: query.sender.clone(),
            longer: query.longer_than.map(micros),
            shorter: query.shorter_than.map(micros),
            total,
        };
        let possible = facet_runs > 0 && conditions.low <= conditions.high;
        Ok(possible.then_some(conditions))
    }

    /// The shortest way to walk, with its length as far as it was counted.
    pub(crate) fn shortest_walk(
        &self,
        connection: &Connection,
        answer: Answer,
    ) -> Result<(Walk, u64), Fault> {
        let mut ways = Vec::new();
        if let Some(parent) = self.parent {
            let way = Walk::Parent(parent);
            let length = self.measure(connection, &way)?;
            return Ok((way, length));
        }
        if let Some(facets) = &self.facets
            && facets.len() <= MANY_FACETS
        {
            ways.push((self.facet_runs, Walk::Facets(facets.clone())));
        }
        if let Some(sender) = &self.sender {
            let way = Walk::Sender(sender.clone());
            ways.push((self.measure(connection, &way)?, way));
        }
        for (key, value) in &self.tags {
            let way = match value {
                Some(value) => Walk::Tag(key.clone(), value.clone()),
                None => Walk::TagKey(key.clone()),
            };
            ways.push((self.measure(connection, &way)?, way));
        }
        if self.longer.is_some() || self.shorter.is_some() {
            ways.push((self.measure(connection, &Walk::Duration)?, Walk::Duration));
        }
        let whole = self.low == 0 && self.border.is_none();
        let runs = if whole {
            self.total
        } else {
            self.measure(connection, &Walk::Runs)?
        };
        if answer == Answer::Rows {
            ways.retain(|(length, way)| way.is_ordered() || *length < ENOUGH);
        }
        ways.push((runs, Walk::Runs));
        // Among equals the first, which is never the walk over all runs.
        let shortest = ways.into_iter().min_by_key(|(length, _)| *length);
        Ok(shortest.map_or((Walk::Runs, runs), |(length, way)| (way, length)))
    }

    fn measure(&self, connection: &Connection, walk: &Walk) -> Result<u64, Fault> {
        let mut rest = Vec::new();
        let mut conditions = walk.conditions(&mut rest);
        if *walk == Walk::Duration {
            self.durations(&mut conditions, &mut rest);
        } else {
            conditions.push(format!("{} BETWEEN ?2 AND ?3", walk.id()));
        }
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {} WHERE {} LIMIT ?4)",
            walk.source(),
            conditions.join(" AND ")
        );
        let key = walk.keys().into_iter().next().unwrap_or(Value::Null);
        let limit = Value::Integer(i64::try_from(ENOUGH).unwrap_or(i64::MAX));
        let fixed = [key, blob(self.low), blob(self.high), limit];
        let mut statement = connection.prepare_cached(&sql)?;
        let count: i64 = statement
            .query_row(params_from_iter(fixed.into_iter().chain(rest)), |row| {
                row.get(0)
            })?;
        Ok(unsigned(count))
    }

    /// Everything that must hold, along one way to walk.
    pub(crate) fn question(&self, walk: &Walk, answer: Answer) -> Question {
        let mut rest = Vec::new();
        let mut conditions = walk.conditions(&mut rest);
        let id = walk.id();
        conditions.push(format!("{id} BETWEEN ?2 AND ?3"));
        self.durations(&mut conditions, &mut rest);
        self.near_borders(walk, &mut conditions, &mut rest);
        if let Some(parent) = self.parent
            && !matches!(walk, Walk::Parent(_))
        {
            let place = bind(&mut rest, blob(number(parent)));
            conditions.push(format!(
                "{place} IS (SELECT child.parent FROM runs AS child WHERE child.id = walked.{id})"
            ));
        }
        if let Some(sender) = &self.sender
            && !matches!(walk, Walk::Sender(_))
        {
            let place = bind(&mut rest, Value::Text(sender.clone()));
            conditions.push(format!(
                "EXISTS (SELECT 1 FROM senders AS sent WHERE sent.sender = {place} AND sent.run = walked.{id})"
            ));
        }
        if let Some(facets) = &self.facets
            && !matches!(walk, Walk::Facets(_))
        {
            // A byte for each facet. A list would be taken for a table, and walked first.
            let place = bind(&mut rest, Value::Blob(marks(facets)));
            conditions.push(format!("substr({place}, facet, 1) = x'01'"));
        }
        for (key, value) in &self.tags {
            if walk.decides_tag(key, value.as_deref()) {
                continue;
            }
            let key = bind(&mut rest, Value::Text(key.clone()));
            let value = value.as_ref().map_or_else(String::new, |value| {
                let place = bind(&mut rest, Value::Text(value.clone()));
                format!(" AND other.value = {place}")
            });
            conditions.push(format!(
                "EXISTS (SELECT 1 FROM tags AS other WHERE other.run = walked.{id} AND other.key = {key}{value})"
            ));
        }
        let (source, holds) = (walk.source(), conditions.join(" AND "));
        let sql = match answer {
            Answer::Rows => format!(
                "SELECT {id}, command FROM {source} WHERE {holds} ORDER BY {id} DESC LIMIT ?4"
            ),
            Answer::Count => format!("SELECT count(*) FROM {source} WHERE {holds} LIMIT ?4"),
        };
        Question { sql, rest }
    }

    /// Whether nothing but facets is asked: their counts are known.
    pub(crate) fn count_of_facets(&self) -> Option<u64> {
        let nothing_else = self.low == 0
            && self.high == u128::MAX
            && self.border.is_none()
            && self.tags.is_empty()
            && self.parent.is_none()
            && self.sender.is_none()
            && self.longer.is_none()
            && self.shorter.is_none();
        nothing_else.then_some(self.facet_runs)
    }

    fn durations(&self, conditions: &mut Vec<String>, rest: &mut Vec<Value>) {
        for (bound, sign) in [(self.longer, '>'), (self.shorter, '<')] {
            if let Some(bound) = bound {
                let place = bind(rest, Value::Integer(bound));
                conditions.push(format!("duration {sign} {place}"));
            }
        }
    }

    fn near_borders(&self, walk: &Walk, conditions: &mut Vec<String>, rest: &mut Vec<Value>) {
        let Some(border) = &self.border else { return };
        let id = walk.id();
        let started = match walk {
            Walk::Runs => "started".to_owned(),
            _ => format!("(SELECT exact.started FROM runs AS exact WHERE exact.id = walked.{id})"),
        };
        let (low, high) = border.sure;
        let low = bind(rest, blob(low));
        let high = bind(rest, blob(high));
        let since = bind(rest, Value::Integer(border.since));
        let until = bind(rest, Value::Integer(border.until));
        conditions.push(format!(
            "({id} BETWEEN {low} AND {high} OR {started} BETWEEN {since} AND {until})"
        ));
    }
}

impl Walk {
    /// Whether its entries come in the order of ids, under one key.
    pub(crate) const fn is_ordered(&self) -> bool {
        match self {
            Self::Runs
            | Self::Facets(_)
            | Self::Commands(_)
            | Self::Parent(_)
            | Self::Sender(_)
            | Self::Tag(..) => true,
            Self::TagKey(_) | Self::Duration => false,
        }
    }

    /// What is bound as the key, one walk for each.
    pub(crate) fn keys(&self) -> Vec<Value> {
        match self {
            Self::Runs | Self::Duration => vec![Value::Null],
            Self::Facets(keys) | Self::Commands(keys) => {
                keys.iter().copied().map(Value::Integer).collect()
            }
            Self::Parent(id) => vec![blob(number(*id))],
            Self::Sender(key) | Self::Tag(key, _) | Self::TagKey(key) => {
                vec![Value::Text(key.clone())]
            }
        }
    }

    const fn source(&self) -> &'static str {
        match self {
            Self::Runs => "runs AS walked NOT INDEXED",
            Self::Facets(_) => "runs AS walked INDEXED BY runs_by_facet",
            Self::Commands(_) => "runs AS walked INDEXED BY runs_by_command",
            Self::Parent(_) => "runs AS walked INDEXED BY runs_by_parent",
            Self::Duration => "runs AS walked INDEXED BY runs_by_duration",
            Self::Sender(_) => "senders AS walked NOT INDEXED",
            Self::Tag(..) | Self::TagKey(_) => "tags AS walked INDEXED BY tags_by_value",
        }
    }

    const fn id(&self) -> &'static str {
        match self {
            Self::Sender(_) | Self::Tag(..) | Self::TagKey(_) => "run",
            Self::Runs | Self::Facets(_) | Self::Commands(_) | Self::Parent(_) | Self::Duration => {
                "id"
            }
        }
    }

    fn conditions(&self, rest: &mut Vec<Value>) -> Vec<String> {
        let key = match self {
            Self::Runs | Self::Duration => "?1 IS NULL",
            Self::Facets(_) => "facet = ?1",
            Self::Commands(_) => "command = ?1",
            Self::Parent(_) => "parent = ?1",
            Self::Sender(_) => "sender = ?1",
            Self::Tag(..) | Self::TagKey(_) => "key = ?1",
        };
        let mut conditions = vec![key.to_owned()];
        if let Self::Tag(_, value) = self {
            let place = bind(rest, Value::Text(value.clone()));
            conditions.push(format!("value = {place}"));
        }
        if *self == Self::Duration {
            conditions.push("duration IS NOT NULL".to_owned());
        }
        conditions
    }

    fn decides_tag(&self, key: &str, value: Option<&str>) -> bool {
        match self {
            Self::Tag(k, v) => k == key && value.is_none_or(|value| v == value),
            Self::TagKey(k) => k == key && value.is_none(),
            Self::Runs
            | Self::Facets(_)
            | Self::Commands(_)
            | Self::Parent(_)
            | Self::Sender(_)
            | Self::Duration => false,
        }
    }
}

/// The id range for a range of time, wider than that range by the slack.
fn times(query: &Query) -> (u128, u128, Option<Border>) {
    if query.since.is_none() && query.until.is_none() {
        return (0, u128::MAX, None);
    }
    let shifted = |at: Timestamp, by: SignedDuration| {
        let at = at.saturating_add(by).unwrap_or(at);
        number(RunId::floor(at))
    };
    let last_before = |id: u128| id.saturating_sub(1);
    let low = query.since.map_or(0, |at| shifted(at, -SLACK));
    let high = query
        .until
        .map_or(u128::MAX, |at| last_before(shifted(at, SLACK)));
    let sure_low = query.since.map_or(0, |at| shifted(at, SLACK));
    let sure_high = query
        .until
        .map_or(u128::MAX, |at| last_before(shifted(at, -SLACK)));
    let border = Border {
        since: query.since.map_or(i64::MIN, ceiling_micros),
        until: query
            .until
            .map_or(i64::MAX, |at| ceiling_micros(at).saturating_sub(1)),
        sure: (sure_low, sure_high),
    };
    (low, high, Some(border))
}

/// Times are stored in whole microseconds, rounded down.
fn ceiling_micros(at: Timestamp) -> i64 {
    let micros = at.as_microsecond();
    let exact = Timestamp::from_microsecond(micros).is_ok_and(|floor| floor == at);
    if exact {
        micros
    } else {
        micros.saturating_add(1)
    }
}

pub(crate) fn number(id: RunId) -> u128 {
    u128::from_be_bytes(*id.as_bytes())
}

pub(crate) fn blob(id: u128) -> Value {
    Value::Blob(id.to_be_bytes().to_vec())
}

/// The place at which this value is bound: after the four that every question has.
fn bind(rest: &mut Vec<Value>, value: Value) -> String {
    rest.push(value);
    format!("?{}", rest.len() + 4)
}

fn marks(facets: &[i64]) -> Vec<u8> {
    let places = || {
        facets
            .iter()
            .filter_map(|facet| usize::try_from(*facet).ok())
    };
    let mut marks = vec![0; places().max().unwrap_or(0)];
    for place in places() {
        if let Some(mark) = marks.get_mut(place.saturating_sub(1)) {
            *mark = 1;
        }
    }
    marks
}
