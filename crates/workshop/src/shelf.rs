//! Whose the caches are, and what is done about tools that cannot use one that they may not write to.

use std::ffi::OsString;

use cofferdam_project::{Action, Cache, Step};

/// Whose the caches are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shelf {
    /// The caller's own: written to where something is fetched or installed.
    Own,
    /// Of many who do not trust each other: never written to.
    Shared,
}

/// npm finds nothing in an index that it cannot rewrite. It gets one of its own inside, which is small, over the contents that all share.
const NPM: &str = "mkdir -p \"$npm_config_cache/_cacache\" && if [ -d /cache/npm/_cacache ]; then \
    cp -r /cache/npm/_cacache/index-v5 \"$npm_config_cache/_cacache/\" && \
    ln -s /cache/npm/_cacache/content-v2 \"$npm_config_cache/_cacache/content-v2\"; fi; exec \"$@\"";
const NPM_INSIDE: &str = "/tmp/npm";

impl Shelf {
    /// The command as it is run, and a variable that is another one then.
    pub(crate) fn command(
        self,
        step: &Step,
        action: Action,
    ) -> (Vec<OsString>, Option<(OsString, OsString)>) {
        let argv = step.argv.iter().map(Into::into);
        if self == Self::Own || action != Action::Restore || !step.caches.contains(&Cache::Npm) {
            return (argv.collect(), None);
        }
        let before = ["/bin/sh", "-c", NPM, "npm"].into_iter().map(Into::into);
        let variable = (Cache::Npm.variable().into(), NPM_INSIDE.into());
        (before.chain(argv).collect(), Some(variable))
    }
}
