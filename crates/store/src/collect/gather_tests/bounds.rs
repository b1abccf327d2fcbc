//! What is too much is named and left out; the rest is kept.

use super::*;

#[test]
fn a_terabyte_of_nothing_is_not_read() {
    let place = Place::new().unwrap();
    let file = fs::File::create(place.at("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let after = place.collect(None).unwrap();
    assert_eq!(
        left_out(&after),
        [("sparse", "it has 1 TiB; a file may have at most 10 MiB")]
    );
}

#[test]
fn what_does_not_fit_is_named_and_the_rest_is_kept() {
    let place = Place::new().unwrap();
    for (path, bytes) in [("a", 100), ("b", 500), ("c", 101), ("d", 100), ("e", 10)] {
        place.put(path, vec![b'x'; bytes]).unwrap();
    }
    let limits = ArtifactLimits {
        per_file: Bytes::new(499),
        per_run: Bytes::new(200),
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("a", Added), ("d", Added)]);
    assert_eq!(
        left_out(&after),
        [
            ("b", "it has 500 B; a file may have at most 499 B"),
            (
                "c",
                "it has 101 B; with it, the run's files would have more than 200 B"
            ),
            (
                "e",
                "it has 10 B; with it, the run's files would have more than 200 B"
            ),
        ]
    );
    let limits = ArtifactLimits {
        files: 2,
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("a", Added), ("b", Added)]);
    assert_eq!(
        left_out(&after)[0],
        (
            "c",
            "it has 101 B; 2 files are kept of a run, and it comes after them"
        )
    );
}

#[test]
fn a_full_store_takes_only_what_it_has_already() {
    let place = Place::new().unwrap();
    place.objects.put(b"known contents").unwrap();
    let has = place.objects.stored_bytes().unwrap();
    place.put("known", "known contents").unwrap();
    place.put("new", "new contents").unwrap();
    let limits = ArtifactLimits {
        total: Bytes::new(has + 5),
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("known", Added)]);
    assert_eq!(after.left_out[0].path, "new");
    assert_eq!(place.objects.stored_bytes().unwrap(), has);
}

#[test]
fn a_store_that_cannot_be_written_leaves_everything_out_and_says_so() {
    let place = Place::new().unwrap();
    fs::write(place.elsewhere.path().join("data"), "in the way").unwrap();
    place.put("a", "1").unwrap();
    place.put("b", "2").unwrap();
    let after = place.collect(None).unwrap();
    assert_eq!(kept(&after), []);
    assert_eq!(after.left_out.len(), 2);
    for left in after.left_out {
        assert!(
            left.why.starts_with("it cannot be stored: "),
            "{}",
            left.why
        );
    }
}

#[test]
fn a_deep_tree_ends_at_the_bound() {
    let place = Place::new().unwrap();
    let deep = "d/".repeat(BOUNDS.depth + 3);
    place.put(format!("{deep}file"), "x").unwrap();
    place
        .put(format!("{}shallow", "d/".repeat(BOUNDS.depth)), "x")
        .unwrap();
    let before = place.snapshot().unwrap();
    assert!(!before.is_complete());
    let after = place.collect(None).unwrap();
    assert_eq!(after.artifacts.len(), 1);
    assert!(after.artifacts[0].path.ends_with("/shallow"));
    assert_eq!(after.left_out.len(), 1);
    assert_eq!(
        after.left_out[0].why,
        "directories are looked into 64 levels deep"
    );
}

#[test]
fn a_workspace_with_too_many_entries_says_so_and_old_files_are_not_taken_for_new() {
    let place = Place::new().unwrap();
    for n in 0..20 {
        place.put(format!("f{n:02}"), "x").unwrap();
    }
    let few = Bounds {
        entries: 10,
        ..BOUNDS
    };
    let whole = Bounds {
        entries: 20,
        ..BOUNDS
    };
    assert!(
        Snapshot::within(place.top.as_fd(), whole)
            .unwrap()
            .is_complete()
    );
    // So that the snapshot begins in a later tick.
    place.snapshot().unwrap();
    let before = Snapshot::within(place.top.as_fd(), few).unwrap();
    next_tick();
    assert_eq!((before.len(), before.is_complete()), (10, false));
    place.put("new", "x").unwrap();
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: None,
        give_up: None,
    };
    let run = |bounds| {
        collect_within(
            place.top.as_fd(),
            Some(&before),
            &place.objects,
            &rules,
            bounds,
        )
    };
    let after = run(BOUNDS).unwrap();
    assert_eq!(kept(&after), [("new", Added)]);
    assert_eq!(after.left_out.len(), 1);
    assert_eq!(after.left_out[0].path, ".");
    assert!(
        run(few).unwrap().left_out[0]
            .why
            .contains("more than 10 entries")
    );
}

#[test]
fn the_list_of_what_is_left_out_ends() {
    let place = Place::new().unwrap();
    for n in 0..MAX_LEFT_OUT + 25 {
        symlink("x", place.at(format!("{n:05}"))).unwrap();
    }
    let after = place.collect(None).unwrap();
    assert_eq!(after.left_out.len(), MAX_LEFT_OUT + 1);
    assert_eq!(
        left_out(&after)[MAX_LEFT_OUT],
        (".", "25 more are left out")
    );
}

/// Each name is spelled four times as long in a record.
#[test]
fn names_as_long_as_can_be_leave_room_for_a_record() {
    let place = Place::new().unwrap();
    let mut dir = beneath::open_dir(place.top.as_fd(), b".").unwrap();
    let name = vec![1_u8; 255];
    for _ in 0..40 {
        rustix::fs::mkdirat(&dir, name.as_slice(), Mode::RWXU).unwrap();
        dir = beneath::open_dir(dir.as_fd(), &name).unwrap();
    }
    for n in 0..100 {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&dir, format!("file{n:03}"), flags, Mode::RWXU).unwrap();
        rustix::fs::symlinkat("x", &dir, format!("link{n:03}")).unwrap();
    }
    let after = place.collect(None).unwrap();
    let kept: usize = after.artifacts.iter().map(|kept| kept.path.len()).sum();
    let told: usize = after.left_out.iter().map(|left| left.path.len()).sum();
    let most = usize::try_from(MOST_NAMES.get()).unwrap();
    assert!((most / 2..=most).contains(&kept), "{kept}");
    assert!((most / 2..=most + 1).contains(&told), "{told}");
    let all = after.artifacts.len() + after.left_out.len() - 1;
    let more = format!("{} more are left out", 200 - all);
    assert_eq!(left_out(&after).last(), Some(&(".", more.as_str())));
    assert!(
        after.left_out[0]
            .why
            .contains("the names of the run's files would have more than 2 MiB"),
        "{}",
        after.left_out[0].why
    );
}

#[test]
fn a_walk_ends_where_the_names_are_too_long() {
    let place = Place::new().unwrap();
    for n in 0..20 {
        place.put(format!("dir/{n:02}"), "x").unwrap();
    }
    let of = |path_bytes| Bounds {
        path_bytes,
        ..BOUNDS
    };
    // `dir` and twenty times `dir/00`.
    let whole = Snapshot::within(place.top.as_fd(), of(3 + 20 * 6)).unwrap();
    assert!(!whole.is_cut());
    let cut = Snapshot::within(place.top.as_fd(), of(3 + 20 * 6 - 1)).unwrap();
    assert!(cut.is_cut());
}
