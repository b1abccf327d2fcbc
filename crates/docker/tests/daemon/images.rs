//! Images by name, by id and by digest; local only; and from a registry of the test's own.

use std::sync::{Arc, Mutex};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_docker::images::{self, Prune};
use cofferdam_docker::{Progress, Pull, Settings};
use cofferdam_testkit::docker::{Dockerd, IMAGE};
use cofferdam_testkit::registry::Registry;

use crate::support::{exited, request, settings, try_run};

fn with(daemon: &Dockerd, image: &str) -> Settings {
    Settings {
        image: Some(image.to_owned()),
        ..settings(daemon)
    }
}

#[test]
fn an_image_is_pulled_when_it_is_missing_and_pinned_by_its_digest() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let name = format!("{}/tools:1", registry.address());
    daemon.docker(&["tag", IMAGE, &name]);
    daemon.docker(&["push", &name]);
    let digest = daemon.docker(&["inspect", "--format", "{{index .RepoDigests 0}}", &name]);
    let digest = digest.trim();
    let forget = || {
        daemon.docker(&["rmi", "--force", &name, IMAGE]);
        assert_eq!(daemon.docker(&["images", "--quiet"]), "");
    };
    forget();

    let told = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&told);
    let watched = Settings {
        progress: Some(Progress(Arc::new(move |done, of| {
            to.lock().unwrap().push((done, of));
        }))),
        ..with(&daemon, &name)
    };
    let record = try_run(request(&["true"]), &watched).unwrap();
    exited(&record, 0);
    assert_eq!(
        record.isolation["image_digest"],
        digest.split_once('@').unwrap().1
    );
    let told = told.lock().unwrap().clone();
    let (done, of) = *told.last().unwrap();
    assert!(done == of && of > 100_000, "{told:?}");

    forget();
    let record = try_run(request(&["true"]), &with(&daemon, digest)).unwrap();
    exited(&record, 0);
    assert_eq!(record.isolation["image"], digest);

    // The same name with a digest that nobody has.
    let other = format!("{}/tools@sha256:{}", registry.address(), "0".repeat(64));
    let error = try_run(request(&["true"]), &with(&daemon, &other)).unwrap_err();
    assert!(error.to_string().contains("could not be pulled"), "{error}");

    let listed = images::list(&settings(&daemon)).unwrap();
    assert!(
        listed.iter().any(|image| image.digests == [digest]),
        "{listed:?}"
    );
    let pulled = images::pull(&name, &settings(&daemon)).unwrap();
    assert_eq!(pulled.digests, [digest]);
    let pruned = images::prune(Prune::Unused, &settings(&daemon)).unwrap();
    assert!(
        !pruned.removed.is_empty() && pruned.freed_bytes > 0,
        "{pruned:?}"
    );
    assert_eq!(images::list(&settings(&daemon)).unwrap(), []);
    daemon.assert_clean();
}

#[test]
fn without_a_registry_only_local_images_run() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let id = daemon.docker(&["inspect", "--format", "{{.Id}}", IMAGE]);
    let local = |image: &str| Settings {
        pull: Pull::Never,
        ..with(&daemon, image)
    };
    for image in [IMAGE, id.trim()] {
        exited(&try_run(request(&["true"]), &local(image)).unwrap(), 0);
    }
    let error = try_run(request(&["true"]), &local("absent:1")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BackendUnavailable);
    assert!(error.to_string().contains("local images only"), "{error}");
    // Nobody listens there.
    let unreachable = with(&daemon, "127.0.0.1:1/x:1");
    let error = try_run(request(&["true"]), &unreachable).unwrap_err();
    assert!(error.to_string().contains("could not be pulled"), "{error}");
    daemon.assert_clean();
}
