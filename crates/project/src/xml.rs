//! XML of strangers as a tree of bounded size and depth. No document type, hence no entities but the five of XML itself; names lose their prefix.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

/// An element with all that is in it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    /// Text directly in it, joined.
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

/// A document, whole or as far as it goes.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Element,
    /// Why what follows is missing; what was complete before that is here.
    pub(crate) cut: Option<String>,
}

/// Deeper than any report, shallower than any stack.
const MAX_DEPTH: usize = 128;
/// Elements and attributes together.
const MAX_PARTS: usize = 4_000_000;
/// Text and values together, after references were resolved.
const MAX_TEXT: usize = 256 << 20;

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
        self.walk(&mut |element, _| {
            if element.name == name {
                found.push(element);
            }
        });
        found
    }

    /// Visits every element with those around it, the outermost first. The depth is bounded by the reader.
    pub(crate) fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Element, &[&'a Element])) {
        fn go<'a>(
            element: &'a Element,
            around: &mut Vec<&'a Element>,
            visit: &mut impl FnMut(&'a Element, &[&'a Element]),
        ) {
            visit(element, around);
            around.push(element);
            for child in &element.children {
                go(child, around, visit);
            }
            around.pop();
        }
        go(self, &mut Vec::new(), visit);
    }
}

/// Text of any encoding that reports come in: UTF-8 with or without a mark, UTF-16 with one.
pub(crate) fn decode(bytes: &[u8]) -> String {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| match pair {
            [a, b] => unit([*a, *b]),
            _ => 0xfffd,
        });
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Reads a document. An error only where there is no root at all; what ends early or turns bad later is cut there.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, String> {
    let text = decode(bytes);
    let mut builder = Builder::default();
    let cut = builder.read(&text).err();
    while builder.open.len() > 1 {
        builder.close();
    }
    match (builder.open.pop().or(builder.root), cut) {
        (Some(root), cut) => Ok(Document { root, cut }),
        (None, Some(why)) => Err(why),
        (None, None) => Err("there is no element in it".to_owned()),
    }
}

#[derive(Default)]
struct Builder {
    open: Vec<Element>,
    root: Option<Element>,
    parts: usize,
    text: usize,
}

impl Builder {
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
            name: start.local_name().into_inner().to_owned(),
            ..Element::default()
        };
        self.count(1, element.name.len())?;
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| error.to_string())?;
            // One that refers to something unknown is taken as it is written.
            let value = match attribute.normalized_value(XmlVersion::Implicit1_0) {
                Ok(value) => value.into_owned(),
                Err(_) => attribute.value.clone().into_owned(),
            };
            let name = attribute.key.local_name().into_inner().to_owned();
            self.count(1, name.len() + value.len())?;
            element.attributes.push((name, value));
        }
        self.open.push(element);
        Ok(())
    }

    fn close(&mut self) {
        let Some(element) = self.open.pop() else {
            return;
        };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(self.root.take().unwrap_or(element)),
        }
    }

    fn say(&mut self, text: &str) -> Result<(), String> {
        self.count(0, text.len())?;
        if let Some(element) = self.open.last_mut() {
            element.text.push_str(text);
        }
        Ok(())
    }

    fn count(&mut self, parts: usize, text: usize) -> Result<(), String> {
        self.parts += parts;
        self.text += text;
        if self.parts > MAX_PARTS || self.text > MAX_TEXT {
            return Err("it holds more than any report does".to_owned());
        }
        Ok(())
    }
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

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail_badly(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
