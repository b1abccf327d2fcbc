//! The file of an outbox: damaged, of another, of a later version, and who may read it.

use super::*;

#[test]
fn a_damaged_foreign_or_newer_file_is_refused_by_name_and_left_alone() {
    let open = |place: &Place| Outbox::open(&place.data_dir()).unwrap_err();
    let damaged = Place::new();
    fs::create_dir_all(damaged.data_dir().path()).unwrap();
    fs::write(
        damaged.data_dir().outbox(),
        b"not a database, and long enough to be looked at".repeat(50),
    )
    .unwrap();
    let error = open(&damaged);
    assert!(
        matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("outbox.db"),
        "{error}"
    );
    let newer = Place::new();
    drop(newer.open());
    let raw = Connection::open(newer.data_dir().outbox()).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    assert!(matches!(
        open(&newer),
        StoreError::NewerFormat { found: 99, .. }
    ));
    let foreign = Place::new();
    fs::create_dir_all(foreign.data_dir().path()).unwrap();
    let raw = Connection::open(foreign.data_dir().outbox()).unwrap();
    raw.execute_batch("CREATE TABLE songs (x INTEGER)").unwrap();
    drop(raw);
    assert!(matches!(open(&foreign), StoreError::Damaged { .. }));
}

#[test]
fn a_page_that_was_overwritten_is_damage_and_no_panic() {
    let place = Place::new();
    let outbox = place.open();
    for n in 0..50 {
        let key = format!("k{n}");
        outbox
            .enqueue(
                Message {
                    body: vec![7; 5000],
                    ..message(&key, Kind::Result, &key)
                },
                at(0),
            )
            .unwrap();
    }
    drop(outbox);
    let path = place.data_dir().outbox();
    let mut bytes = fs::read(&path).unwrap();
    for byte in bytes.iter_mut().skip(4096) {
        *byte = 0xa5;
    }
    fs::write(&path, bytes).unwrap();
    let seen = Outbox::open(&place.data_dir()).and_then(|outbox| outbox.next_due(at(1), LEASE));
    assert!(matches!(seen, Err(StoreError::Damaged { .. })), "{seen:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_by_name() {
    if rustix::process::geteuid().is_root() {
        // Root may write everything; a directory in place of the file is as good.
        let place = Place::new();
        fs::create_dir_all(place.data_dir().outbox()).unwrap();
        let error = Outbox::open(&place.data_dir()).unwrap_err();
        assert!(error.to_string().contains("outbox.db"), "{error}");
        return;
    }
    let place = Place::new();
    drop(place.open());
    fs::set_permissions(place.data_dir().outbox(), fs::Permissions::from_mode(0o400)).unwrap();
    let error = Outbox::open(&place.data_dir()).unwrap_err();
    assert!(error.to_string().contains("write to the outbox"), "{error}");
}

#[test]
fn nobody_else_may_look() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(0))
        .unwrap();
    let _held = outbox.next_due(at(0), LEASE).unwrap();
    let mode =
        |path: &std::path::Path| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    let dir = place.data_dir();
    assert_eq!(mode(&dir.outbox()).unwrap(), 0o600);
    assert_eq!(mode(&dir.path().join("outbox.db-wal")).unwrap(), 0o600);
    assert_eq!(mode(&dir.couriers()).unwrap(), 0o700);
}

/// A message that cannot be read is kept to be looked at; all others, also of its run, are sent.
#[test]
fn one_damaged_message_stops_nothing_else() {
    let place = Place::new();
    let outbox = place.open();
    for key in ["without-a-body", "of-no-kind", "sound"] {
        let of_one_run = message("r", Kind::Result, key);
        outbox.enqueue(of_one_run, at(0)).unwrap();
    }
    let raw = Connection::open(place.data_dir().outbox()).unwrap();
    raw.execute_batch(
        "DELETE FROM bodies WHERE message = (SELECT id FROM messages WHERE key = 'without-a-body');
         UPDATE messages SET kind = 'song' WHERE key = 'of-no-kind';",
    )
    .unwrap();
    let taken = outbox.next_due(at(1), LEASE).unwrap().unwrap();
    assert_eq!(
        (taken.idempotency_key.as_str(), taken.attempt),
        ("sound", 1)
    );
    assert_eq!(outbox.next_due(at(1), LEASE).unwrap(), None);
    let given_up: i64 = raw
        .query_row(
            "SELECT count(*) FROM messages WHERE state = 2 AND outcome LIKE 'damaged: %'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(given_up, 2);
}

#[test]
fn what_a_killed_taker_left_is_swept_and_what_is_locked_stays() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(0))
        .unwrap();
    let _held = outbox.next_due(at(0), LEASE).unwrap();
    let couriers = place.data_dir().couriers();
    let left = |name: &str| couriers.join(format!("{name}.lock"));
    let (old, young) = (
        "019a8c3e-7f2b-7abc-8def-0123456789ab",
        "019a8c3e-7f2b-7abc-8def-0123456789ac",
    );
    fs::write(left(old), "").unwrap();
    fs::write(left(young), "").unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    for entry in fs::read_dir(&couriers).unwrap() {
        let path = entry.unwrap().path();
        if path != left(young) {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(long_ago).unwrap();
        }
    }
    outbox.prune(at(1)).unwrap();
    assert!(!left(old).exists() && left(young).exists());
    assert_eq!(fs::read_dir(&couriers).unwrap().count(), 2);
}
