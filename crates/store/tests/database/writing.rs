//! Runs come in once, whole, and stay as they are.

use std::error::Error;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use cofferdam_store::database::{KeptOutput, NewRun, Query};
use cofferdam_store::model::{Digest, Outcome, Status};
use cofferdam_store::{History, StoreError, audit};

use crate::fixture::{
    Place, Tested, chunks, exited, id, interrupted, opening, tagged, with_command,
};

#[test]
fn a_run_comes_back_as_it_was_recorded() -> Tested {
    let mut place = Place::new()?;
    let run = tagged(exited(1, 3), "env", "ci");
    place.history.record(std::slice::from_ref(&run))?;
    let stored = place.history.get(id(1))?;
    assert_eq!(stored.opening, run.opening);
    assert_eq!(stored.outcome, run.outcome);
    assert_eq!(stored.log, run.log);
    assert_eq!(stored.status, Status::Failure);
    assert_eq!(place.history.kept_output(id(1))?, run.output);
    assert_eq!(place.history.output(id(1))?, chunks("hi\n"));
    Ok(())
}

#[test]
fn a_run_goes_on_and_then_has_ended() -> Tested {
    let mut place = Place::new()?;
    place.history.begin(&[opening(1), opening(2)])?;
    assert_eq!(place.history.get(id(1))?.status, Status::Running);
    assert!(place.history.kept_output(id(1)).is_err());
    let ended = tagged(exited(1, 0), "late", "tag");
    place.history.record(std::slice::from_ref(&ended))?;
    let stored = place.history.get(id(1))?;
    assert_eq!(
        (stored.opening, stored.outcome),
        (ended.opening, ended.outcome)
    );
    assert_eq!(place.history.get(id(2))?.status, Status::Running);
    let by_tag = Query {
        tags: vec![("late".to_owned(), None)],
        limit: 9,
        ..Query::default()
    };
    assert_eq!(place.history.list(&by_tag)?.runs.len(), 1);
    assert_eq!(place.history.stats()?.by_status[&Status::Success], 1);
    assert_eq!(audit::verify(&place.history)?.findings, vec![]);
    Ok(())
}

#[test]
fn twice_is_once() -> Tested {
    let mut place = Place::new()?;
    place.history.begin(&[opening(1)])?;
    place.history.begin(&[opening(1)])?;
    place.history.record(&[exited(1, 0), exited(1, 7)])?;
    place.history.record(&[interrupted(1)])?;
    place.history.begin(&[opening(1)])?;
    assert_eq!(place.history.get(id(1))?.status, Status::Success);
    assert_eq!(place.history.stats()?.runs, 1);
    assert_eq!(audit::list(&place.history, 10, None)?.len(), 1);
    Ok(())
}

#[test]
fn a_batch_is_all_or_nothing() -> Tested {
    let mut place = Place::new()?;
    let running = NewRun {
        outcome: Outcome::Running,
        ..exited(2, 0)
    };
    let refused = place.history.record(&[exited(1, 0), running]).unwrap_err();
    assert!(matches!(
        refused,
        StoreError::Invalid {
            field: "outcome",
            ..
        }
    ));
    assert_eq!(place.history.stats()?.runs, 0);
    assert_eq!(audit::list(&place.history, 10, None)?, vec![]);
    place.history.record(&[])?;
    Ok(())
}

#[test]
fn hostile_values_are_only_values() -> Tested {
    let mut place = Place::new()?;
    let long = "x".repeat(1 << 20);
    let quotes = "'; DROP TABLE runs; --\"\0\u{202e}\n";
    let mut odd = with_command(exited(1, 0), &["a\0b", quotes, &long]);
    for key in ["%", "*", "'", "\"", "a=b", "\0", "", "é"] {
        odd = tagged(odd, key, quotes);
    }
    odd.opening.backend = quotes.to_owned();
    place.history.record(std::slice::from_ref(&odd))?;
    let stored = place.history.get(id(1))?;
    assert_eq!(stored.opening, odd.opening);
    for key in odd.opening.tags.keys() {
        for value in [None, Some(quotes.to_owned())] {
            let query = Query {
                tags: vec![(key.clone(), value)],
                backend: Some(quotes.to_owned()),
                limit: 5,
                ..Query::default()
            };
            assert_eq!(place.history.list(&query)?.runs.len(), 1, "{key:?}");
            assert_eq!(place.history.count(&query)?, 1, "{key:?}");
        }
    }
    let line = &place
        .history
        .list(&Query {
            limit: 1,
            ..Query::default()
        })?
        .runs[0]
        .command;
    assert!(line.len() <= 4096 && line.starts_with("a\0b '") && line.ends_with("x…"));
    for pattern in ["a\0b", "*DROP TABLE*", "*\0\u{202e}*", "a?b '*"] {
        let query = Query {
            command: Some(pattern.to_owned()),
            limit: 5,
            ..Query::default()
        };
        assert_eq!(place.history.list(&query)?.runs.len(), 1, "{pattern:?}");
        assert_eq!(place.history.count(&query)?, 1, "{pattern:?}");
    }
    assert_eq!(audit::verify(&place.history)?.findings, vec![]);
    Ok(())
}

#[test]
fn a_cause_that_is_empty_is_not_one_that_is_absent() -> Tested {
    let mut place = Place::new()?;
    let empty = crate::fixture::stopped(1, "");
    let mut absent = exited(2, 0);
    if let Outcome::Ended(closing) = &mut absent.outcome {
        closing.exit_code = None;
        closing.signal = Some(String::new());
    }
    place.history.record(&[empty, absent, exited(3, 0)])?;
    assert_eq!(place.history.stats()?.runs, 3);
    Ok(())
}

#[test]
fn what_has_ended_cannot_be_changed_by_accident() -> Tested {
    let mut place = Place::new()?;
    place.history.record(&[tagged(exited(1, 0), "a", "b")])?;
    let raw = rusqlite::Connection::open(place.dir.database())?;
    for sql in [
        "UPDATE runs SET started = 0",
        "UPDATE details SET opening = '{}'",
        "UPDATE tags SET value = 'c'",
        "UPDATE facets SET status = 'running'",
        "UPDATE commands SET text = 'rm'",
        "UPDATE audit SET event = 'x'",
        "DELETE FROM audit",
    ] {
        assert!(raw.execute(sql, []).is_err(), "{sql}");
    }
    Ok(())
}

#[test]
fn nobody_else_may_look() -> Tested {
    let mut place = Place::new()?;
    place.history.record(&[exited(1, 0)])?;
    for entry in std::fs::read_dir(place.dir.path())? {
        let entry = entry?;
        let mode = entry.metadata()?.permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{:?}", entry.path());
    }
    Ok(())
}

#[test]
fn an_object_that_is_not_there_is_an_error() -> Tested {
    let mut place = Place::new()?;
    let lost = NewRun {
        output: KeptOutput::Object(Digest::of(b"nowhere")),
        ..exited(1, 0)
    };
    place.history.record(&[lost])?;
    assert!(place.history.output(id(1)).is_err());
    let broken = NewRun {
        output: KeptOutput::Inline(vec![9, 9]),
        ..exited(2, 0)
    };
    place.history.record(&[broken])?;
    let damaged = place.history.output(id(2)).unwrap_err();
    assert!(matches!(damaged, StoreError::Damaged { .. }));
    Ok(())
}

/// Several writers, each with its own connection, on a history that none of them has made yet; some runs are recorded by all of them.
#[test]
fn many_writers_lose_nothing_and_keep_one_chain() -> Tested {
    let directory = tempfile::tempdir()?;
    let dir = cofferdam_store::DataDir::at(directory.path().join("data"));
    let write = |writer: i64| -> Result<(), StoreError> {
        let mut history = History::open(&dir)?;
        for n in 0..25 {
            let own = exited(1000 * (writer + 1) + n, 0);
            history.begin(std::slice::from_ref(&own.opening))?;
            history.record(&[own, exited(n, 0)])?;
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let writers: Vec<_> = (0..6)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })?;
    let history = History::open(&dir)?;
    assert_eq!(history.stats()?.runs, 6 * 25 + 25);
    let report = audit::verify(&history)?;
    assert_eq!(report.findings, vec![]);
    assert_eq!(report.entries, 6 * 25 + 25);
    assert_eq!(history.check_integrity()?, Vec::<String>::new());
    Ok(())
}
