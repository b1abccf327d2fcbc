//! How large the terminal is, if there is one.

use std::os::fd::AsFd;

/// Where our output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Terminal(Window),
    /// A pipe or a file: no width, nothing is cut.
    Pipe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// What a terminal has that does not say.
const USUAL: Window = Window {
    columns: 80,
    rows: 24,
};

impl Target {
    /// Of standard output. `COLUMNS` and `LINES` win over what the terminal says.
    pub(crate) fn of_stdout() -> Self {
        Self::of(std::io::stdout())
    }

    /// The same of standard error, where notes about work in progress go.
    pub(crate) fn of_stderr() -> Self {
        Self::of(std::io::stderr())
    }

    fn of(stream: impl AsFd) -> Self {
        if !rustix::termios::isatty(&stream) {
            return Self::Pipe;
        }
        let said = rustix::termios::tcgetwinsize(&stream).ok();
        let variable = |name| std::env::var(name).ok();
        Self::Terminal(window(
            said.map(|size| (size.ws_col, size.ws_row)),
            variable("COLUMNS").as_deref(),
            variable("LINES").as_deref(),
        ))
    }

    pub(crate) const fn columns(self) -> Option<usize> {
        match self {
            Self::Terminal(window) => Some(window.columns),
            Self::Pipe => None,
        }
    }

    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Terminal(_))
    }
}

fn window(said: Option<(u16, u16)>, columns: Option<&str>, rows: Option<&str>) -> Window {
    let pick = |variable: Option<&str>, said: Option<u16>, usual| {
        let variable = variable.and_then(|text| text.trim().parse::<u16>().ok());
        let found = variable
            .filter(|n| *n > 0)
            .or_else(|| said.filter(|n| *n > 0));
        found.map_or(usual, usize::from)
    };
    Window {
        columns: pick(columns, said.map(|(columns, _)| columns), USUAL.columns),
        rows: pick(rows, said.map(|(_, rows)| rows), USUAL.rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(said: Option<(u16, u16)>, columns: Option<&str>) -> (usize, usize) {
        let found = window(said, columns, None);
        (found.columns, found.rows)
    }

    #[test]
    fn the_variable_wins_and_nonsense_does_not() {
        assert_eq!(both(Some((120, 40)), None), (120, 40));
        assert_eq!(both(Some((120, 40)), Some("60")), (60, 40));
        assert_eq!(both(Some((120, 40)), Some("wide")), (120, 40));
        assert_eq!(both(Some((120, 40)), Some("0")), (120, 40));
        // A terminal behind a serial line says 0.
        assert_eq!(both(Some((0, 0)), None), (80, 24));
        assert_eq!(both(None, None), (80, 24));
    }
}
