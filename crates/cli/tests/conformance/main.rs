//! One set of hostile programs against every backend, as root with control groups and as an ordinary user without: each promise is kept, or refused unless waived, or declared as not
//! given. `cargo xtask conformance` runs this and writes what it found into docs/conformance.md.

mod backends;
mod promises;
mod trial;

use backends::{BUBBLEWRAP, GVISOR, HOST, NATIVE};
use cofferdam_testkit::{Need, Way, host};
use trial::conform;

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
