//! Files that are not what they should be are refused with a reason, and never touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cofferdam_store::database::{Access, Query};
use cofferdam_store::{DataDir, History, StoreError};
use rustix::fs::{Gid, Uid};

use crate::fixture::{Place, Tested, exited, id, sent};

fn everything() -> Query {
    Query {
        limit: 1000,
        ..Query::default()
    }
}

#[test]
fn what_is_no_database_is_refused_and_left() -> Tested {
    let garbage: [&[u8]; 3] = [b"hello, I am your diary\n", &[0xff; 8192], b"SQLite format 3\0 and then nothing of the kind, but long enough to look like it........................................"];
    for contents in garbage {
        let directory = tempfile::tempdir()?;
        let dir = DataDir::at(directory.path());
        fs::write(dir.database(), contents)?;
        let refused = History::open(&dir).unwrap_err();
        let StoreError::Damaged { path, why } = &refused else {
            return Err(format!("{refused}").into());
        };
        assert_eq!(*path, dir.database());
        assert!(why.contains("restore a copy"), "{why}");
        assert_eq!(fs::read(dir.database())?, contents);
    }
    Ok(())
}

#[test]
fn a_newer_format_is_refused_and_left() -> Tested {
    let place = Place::new()?;
    let raw = place.raw()?;
    raw.pragma_update(None, "user_version", 77)?;
    let refused = History::open(&place.dir).unwrap_err();
    assert!(matches!(refused, StoreError::NewerFormat { found: 77, .. }));
    assert!(refused.to_string().contains("use a newer cofferdam"));
    Ok(())
}

#[test]
fn a_history_from_before_there_were_senders_is_brought_up_and_stays_sound() -> Tested {
    let mut place = Place::new()?;
    place.history.record(&[exited(1, 0), exited(2, 1)])?;
    let raw = rusqlite::Connection::open(place.dir.database())?;
    raw.execute_batch("DROP TABLE senders; PRAGMA user_version = 1;")?;
    drop(raw);
    let mut history = History::open(&place.dir)?;
    history.record(&[sent(exited(3, 0), "token-1"), sent(exited(4, 0), "token-2")])?;
    assert_eq!(history.list(&everything())?.runs.len(), 4);
    let own = Query {
        sender: Some("token-1".to_owned()),
        ..everything()
    };
    let found = history.list(&own)?.runs;
    let found: Vec<_> = found.iter().map(|run| run.run_id).collect();
    assert_eq!(found, [id(3)]);
    assert_eq!(cofferdam_store::audit::verify(&history)?.findings, []);
    Ok(())
}

#[test]
fn another_programs_database_is_refused_and_left() -> Tested {
    let directory = tempfile::tempdir()?;
    let dir = DataDir::at(directory.path());
    let other = rusqlite::Connection::open(dir.database())?;
    other.execute_batch("CREATE TABLE songs (name TEXT)")?;
    drop(other);
    let before = fs::read(dir.database())?;
    assert!(matches!(
        History::open(&dir).unwrap_err(),
        StoreError::Damaged { .. }
    ));
    assert_eq!(fs::read(dir.database())?, before);
    Ok(())
}

/// Cut, and with every page overwritten in turn: an answer or an error, never a panic, and the file stays.
#[test]
fn a_torn_or_scribbled_file_never_panics() -> Tested {
    let mut place = Place::new()?;
    let runs: Vec<_> = (0..60).map(|n| exited(n, 0)).collect();
    place.history.record(&runs)?;
    let dir = place.dir.clone();
    place.history = History::open(&Place::new()?.dir)?;
    let whole = fs::read(dir.database())?;
    let page = 4096;
    let mut damaged = 0;
    let mut look = |contents: &[u8]| -> Tested {
        let directory = tempfile::tempdir()?;
        let copy = DataDir::at(directory.path());
        fs::write(copy.database(), contents)?;
        let looked = History::open(&copy).and_then(|history| {
            history.list(&everything())?;
            history.get(id(30))?;
            history.stats()?;
            cofferdam_store::audit::verify(&history).map(drop)
        });
        damaged += usize::from(looked.is_err());
        Ok(())
    };
    for pages in 1..whole.len() / page {
        look(whole.get(..pages * page).unwrap_or_default())?;
        let mut scribbled = whole.clone();
        if let Some(place) = scribbled.get_mut(pages * page..(pages + 1) * page) {
            place.fill(0xa5);
        }
        look(&scribbled)?;
    }
    assert!(damaged > 5, "{damaged}");
    Ok(())
}

#[test]
fn the_file_says_whether_it_is_sound() -> Tested {
    let mut place = Place::new()?;
    place
        .history
        .record(&(0..60).map(|n| exited(n, 0)).collect::<Vec<_>>())?;
    assert_eq!(place.history.check_integrity()?, Vec::<String>::new());
    Ok(())
}

/// Whoever may not write can still read. Root may always write, so this is asked as somebody else there.
#[test]
fn a_history_that_may_not_be_written_can_be_read() {
    let as_somebody = || {
        if rustix::process::geteuid().is_root() {
            let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
            // Of this thread alone.
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        read_without_writing().map_err(|error| error.to_string())
    };
    std::thread::spawn(as_somebody).join().unwrap().unwrap();
}

fn read_without_writing() -> Tested {
    let mut place = Place::new()?;
    place.history.record(&[exited(1, 0)])?;
    let dir = place.dir.clone();
    drop(std::mem::replace(
        &mut place.history,
        History::open(&Place::new()?.dir)?,
    ));
    fs::set_permissions(dir.database(), fs::Permissions::from_mode(0o400))?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500))?;
    let mut history = History::open(&dir)?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700))?;
    assert_eq!(history.list(&everything())?.runs.len(), 1);
    assert_eq!(history.access(), Access::ReadOnly);
    let refused = match history.record(&[exited(2, 0)]) {
        Ok(()) => String::new(),
        Err(refused) => refused.to_string(),
    };
    assert!(refused.contains("may not be written"), "{refused}");
    Ok(())
}

#[test]
fn a_place_where_nothing_can_be_made_is_an_error_that_names_it() -> Tested {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("file");
    fs::write(&file, b"")?;
    let refused = History::open(&DataDir::at(file.join("data"))).unwrap_err();
    assert!(matches!(refused, StoreError::Io { .. }), "{refused}");
    Ok(())
}
