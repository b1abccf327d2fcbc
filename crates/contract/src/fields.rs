//! Reads an object field by field and keeps going: every wrong, missing or unknown field becomes a problem, and all are returned.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::problem::{Found, Problem, shorten};

pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What comes before a field's name: `task.`
    prefix: &'static str,
    asked: Vec<&'static str>,
    found: Found,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>, prefix: &'static str) -> Self {
        Self {
            map,
            prefix,
            asked: Vec::new(),
            found: Found::default(),
        }
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.required(name)?;
        self.expect(name, value, value.as_str(), "is not a string; write one")
    }

    /// Absent and null are the same.
    pub(crate) fn optional_text(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.optional(name).filter(|value| !value.is_null())?;
        self.expect(
            name,
            value,
            value.as_str(),
            "is not a string; write one or leave the field out",
        )
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        let Some(value) = self.optional(name) else {
            return false;
        };
        self.expect(
            name,
            value,
            value.as_bool(),
            "is not a boolean; write true or false",
        )
        .unwrap_or(false)
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Option<&'a Number> {
        let value = self.required(name)?;
        self.expect(
            name,
            value,
            value.as_number(),
            "is not a number; write one without quotes",
        )
    }

    pub(crate) fn optional_number(&mut self, name: &'static str) -> Option<&'a Number> {
        let value = self.optional(name)?;
        self.expect(
            name,
            value,
            value.as_number(),
            "is not a number; write one or leave the field out",
        )
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Option<&'a Map<String, Value>> {
        let value = self.required(name)?;
        self.expect(
            name,
            value,
            value.as_object(),
            "is not an object; write one in braces",
        )
    }

    pub(crate) fn text_list(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.required(name)?;
        self.list_of_text(name, value)
    }

    pub(crate) fn optional_text_list(&mut self, name: &'static str) -> Vec<String> {
        match self.optional(name) {
            Some(value) => self.list_of_text(name, value).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    pub(crate) fn optional_text_map(&mut self, name: &'static str) -> BTreeMap<String, String> {
        let Some(value) = self.optional(name) else {
            return BTreeMap::new();
        };
        let fix = "is not an object; write names and texts in braces";
        let Some(map) = self.expect(name, value, value.as_object(), fix) else {
            return BTreeMap::new();
        };
        let mut texts = BTreeMap::new();
        for (key, value) in map {
            match value.as_str() {
                Some(text) => {
                    texts.insert(key.clone(), text.to_owned());
                }
                None => {
                    let field = format!("{name}.{}", shorten(key));
                    self.problem(&field, value, "is not a string; write it in quotes");
                }
            }
        }
        texts
    }

    pub(crate) fn required(&mut self, name: &'static str) -> Option<&'a Value> {
        let value = self.optional(name);
        if value.is_none() {
            self.problem(name, "nothing", "is missing; add it");
        }
        value
    }

    pub(crate) fn optional(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.push(name);
        self.map.get(name)
    }

    pub(crate) fn problem(
        &mut self,
        name: &str,
        value: impl std::fmt::Display,
        fix: impl Into<String>,
    ) {
        self.found
            .push(|| Problem::new(format!("{}{name}", self.prefix), value, fix));
    }

    pub(crate) fn add(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.found.extend(problems);
    }

    /// Everything that was found, and every field that nobody asked for.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        let fix = format!(
            "is not a known field; remove it, or use one of {}",
            self.asked.join(", ")
        );
        for (name, value) in self.map {
            if !self.asked.contains(&name.as_str()) {
                let field = || format!("{}{}", self.prefix, shorten(name));
                self.found.push(|| Problem::new(field(), value, &fix));
            }
        }
        self.found.into_vec()
    }

    fn list_of_text(&mut self, name: &'static str, value: &'a Value) -> Option<Vec<String>> {
        let fix = "is not a list; write strings in square brackets";
        let items = self.expect(name, value, value.as_array(), fix)?;
        let mut texts = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.problem(
                    &format!("{name}[{i}]"),
                    item,
                    "is not a string; write it in quotes",
                ),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    fn expect<T>(&mut self, name: &str, value: &Value, read: Option<T>, fix: &str) -> Option<T> {
        if read.is_none() {
            self.problem(name, value, fix);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_million_wrong_elements_or_fields_are_counted_and_not_listed() {
        let unknown: Map<String, Value> =
            (0..10_000).map(|n| (format!("x{n}"), json!(1))).collect();
        let found = Fields::new(&unknown, "").finish();
        assert_eq!(found.len(), Found::MOST + 1);
        let value = json!({"list": vec![0; 1_000_000], "map": unknown});
        let mut fields = Fields::new(value.as_object().unwrap(), "");
        assert_eq!(fields.text_list("list"), None);
        fields.optional_text_map("map");
        let found = fields.finish();
        assert_eq!(found.len(), Found::MOST + 1);
        let last = found.last().map(|problem| problem.value.as_str());
        assert_eq!(last, Some("1009900 more problems"));
    }

    #[test]
    fn every_wrong_field_is_reported_and_reading_goes_on() {
        let value = json!({
            "text": 1, "flag": "yes", "number": "5", "list": ["a", 1, null], "map": {"k": 2}, "extra": {}, "null": null,
        });
        let mut fields = Fields::new(value.as_object().unwrap(), "task.");
        assert_eq!(fields.text("text"), None);
        assert_eq!(fields.text("missing"), None);
        assert_eq!(fields.optional_text("null"), None);
        assert!(!fields.flag("flag"));
        assert_eq!(fields.number("number"), None);
        assert_eq!(fields.text_list("list"), None);
        assert_eq!(fields.optional_text_map("map"), BTreeMap::new());
        let found: Vec<_> = fields.finish().into_iter().map(|p| p.field).collect();
        assert_eq!(
            found,
            [
                "task.text",
                "task.missing",
                "task.flag",
                "task.number",
                "task.list[1]",
                "task.list[2]",
                "task.map.k",
                "task.extra",
            ]
        );
    }
}
