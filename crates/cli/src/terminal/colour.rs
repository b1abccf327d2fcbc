//! Whether and how text is coloured. Never changes what is said.

use std::ffi::OsString;

use clap::ValueEnum;

use super::size::Target;

/// What was asked for with `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colour,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Cyan,
    Bold,
    Dim,
}

impl Paint {
    pub(crate) fn of(when: When, target: Target) -> Self {
        Self::decide(when, target, |name| std::env::var_os(name))
    }

    fn decide(when: When, target: Target, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let refused =
            || set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb");
        let colour = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => target.is_terminal() && !refused(),
        };
        if colour { Self::Colour } else { Self::Plain }
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        match self {
            Self::Colour if !text.is_empty() => {
                format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code())
            }
            Self::Colour | Self::Plain => text.to_owned(),
        }
    }
}

impl Colour {
    const fn code(self) -> u8 {
        match self {
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
            Self::Cyan => 36,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::size::Window;

    const TERMINAL: Target = Target::Terminal(Window {
        columns: 80,
        rows: 24,
    });

    #[test]
    fn colour_is_for_terminals_unless_said_otherwise() {
        let of = |when, target, (set, value): (&str, &str)| {
            Paint::decide(when, target, |name| {
                (name == set).then(|| OsString::from(value))
            })
        };
        assert_eq!(of(When::Auto, TERMINAL, ("", "")), Paint::Colour);
        assert_eq!(of(When::Auto, TERMINAL, ("NO_COLOR", "")), Paint::Colour);
        assert_eq!(of(When::Auto, TERMINAL, ("NO_COLOR", "1")), Paint::Plain);
        assert_eq!(of(When::Auto, TERMINAL, ("TERM", "dumb")), Paint::Plain);
        assert_eq!(of(When::Auto, Target::Pipe, ("", "")), Paint::Plain);
        let refused = ("NO_COLOR", "1");
        assert_eq!(of(When::Always, Target::Pipe, refused), Paint::Colour);
        assert_eq!(of(When::Never, TERMINAL, ("", "")), Paint::Plain);
    }

    #[test]
    fn paint_surrounds_and_plain_leaves_alone() {
        assert_eq!(Paint::Plain.paint(Colour::Red, "x"), "x");
        assert_eq!(
            Paint::Colour.paint(Colour::Red, "x"),
            "\u{1b}[31mx\u{1b}[0m"
        );
        assert_eq!(Paint::Colour.paint(Colour::Red, ""), "");
    }
}
