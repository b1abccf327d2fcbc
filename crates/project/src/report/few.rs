//! Parts of a stranger's JSON that are read as they come and kept only up to a bound: a list or a value without end takes time, and no memory.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::model::MAX_TEXT;

/// The first of a list.
#[derive(Debug)]
pub(super) struct Few<T>(pub(super) Vec<T>);

const MOST: usize = 50;

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut kept = Vec::new();
        Each::new(|one: T| {
            if kept.len() < MOST {
                kept.push(one);
            }
        })
        .deserialize(from)?;
        Ok(Self(kept))
    }
}

/// Hands each part of a list on as it is read. Null is an empty list.
pub(super) struct Each<F, T>(F, PhantomData<T>);

impl<F: FnMut(T), T> Each<F, T> {
    pub(super) const fn new(take: F) -> Self {
        Self(take, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> DeserializeSeed<'de> for Each<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> Visitor<'de> for Each<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(one) = list.next_element()? {
            (self.0)(one);
        }
        Ok(())
    }
}

/// What reads the members of an object that it knows.
pub(super) trait ReadMembers<'de> {
    /// Reads the value, or passes it by.
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error>;
}

/// An object, member by member. Anything else in its place has none.
pub(super) struct Members<'r, R>(pub(super) &'r mut R);

pub(super) fn pass_by<'de, A: MapAccess<'de>>(value: &mut A) -> Result<(), A::Error> {
    value.next_value::<IgnoredAny>().map(drop)
}

impl<'de, R: ReadMembers<'de>> DeserializeSeed<'de> for Members<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, R: ReadMembers<'de>> Visitor<'de> for Members<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            self.0.member(&name, &mut members)?;
        }
        Ok(())
    }
}

/// Any value as text: a string as it is, everything else as JSON, up to a bound. Null is none.
#[derive(Debug, Default)]
pub(super) struct Plain(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut out = String::new();
        let kind = Write(&mut out, Depth::Top).deserialize(from)?;
        Ok(Self((kind == Kind::Value).then_some(out)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// A string is written without quotes.
    Top,
    Inside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Value,
}

struct Write<'o>(&'o mut String, Depth);

impl Write<'_> {
    fn put(&mut self, text: fmt::Arguments<'_>) -> Kind {
        if self.0.len() < MAX_TEXT {
            let _ = self.0.write_fmt(text);
        }
        Kind::Value
    }

    fn text(&mut self, text: &str) -> Kind {
        let short = text
            .get(..text.floor_char_boundary(MAX_TEXT))
            .unwrap_or_default();
        match self.1 {
            Depth::Top => self.put(format_args!("{short}")),
            Depth::Inside => {
                let quoted = serde_json::to_string(short).unwrap_or_default();
                self.put(format_args!("{quoted}"))
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Write<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Kind, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Write<'_> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(mut self) -> Result<Kind, E> {
        if self.1 == Depth::Inside {
            self.put(format_args!("null"));
        }
        Ok(Kind::Null)
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Kind, E> {
        Ok(self.put(format_args!("{value}")))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Kind, E> {
        Ok(self.put(format_args!("{value}")))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Kind, E> {
        Ok(self.put(format_args!("{value}")))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Kind, E> {
        Ok(self.put(format_args!("{value}")))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Kind, E> {
        Ok(self.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Kind, A::Error> {
        self.put(format_args!("["));
        let mut is_first = true;
        loop {
            if self.0.len() >= MAX_TEXT {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
            // What separates parts is known only when there is another one.
            let at = self.0.len();
            if !is_first {
                self.put(format_args!(","));
            }
            if list
                .next_element_seed(Write(self.0, Depth::Inside))?
                .is_none()
            {
                self.0.truncate(at);
                break;
            }
            is_first = false;
        }
        Ok(self.put(format_args!("]")))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Kind, A::Error> {
        self.put(format_args!("{{"));
        let mut is_first = true;
        while let Some(name) = members.next_key::<String>()? {
            if self.0.len() >= MAX_TEXT {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if !is_first {
                self.put(format_args!(","));
            }
            is_first = false;
            Write(self.0, Depth::Inside).text(&name);
            self.put(format_args!(":"));
            members.next_value_seed(Write(self.0, Depth::Inside))?;
        }
        Ok(self.put(format_args!("}}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_is_text_up_to_a_bound() {
        let plain = |text: &str| serde_json::from_str::<Plain>(text).unwrap().0;
        assert_eq!(plain("null"), None);
        assert_eq!(plain("\"a b\""), Some("a b".to_owned()));
        assert_eq!(plain("1.5"), Some("1.5".to_owned()));
        let nested = r#"{"a":[1,null,"x\n"],"b":{"c":true},"d":[]}"#;
        assert_eq!(plain(nested), Some(nested.to_owned()));
        let long = format!("[{}1]", "1,".repeat(200_000));
        assert!(plain(&long).unwrap().len() < 2 * MAX_TEXT);
        let few: Few<String> =
            serde_json::from_str(&format!("[{}\"\"]", "\"\",".repeat(1000))).unwrap();
        assert_eq!(few.0.len(), MOST);
    }
}
