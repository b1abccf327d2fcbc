//! Lists and counts. What is asked about commands is tried on the newest runs first: what is common fills a page there. Only what is rare is looked up in the dictionary.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::commands::{self, CommandTest};
use super::fault::Fault;
use super::glob::Glob;
use super::open::History;
use super::plan::{Answer, Conditions, Walk, blob};
use super::query::{Page, Query, RunSummary};
use super::read::shortest_unique;
use super::run_row::{Facet, tags_of, timestamp, unsigned};
use crate::error::StoreError;
use crate::id::RunId;

/// How many runs are looked at before the dictionary is asked.
const TRIAL: usize = if cfg!(test) { 24 } else { 2048 };

/// With more command lines than this, walking the runs is faster than walking each command's.
const MANY_COMMANDS: usize = if cfg!(test) { 30 } else { 16_384 };

impl History {
    pub fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let glob = query.command.as_deref().map(Glob::new).transpose()?;
        let more = query.limit.saturating_add(1);
        self.read(|connection| {
            let mut ids = if query.limit == 0 {
                Vec::new()
            } else {
                find(connection, query, glob.as_ref(), more)?
            };
            let is_last = ids.len() < more;
            ids.truncate(query.limit);
            let next = ids.last().copied().filter(|_| !is_last);
            let summaries = ids.into_iter().map(|id| summary(connection, id));
            Ok(Page {
                runs: summaries.collect::<Result<_, Fault>>()?,
                next,
            })
        })
    }

    /// How many runs a query finds; its limit is not regarded. Questions that no index answers alone take longer the more runs there are.
    pub fn count(&self, query: &Query) -> Result<u64, StoreError> {
        let glob = query.command.as_deref().map(Glob::new).transpose()?;
        self.read(|connection| {
            let Some(conditions) = Conditions::new(connection, query)? else {
                return Ok(0);
            };
            match &glob {
                Some(glob) => count_with_command(connection, &conditions, glob),
                None => match conditions.count_of_facets() {
                    Some(known) => Ok(known),
                    None => {
                        let (walk, _) = conditions.shortest_walk(connection, Answer::Count)?;
                        count(connection, &conditions, &walk, &mut CommandTest::All)
                    }
                },
            }
        })
    }
}

fn find(
    connection: &Connection,
    query: &Query,
    glob: Option<&Glob>,
    most: usize,
) -> Result<Vec<RunId>, Fault> {
    let Some(conditions) = Conditions::new(connection, query)? else {
        return Ok(Vec::new());
    };
    let (walk, length) = conditions.shortest_walk(connection, Answer::Rows)?;
    let search = Search {
        connection,
        conditions: &conditions,
        most,
    };
    let found = match glob {
        None => search.along(&walk, &mut CommandTest::All, usize::MAX)?,
        Some(glob) => return search.by_command(&walk, length, glob),
    };
    Ok(found.unwrap_or_default())
}

struct Search<'a> {
    connection: &'a Connection,
    conditions: &'a Conditions,
    most: usize,
}

impl Search<'_> {
    fn by_command(&self, walk: &Walk, length: u64, glob: &Glob) -> Result<Vec<RunId>, Fault> {
        let mut by_text = CommandTest::by_text(glob);
        let trial = if usize::try_from(length).is_ok_and(|length| length <= TRIAL) {
            usize::MAX
        } else {
            TRIAL
        };
        // Facets are walked one after the other; where they cover a good part of the runs, one walk over the runs fills a page sooner.
        let tried = match walk {
            Walk::Facets(_) if length > self.conditions.total / 16 => &Walk::Runs,
            other => other,
        };
        if let Some(found) = self.along(tried, &mut by_text, trial)? {
            return Ok(found);
        }
        let matching = commands::matching(self.connection, glob, MANY_COMMANDS)?;
        let found = match matching {
            Some(matching) if matching.runs <= length => {
                let walk = Walk::Commands(matching.commands);
                self.along(&walk, &mut CommandTest::All, usize::MAX)?
            }
            Some(matching) => {
                let mut in_set = CommandTest::InSet(matching.commands.into_iter().collect());
                self.along(walk, &mut in_set, usize::MAX)?
            }
            None => self.along(tried, &mut by_text, usize::MAX)?,
        };
        Ok(found.unwrap_or_default())
    }

    /// The newest runs along a walk, newest first. `None` when it was given up after looking at `patience` runs.
    fn along(
        &self,
        walk: &Walk,
        test: &mut CommandTest<'_>,
        patience: usize,
    ) -> Result<Option<Vec<RunId>>, Fault> {
        let question = self.conditions.question(walk, Answer::Rows);
        let mut statement = self.connection.prepare_cached(&question.sql)?;
        let limit = match test {
            CommandTest::All => i64::try_from(self.most).unwrap_or(i64::MAX),
            CommandTest::InSet(_) | CommandTest::ByText { .. } => -1,
        };
        let mut newest = Newest::new(self.most);
        let mut looked_at = 0;
        for key in walk.keys() {
            let low = newest.floor().max(self.conditions.low);
            if low > self.conditions.high {
                break;
            }
            let fixed = [
                key,
                blob(low),
                blob(self.conditions.high),
                Value::Integer(limit),
            ];
            let bound = fixed.into_iter().chain(question.rest.iter().cloned());
            let mut rows = statement.query(params_from_iter(bound))?;
            while let Some(row) = rows.next()? {
                if looked_at == patience {
                    return Ok(None);
                }
                looked_at += 1;
                let id = u128::from_be_bytes(row.get(0)?);
                if id < newest.floor() {
                    break;
                }
                if test.wants(self.connection, row.get(1)?)? {
                    newest.add(id);
                }
            }
        }
        Ok(Some(newest.into_ids()))
    }
}

/// The largest ids seen, at most so many.
struct Newest {
    most: usize,
    heap: BinaryHeap<Reverse<u128>>,
}

impl Newest {
    fn new(most: usize) -> Self {
        Self {
            most,
            heap: BinaryHeap::new(),
        }
    }

    /// Smaller ones are of no interest any more.
    fn floor(&self) -> u128 {
        match self.heap.peek() {
            Some(Reverse(smallest)) if self.heap.len() >= self.most => smallest.saturating_add(1),
            _ => 0,
        }
    }

    fn add(&mut self, id: u128) {
        self.heap.push(Reverse(id));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }

    fn into_ids(self) -> Vec<RunId> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse(id)| RunId::from_bytes(id.to_be_bytes()))
            .collect()
    }
}

fn count_with_command(
    connection: &Connection,
    conditions: &Conditions,
    glob: &Glob,
) -> Result<u64, Fault> {
    let (walk, length) = conditions.shortest_walk(connection, Answer::Count)?;
    if usize::try_from(length).is_ok_and(|length| length <= TRIAL) {
        return count(
            connection,
            conditions,
            &walk,
            &mut CommandTest::by_text(glob),
        );
    }
    let matching = commands::matching(connection, glob, usize::MAX)?.unwrap_or_default();
    if conditions.count_of_facets() == Some(conditions.total) {
        return Ok(matching.runs);
    }
    if matching.runs <= length {
        let walk = Walk::Commands(matching.commands);
        return count(connection, conditions, &walk, &mut CommandTest::All);
    }
    let mut in_set = CommandTest::InSet(matching.commands.into_iter().collect());
    count(connection, conditions, &walk, &mut in_set)
}

fn count(
    connection: &Connection,
    conditions: &Conditions,
    walk: &Walk,
    test: &mut CommandTest<'_>,
) -> Result<u64, Fault> {
    let answer = match test {
        CommandTest::All => Answer::Count,
        CommandTest::InSet(_) | CommandTest::ByText { .. } => Answer::Rows,
    };
    let question = conditions.question(walk, answer);
    let mut statement = connection.prepare_cached(&question.sql)?;
    let mut total = 0;
    for key in walk.keys() {
        let fixed = [
            key,
            blob(conditions.low),
            blob(conditions.high),
            Value::Integer(-1),
        ];
        let bound = fixed.into_iter().chain(question.rest.iter().cloned());
        let mut rows = statement.query(params_from_iter(bound))?;
        while let Some(row) = rows.next()? {
            match answer {
                Answer::Count => total += unsigned(row.get(0)?),
                Answer::Rows => total += u64::from(test.wants(connection, row.get(1)?)?),
            }
        }
    }
    Ok(total)
}

fn summary(connection: &Connection, id: RunId) -> Result<RunSummary, Fault> {
    let sql = "SELECT status, cause, exit_code, signal, kind, backend, has_artifacts,
            text, started, duration, parent, artifacts, output_bytes,
            (SELECT max(n.id) FROM runs AS n WHERE n.id < ?1), (SELECT min(n.id) FROM runs AS n WHERE n.id > ?1),
            EXISTS (SELECT 1 FROM tags WHERE run = ?1)
        FROM runs JOIN facets USING (facet) JOIN commands USING (command) WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.as_bytes()])?;
    let Some(row) = rows.next()? else {
        return Err(Fault::Damaged(format!(
            "run {id} is in an index and nowhere else"
        )));
    };
    let facet = Facet::read(row)?;
    let duration: Option<i64> = row.get(9)?;
    let parent: Option<[u8; 16]> = row.get(10)?;
    Ok(RunSummary {
        run_id: id,
        short_id: shortest_unique(id, [row.get(13)?, row.get(14)?]),
        status: facet.status,
        cause: facet.cause,
        exit_code: facet.exit_code,
        signal: facet.signal,
        started_at: timestamp(row.get(8)?)?,
        duration_ms: duration.map(milliseconds),
        kind: facet.kind,
        backend: facet.backend,
        command: row.get(7)?,
        tags: if row.get(15)? {
            tags_of(connection, id)?
        } else {
            BTreeMap::new()
        },
        parent: parent.map(RunId::from_bytes),
        artifacts: unsigned(row.get(11)?),
        output_bytes: unsigned(row.get(12)?),
    })
}

/// Microseconds as they are shown.
pub(crate) fn milliseconds(micros: i64) -> f64 {
    std::time::Duration::from_micros(unsigned(micros)).as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::plan::number;
    use super::*;

    #[test]
    fn the_newest_are_kept_in_order() {
        let mut newest = Newest::new(2);
        assert_eq!(newest.floor(), 0);
        for id in [5, 9, 1, 7] {
            newest.add(id);
        }
        assert_eq!(newest.floor(), 8);
        let ids: Vec<u128> = newest.into_ids().into_iter().map(number).collect();
        assert_eq!(ids, vec![9, 7]);
    }
}
