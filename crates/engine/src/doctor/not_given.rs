//! What a backend does not promise, whatever the host, and why. The conformance suite holds each of them against these lists, and a promise that is not in them against real attacks.

use cofferdam_contract::request::BackendName;
use serde::Serialize;

/// A promise that is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NotGiven {
    pub backend: &'static str,
    /// In the words of docs/conformance.md.
    pub promise: &'static str,
    pub why: &'static str,
}

const NO_WALLS: &str = "there are no walls";

const NOT_GIVEN: &[(BackendName, &str, &str)] = &[
    (
        BackendName::Bubblewrap,
        "refusals are recorded",
        "nobody listens to the filter that bwrap installs",
    ),
    (
        BackendName::Gvisor,
        "no namespace can be made",
        "gVisor's kernel is its own: what it gives away is not the host's",
    ),
    (
        BackendName::Gvisor,
        "refusals are recorded",
        "gVisor answers system calls itself and tells nobody",
    ),
    (
        BackendName::Docker,
        "a signal is told from an exit code",
        "the daemon tells both as one number",
    ),
    (
        BackendName::Docker,
        "refusals are recorded",
        "nobody listens to the filter that the daemon installs",
    ),
    (
        BackendName::Wasm,
        "uid 1000 without capabilities",
        "a module has no user: it runs in Cofferdam's own process, and has no call that would need one",
    ),
    (
        BackendName::Wasm,
        "refusals are recorded",
        "a call that is not there cannot be refused",
    ),
    (
        BackendName::Host,
        "scratch disk",
        "there is no scratch space; one file is bounded",
    ),
    (BackendName::Host, "the root is read-only", NO_WALLS),
    (BackendName::Host, "other files are not seen", NO_WALLS),
    (BackendName::Host, "/tmp is private", NO_WALLS),
    (BackendName::Host, "other processes are not seen", NO_WALLS),
    (BackendName::Host, "no network but loopback", NO_WALLS),
    (BackendName::Host, "uid 1000 without capabilities", NO_WALLS),
    (BackendName::Host, "no namespace can be made", NO_WALLS),
    (
        BackendName::Host,
        "refusals are recorded",
        "there is no filter",
    ),
];

/// Of every backend.
pub(super) fn all() -> Vec<NotGiven> {
    let all = NOT_GIVEN.iter();
    all.map(|(backend, promise, why)| NotGiven {
        backend: backend.as_str(),
        promise,
        why,
    })
    .collect()
}
