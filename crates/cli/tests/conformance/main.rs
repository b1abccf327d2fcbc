//! One set of hostile programs against every backend, as root with control groups and as an ordinary user without: each promise is kept, or refused unless waived, or declared as not
//! given. `cargo xtask conformance` runs this and writes what it found into docs/conformance.md.
#![allow(
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

mod backends;
#[cfg(feature = "wasm")]
mod modules;
mod promises;
mod trial;

use backends::{BUBBLEWRAP, DOCKER, GVISOR, HOST, NATIVE};
use cofferdam_testkit::docker::{Dockerd, IMAGE};
use cofferdam_testkit::{Need, Way, host};
use trial::{Trial, conform};

#[test]
fn native_keeps_its_promises_with_control_groups() {
    conform(&host!(Need::Gcc, Need::Cgroup), &NATIVE, Way::Root);
}

#[test]
fn native_keeps_its_promises_for_an_ordinary_user() {
    conform(
        &host!(Need::Gcc, Need::UnprivilegedUser),
        &NATIVE,
        Way::User,
    );
}

#[test]
fn bubblewrap_keeps_its_promises_with_control_groups() {
    let host = host!(Need::Gcc, Need::Cgroup, Need::Bubblewrap);
    conform(&host, &BUBBLEWRAP, Way::Root);
}

#[test]
fn bubblewrap_keeps_its_promises_for_an_ordinary_user() {
    let host = host!(Need::Gcc, Need::UnprivilegedUser, Need::Bubblewrap);
    conform(&host, &BUBBLEWRAP, Way::User);
}

#[test]
fn gvisor_keeps_its_promises_with_control_groups() {
    let host = host!(Need::Gcc, Need::Cgroup, Need::Gvisor);
    conform(&host, &GVISOR, Way::Root);
}

#[test]
fn gvisor_keeps_its_promises_for_an_ordinary_user() {
    let host = host!(Need::Gcc, Need::UnprivilegedUser, Need::Gvisor);
    conform(&host, &GVISOR, Way::User);
}

#[test]
fn host_keeps_its_promises_with_control_groups() {
    conform(&host!(Need::Gcc, Need::Cgroup), &HOST, Way::Root);
}

#[test]
fn host_keeps_its_promises_for_an_ordinary_user() {
    conform(&host!(Need::Gcc, Need::UnprivilegedUser), &HOST, Way::User);
}

/// The daemon's own group must not be looked for among what a run leaves, so that it begins before the host is looked at.
fn containers(way: Way) {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Gcc, Need::Root);
    daemon.let_everybody_in();
    let flags = ["--image", IMAGE].map(str::to_owned).to_vec();
    let trial = Trial {
        flags,
        env: vec![("DOCKER_HOST", daemon.endpoint())],
        ..Trial::new(&host, &DOCKER, way)
    };
    trial.conform(|| daemon.assert_clean());
}

#[test]
fn docker_keeps_its_promises_for_root() {
    containers(Way::Root);
}

#[test]
fn docker_keeps_its_promises_for_an_ordinary_user() {
    containers(Way::User);
}

#[cfg(feature = "wasm")]
#[test]
fn wasm_keeps_its_promises_for_root() {
    let host = host!(Need::Root, Need::WasiCompiler);
    conform(&host, &backends::WASM, Way::Root);
}

#[cfg(feature = "wasm")]
#[test]
fn wasm_keeps_its_promises_for_an_ordinary_user() {
    let host = host!(Need::UnprivilegedUser, Need::WasiCompiler);
    conform(&host, &backends::WASM, Way::User);
}
