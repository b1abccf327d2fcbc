//! Reading a TOML table field by field, so that everything that is wrong with it is found at once: a derived reader stops at the first.

use cofferdam_contract::problem::Problem;
use toml::{Table, Value};

/// A table that is being read; what nobody asked for is a problem as well.
pub(crate) struct Fields<'a> {
    table: &'a Table,
    /// What stands before its keys: `toolchain[0].`.
    at: String,
    asked: Vec<&'static str>,
    found: Vec<Problem>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(table: &'a Table, at: impl Into<String>) -> Self {
        Self {
            table,
            at: at.into(),
            asked: Vec::new(),
            found: Vec::new(),
        }
    }

    pub(crate) fn optional_text(&mut self, key: &'static str) -> Option<&'a str> {
        let value = self.get(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong(key, value, "is not text; put it in quotes");
        }
        text
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        match self.optional_text(key) {
            Some("") => {
                self.problem(key, "", "is empty; write something");
                None
            }
            Some(text) => Some(text),
            None => {
                self.missing(key);
                None
            }
        }
    }

    pub(crate) fn optional_number(&mut self, key: &'static str) -> Option<u64> {
        let value = self.get(key)?;
        let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
        if number.is_none() {
            self.wrong(key, value, "is not a whole number from 0 on; write one");
        }
        number
    }

    pub(crate) fn optional_texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let value = self.get(key)?;
        let texts = value.as_array().and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        });
        if texts.is_none() {
            self.wrong(key, value, "is not a list of texts; write [\"…\", \"…\"]");
        }
        texts
    }

    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        if !self.table.contains_key(key) {
            self.missing(key);
        }
        self.optional_texts(key)
    }

    pub(crate) fn optional_table(&mut self, key: &'static str) -> Option<&'a Table> {
        let value = self.get(key)?;
        let table = value.as_table();
        if table.is_none() {
            self.wrong(key, value, "is not a table; write it as [table]");
        }
        table
    }

    pub(crate) fn tables(&mut self, key: &'static str) -> Vec<&'a Table> {
        let Some(value) = self.get(key) else {
            self.missing(key);
            return Vec::new();
        };
        let tables: Option<Vec<&Table>> = value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_table).collect());
        match tables {
            Some(tables) if !tables.is_empty() => tables,
            Some(_) | None => {
                let fix = format!("is not a list of tables; write each as [[{key}]]");
                self.wrong(key, value, &fix);
                Vec::new()
            }
        }
    }

    /// A value that another reader understands.
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.optional_text(key)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(key, text, error.to_string());
                None
            }
        }
    }

    pub(crate) fn problem(&mut self, key: &str, value: &str, fix: impl Into<String>) {
        let problem = Problem::new(self.name(key), value, fix);
        self.found.push(problem);
    }

    pub(crate) fn add(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.found.extend(problems);
    }

    pub(crate) fn found(&mut self) -> &mut Vec<Problem> {
        &mut self.found
    }

    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}{key}", self.at)
    }

    /// All problems, with those of keys that mean nothing.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        let unknown: Vec<&String> = self
            .table
            .keys()
            .filter(|key| !self.asked.contains(&key.as_str()))
            .collect();
        for key in unknown {
            let fix = format!(
                "is not a field here; remove it, or write one of {}",
                self.asked.join(", ")
            );
            self.found.push(Problem::new(self.name(key), key, fix));
        }
        self.found
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.table.get(key)
    }

    fn missing(&mut self, key: &'static str) {
        self.get(key);
        let already = self.table.contains_key(key);
        if !already {
            self.problem(key, "", "is missing; add it");
        }
    }

    fn wrong(&mut self, key: &str, value: &Value, fix: &str) {
        let problem = Problem::new(self.name(key), value, fix);
        self.found.push(problem);
    }
}
