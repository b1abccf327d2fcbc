//! Text to a tree of scalars with their line numbers. Knows YAML and its bombs; knows nothing of what the keys mean.
//!
//! The tree keeps every scalar as text: whether `1.0` is a share of a CPU or nonsense is not YAML's business, and a typed target
//! would stop at the first mistake where we want them all.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Spanned};

/// A value and the line it stands on, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub line: u64,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Empty,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub line: u64,
    pub name: String,
}

/// Why the text is not YAML that we accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadYaml {
    pub line: Option<u64>,
    pub reason: String,
}

/// Reads one document. An empty text is an empty document.
pub fn parse(text: &str) -> Result<Node, BadYaml> {
    let Spanned { value, .. } =
        serde_saphyr::from_str_with_options::<Spanned<Option<Node>>>(text, options()).map_err(
            |error| BadYaml {
                line: error
                    .location()
                    .map(|at| at.line())
                    .filter(|line| *line > 0),
                reason: reason(&error),
            },
        )?;
    Ok(value.unwrap_or(Node {
        line: 1,
        value: Value::Empty,
    }))
}

/// A configuration of ours has a few dozen nodes four levels deep. Everything here is far above that and far below harm.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 16,
            max_nodes: 4_096,
            max_events: 16_384,
            max_aliases: 64,
            max_anchors: 64,
            max_documents: 1,
            max_total_scalar_bytes: 1 << 20,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // YAML 1.1 reads `no` as false and `012` as ten; a limit must not depend on knowing that.
        strict_booleans: true,
        legacy_octal_numbers: false,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 4_096,
            max_replay_stack_depth: 8,
            max_alias_expansions_per_anchor: 64,
        },
        // The snippet would repeat hostile text over several lines; the line number is enough.
        with_snippet: false,
    }
}

/// One line, without control characters, of a length to read.
fn reason(error: &serde_saphyr::Error) -> String {
    const KEEP: usize = 200;
    error
        .to_string()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(KEEP)
        .collect()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned {
            value, referenced, ..
        } = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: referenced.line(),
            value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Empty)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Empty)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Node>()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, node)) = entries.next_entry::<Spanned<String>, Node>()? {
            map.push((
                Key {
                    line: key.referenced.line(),
                    name: key.value,
                },
                node,
            ));
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(line: u64, text: &str) -> Node {
        Node {
            line,
            value: Value::Scalar(text.to_owned()),
        }
    }

    fn key(line: u64, name: &str) -> Key {
        Key {
            line,
            name: name.to_owned(),
        }
    }

    #[test]
    fn every_scalar_keeps_its_line_and_its_text() {
        let tree = parse("a:\n  b: 512m\n  c: 1.5\n  d: true\nlist: [1, 2]\nnone:\n").unwrap();
        let a = Node {
            line: 2,
            value: Value::Map(vec![
                (key(2, "b"), scalar(2, "512m")),
                (key(3, "c"), scalar(3, "1.5")),
                (key(4, "d"), scalar(4, "true")),
            ]),
        };
        let Value::Map(entries) = tree.value else {
            panic!("not a map")
        };
        assert_eq!(entries[0], (key(1, "a"), a));
        assert_eq!(
            entries[1],
            (
                key(5, "list"),
                Node {
                    line: 5,
                    value: Value::List(vec![scalar(5, "1"), scalar(5, "2")])
                }
            )
        );
        assert_eq!(entries[2].1.value, Value::Empty);
    }

    #[test]
    fn nothing_at_all_is_an_empty_document() {
        for text in ["", "\n", "# only a comment\n", "---\n", "~", "--- null\n"] {
            assert_eq!(
                parse(text).map(|node| node.value),
                Ok(Value::Empty),
                "{text:?}"
            );
        }
    }

    #[test]
    fn yaml_1_1_surprises_do_not_happen() {
        for (text, kept) in [
            ("no", "no"),
            ("012", "12"),
            (".inf", ".inf"),
            ("\"1.50\"", "1.50"),
        ] {
            assert_eq!(
                parse(text).map(|node| node.value),
                Ok(Value::Scalar(kept.to_owned()))
            );
        }
    }

    #[test]
    fn an_alias_bomb_is_defused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..30 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(parse(&bomb).is_err());
        assert!(parse("a: &a [*a]").is_err());
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_overflow_the_stack() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let deep = format!("{}{}", open.repeat(100_000), close.repeat(100_000));
            assert!(parse(&deep).is_err());
        }
        let block: String = (0..2_000)
            .map(|i| format!("{}a:\n", " ".repeat(i)))
            .collect();
        assert!(parse(&block).is_err());
    }

    #[test]
    fn what_is_not_one_plain_document_is_refused() {
        for text in [
            "a: 1\na: 2\n",
            "a: 1\n---\nb: 2\n",
            "a: !evil x",
            "a: [1, 2",
            "\u{0}",
            "a: \"\u{0}\"",
        ] {
            let bad = parse(text).expect_err(text);
            assert!(
                !bad.reason.is_empty() && !bad.reason.contains('\n'),
                "{bad:?}"
            );
        }
        assert_eq!(
            parse("a: 1\nb: 2\na: 3\n").map_err(|bad| bad.line),
            Err(Some(3))
        );
    }
}
