//! Whatever is done to the chain, to its head or to a run behind our back is found and named.

use cofferdam_store::RunId;
use cofferdam_store::audit::{self, Finding};
use cofferdam_store::database::PruneMode;
use serde_json::json;

use crate::fixture::{Place, Tested, exited, id, interrupted, opening, sent, tagged};

fn filled() -> Result<Place, Box<dyn std::error::Error>> {
    let mut place = Place::new()?;
    place.history.record(&[
        exited(1, 0),
        sent(tagged(exited(2, 1), "env", "ci"), "token-1"),
        interrupted(3),
        exited(4, 0),
    ])?;
    audit::append(
        &mut place.history,
        "bundle.exported",
        "b.zip",
        &json!({"runs": 2}),
    )?;
    place.history.begin(&[opening(5)])?;
    Ok(place)
}

fn findings(place: &Place) -> Result<Vec<Finding>, cofferdam_store::StoreError> {
    Ok(audit::verify(&place.history)?.findings)
}

#[test]
fn what_nobody_touched_is_sound() -> Tested {
    let mut place = filled()?;
    let mut told = Vec::new();
    let report = audit::verify_with(&place.history, |done, total| told.push((done, total)))?;
    assert_eq!(report.findings, vec![]);
    assert_eq!((report.entries, report.runs), (5, 4));
    assert_eq!(told.last(), Some(&(10, 10)));
    assert_eq!(audit::read_head(&place.history)?, Some(report.last));
    place.history.remove(&[id(2)], PruneMode::Remove)?;
    place.history.record(&[exited(2, 9)])?;
    assert_eq!(findings(&place)?, vec![]);
    let events: Vec<String> = audit::list(&place.history, 3, None)?
        .into_iter()
        .map(|entry| entry.event)
        .collect();
    assert_eq!(events, ["run.ended", "run.removed", "bundle.exported"]);
    let older = audit::list(&place.history, 9, Some(3))?;
    assert_eq!(
        older.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
        [2, 1]
    );
    Ok(())
}

#[test]
fn a_changed_entry_is_found_whatever_changed() -> Tested {
    for change in [
        "at = at + 1",
        "event = 'run.ended'",
        "subject = 'x'",
        "detail = '{}'",
        "detail = detail || ' '",
        "prev = zeroblob(32)",
        "hash = zeroblob(32)",
    ] {
        let place = filled()?;
        place
            .raw()?
            .execute(&format!("UPDATE audit SET {change} WHERE seq = 3"), [])?;
        let found = findings(&place)?;
        let named = |finding: &Finding| matches!(finding, Finding::EntryChanged { seq: 3, .. });
        assert!(found.iter().any(named), "{change}: {found:?}");
    }
    let place = filled()?;
    place
        .raw()?
        .execute("UPDATE audit SET hash = x'00' WHERE seq = 3", [])?;
    let named = |finding: &Finding| matches!(finding, Finding::EntryUnreadable { seq: 3, .. });
    assert!(findings(&place)?.iter().any(named));
    Ok(())
}

#[test]
fn a_removed_entry_is_found_wherever_it_was() -> Tested {
    let missing = |n| Finding::EntriesMissing { from: n, to: n };
    for n in [1, 3] {
        let place = filled()?;
        place
            .raw()?
            .execute("DELETE FROM audit WHERE seq = ?1", [n])?;
        assert!(
            findings(&place)?.contains(&missing(u64::try_from(n)?)),
            "{n}"
        );
    }
    let place = filled()?;
    place
        .raw()?
        .execute("DELETE FROM audit WHERE seq = 5", [])?;
    assert!(matches!(
        findings(&place)?.as_slice(),
        [Finding::HeadNotInChain { head, last }] if head.seq == 5 && last.seq == 4
    ));
    let place = filled()?;
    place.raw()?.execute("DELETE FROM audit", [])?;
    let found = findings(&place)?;
    assert!(
        found
            .iter()
            .any(|finding| matches!(finding, Finding::HeadNotInChain { .. }))
    );
    Ok(())
}

#[test]
fn removed_and_renumbered_inserted_and_reordered_entries_are_found() -> Tested {
    for (what, sql) in [
        (
            "the first removed, the rest moved up",
            "DELETE FROM audit WHERE seq = 1; UPDATE audit SET seq = seq - 1",
        ),
        (
            "one put in",
            "INSERT INTO audit SELECT 6, at, event, 'x', detail, prev, hash FROM audit WHERE seq = 5",
        ),
        (
            "two exchanged",
            "UPDATE audit SET seq = -seq WHERE seq IN (2, 3); UPDATE audit SET seq = 5 + seq WHERE seq < 0",
        ),
    ] {
        let place = filled()?;
        place.raw()?.execute_batch(sql)?;
        let found = findings(&place)?;
        let named = |finding: &Finding| {
            matches!(
                finding,
                Finding::EntryMisplaced { .. } | Finding::EntryChanged { .. }
            )
        };
        assert!(found.iter().any(named), "{what}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_changed_run_is_found_whatever_changed() -> Tested {
    for change in [
        "UPDATE details SET opening = replace(opening, 'echo', 'true') WHERE run = ?1",
        "UPDATE details SET outcome = replace(outcome, '1', '0') WHERE run = ?1",
        "UPDATE details SET log = '{}' WHERE run = ?1",
        "UPDATE details SET output = x'' WHERE run = ?1",
        "UPDATE runs SET started = started + 1 WHERE id = ?1",
        "UPDATE runs SET duration = 0 WHERE id = ?1",
        "UPDATE runs SET parent = id WHERE id = ?1",
        "UPDATE runs SET output_bytes = 0 WHERE id = ?1",
        "UPDATE runs SET facet = 1 WHERE id = ?1",
        "UPDATE runs SET command = 1 WHERE id = ?1",
        "UPDATE tags SET value = 'prod' WHERE run = ?1",
        "DELETE FROM tags WHERE run = ?1",
        "UPDATE senders SET sender = 'token-2' WHERE run = ?1",
        "DELETE FROM senders WHERE run = ?1",
        "INSERT INTO contents VALUES (?1, zeroblob(32), 1)",
        "DELETE FROM details WHERE run = ?1",
    ] {
        let place = filled()?;
        let changed = place.raw()?.execute(change, [id(2).as_bytes()])?;
        assert_eq!(changed, 1, "{change}");
        let found = findings(&place)?;
        let named = |finding: &Finding| match finding {
            Finding::RunChanged { run, seq: 2, .. } | Finding::RunGone { run, seq: 2 } => {
                *run == id(2).to_string()
            }
            _ => false,
        };
        assert!(found.iter().any(named), "{change}: {found:?}");
    }
    Ok(())
}

#[test]
fn exchanged_gone_and_smuggled_runs_are_found() -> Tested {
    let place = filled()?;
    let raw = place.raw()?;
    let (one, four) = (*id(1).as_bytes(), *id(4).as_bytes());
    raw.execute(
        "UPDATE details SET run = zeroblob(16) WHERE run = ?1",
        [one],
    )?;
    raw.execute("UPDATE details SET run = ?1 WHERE run = ?2", [one, four])?;
    raw.execute(
        "UPDATE details SET run = ?1 WHERE run = zeroblob(16)",
        [four],
    )?;
    let changed = findings(&place)?;
    let count = |found: &[Finding]| {
        let named = |finding: &&Finding| matches!(finding, Finding::RunChanged { .. });
        found.iter().filter(named).count()
    };
    assert_eq!(count(&changed), 2, "{changed:?}");

    let place = filled()?;
    place
        .raw()?
        .execute("DELETE FROM runs WHERE id = ?1", [one])?;
    let gone = Finding::RunGone {
        run: id(1).to_string(),
        seq: 1,
    };
    assert!(findings(&place)?.contains(&gone));
    assert!(
        gone.to_string()
            .contains("is gone, and no entry says that it was removed")
    );

    let place = filled()?;
    let new = RunId::new();
    place.raw()?.execute(
        "INSERT INTO runs SELECT ?1, facet, command, started, duration, parent, artifacts, output_bytes, stored_bytes FROM runs WHERE id = ?2",
        [*new.as_bytes(), one],
    )?;
    let smuggled = Finding::RunUnaccounted {
        run: new.to_string(),
    };
    assert!(findings(&place)?.contains(&smuggled));
    Ok(())
}

#[test]
fn a_removed_run_that_comes_back_is_found() -> Tested {
    let mut place = filled()?;
    let row = "CREATE TABLE kept AS SELECT * FROM runs WHERE id = ?1";
    rusqlite::Connection::open(place.dir.database())?.execute(
        &row.replace("?1", &format!("x'{}'", id(1).to_string().replace('-', ""))),
        [],
    )?;
    place.history.remove(&[id(1)], PruneMode::Remove)?;
    let raw = place.raw()?;
    raw.execute(
        "INSERT INTO commands (command, text) SELECT command, 'echo number 1' FROM kept",
        [],
    )?;
    raw.execute("INSERT INTO runs SELECT * FROM kept", [])?;
    let back = Finding::RunUnaccounted {
        run: id(1).to_string(),
    };
    assert!(findings(&place)?.contains(&back));
    Ok(())
}

#[test]
fn what_searches_use_is_watched_too() -> Tested {
    for change in [
        "UPDATE tags SET facet = facet + 1",
        "UPDATE tags SET duration = 77",
        "UPDATE senders SET facet = facet + 1",
        "UPDATE senders SET duration = 77",
        "DELETE FROM command_trigrams WHERE rowid = 1",
        "UPDATE facets SET runs = runs + 1",
        "UPDATE commands SET runs = 0",
    ] {
        let place = filled()?;
        place.raw()?.execute(change, [])?;
        let found = findings(&place)?;
        let named = |finding: &Finding| matches!(finding, Finding::IndexDiffers { .. });
        assert!(found.iter().any(named), "{change}: {found:?}");
    }
    Ok(())
}

#[test]
fn the_head_may_be_behind_and_never_ahead() -> Tested {
    let mut place = filled()?;
    let head = place.dir.audit_head();
    let entries = audit::list(&place.history, 9, None)?;
    let line = |n: usize| format!("{} {}\n", entries[n].seq, entries[n].hash);
    std::fs::write(&head, line(2))?;
    assert_eq!(findings(&place)?, vec![]);
    place.history.record(&[exited(9, 0)])?;
    let moved_on = audit::read_head(&place.history)?.map(|head| head.seq);
    assert_eq!(moved_on, Some(6));

    for broken in ["", "6\n", "x y\n", "99 aa\n"] {
        std::fs::write(&head, broken)?;
        let found = findings(&place)?;
        assert!(
            matches!(found.as_slice(), [Finding::HeadUnreadable { .. }]),
            "{broken}: {found:?}"
        );
    }
    std::fs::remove_file(&head)?;
    assert!(matches!(
        findings(&place)?.as_slice(),
        [Finding::HeadMissing { .. }]
    ));
    Ok(())
}

/// Entries are cut off, then life goes on: the head does not move over the cut until somebody accepts it.
#[test]
fn a_cut_stays_visible_until_it_is_accepted() -> Tested {
    let mut place = filled()?;
    place
        .raw()?
        .execute_batch("DELETE FROM audit WHERE seq >= 4")?;
    for n in 1..4 {
        audit::append(&mut place.history, "bundle.exported", "c.zip", &json!(n))?;
    }
    let of_the_head = |place: &Place| -> Result<Vec<Finding>, cofferdam_store::StoreError> {
        let mut found = findings(place)?;
        found.retain(|finding| !matches!(finding, Finding::RunUnaccounted { .. }));
        Ok(found)
    };
    assert!(matches!(
        of_the_head(&place)?.as_slice(),
        [Finding::HeadNotInChain { head, .. }] if head.seq == 5
    ));
    audit::reset_head(&mut place.history)?;
    assert_eq!(of_the_head(&place)?, vec![]);
    let entry = &audit::list(&place.history, 1, None)?[0];
    assert_eq!(
        (entry.event.as_str(), entry.subject.as_str()),
        ("audit.reset", "audit-head")
    );
    assert!(entry.detail.contains("\"seq\":5"));
    Ok(())
}
