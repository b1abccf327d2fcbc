//! A place inside a JSON document, spelled as people write it: `task.argv[2]`, `env["a b"]`.

use std::fmt;

#[derive(Debug, Clone, Default)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

impl JsonPath {
    pub(crate) fn root() -> Self {
        Self::default()
    }

    pub(crate) fn push_key(&mut self, key: &str) {
        self.0.push(Step::Key(crate::problem::shorten(key)));
    }

    pub(crate) fn push_index(&mut self, index: usize) {
        self.0.push(Step::Index(index));
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// Reads an RFC 6901 pointer, such as `/a/0/b~1c`. A number could be a key too; it reads as an index, which is the usual case.
    pub(crate) fn from_pointer(pointer: &str) -> Self {
        let steps = pointer.split('/').skip(1).map(|step| match step.parse() {
            Ok(index) => Step::Index(index),
            Err(_) => Step::Key(crate::problem::shorten(
                &step.replace("~1", "/").replace("~0", "~"),
            )),
        });
        Self(steps.collect())
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the whole document");
        }
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_plain(key) => {
                    let dot = if i == 0 { "" } else { "." };
                    write!(f, "{dot}{key}")?;
                }
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_spelled_as_people_write_them() {
        let mut path = JsonPath::root();
        assert_eq!(path.to_string(), "the whole document");
        path.push_key("task");
        path.push_key("argv");
        path.push_index(2);
        path.push_key("a b");
        assert_eq!(path.to_string(), "task.argv[2][\"a b\"]");
        path.pop();
        assert_eq!(path.to_string(), "task.argv[2]");
    }

    #[test]
    fn pointers_are_read() {
        assert_eq!(
            JsonPath::from_pointer("/a/0/b~1c/x~0").to_string(),
            "a[0][\"b/c\"][\"x~\"]"
        );
        assert_eq!(JsonPath::from_pointer("").to_string(), "the whole document");
    }
}
