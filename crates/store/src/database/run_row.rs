//! What is stored of one run: the row that is searched, the documents, and the digest over all of it that goes into the audit chain. Reads it back whole.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use sha2::Digest as _;

use super::fault::Fault;
use super::write::KeptOutput;
use crate::id::RunId;
use crate::model::{Closing, Digest, LogFacts, Opening, Outcome, RunKind, Status};

/// How much of a command line is searched and listed, in bytes. The whole of it is in the document.
pub(crate) const LONGEST_LINE: usize = 4096;

/// What one run takes in the database besides its documents: its rows and their share of the indexes. Measured over the million runs of the example `million`, rounded; entries of the audit chain are not counted, as they stay.
pub(crate) const ROW_SHARE: usize = 400;

/// Everything of a run that has few values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Facet {
    pub(crate) status: Status,
    pub(crate) cause: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) kind: RunKind,
    pub(crate) backend: String,
    pub(crate) artifacts: HasArtifacts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HasArtifacts {
    No,
    Yes,
}

/// One run as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunRow {
    pub(crate) id: RunId,
    pub(crate) facet: Facet,
    /// The command line, at most [`LONGEST_LINE`] bytes of it.
    pub(crate) line: String,
    /// Microseconds since 1970.
    pub(crate) started: i64,
    /// Microseconds; of runs that ended.
    pub(crate) duration: Option<i64>,
    pub(crate) parent: Option<RunId>,
    pub(crate) sender: Option<String>,
    pub(crate) artifacts: i64,
    pub(crate) output_bytes: i64,
    pub(crate) stored_bytes: i64,
    pub(crate) tags: BTreeMap<String, String>,
    /// Which contents the run refers to, and how long they are as the run sees them.
    pub(crate) contents: BTreeMap<Digest, i64>,
    pub(crate) opening: String,
    pub(crate) outcome: String,
    pub(crate) log: String,
    /// `None` while the run goes on.
    pub(crate) output: Option<KeptOutput>,
}

impl RunRow {
    pub(crate) fn new(
        opening: &Opening,
        outcome: &Outcome,
        log: &LogFacts,
        output: Option<KeptOutput>,
    ) -> Result<Self, Fault> {
        let closing = match outcome {
            Outcome::Ended(closing) => Some(closing.as_ref()),
            Outcome::Running | Outcome::Interrupted { .. } => None,
        };
        let artifacts = closing.map_or(0, |closing| closing.artifacts.len());
        let mut row = Self {
            id: opening.run_id,
            facet: facet(opening, outcome, closing),
            line: line(&opening.command),
            started: opening.started_at.as_microsecond(),
            duration: closing.map(duration),
            parent: opening.parent,
            sender: opening.sender.clone(),
            artifacts: i64::try_from(artifacts).unwrap_or(i64::MAX),
            output_bytes: signed(output_bytes(closing, log)),
            stored_bytes: 0,
            tags: opening.tags.clone(),
            contents: contents(closing, log, output.as_ref()),
            opening: document(opening)?,
            outcome: document(outcome)?,
            log: document(log)?,
            output,
        };
        row.stored_bytes = i64::try_from(row.size()).unwrap_or(i64::MAX);
        Ok(row)
    }

    fn size(&self) -> usize {
        let inline = match &self.output {
            Some(KeptOutput::Inline(bytes)) => bytes.len(),
            Some(KeptOutput::Object(_)) | None => 0,
        };
        ROW_SHARE + self.opening.len() + self.outcome.len() + self.log.len() + inline
    }

    /// SHA-256 over every field, each with its length before it, so that no two runs read alike. Covers what is searched as well as the documents: a list that lies is found too.
    pub(crate) fn digest(&self) -> Digest {
        let mut fields = Fields::new(b"cofferdam.stored-run/1");
        fields.bytes(self.id.as_bytes());
        for document in [&self.opening, &self.outcome, &self.log] {
            fields.bytes(document.as_bytes());
        }
        match &self.output {
            None => fields.bytes(b"none"),
            Some(KeptOutput::Inline(bytes)) => {
                fields.bytes(b"inline");
                fields.bytes(&Digest::of(bytes).0);
            }
            Some(KeptOutput::Object(digest)) => {
                fields.bytes(b"object");
                fields.bytes(&digest.0);
            }
        }
        self.facet.digest_into(&mut fields);
        fields.bytes(self.line.as_bytes());
        fields.number(Some(self.started));
        fields.number(self.duration);
        fields.optional(self.parent.as_ref().map(|id| id.as_bytes().as_slice()));
        for number in [self.artifacts, self.output_bytes, self.stored_bytes] {
            fields.number(Some(number));
        }
        fields.number(i64::try_from(self.tags.len()).ok());
        for (key, value) in &self.tags {
            fields.bytes(key.as_bytes());
            fields.bytes(value.as_bytes());
        }
        for (digest, bytes) in &self.contents {
            fields.bytes(&digest.0);
            fields.number(Some(*bytes));
        }
        // Only where there is one: runs without were digested before there were senders.
        if let Some(sender) = &self.sender {
            fields.bytes(b"sender");
            fields.bytes(sender.as_bytes());
        }
        fields.finish()
    }

    /// The run as it is stored, or `None`.
    pub(crate) fn read(connection: &Connection, id: RunId) -> Result<Option<Self>, Fault> {
        let sql = "SELECT status, cause, exit_code, signal, kind, backend, has_artifacts,
                text, started, duration, parent, artifacts, output_bytes, stored_bytes,
                opening, outcome, log, output, output_digest
            FROM runs CROSS JOIN facets USING (facet) CROSS JOIN commands USING (command) CROSS JOIN details ON run = id
            WHERE id = ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([id.as_bytes()])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let output = match (row.get_ref(17)?, row.get_ref(18)?) {
            (ValueRef::Blob(bytes), ValueRef::Null) => Some(KeptOutput::Inline(bytes.to_vec())),
            (ValueRef::Null, ValueRef::Blob(_)) => Some(KeptOutput::Object(Digest(row.get(18)?))),
            _ => None,
        };
        let parent: Option<[u8; 16]> = row.get(10)?;
        Ok(Some(Self {
            id,
            facet: Facet::read(row)?,
            line: row.get(7)?,
            started: row.get(8)?,
            duration: row.get(9)?,
            parent: parent.map(RunId::from_bytes),
            sender: sender_of(connection, id)?,
            artifacts: row.get(11)?,
            output_bytes: row.get(12)?,
            stored_bytes: row.get(13)?,
            tags: tags_of(connection, id)?,
            contents: contents_of(connection, id)?,
            opening: row.get(14)?,
            outcome: row.get(15)?,
            log: row.get(16)?,
            output,
        }))
    }
}

impl Facet {
    /// From the first seven columns: status, cause, exit code, signal, kind, backend, artifacts.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let status = row.get_ref(0)?.as_str()?;
        let kind = row.get_ref(4)?.as_str()?;
        Ok(Self {
            status: *Status::ALL
                .iter()
                .find(|known| known.as_str() == status)
                .ok_or_else(|| Fault::Damaged(format!("there is no status `{status}`")))?,
            cause: row.get(1)?,
            exit_code: row.get(2)?,
            signal: row.get(3)?,
            kind: *RunKind::ALL
                .iter()
                .find(|known| known.as_str() == kind)
                .ok_or_else(|| Fault::Damaged(format!("there is no kind of run `{kind}`")))?,
            backend: row.get(5)?,
            artifacts: match row.get::<_, i64>(6)? {
                0 => HasArtifacts::No,
                _ => HasArtifacts::Yes,
            },
        })
    }

    fn digest_into(&self, fields: &mut Fields) {
        fields.bytes(self.status.as_str().as_bytes());
        fields.optional(self.cause.as_deref().map(str::as_bytes));
        fields.number(self.exit_code.map(i64::from));
        fields.optional(self.signal.as_deref().map(str::as_bytes));
        fields.bytes(self.kind.as_str().as_bytes());
        fields.bytes(self.backend.as_bytes());
        fields.number(Some(self.artifacts.number()));
    }

    /// The number of this facet, which is made where there is none.
    pub(crate) fn intern(&self, connection: &Connection) -> Result<i64, Fault> {
        let find = "SELECT facet FROM facets
            WHERE status = ?1 AND ifnull(cause, x'') = ifnull(?2, x'') AND ifnull(exit_code, x'') = ifnull(?3, x'')
            AND ifnull(signal, x'') = ifnull(?4, x'') AND kind = ?5 AND backend = ?6 AND has_artifacts = ?7";
        let make =
            "INSERT INTO facets (status, cause, exit_code, signal, kind, backend, has_artifacts)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let values = rusqlite::params![
            self.status.as_str(),
            self.cause,
            self.exit_code,
            self.signal,
            self.kind.as_str(),
            self.backend,
            self.artifacts.number(),
        ];
        let known: Option<i64> = connection
            .prepare_cached(find)?
            .query_row(values, |row| row.get(0))
            .optional()?;
        if let Some(known) = known {
            return Ok(known);
        }
        connection.prepare_cached(make)?.execute(values)?;
        Ok(connection.last_insert_rowid())
    }
}

impl HasArtifacts {
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::No => 0,
            Self::Yes => 1,
        }
    }
}

/// Fields with their lengths before them, hashed.
#[derive(Debug)]
pub(crate) struct Fields(sha2::Sha256);

impl Fields {
    pub(crate) fn new(domain: &[u8]) -> Self {
        let mut fields = Self(sha2::Sha256::new());
        fields.bytes(domain);
        fields
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(length.to_le_bytes());
        self.0.update(bytes);
    }

    /// Absence is a length that nothing has.
    fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.0.update(u64::MAX.to_le_bytes()),
        }
    }

    fn number(&mut self, number: Option<i64>) {
        let bytes = number.map(i64::to_le_bytes);
        self.optional(bytes.as_ref().map(<[u8; 8]>::as_slice));
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

pub(crate) fn tags_of(
    connection: &Connection,
    id: RunId,
) -> Result<BTreeMap<String, String>, Fault> {
    let sql = "SELECT key, value FROM tags WHERE run = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([id.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn sender_of(connection: &Connection, id: RunId) -> Result<Option<String>, Fault> {
    let sql = "SELECT sender FROM senders WHERE run = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?)
}

fn contents_of(connection: &Connection, id: RunId) -> Result<BTreeMap<Digest, i64>, Fault> {
    let sql = "SELECT digest, bytes FROM contents WHERE run = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([id.as_bytes()], |row| {
        Ok((Digest(row.get(0)?), row.get(1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The time that a number of the hot row stands for.
pub(crate) fn timestamp(micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_microsecond(micros)
        .map_err(|_| Fault::Damaged(format!("{micros} is not a time")))
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn facet(opening: &Opening, outcome: &Outcome, closing: Option<&Closing>) -> Facet {
    let some = closing.is_some_and(|closing| !closing.artifacts.is_empty());
    Facet {
        status: outcome.status(),
        cause: outcome.cause().map(str::to_owned),
        exit_code: closing.and_then(|closing| closing.exit_code),
        signal: closing.and_then(|closing| closing.signal.clone()),
        kind: opening.kind,
        backend: opening.backend.clone(),
        artifacts: if some {
            HasArtifacts::Yes
        } else {
            HasArtifacts::No
        },
    }
}

/// The arguments with blanks between them. What is too long ends with `…`.
fn line(command: &[String]) -> String {
    const CUT: &str = "…";
    let mut line = String::new();
    for (index, argument) in command.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        line.push_str(argument);
        if line.len() > LONGEST_LINE {
            line.truncate(line.floor_char_boundary(LONGEST_LINE - CUT.len()));
            line.push_str(CUT);
            break;
        }
    }
    line
}

fn duration(closing: &Closing) -> i64 {
    let wall = Duration::try_from_secs_f64(closing.usage.wall_ms / 1000.0).unwrap_or_default();
    // Half a microsecond more, so that 1234.567 ms does not become 1234566.
    let micros = wall.saturating_add(Duration::from_nanos(500)).as_micros();
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn output_bytes(closing: Option<&Closing>, log: &LogFacts) -> u64 {
    match closing {
        Some(closing) => closing.stdout.bytes.saturating_add(closing.stderr.bytes),
        None => log.stdout.bytes.saturating_add(log.stderr.bytes),
    }
}

fn contents(
    closing: Option<&Closing>,
    log: &LogFacts,
    output: Option<&KeptOutput>,
) -> BTreeMap<Digest, i64> {
    let mut contents: BTreeMap<Digest, i64> = BTreeMap::new();
    let mut add = |digest: Digest, bytes: u64| {
        let total = contents.entry(digest).or_insert(0);
        *total = total.saturating_add(signed(bytes));
    };
    let artifacts = closing.map_or(&[][..], |closing| &closing.artifacts);
    for artifact in artifacts {
        add(artifact.digest, artifact.bytes);
    }
    if let Some(KeptOutput::Object(digest)) = output {
        add(*digest, log.stdout.bytes.saturating_add(log.stderr.bytes));
    }
    contents
}

fn document(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value)
        .map_err(|error| Fault::Damaged(format!("a run cannot be written down: {error}")))
}

/// All facets with the number of their runs; those that no run has are left out.
pub(crate) fn facets(connection: &Connection) -> Result<Vec<(i64, Facet, u64)>, Fault> {
    let sql = "SELECT status, cause, exit_code, signal, kind, backend, has_artifacts, facet, runs FROM facets WHERE runs > 0";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut facets = Vec::new();
    while let Some(row) = rows.next()? {
        facets.push((row.get(7)?, Facet::read(row)?, unsigned(row.get(8)?)));
    }
    Ok(facets)
}

/// The contents that a run refers to.
pub(crate) fn digests_of(connection: &Connection, id: RunId) -> Result<Vec<Digest>, Fault> {
    Ok(contents_of(connection, id)?.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_line_is_cut_between_characters() {
        let of = |arguments: &[&str]| {
            let owned: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            line(&owned)
        };
        assert_eq!(of(&["sh", "-c", "a b"]), "sh -c a b");
        assert_eq!(of(&[]), "");
        let long = of(&["é".repeat(5000).as_str(), "end"]);
        assert!(long.len() <= LONGEST_LINE && long.ends_with("é…"));
        let fits = "x".repeat(LONGEST_LINE);
        assert_eq!(of(&[&fits]), fits);
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let of = |parts: &[Option<&[u8]>]| {
            let mut fields = Fields::new(b"test");
            parts.iter().for_each(|part| fields.optional(*part));
            fields.finish()
        };
        let all = [
            of(&[Some(b"ab"), Some(b"c")]),
            of(&[Some(b"a"), Some(b"bc")]),
            of(&[Some(b"abc")]),
            of(&[Some(b"abc"), None]),
            of(&[Some(b"abc"), Some(b"")]),
        ];
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
