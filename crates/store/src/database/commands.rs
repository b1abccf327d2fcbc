//! The dictionary of command lines: each is stored once, and found by its beginning or by any three letters in a row.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _};

use super::fault::Fault;
use super::glob::Glob;
use super::run_row::unsigned;

/// How many trigrams of a pattern the index is asked for. More make the answer smaller and the question slower.
const TRIGRAMS: usize = 6;

/// How many trigrams that begin with two letters the index is asked for at once.
const TERMS: usize = 200;

/// Follows every line in the index, so that its last two letters begin a trigram too.
const END: &str = "\n\n";

/// Command lines that match a pattern.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matching {
    pub(crate) commands: Vec<i64>,
    pub(crate) runs: u64,
}

/// The number of this command line, which is made where there is none.
pub(crate) fn intern(connection: &Connection, line: &str) -> Result<i64, Fault> {
    let find = "SELECT command FROM commands WHERE text = ?1";
    let known: Option<i64> = connection
        .prepare_cached(find)?
        .query_row([line], |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return Ok(known);
    }
    connection
        .prepare_cached("INSERT INTO commands (text) VALUES (?1)")?
        .execute([line])?;
    let made = connection.last_insert_rowid();
    connection
        .prepare_cached("INSERT INTO command_trigrams (rowid, text) VALUES (?1, ?2)")?
        .execute(rusqlite::params![made, format!("{line}{END}")])?;
    Ok(made)
}

/// Forgets a command line that no run has any more.
pub(crate) fn forget_unused(connection: &Connection, command: i64) -> Result<(), Fault> {
    let sql = "DELETE FROM commands WHERE command = ?1 AND runs = 0";
    if connection.prepare_cached(sql)?.execute([command])? > 0 {
        connection
            .prepare_cached("DELETE FROM command_trigrams WHERE rowid = ?1")?
            .execute([command])?;
    }
    Ok(())
}

/// The command lines that match, or `None` when there are more than `most`.
pub(crate) fn matching(
    connection: &Connection,
    glob: &Glob,
    most: usize,
) -> Result<Option<Matching>, Fault> {
    if !glob.is_prefix_only() {
        match candidates(connection, glob.literal())? {
            Candidates::None => return Ok(Some(Matching::default())),
            Candidates::Answering(question) => {
                let sql = "SELECT command, CAST(commands.text AS BLOB), runs FROM command_trigrams CROSS JOIN commands ON command = command_trigrams.rowid
                    WHERE command_trigrams MATCH ?1";
                return collect(connection, sql, &question, glob, most);
            }
            Candidates::Any => {}
        }
    }
    if glob.prefix().is_empty() {
        // The whole dictionary. What SQLite refuses by itself costs a third of what it hands out.
        let sql =
            "SELECT command, CAST(text AS BLOB), runs FROM commands WHERE instr(text, ?1) > 0";
        return collect(connection, sql, glob.literal(), glob, most);
    }
    let sql =
        "SELECT command, CAST(text AS BLOB), runs FROM commands WHERE text >= ?1 ORDER BY text";
    collect(connection, sql, glob.prefix(), glob, most)
}

/// Which lines can contain a text, as far as the index knows.
enum Candidates {
    None,
    /// Those that answer this question to the index.
    Answering(String),
    /// The index cannot tell.
    Any,
}

fn candidates(connection: &Connection, literal: &str) -> Result<Candidates, Fault> {
    let trigrams = trigrams(literal);
    if !trigrams.is_empty() {
        return Ok(Candidates::Answering(trigrams.join(" AND ")));
    }
    if literal.chars().count() != 2 || literal.contains('\0') {
        return Ok(Candidates::Any);
    }
    let terms = beginning_with(connection, literal)?;
    Ok(match terms.len() {
        0 => Candidates::None,
        1..=TERMS => Candidates::Answering(terms.join(" OR ")),
        _ => Candidates::Any,
    })
}

/// The trigrams that begin so, quoted; one more than can be used when there are too many, or when one of them cannot be asked for.
fn beginning_with(connection: &Connection, two: &str) -> Result<Vec<String>, Fault> {
    let sql = "SELECT term FROM command_terms WHERE term >= ?1 ORDER BY term";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([two])?;
    let mut terms = Vec::new();
    while let Some(row) = rows.next()? {
        let term = row.get_ref(0)?.as_str()?;
        if !term.starts_with(two) {
            break;
        }
        if term.contains('\0') || terms.len() > TERMS {
            return Ok(vec![String::new(); TERMS + 1]);
        }
        terms.push(quoted(term));
    }
    Ok(terms)
}

fn quoted(term: &str) -> String {
    format!("\"{}\"", term.replace('"', "\"\""))
}

fn collect(
    connection: &Connection,
    sql: &str,
    parameter: &str,
    glob: &Glob,
    most: usize,
) -> Result<Option<Matching>, Fault> {
    let in_order = sql.ends_with("ORDER BY text");
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([parameter])?;
    let mut found = Matching::default();
    while let Some(row) = rows.next()? {
        // As bytes, which SQLite hands out without a copy.
        let text = row.get_ref(1)?.as_blob()?;
        if in_order && !text.starts_with(glob.prefix().as_bytes()) {
            break;
        }
        if !glob.matches_bytes(text) {
            continue;
        }
        if found.commands.len() == most {
            return Ok(None);
        }
        found.commands.push(row.get(0)?);
        found.runs += unsigned(row.get(2)?);
    }
    Ok(Some(found))
}

/// Some of the three-letter pieces of a text, from all over it, quoted for the index. NUL would end the question.
fn trigrams(literal: &str) -> Vec<String> {
    let letters: Vec<char> = literal.chars().collect();
    let all: Vec<&[char]> = letters
        .windows(3)
        .filter(|piece| !piece.contains(&'\0'))
        .collect();
    let step = all.len().div_ceil(TRIGRAMS).max(1);
    let some = all.iter().rev().step_by(step);
    some.map(|piece| quoted(&piece.iter().collect::<String>()))
        .collect()
}

/// Tells whether a run's command is wanted, either because it is in a set or by looking at its text once.
#[derive(Debug)]
pub(crate) enum CommandTest<'a> {
    All,
    InSet(HashSet<i64>),
    ByText {
        glob: &'a Glob,
        seen: HashMap<i64, bool>,
    },
}

impl<'a> CommandTest<'a> {
    pub(crate) fn by_text(glob: &'a Glob) -> Self {
        Self::ByText {
            glob,
            seen: HashMap::new(),
        }
    }

    pub(crate) fn wants(&mut self, connection: &Connection, command: i64) -> Result<bool, Fault> {
        match self {
            Self::All => Ok(true),
            Self::InSet(set) => Ok(set.contains(&command)),
            Self::ByText { glob, seen } => {
                if let Some(known) = seen.get(&command) {
                    return Ok(*known);
                }
                let sql = "SELECT text FROM commands WHERE command = ?1";
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query([command])?;
                let wanted = match rows.next()? {
                    Some(row) => glob.matches(row.get_ref(0)?.as_str()?),
                    None => false,
                };
                seen.insert(command, wanted);
                Ok(wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigrams_are_quoted_and_few() {
        assert_eq!(trigrams("ab"), Vec::<String>::new());
        assert_eq!(trigrams("a\"b"), vec!["\"a\"\"b\""]);
        assert_eq!(trigrams("ab\0cd"), Vec::<String>::new());
        assert!(trigrams(&"abcdefgh".repeat(50)).len() <= TRIGRAMS);
    }
}
