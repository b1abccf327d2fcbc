//! Which run is meant.

use cofferdam_store::{RunId, StoreError};

use crate::fixture::{Place, Tested, exited, id, opening};

#[test]
fn names_that_mean_one_run() -> Tested {
    let mut place = Place::new()?;
    place.history.record(&[exited(1, 0), exited(2, 0)])?;
    place.history.begin(&[opening(300)])?;
    let whole = id(2).to_string();
    let bare = whole.replace('-', "");
    for (asked, expected) in [
        ("latest", id(300)),
        ("latest~0", id(300)),
        ("latest~1", id(2)),
        ("latest~2", id(1)),
        (whole.as_str(), id(2)),
        (whole.to_uppercase().as_str(), id(2)),
        (bare.as_str(), id(2)),
        (&whole[..13], id(2)),
        (&bare[..12], id(2)),
    ] {
        assert_eq!(place.history.resolve(asked)?, expected, "{asked}");
    }
    Ok(())
}

#[test]
fn names_that_mean_none() -> Tested {
    let mut place = Place::new()?;
    let asked = [
        "latest",
        "latest~1",
        "latest~99999999999999999999",
        "0",
        "f",
        "",
        "-",
        "%",
        "latest~",
    ];
    for asked in asked {
        let refused = place.history.resolve(asked).unwrap_err();
        assert!(matches!(refused, StoreError::NoSuchRun { .. }), "{asked}");
    }
    place.history.record(&[exited(1, 0)])?;
    for asked in ["latest~1", "f", "zz", &RunId::new().to_string()] {
        let refused = place.history.resolve(asked).unwrap_err();
        assert!(matches!(refused, StoreError::NoSuchRun { .. }), "{asked}");
    }
    assert_eq!(place.history.resolve("0")?, id(1));
    let gone = place.history.get(RunId::new()).unwrap_err();
    assert!(matches!(gone, StoreError::NoSuchRun { .. }));
    Ok(())
}

#[test]
fn names_that_mean_several_list_some_of_them() -> Tested {
    let mut place = Place::new()?;
    let runs: Vec<_> = (1..=12).map(|n| exited(n, 0)).collect();
    place.history.record(&runs)?;
    let StoreError::Ambiguous { candidates, .. } = place.history.resolve("0").unwrap_err() else {
        return Err("not ambiguous".into());
    };
    assert_eq!(candidates.len(), 8);
    for candidate in candidates {
        place.history.resolve(&candidate)?;
    }
    Ok(())
}

/// Ids that differ in their last digit only, right beside ids that differ early.
#[test]
fn short_ids_are_unique_and_no_longer_than_they_must_be() -> Tested {
    let mut place = Place::new()?;
    let mut twin = exited(1, 0);
    let mut bytes = *id(1).as_bytes();
    bytes[15] ^= 0x0f;
    twin.opening.run_id = RunId::from_bytes(bytes);
    let mut cousin = exited(1, 0);
    bytes[6] ^= 0x01;
    cousin.opening.run_id = RunId::from_bytes(bytes);
    place
        .history
        .record(&[exited(1, 0), twin, cousin, exited(500, 0)])?;
    let page = place.history.list(&cofferdam_store::database::Query {
        limit: 9,
        ..Default::default()
    })?;
    let lengths: Vec<usize> = page.runs.iter().map(|run| run.short_id.len()).collect();
    assert_eq!(lengths, vec![13, 16, 36, 36]);
    for run in page.runs {
        assert_eq!(place.history.resolve(&run.short_id)?, run.run_id);
    }
    Ok(())
}
