//! Aligned columns that fit the terminal. One column takes what is left and is cut; others go, in a stated order, when there is not enough room.

use super::colour::{Colour, Paint};
use super::text::{cut, width};

/// What is known of a column before there are rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) align: Align,
    pub(crate) room: Room,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// What happens to a column when there is not enough room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Stays as wide as it is.
    Fixed,
    /// Goes; the lowest number first.
    Drops(u8),
    /// Takes what is left. The last column.
    Rest,
}

/// One cell; its text is safe to show already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

const GAP: usize = 2;
/// Less of a command than this says nothing: a column goes instead.
const LEAST_REST: usize = 20;

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            colour: None,
        }
    }

    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self {
            text: text.into(),
            colour: Some(colour),
        }
    }
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Without `columns`, as wide as the contents are.
    pub(crate) fn render(&self, columns: Option<usize>, paint: Paint) -> String {
        let shown = self.layout(columns);
        let mut text = String::new();
        let titles = self.columns.iter().map(|column| Cell {
            text: column.title.to_owned(),
            colour: Some(Colour::Bold),
        });
        self.line(&mut text, &titles.collect::<Vec<_>>(), &shown, paint);
        for row in &self.rows {
            self.line(&mut text, row, &shown, paint);
        }
        text
    }

    /// The columns that are shown, with their widths.
    fn layout(&self, columns: Option<usize>) -> Vec<(usize, usize)> {
        let mut shown: Vec<(usize, usize)> = (0..self.columns.len())
            .map(|index| (index, self.natural(index)))
            .collect();
        let Some(columns) = columns else {
            return shown;
        };
        while total(&shown, |index| self.least(index)) > columns {
            let Some(victim) = self.next_to_drop(&shown) else {
                break;
            };
            shown.retain(|(index, _)| *index != victim);
        }
        let rest = shown
            .iter()
            .position(|(index, _)| self.room(*index) == Some(Room::Rest));
        let fixed = total(&shown, |index| match self.room(index) {
            Some(Room::Rest) => Some(0),
            _ => None,
        });
        if let Some((_, width)) = rest.and_then(|at| shown.get_mut(at)) {
            *width = (*width).min(columns.saturating_sub(fixed).max(1));
        }
        shown
    }

    fn room(&self, index: usize) -> Option<Room> {
        self.columns.get(index).map(|column| column.room)
    }

    /// What the rest column needs at least; other columns need what they have.
    fn least(&self, index: usize) -> Option<usize> {
        match self.room(index) {
            Some(Room::Rest) => Some(self.natural(index).min(LEAST_REST)),
            _ => None,
        }
    }

    fn next_to_drop(&self, shown: &[(usize, usize)]) -> Option<usize> {
        let order = |index: usize| match self.room(index) {
            Some(Room::Drops(order)) => Some(order),
            _ => None,
        };
        shown
            .iter()
            .filter_map(|(index, _)| order(*index).map(|order| (order, *index)))
            .min()
            .map(|(_, index)| index)
    }

    fn natural(&self, index: usize) -> usize {
        let title = self.columns.get(index).map_or(0, |c| width(c.title));
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| width(&cell.text)).fold(title, usize::max)
    }

    fn line(&self, text: &mut String, cells: &[Cell], shown: &[(usize, usize)], paint: Paint) {
        let last = shown.len().saturating_sub(1);
        for (at, (index, room)) in shown.iter().enumerate() {
            let (Some(cell), Some(column)) = (cells.get(*index), self.columns.get(*index)) else {
                continue;
            };
            let fitting = cut(&cell.text, *room);
            let padding = " ".repeat(room.saturating_sub(width(&fitting)));
            // Codes have no width, so the padding stands outside of them.
            let painted = match cell.colour {
                Some(colour) => paint.paint(colour, &fitting),
                None => fitting,
            };
            match column.align {
                Align::Right => text.push_str(&format!("{padding}{painted}")),
                Align::Left if at == last => text.push_str(&painted),
                Align::Left => text.push_str(&format!("{painted}{padding}")),
            }
            if at < last {
                text.push_str(&" ".repeat(GAP));
            }
        }
        text.push('\n');
    }
}

/// How wide a line is when some columns have other widths than their own.
fn total(shown: &[(usize, usize)], instead: impl Fn(usize) -> Option<usize>) -> usize {
    let widths = shown
        .iter()
        .map(|(index, width)| instead(*index).unwrap_or(*width));
    widths.sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(title: &'static str, align: Align, room: Room) -> Column {
        Column { title, align, room }
    }

    fn sample() -> Table {
        let mut table = Table::new(&[
            column("ID", Align::Left, Room::Fixed),
            column("EXIT", Align::Right, Room::Drops(1)),
            column("TAGS", Align::Left, Room::Drops(0)),
            column("COMMAND", Align::Left, Room::Rest),
        ]);
        table.row(vec![
            Cell::new("ab"),
            Cell::coloured("0", Colour::Green),
            Cell::new("k=v"),
            Cell::new("echo one two three four five"),
        ]);
        table.row(vec![
            Cell::new("cd"),
            Cell::new("137"),
            Cell::new("-"),
            Cell::new("漢字漢字漢字漢字漢字漢字漢字"),
        ]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let expected = "\
ID  EXIT  TAGS  COMMAND
ab     0  k=v   echo one two three four five
cd   137  -     漢字漢字漢字漢字漢字漢字漢字
";
        assert_eq!(sample().render(None, Paint::Plain), expected);
        assert_eq!(sample().render(Some(200), Paint::Plain), expected);
    }

    #[test]
    fn the_rest_is_cut_to_what_is_left() {
        let expected = "\
ID  EXIT  TAGS  COMMAND
ab     0  k=v   echo one two three …
cd   137  -     漢字漢字漢字漢字漢…
";
        assert_eq!(sample().render(Some(36), Paint::Plain), expected);
    }

    #[test]
    fn columns_go_in_their_order() {
        let expected = "\
ID  EXIT  COMMAND
ab     0  echo one two three four …
cd   137  漢字漢字漢字漢字漢字漢字…
";
        assert_eq!(sample().render(Some(35), Paint::Plain), expected);
        let expected = "\
ID  COMMAND
ab  echo one two three fou…
cd  漢字漢字漢字漢字漢字漢…
";
        assert_eq!(sample().render(Some(27), Paint::Plain), expected);
    }

    #[test]
    fn the_narrowest_terminal_still_gets_lines() {
        let expected = "ID  C…\nab  e…\ncd  …\n";
        assert_eq!(sample().render(Some(6), Paint::Plain), expected);
        assert_eq!(
            sample().render(Some(0), Paint::Plain),
            "ID  …\nab  …\ncd  …\n"
        );
    }

    #[test]
    fn colour_changes_no_width() {
        let coloured = sample().render(Some(30), Paint::Colour);
        let plain = sample().render(Some(30), Paint::Plain);
        let mut stripped = coloured.clone();
        for code in ["\u{1b}[1m", "\u{1b}[32m", "\u{1b}[0m"] {
            assert!(coloured.contains(code), "{code:?}");
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, plain);
    }
}
