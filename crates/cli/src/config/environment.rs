//! The environment variables that set something. An empty one counts as unset, as everywhere else on Unix.

use std::ffi::OsString;

use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::problem::Problem;

use super::history::{self, HistoryKey, HistorySettings};
use super::setting::{BACKEND, Layer, MODE, Origin, Setting, names};
use super::spelling;

/// Where variables come from: the process, or a table in tests.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A variable that is set and not empty.
pub(crate) fn non_empty(lookup: Lookup<'_>, name: &str) -> Option<OsString> {
    lookup(name).filter(|value| !value.is_empty())
}

/// What the environment says.
pub(crate) fn layer(lookup: Lookup<'_>, problems: &mut Vec<Problem>) -> Layer {
    let mut layer = Layer::default();
    let mut text = |name: &'static str| {
        let value = non_empty(lookup, name)?;
        let bad = |raw: OsString| {
            let shown = raw.to_string_lossy();
            problems.push(Problem::new(
                name,
                shown.escape_debug(),
                "is not UTF-8; write plain text",
            ));
        };
        value.into_string().map_err(bad).ok()
    };
    let backend = text(BACKEND.env);
    let mode = text(MODE.env);
    let limits = LimitName::ALL.map(|limit| (limit, text(names(limit).env)));
    let mut complain =
        |name: &str, text: &str, fix| problems.push(Problem::new(name, text.escape_debug(), fix));
    if let Some(text) = backend {
        match spelling::backend(&text) {
            Ok(value) => {
                layer.backend = Some(Setting {
                    value,
                    origin: Origin::Env { name: BACKEND.env },
                })
            }
            Err(fix) => complain(BACKEND.env, &text, fix),
        }
    }
    if let Some(text) = mode {
        match spelling::mode(&text) {
            Ok(value) => {
                layer.mode = Some(Setting {
                    value,
                    origin: Origin::Env { name: MODE.env },
                })
            }
            Err(fix) => complain(MODE.env, &text, fix),
        }
    }
    for (limit, text) in limits {
        let name = names(limit).env;
        if let Some(text) = text
            && let Err(fix) = layer.set(limit, &text, Origin::Env { name })
        {
            complain(name, &text, fix);
        }
    }
    layer
}

/// Whether history is kept is the one thing that the environment says about it.
pub(crate) fn history(
    lookup: Lookup<'_>,
    settings: &mut HistorySettings,
    problems: &mut Vec<Problem>,
) {
    let name = history::VARIABLE;
    let Some(text) = non_empty(lookup, name) else {
        return;
    };
    let text = text.to_string_lossy();
    if let Err(fix) = settings.set(HistoryKey::Enabled, &text, Origin::Env { name }) {
        problems.push(Problem::new(name, text.escape_debug(), fix));
    }
}
