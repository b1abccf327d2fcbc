//! What flags that several verbs have say of themselves. A flag that is spelled the same means the same, so its words are written once.

/// Of every verb that prints something.
pub(super) const JSON: &str = "Print JSON instead; docs/json.md describes it";
pub(super) const LIMIT: &str = "List at most so many";
pub(super) const SINCE: &str = "Only what began after this: `90s`, `30m`, `2d`, `1w` ago, or a date or time; UTC unless it names an offset";
pub(super) const UNTIL: &str = "Only what began before this; a date is its first moment";
pub(super) const DRY_RUN: &str = "Say what would be done, and change nothing";
pub(super) const COLOR: &str = "When to colour";
pub(super) const SIGN: &str =
    "Sign with this key: a name that `cofferdam keys list` shows, or a key file";
pub(super) const TRUSTED: &str = "Believe only keys of this file: `NAME PUBLIC_KEY` on each line";
pub(super) const NO_ARTIFACTS: &str = "Leave out the files that runs leave in their workspace";
pub(super) const ALL: &str = "All of them";
pub(super) const MOUNT: &str = "Show a file or directory of the host inside; read-only unless `:rw`. Can be given more than once";
pub(super) const ENV: &str = "Set a variable; `KEY` alone passes on your own value. Nothing else of your environment is seen inside. Can be given more than once";
pub(super) const CACHE_DIR: &str = "Where package managers keep what they fetched [default: one place for each project below ~/.cache/cofferdam]";
pub(super) const BACKEND: &str = "How to isolate: `native`, `bubblewrap` or `gvisor` where they are installed, `docker` for a container of its own, `wasm` for WebAssembly, or `host` for limits without any isolation; docs/backends.md compares them";
pub(super) const ONLY: &str =
    "Only this project, by its manifest, its directory or its name. Can be given more than once";
pub(super) const FILTER: &str = "Only tests whose name fits, in the words of the test runner";
pub(super) const FAIL_FAST: &str = "Stop at the first failure";
pub(super) const COVERAGE: &str = "Measure coverage, where the test runner can";
pub(super) const RETRIES: &str =
    "Try again up to N times while tests fail; what passes then is flaky and told apart";
pub(super) const JUNIT: &str = "Also write the results as JUnit XML";
pub(super) const SARIF: &str = "Also write what was said about the source as SARIF";
pub(super) const QUIET: &str = "Do not show what the tools say, only what came of it";
pub(super) const FLEET: &str = "Send the work to the fleet at this NATS server";
pub(super) const HEARTBEAT_TIMEOUT: &str =
    "How long a worker may be silent before another gets its work";
pub(super) const DETERMINISTIC: &str = "Give the same result each time: fixed time, randomness and order. Exact with --backend wasm, where CPU time is counted in instructions; with `native` as far as Linux allows, and the record says how far: docs/determinism.md";
pub(super) const SEED: &str = "With --deterministic: where randomness begins [default: 0]";
pub(super) const GPU: &str =
    "The GPUs that may be used: `0`, `0,1` or `all`; with the native and docker backends";
pub(super) const CONTRACT: &str =
    "The contract that holds the bonds; without it, the one on the chain of the data directory";
pub(super) const FOR: &str = "For how long it holds";
pub(super) const MAX_FEE: &str = "At most this for each unit of gas: `40gwei`";
