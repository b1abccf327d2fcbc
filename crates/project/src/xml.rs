//! XML of strangers, element by element and of bounded size and depth. Whoever reads says of each element that ends whether it is still needed, so that a report takes no more memory than
//! what is kept of it. No document type, hence no entities but the five of XML itself; names lose their prefix.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

/// An element with what was kept of what is in it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    /// Text directly in it, joined, up to [`MAX_SAID`].
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
    /// What it takes in memory with all that is in it, about.
    weight: usize,
}

/// A document, whole or as far as it goes.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Element,
    /// Why what follows is missing; what was complete before that is here.
    pub(crate) cut: Option<String>,
}

/// Whether an element that has ended stays with the one around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// Deeper than any report, shallower than any stack.
const MAX_DEPTH: usize = 128;
/// What all that is kept may take at a time.
const MAX_HELD: usize = 48 << 20;
/// Of one text or one value; the rest is passed by.
const MAX_SAID: usize = 64 << 10;
/// More than any element has.
const MAX_ATTRIBUTES: usize = 200;
/// What an element or an attribute takes beside its texts.
const OVERHEAD: usize = 128;

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim())
    }

    /// Every element of this name, at any depth, in the order of the document.
    pub(crate) fn all<'a>(&'a self, name: &str) -> Vec<&'a Element> {
        let mut found = Vec::new();
        self.walk(&mut |element| {
            if element.name == name {
                found.push(element);
            }
        });
        found
    }

    /// The depth is bounded by the reader.
    fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Element)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }
}

/// Text of any encoding that reports come in: UTF-8 with or without a mark, UTF-16 with one.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| match pair {
            [a, b] => unit([*a, *b]),
            _ => 0xfffd,
        });
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect::<String>()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes).into(),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes).into(),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest),
        _ => String::from_utf8_lossy(bytes),
    }
}

/// Reads a document whole. An error only where there is no root at all; what ends early or turns bad later is cut there.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, String> {
    read(bytes, &mut |_, _| Keep::Yes)
}

/// Reads a document and shows each element that ends with those around it, the outermost first. One that is cut in the middle is not shown.
pub(crate) fn read(
    bytes: &[u8],
    visit: &mut dyn FnMut(&Element, &[Element]) -> Keep,
) -> Result<Document, String> {
    let text = decode(bytes);
    let mut builder = Builder {
        open: Vec::new(),
        root: None,
        held: 0,
        visit,
    };
    let cut = builder.read(&text).err();
    while builder.open.len() > 1 {
        if let Some(element) = builder.open.pop() {
            builder.put(element, Keep::Yes);
        }
    }
    match (builder.open.pop().or(builder.root), cut) {
        (Some(root), cut) => Ok(Document { root, cut }),
        (None, Some(why)) => Err(why),
        (None, None) => Err("there is no element in it".to_owned()),
    }
}

struct Builder<'v> {
    open: Vec<Element>,
    root: Option<Element>,
    held: usize,
    visit: &'v mut dyn FnMut(&Element, &[Element]) -> Keep,
}

impl Builder<'_> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let mut reader = Reader::from_str(text);
        loop {
            let at = reader.buffer_position();
            let event = reader
                .read_event()
                .map_err(|error| format!("at byte {at}: {error}"))?;
            match event {
                Event::Start(start) => self.start(&start)?,
                Event::Empty(start) => {
                    self.start(&start)?;
                    self.close();
                }
                Event::End(_) => self.close(),
                Event::Text(text) => self.say(&text.xml10_content())?,
                Event::CData(text) => self.say(&text.xml10_content())?,
                Event::GeneralRef(reference) => {
                    let resolved = match reference.resolve_char_ref() {
                        Ok(Some(c)) => c.to_string(),
                        _ => named(&reference.xml10_content()).to_owned(),
                    };
                    self.say(&resolved)?;
                }
                Event::DocType(_) => {
                    return Err("it has a document type, which no report needs".to_owned());
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof if self.open.is_empty() => return Ok(()),
                Event::Eof => return Err("it ends in the middle".to_owned()),
            }
        }
    }

    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), String> {
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        let mut element = Element {
            name: shortened(start.local_name().into_inner()),
            ..Element::default()
        };
        element.weight = OVERHEAD + element.name.len();
        for attribute in start.attributes().with_checks(false).take(MAX_ATTRIBUTES) {
            let attribute = attribute.map_err(|error| error.to_string())?;
            // One that refers to something unknown is taken as it is written.
            let value = match attribute.normalized_value(XmlVersion::Implicit1_0) {
                Ok(value) => shortened(&value),
                Err(_) => shortened(&attribute.value),
            };
            let name = shortened(attribute.key.local_name().into_inner());
            element.weight += OVERHEAD + name.len() + value.len();
            element.attributes.push((name, value));
        }
        let weight = element.weight;
        self.open.push(element);
        self.hold(weight)
    }

    fn close(&mut self) {
        let Some(element) = self.open.pop() else {
            return;
        };
        let keep = (self.visit)(&element, &self.open);
        self.put(element, keep);
    }

    fn put(&mut self, element: Element, keep: Keep) {
        match (self.open.last_mut(), keep) {
            (Some(parent), Keep::Yes) => {
                parent.weight += element.weight;
                parent.children.push(element);
            }
            (Some(_), Keep::No) => self.held = self.held.saturating_sub(element.weight),
            (None, _) => self.root = Some(self.root.take().unwrap_or(element)),
        }
    }

    fn say(&mut self, text: &str) -> Result<(), String> {
        let Some(element) = self.open.last_mut() else {
            return Ok(());
        };
        let room = MAX_SAID.saturating_sub(element.text.len());
        let text = text
            .get(..text.floor_char_boundary(room))
            .unwrap_or_default();
        element.text.push_str(text);
        element.weight += text.len();
        self.hold(text.len())
    }

    fn hold(&mut self, more: usize) -> Result<(), String> {
        self.held += more;
        match self.held > MAX_HELD {
            true => Err("it holds more than any report does".to_owned()),
            false => Ok(()),
        }
    }
}

fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_SAID))
        .unwrap_or_default()
        .to_owned()
}

/// Unknown entities stay visible as nothing: there is no document type that could have defined them.
fn named(name: &str) -> &'static str {
    match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        _ => "\u{fffd}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_references_and_attributes_are_read() {
        let read = parse(
            b"<?xml version='1.0'?><n:a x='1 &lt; 2'>a &amp; b<![CDATA[<c>]]>&#65;<b/></n:a>",
        );
        let document = read.unwrap();
        assert_eq!(document.cut, None);
        assert_eq!(document.root.name, "a");
        assert_eq!(document.root.attribute("x"), Some("1 < 2"));
        assert_eq!(document.root.text, "a & b<c>A");
        assert!(document.root.child("b").is_some());
    }

    #[test]
    fn a_document_that_ends_early_keeps_what_was_complete() {
        let document = parse(b"<a><b n='1'/><b n='2'>x</b><b n='3'").unwrap();
        assert_eq!(document.root.all("b").len(), 2);
        assert!(document.cut.is_some());
    }

    #[test]
    fn bombs_are_refused() {
        let laughs = b"<!DOCTYPE a [<!ENTITY b \"ha\"><!ENTITY c \"&b;&b;&b;\">]><a>&c;</a>";
        assert!(parse(laughs).unwrap_err().contains("document type"));
        let deep = "<a>".repeat(1_000_000);
        let document = parse(deep.as_bytes()).unwrap();
        assert!(document.cut.unwrap().contains("nested"), "deep");
        assert!(parse(b"").is_err() && parse(b"\xff\xfenonsense").is_err());
    }

    #[test]
    fn what_is_not_utf_8_is_read_all_the_same() {
        let mut wide = vec![0xff, 0xfe];
        wide.extend("<a>é</a>".encode_utf16().flat_map(u16::to_le_bytes));
        assert_eq!(parse(&wide).unwrap().root.text, "é");
        assert_eq!(parse(b"\xef\xbb\xbf<a>x</a>").unwrap().root.text, "x");
        assert_eq!(parse(b"<a>\xff</a>").unwrap().root.text, "\u{fffd}");
    }

    #[test]
    fn what_is_not_needed_any_more_takes_no_memory_and_what_is_cut_is_not_shown() {
        let many = format!("<a>{}<b n='cut'>", "<b n='1'>x</b>".repeat(400_000));
        let mut shown = 0;
        let document = read(many.as_bytes(), &mut |element, around| {
            assert_eq!((element.name.as_str(), around.len()), ("b", 1));
            shown += 1;
            Keep::No
        })
        .unwrap();
        assert_eq!((shown, document.root.children.len()), (400_000, 1));
        assert!(document.cut.is_some());
        // The same kept is more than anybody needs.
        assert!(
            parse(many.as_bytes())
                .unwrap()
                .cut
                .unwrap()
                .contains("more than any report")
        );
        let long = format!("<a b='{0}'>{0}</a>", "é".repeat(100 << 10));
        let root = parse(long.as_bytes()).unwrap().root;
        assert!(root.text.len() <= MAX_SAID && root.attribute("b").unwrap().len() <= MAX_SAID);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail_badly(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
