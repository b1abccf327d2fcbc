//! One line at the foot of the terminal that says what goes on, and goes away again. There is none where nobody looks, on a terminal that cannot take a line back (`TERM=dumb`), and on one that is too
//! narrow for anything worth reading.

use std::ffi::OsStr;
use std::io::Write as _;
use std::time::Duration;

use super::colour::{Colour, Paint, When};
use super::size::Target;
use super::text::cut;

/// Shorter work is over before anybody wonders.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
const NARROWEST: usize = 20;

/// The line, if it is drawn at all.
#[derive(Debug, Default)]
pub(crate) struct Foot {
    is_drawn: bool,
}

/// Whether a line would be seen.
pub(crate) fn is_seen() -> bool {
    room().is_some()
}

/// How many columns a line may take. Asked each time: the window may have become another one.
fn room() -> Option<usize> {
    columns(Target::of_stderr(), std::env::var_os("TERM").as_deref())
}

fn columns(target: Target, term: Option<&OsStr>) -> Option<usize> {
    let columns = target.columns().filter(|columns| *columns >= NARROWEST)?;
    let is_dumb = term.is_some_and(|term| term == "dumb");
    // The last column stays free: some terminals begin a new line when it is written to.
    (!is_dumb).then(|| columns.saturating_sub(1))
}

impl Foot {
    /// In place of what stood there, cut to what fits.
    pub(crate) fn draw(&mut self, text: &str, colour: Option<Colour>) {
        let Some(room) = room() else {
            return self.clear();
        };
        let text = cut(text, room);
        let text = match colour {
            Some(colour) => Paint::of(When::Auto, Target::of_stderr()).paint(colour, &text),
            None => text,
        };
        self.is_drawn = true;
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "\r{text}\u{1b}[K");
        let _ = stderr.flush();
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// An error message must not stand behind a half-finished line.
impl Drop for Foot {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::size::Window;

    #[test]
    fn a_line_is_drawn_where_it_is_seen_and_can_be_taken_back() {
        let terminal = |columns| Target::Terminal(Window { columns, rows: 24 });
        let xterm = Some(OsStr::new("xterm"));
        assert_eq!(columns(terminal(80), xterm), Some(79));
        assert_eq!(columns(terminal(80), None), Some(79));
        assert_eq!(columns(terminal(19), xterm), None);
        assert_eq!(columns(terminal(80), Some(OsStr::new("dumb"))), None);
        assert_eq!(columns(Target::Pipe, xterm), None);
    }
}
