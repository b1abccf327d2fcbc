//! The tables, and the steps that lead from one format to the next. `user_version` names the format.
//!
//! `runs` is what a search walks: a few numbers per run, in the order of the ids, which is the order of time. Everything with few values (status, cause, exit code, signal, kind,
//! backend, whether there are artifacts) is one number, `facet`: a search over any of these first picks the facets that fit, and there are few. Every index of `runs` and of `tags`
//! carries facet, duration and command, so that a search decides on a run without leaving the index that it walks. Columns are stored twice so that nothing is looked up twice.

use std::path::Path;

use rusqlite::Connection;

use super::fault::{Fault, not_writable};
use crate::sqlite::Format;

/// The step at index n leads from format n to format n + 1. A step that has been released is never changed.
const STEPS: &[&str] = &[FIRST, SENDERS];

/// In the header of the file: `cofd`.
const APPLICATION: i64 = 0x636f_6664;

const FIRST: &str = "
CREATE TABLE facets (
    facet INTEGER PRIMARY KEY,
    status TEXT NOT NULL,
    cause TEXT,
    exit_code INTEGER,
    signal TEXT,
    kind TEXT NOT NULL,
    backend TEXT NOT NULL,
    has_artifacts INTEGER NOT NULL,
    runs INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX facets_by_value ON facets
    (status, ifnull(cause, x''), ifnull(exit_code, x''), ifnull(signal, x''), kind, backend, has_artifacts);

CREATE TABLE commands (
    command INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    runs INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE VIRTUAL TABLE command_trigrams USING fts5
    (text, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram case_sensitive 1');
CREATE VIRTUAL TABLE command_terms USING fts5vocab (command_trigrams, row);

CREATE TABLE runs (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    facet INTEGER NOT NULL REFERENCES facets (facet),
    command INTEGER NOT NULL REFERENCES commands (command),
    started INTEGER NOT NULL,
    duration INTEGER,
    parent BLOB,
    artifacts INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_facet ON runs (facet, id, duration, command);
CREATE INDEX runs_by_command ON runs (command, id, facet, duration);
CREATE INDEX runs_by_duration ON runs (duration, id, facet, command) WHERE duration IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent, id, facet, duration, command) WHERE parent IS NOT NULL;

CREATE TABLE tags (
    run BLOB NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    facet INTEGER NOT NULL,
    duration INTEGER,
    command INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_value ON tags (key, value, run, facet, duration, command);

CREATE TABLE details (
    run BLOB PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    opening TEXT NOT NULL,
    outcome TEXT NOT NULL,
    log TEXT NOT NULL,
    output BLOB,
    output_digest BLOB
) STRICT;

CREATE TABLE contents (
    run BLOB NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX contents_by_digest ON contents (digest);

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    prev BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX audit_by_subject ON audit (subject, seq);

CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
    UPDATE facets SET runs = runs + 1 WHERE facet = NEW.facet;
    UPDATE commands SET runs = runs + 1 WHERE command = NEW.command;
END;
CREATE TRIGGER runs_discounted AFTER DELETE ON runs BEGIN
    UPDATE facets SET runs = runs - 1 WHERE facet = OLD.facet;
    UPDATE commands SET runs = runs - 1 WHERE command = OLD.command;
END;
CREATE TRIGGER runs_recounted AFTER UPDATE OF facet, command ON runs BEGIN
    UPDATE facets SET runs = runs - 1 WHERE facet = OLD.facet;
    UPDATE facets SET runs = runs + 1 WHERE facet = NEW.facet;
    UPDATE commands SET runs = runs - 1 WHERE command = OLD.command;
    UPDATE commands SET runs = runs + 1 WHERE command = NEW.command;
END;

CREATE TRIGGER ended_runs_stay BEFORE UPDATE ON runs
WHEN (SELECT status FROM facets WHERE facet = OLD.facet) <> 'running' OR NEW.id <> OLD.id BEGIN
    SELECT RAISE(ABORT, 'a run that has ended is never changed');
END;
CREATE TRIGGER ended_details_stay BEFORE UPDATE ON details
WHEN (SELECT status FROM runs JOIN facets USING (facet) WHERE id = OLD.run) <> 'running' OR NEW.run <> OLD.run BEGIN
    SELECT RAISE(ABORT, 'a run that has ended is never changed');
END;
CREATE TRIGGER tags_stay BEFORE UPDATE ON tags BEGIN
    SELECT RAISE(ABORT, 'a tag is never changed');
END;
CREATE TRIGGER contents_stay BEFORE UPDATE ON contents BEGIN
    SELECT RAISE(ABORT, 'what a run refers to is never changed');
END;
CREATE TRIGGER facets_stay BEFORE UPDATE OF facet, status, cause, exit_code, signal, kind, backend, has_artifacts ON facets BEGIN
    SELECT RAISE(ABORT, 'a facet is never changed');
END;
CREATE TRIGGER commands_stay BEFORE UPDATE OF command, text ON commands BEGIN
    SELECT RAISE(ABORT, 'a command is never changed');
END;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'an audit entry is never changed');
END;
CREATE TRIGGER audit_grows BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'an audit entry is never removed');
END;
";

/// Runs of a daemon belong to whoever sent them. Walked like an index of `runs`, and carries what those carry.
const SENDERS: &str = "
CREATE TABLE senders (
    sender TEXT NOT NULL,
    run BLOB NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    facet INTEGER NOT NULL,
    duration INTEGER,
    command INTEGER NOT NULL,
    PRIMARY KEY (sender, run)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX senders_by_run ON senders (run);
CREATE TRIGGER senders_stay BEFORE UPDATE ON senders BEGIN
    SELECT RAISE(ABORT, 'who sent a run is never changed');
END;
";

const FORMAT: Format<'_> = Format {
    application: APPLICATION,
    steps: STEPS,
};

/// Brings the database to the current format. Several processes may do this at once.
pub(crate) fn upgrade(connection: &mut Connection, path: &Path) -> Result<(), Fault> {
    Ok(FORMAT.upgrade(connection, path)?)
}

/// For a history that may not be written.
pub(crate) fn require_current(connection: &Connection, path: &Path) -> Result<(), Fault> {
    if FORMAT.found(connection, path)? < FORMAT.known() {
        return Err(not_writable(path).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;

    fn upgrade_by(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), Fault> {
        let format = Format { steps, ..FORMAT };
        Ok(format.upgrade(connection, path)?)
    }

    fn version(connection: &Connection) -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    }

    fn fresh() -> rusqlite::Result<Connection> {
        Connection::open_in_memory()
    }

    #[test]
    fn every_step_leads_on_from_the_one_before() {
        for done in 0..=STEPS.len() {
            let mut connection = fresh().unwrap();
            upgrade_by(&mut connection, Path::new("x"), &STEPS[..done]).unwrap();
            upgrade(&mut connection, Path::new("x")).unwrap();
            assert_eq!(version(&connection).unwrap(), FORMAT.known());
            require_current(&connection, Path::new("x")).unwrap();
        }
    }

    #[test]
    fn a_later_step_keeps_what_is_there() {
        let first = "CREATE TABLE a (x) STRICT;".replace("(x)", "(x INTEGER)");
        let steps = [first.as_str(), "ALTER TABLE a ADD COLUMN y INTEGER;"];
        let mut connection = fresh().unwrap();
        upgrade_by(&mut connection, Path::new("x"), &steps[..1]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        upgrade_by(&mut connection, Path::new("x"), &steps).unwrap();
        let row: (i64, Option<i64>) = connection
            .query_row("SELECT x, y FROM a", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((row, version(&connection).unwrap()), ((7, None), 2));
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let steps = [
            "CREATE TABLE a (x INTEGER) STRICT;",
            "CREATE TABLE b (x INTEGER) STRICT; SELECT nothing FROM nowhere;",
        ];
        let mut connection = fresh().unwrap();
        upgrade_by(&mut connection, Path::new("x"), &steps[..1]).unwrap();
        upgrade_by(&mut connection, Path::new("x"), &steps).unwrap_err();
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!((tables, version(&connection).unwrap()), (1, 1));
    }

    #[test]
    fn newer_and_foreign_files_are_refused() {
        let mut connection = fresh().unwrap();
        connection
            .pragma_update(None, "user_version", FORMAT.known() + 1)
            .unwrap();
        let refused = upgrade(&mut connection, Path::new("x")).unwrap_err();
        assert!(matches!(
            refused,
            Fault::Store(StoreError::NewerFormat { found, .. }) if found == FORMAT.known() + 1
        ));
        let mut connection = fresh().unwrap();
        connection
            .execute_batch("CREATE TABLE songs (x INTEGER)")
            .unwrap();
        let refused = upgrade(&mut connection, Path::new("x")).unwrap_err();
        assert!(matches!(refused, Fault::Damaged(_)));
    }
}
