//! Boxes and arrows on a grid, from a small description to SVG. No tool draws it, so that it is the same on every machine; it is read on light and on dark
//! pages, because every text stands on a box of its own colour.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::svg::escape;

/// A description as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Picture {
    /// For those who hear it instead of seeing it.
    title: String,
    #[serde(rename = "box")]
    boxes: Vec<Card>,
    #[serde(rename = "arrow", default)]
    arrows: Vec<Arrow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    name: String,
    row: u8,
    column: u8,
    /// How many columns it takes.
    #[serde(default = "one")]
    span: u8,
    kind: Kind,
    #[serde(default)]
    lines: Vec<String>,
}

const fn one() -> u8 {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Where something comes in.
    Door,
    /// A step of the way.
    Stage,
    /// What stands around it.
    Wall,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrow {
    from: String,
    to: String,
}

const COLUMN: f64 = 146.0;
const GAP: f64 = 20.0;
const ROW_GAP: f64 = 34.0;
const MARGIN: f64 = 6.0;
const HEAD: f64 = 24.0;
const LINE: f64 = 17.0;
const PADDING: f64 = 9.0;
/// Letters of a common sans-serif font are narrower than this at the size used, on average.
const LETTER: f64 = 6.7;

const STYLE: &str = "\
text{font:12.5px system-ui,-apple-system,'Segoe UI',sans-serif;text-anchor:middle}\
.h{font-weight:600;font-size:13.5px}\
.door rect{fill:#eef2f6;stroke:#9aa7b4}.door text{fill:#24313d}\
.stage rect{fill:#1f6feb;stroke:#1a5fcb}.stage text{fill:#fff}\
.wall rect{fill:#e6f4ea;stroke:#6aa57c}.wall text{fill:#16371f}\
path{fill:none;stroke:#7d8894;stroke-width:1.6}\
#tip path{fill:#7d8894;stroke:none}\
@media(prefers-color-scheme:dark){.door rect{fill:#26303a;stroke:#5b6876}.door text{fill:#dbe4ec}\
.wall rect{fill:#15301d;stroke:#4d8a61}.wall text{fill:#d3ecdb}}";

/// A box with its place on the page.
#[derive(Debug, Clone, Copy)]
struct Place {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Place {
    fn middle(&self) -> f64 {
        self.left + self.width / 2.0
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

pub(crate) fn draw(description: &str) -> Result<String, String> {
    let picture: Picture = toml::from_str(description).map_err(|error| error.to_string())?;
    let places = places(&picture.boxes)?;
    let find = |name: &str| {
        let at = picture.boxes.iter().position(|one| one.name == name);
        at.and_then(|at| Some((picture.boxes.get(at)?.row, *places.get(at)?)))
            .ok_or_else(|| format!("there is no box `{name}`, and an arrow names it"))
    };
    let mut body = String::new();
    for arrow in &picture.arrows {
        draw_arrow(&mut body, find(&arrow.from)?, find(&arrow.to)?);
    }
    for (one, place) in picture.boxes.iter().zip(&places) {
        draw_box(&mut body, one, place);
    }
    let edge = |far: fn(&Place) -> f64| places.iter().map(far).fold(0.0, f64::max) + MARGIN;
    let (width, height) = (edge(|place| place.left + place.width), edge(Place::bottom));
    let title = escape(&picture.title);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>{STYLE}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker></defs>\n\
         {body}</svg>\n"
    ))
}

/// Rows are as high as their highest box. A text that does not fit is an error: nobody would see it otherwise.
fn places(boxes: &[Card]) -> Result<Vec<Place>, String> {
    let height = |one: &Card| HEAD + 2.0 * PADDING + LINE * as_f64(one.lines.len()) - 6.0;
    let row_height = |row: u8| {
        let of_row = boxes.iter().filter(|one| one.row == row);
        of_row.map(height).fold(0.0, f64::max)
    };
    let mut places = Vec::new();
    for one in boxes {
        let width = COLUMN * f64::from(one.span) + GAP * f64::from(one.span.saturating_sub(1));
        let mut texts = one.lines.iter().chain([&one.name]);
        let is_wide = |text: &&String| as_f64(text.chars().count()) * LETTER > width - PADDING;
        if let Some(text) = texts.find(is_wide) {
            return Err(format!("`{text}` is wider than its box; shorten it"));
        }
        let above = (0..one.row).map(|row| row_height(row) + ROW_GAP);
        places.push(Place {
            left: MARGIN + (COLUMN + GAP) * f64::from(one.column),
            top: MARGIN + above.sum::<f64>(),
            width,
            height: row_height(one.row),
        });
    }
    Ok(places)
}

fn draw_box(body: &mut String, one: &Card, place: &Place) {
    let kind = match one.kind {
        Kind::Door => "door",
        Kind::Stage => "stage",
        Kind::Wall => "wall",
    };
    let Place {
        left,
        top,
        width,
        height,
    } = place;
    let _ = write!(
        body,
        "<g class=\"{kind}\"><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"7\"/>"
    );
    let middle = place.middle();
    let mut y = top + HEAD;
    let _ = write!(
        body,
        "<text class=\"h\" x=\"{middle}\" y=\"{y}\">{}</text>",
        escape(&one.name)
    );
    for line in &one.lines {
        y += LINE;
        let _ = write!(
            body,
            "<text x=\"{middle}\" y=\"{y}\">{}</text>",
            escape(line)
        );
    }
    body.push_str("</g>\n");
}

/// Along a row straight on; to another row down, across and down again, so that arrows to one box join.
fn draw_arrow(body: &mut String, (from_row, from): (u8, Place), (to_row, to): (u8, Place)) {
    let path = if from_row == to_row {
        let y = from.top + from.height / 2.0;
        format!("M{} {y}H{}", from.left + from.width, to.left)
    } else {
        let (start, end) = (from.middle(), to.middle());
        let turn = (from.bottom() + to.top) / 2.0;
        format!("M{start} {}V{turn}H{end}V{}", from.bottom(), to.top)
    };
    let _ = writeln!(body, "<path d=\"{path}\" marker-end=\"url(#tip)\"/>");
}

#[expect(clippy::cast_precision_loss, reason = "letters of a line")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "title = \"a < b\"\n\
        [[box]]\nname = \"a\"\nrow = 0\ncolumn = 0\nkind = \"door\"\nlines = [\"x & y\"]\n\
        [[box]]\nname = \"b\"\nrow = 1\ncolumn = 1\nkind = \"stage\"\n\
        [[arrow]]\nfrom = \"a\"\nto = \"b\"\n";

    #[test]
    fn boxes_and_arrows_stand_where_the_grid_says() {
        let svg = draw(TWO).unwrap();
        assert!(svg.contains("aria-label=\"a &lt; b\"") && svg.contains(">x &amp; y<"));
        assert_eq!(svg.matches("<rect").count(), 2);
        // From the middle of `a` down, across to the middle of `b`, and down.
        let (start, end) = (MARGIN + COLUMN / 2.0, MARGIN + COLUMN * 1.5 + GAP);
        assert!(svg.contains(&format!("M{start} ")) && svg.contains(&format!("H{end}V")));
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let nowhere = TWO.replace("to = \"b\"", "to = \"c\"");
        assert!(draw(&nowhere).unwrap_err().contains("no box `c`"));
        let wide = TWO.replace("x & y", &"wide ".repeat(9));
        assert!(draw(&wide).unwrap_err().contains("wider than its box"));
        assert!(draw("title = 1").is_err());
    }
}
