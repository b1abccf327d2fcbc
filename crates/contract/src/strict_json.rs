//! JSON that every reader understands the same way (I-JSON, RFC 7493), which is what a digest over it needs. Refuses duplicate keys,
//! integers that a double changes, lone surrogates, bytes that are not UTF-8, trailing data, and input that is too large or too deep.
//!
//! An own reader, because serde_json keeps the last of two equal keys and has forgotten a number's digits when it hands it over.

use serde_json::{Map, Number, Value};

use crate::json_path::JsonPath;

/// More than any payload needs; a bound, so that a stranger's input cannot fill the memory.
pub const MAX_BYTES: usize = 16 << 20;

/// Arrays and objects inside one another.
pub const MAX_DEPTH: usize = 64;

/// Where in the text, counted from 1; columns are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Why a text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadJson {
    #[error("the JSON is {bytes} bytes long; at most {MAX_BYTES} are read")]
    TooLarge { bytes: usize },
    #[error("{place}: the bytes are not UTF-8; save the file as UTF-8")]
    NotUtf8 { place: Place },
    #[error("{place}: {problem}")]
    Syntax { place: Place, problem: &'static str },
    #[error("{place}: `{path}` is there twice; keep one of them")]
    DuplicateKey { place: Place, path: String },
    #[error("{place}: arrays and objects are more than {MAX_DEPTH} deep at `{path}`; flatten them")]
    TooDeep { place: Place, path: String },
    #[error(
        "{place}: `{path}` is {number}, which a double cannot hold exactly; write it as a string"
    )]
    NumberNotExact {
        place: Place,
        path: String,
        number: String,
    },
    #[error("{place}: there is more after the end of the JSON; remove it")]
    TrailingData { place: Place },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Reads one JSON value that takes up the whole input.
pub fn parse(bytes: &[u8]) -> Result<Value, BadJson> {
    if bytes.len() > MAX_BYTES {
        return Err(BadJson::TooLarge { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        BadJson::NotUtf8 {
            place: place_after(&String::from_utf8_lossy(valid)),
        }
    })?;
    let mut reader = Reader {
        text,
        at: 0,
        path: JsonPath::root(),
    };
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(BadJson::TrailingData {
            place: reader.place(),
        });
    }
    Ok(value)
}

/// Whether the double nearest to an integer still has that integer's digits, as RFC 8785 writes them.
///
/// Up to 2^53 always; beyond it `9007199254740993` becomes `9007199254740992` and is refused, while `100000000000000000000`, which
/// is how RFC 8785 itself spells 1e20, is not.
pub(crate) fn integer_is_exact(digits: &str) -> bool {
    let digits = digits.trim_start_matches('-');
    let Ok(double) = digits.parse::<f64>() else {
        return false;
    };
    if double <= MAX_SAFE_INTEGER {
        return true;
    }
    let shortest = format!("{double:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let same_digits =
        mantissa.replace('.', "").trim_end_matches('0') == digits.trim_end_matches('0');
    same_digits && exponent.parse() == Ok(digits.len() - 1)
}

/// 2^53 - 1, as RFC 7493 has it.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    path: JsonPath,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, BadJson> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(_) => {
                Err(self
                    .syntax("expected a value: object, array, string, number, true, false or null"))
            }
            None => Err(self.syntax("the JSON ends where a value is expected")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, BadJson> {
        self.enter(depth)?;
        let mut map = Map::new();
        self.skip_space();
        if self.take(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.syntax("expected a key in double quotes"));
            }
            let key_place = self.at;
            let key = self.string()?;
            self.path.push_key(&key);
            if map.contains_key(&key) {
                let place = place_after(self.text.get(..key_place).unwrap_or_default());
                return Err(BadJson::DuplicateKey {
                    place,
                    path: self.path.to_string(),
                });
            }
            self.skip_space();
            self.expect(b':', "expected `:` after a key")?;
            self.skip_space();
            let value = self.value(depth + 1)?;
            self.path.pop();
            map.insert(key, value);
            self.skip_space();
            if self.take(b'}') {
                return Ok(Value::Object(map));
            }
            self.expect(b',', "expected `,` or `}`")?;
            self.skip_space();
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, BadJson> {
        self.enter(depth)?;
        let mut items = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.path.push_index(items.len());
            let item = self.value(depth + 1)?;
            self.path.pop();
            items.push(item);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            self.expect(b',', "expected `,` or `]`")?;
            self.skip_space();
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), BadJson> {
        if depth >= MAX_DEPTH {
            return Err(BadJson::TooDeep {
                place: self.place(),
                path: self.path.to_string(),
            });
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<String, BadJson> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self
                .peek()
                .is_some_and(|b| b != b'"' && b != b'\\' && b >= 0x20)
            {
                self.at += 1;
            }
            // Both ends lie beside ASCII bytes, so that the slice is never cut inside a character.
            out.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return Err(self.syntax("a control character in a string; escape it")),
                None => return Err(self.syntax("the JSON ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, BadJson> {
        self.at += 1;
        let letter = self.peek();
        if letter.is_some_and(|b| b.is_ascii()) {
            self.at += 1;
        }
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(self.syntax("an unknown escape in a string")),
            None => return Err(self.syntax("the JSON ends inside a string")),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, BadJson> {
        const LONE: &str =
            "half of a surrogate pair in a string; write both halves or the character itself";
        let first = self.four_hex_digits()?;
        let code = match first {
            0xd800..0xdc00 => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                if !rest.starts_with("\\u") {
                    return Err(self.syntax(LONE));
                }
                self.at += 2;
                match self.four_hex_digits()? {
                    second @ 0xdc00..0xe000 => {
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => return Err(self.syntax(LONE)),
                }
            }
            _ => first,
        };
        char::from_u32(code).ok_or_else(|| self.syntax(LONE))
    }

    fn four_hex_digits(&mut self) -> Result<u32, BadJson> {
        let digits = self
            .text
            .get(self.at..self.at.saturating_add(4))
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.syntax("expected four hexadecimal digits after `\\u`"))?;
        self.at += 4;
        Ok(digits)
    }

    fn number(&mut self) -> Result<Number, BadJson> {
        let start = self.at;
        self.take(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits("expected a digit")?,
        }
        if self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.syntax("a number does not begin with 0; remove it"));
        }
        let whole_end = self.at;
        if self.take(b'.') {
            self.digits("expected a digit after the dot")?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits("expected a digit in the exponent")?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let is_integer = self.at == whole_end;
        let number = if is_integer {
            integer(text)
        } else {
            double(text)
        };
        number.ok_or_else(|| BadJson::NumberNotExact {
            place: place_after(self.text.get(..start).unwrap_or_default()),
            path: self.path.to_string(),
            number: crate::problem::shorten(text),
        })
    }

    fn digits(&mut self, problem: &'static str) -> Result<(), BadJson> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.syntax(problem));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, BadJson> {
        if !self
            .text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(word))
        {
            return Err(self.syntax("expected true, false or null"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), BadJson> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.syntax(problem))
        }
    }

    fn syntax(&self, problem: &'static str) -> BadJson {
        BadJson::Syntax {
            place: self.place(),
            problem,
        }
    }

    fn place(&self) -> Place {
        place_after(self.text.get(..self.at).unwrap_or_default())
    }
}

fn integer(text: &str) -> Option<Number> {
    if !integer_is_exact(text) {
        return None;
    }
    match (text.parse::<u64>(), text.parse::<i64>()) {
        // JSON has a minus zero, integers do not.
        _ if text == "-0" => Number::from_f64(-0.0),
        (Ok(n), _) => Some(n.into()),
        (_, Ok(n)) => Some(n.into()),
        _ => double(text),
    }
}

/// The nearest double; none for what would be infinite.
fn double(text: &str) -> Option<Number> {
    text.parse().ok().and_then(Number::from_f64)
}

fn place_after(before: &str) -> Place {
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn ordinary_json_reads_as_serde_reads_it() {
        for text in [
            "null",
            " true ",
            "\t[]\r\n",
            "{}",
            "0",
            "-0",
            "1.5",
            "-1e-3",
            "1E+2",
            "\"\"",
            r#""\"\\\/\b\f\n\r\t\u0041\ud83d\ude00é""#,
            r#"{"b":[1,{"c":null}],"a":"x","":false}"#,
            "9007199254740991",
            "-9007199254740991",
            "1e300",
            "0.1",
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_order_of_keys_is_kept() {
        let value = parse(br#"{"z":1,"a":2,"m":3}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"z":1,"a":2,"m":3}"#);
    }

    #[test]
    fn duplicate_keys_are_named_at_any_depth() {
        assert_eq!(
            error(r#"{"a":1,"a":1}"#),
            "line 1, column 8: `a` is there twice; keep one of them"
        );
        assert_eq!(
            error("{\"task\":{\"argv\":[0,{\"x y\":1,\n \"x y\":2}]}}"),
            "line 2, column 2: `task.argv[1][\"x y\"]` is there twice; keep one of them"
        );
        // Spelled differently, the same key.
        assert_eq!(
            error(r#"{"a":1,"\u0061":2}"#),
            "line 1, column 8: `a` is there twice; keep one of them"
        );
        assert!(parse(br#"[{"a":1},{"a":2}]"#).is_ok());
    }

    #[test]
    fn numbers_that_a_double_changes_are_refused() {
        for text in [
            "9007199254740993",
            "-9007199254740993",
            "12345678901234567890",
            "18446744073709551616",
            "1e400",
            "-1e400",
            "99999999999999999999999999",
        ] {
            let number = BadJson::NumberNotExact {
                place: Place { line: 1, column: 7 },
                path: "a[0]".into(),
                number: text.into(),
            };
            let json = format!("{{\"a\":[{text}]}}");
            assert_eq!(parse(json.as_bytes()), Err(number), "{text}");
        }
        for text in [
            "9007199254740992",
            "9007199254740994",
            "100000000000000000000",
            "1e30",
            "295147905179352830000",
        ] {
            assert!(parse(text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_exactly() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(matches!(
            parse(nested(MAX_DEPTH + 1).as_bytes()),
            Err(BadJson::TooDeep { .. })
        ));
        let objects = "{\"a\":".repeat(100_000);
        assert!(matches!(
            parse(objects.as_bytes()),
            Err(BadJson::TooDeep { .. })
        ));
    }

    #[test]
    fn size_is_bounded_exactly() {
        let padded = |bytes: usize| format!("{}1", " ".repeat(bytes - 1));
        assert_eq!(parse(padded(MAX_BYTES).as_bytes()), Ok(json!(1)));
        let bytes = MAX_BYTES + 1;
        assert_eq!(
            parse(padded(bytes).as_bytes()),
            Err(BadJson::TooLarge { bytes })
        );
    }

    #[test]
    fn what_is_not_utf8_is_refused_with_its_place() {
        let place = Place { line: 2, column: 3 };
        assert_eq!(
            parse(b"[\n\"\xc3\xa9\xff\"]"),
            Err(BadJson::NotUtf8 { place })
        );
        // A lone surrogate in UTF-8 clothes.
        assert!(matches!(
            parse(b"\"\xed\xa0\x80\""),
            Err(BadJson::NotUtf8 { .. })
        ));
    }

    #[test]
    fn syntax_errors_have_a_place() {
        for (text, expected) in [
            (
                "",
                "line 1, column 1: the JSON ends where a value is expected",
            ),
            (
                "  \n ",
                "line 2, column 2: the JSON ends where a value is expected",
            ),
            ("{\"é\" 1}", "line 1, column 6: expected `:` after a key"),
            ("[1 2]", "line 1, column 4: expected `,` or `]`"),
            (
                "1 2",
                "line 1, column 3: there is more after the end of the JSON; remove it",
            ),
            (
                "{} {}",
                "line 1, column 4: there is more after the end of the JSON; remove it",
            ),
        ] {
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "[",
            "{",
            "{\"a\"",
            "{\"a\":",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800\\ud800\"",
            "\"\n\"",
            "\"\u{1}\"",
            "01",
            "-",
            "-01",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x10",
            "NaN",
            "Infinity",
            "-Infinity",
            "tru",
            "nulll",
            "True",
            "\u{feff}1",
            "// c\n1",
            "\u{a0}1",
            "[1;2]",
            "\"\\é\"",
            "\"\\u00é\"",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-(1i64 << 53)..1 << 53).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_read_back(value in json_value()) {
            prop_assert_eq!(parse(value.to_string().as_bytes()), Ok(value.clone()));
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(parse(pretty.as_bytes()), Ok(value));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_it_accepts_serde_accepts(text in r#"[\[\]{}:,"\\ue0-9.+\-a-f nrtls]{0,24}"#) {
            if parse(text.as_bytes()).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn a_broken_text_does_not_make_it_panic(value in json_value(), cut: prop::sample::Index) {
            let text = value.to_string();
            let bytes = text.as_bytes();
            let _ = parse(&bytes[..cut.index(bytes.len())]);
        }
    }
}
