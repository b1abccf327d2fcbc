//! What "the same output" means for a payload: the same bytes, the same JSON, or the same JSON after what its author declared unimportant. Finds the first difference and
//! says where it is. Compares within a budget: both sides may be a stranger's.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::canonical;
use crate::problem::{Found, Problem, shorten};

/// When two outputs count as the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum OutputClass {
    /// What the program wrote, byte for byte.
    Exact,
    /// The same canonical JSON: the order of keys and the spelling of numbers do not count.
    #[default]
    CanonicalJson,
    /// The same after what is declared here.
    Normalised(Normalisation),
}

/// What does not count. With a tolerance this is no equivalence: 0 is like 1 and 1 like 2, and 0 is not like 2.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Normalisation {
    /// Numbers this far apart are the same.
    absolute: f64,
    /// Numbers this far apart are the same, in parts of the larger one.
    relative: f64,
    unordered: Vec<Pattern>,
}

/// The place of an array: an RFC 6901 pointer in which `*` stands for any one step.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    steps: Vec<String>,
}

/// The first place at which two outputs differ.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Difference {
    /// RFC 6901; empty for the whole output.
    pub pointer: String,
    /// Null also where there is nothing; then `missing` says so.
    pub claimed: Value,
    pub found: Value,
    /// The side that has nothing there.
    pub missing: Option<Side>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Claimed,
    Found,
}

/// Comparing them would take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the unordered arrays are too large to be compared; declare fewer, or smaller ones")]
pub struct TooMuch;

/// Steps that one comparison may take; less than a second.
const BUDGET: u32 = 5_000_000;
/// Of text that is compared; about as much work as any other step.
const BYTES_OF_A_STEP: usize = 256;
/// Beyond this, elements are paired by their order after sorting and no longer by search.
const SEARCHED: usize = 512;
const MOST_PATTERNS: usize = 32;

impl OutputClass {
    pub const FIELD: &'static str = "output_class";

    /// As a payload has it; every problem at once.
    pub(crate) fn read(value: &Value) -> Result<Self, Vec<Problem>> {
        match value {
            Value::String(name) if name == "exact" => Ok(Self::Exact),
            Value::String(name) if name == "canonical_json" => Ok(Self::CanonicalJson),
            Value::Object(map) => Normalisation::read(map).map(Self::Normalised),
            other => {
                let fix = "is not a class of outputs; write \"exact\", \"canonical_json\" or an object with absolute_tolerance, relative_tolerance and unordered_arrays";
                Err(vec![Problem::new(Self::FIELD, other, fix)])
            }
        }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::CanonicalJson => "canonical_json",
            Self::Normalised(_) => "normalised",
        }
    }

    /// The first difference; `None` when they are the same. What the program wrote is compared by [`crate::comparison`], which has it.
    pub fn first_difference(
        &self,
        claimed: &Value,
        found: &Value,
    ) -> Result<Option<Difference>, TooMuch> {
        let strict = Normalisation::default();
        let rules = match self {
            Self::Exact | Self::CanonicalJson => &strict,
            Self::Normalised(rules) => rules,
        };
        let mut comparing = Comparing {
            rules,
            left: BUDGET,
            steps_of_array: rules.steps_of_array(),
            path: Vec::new(),
            searching: 0,
        };
        comparing.compare(claimed, found)
    }

    pub(crate) fn schema() -> Value {
        let tolerance = |what: &str| json!({ "description": what, "type": "number", "minimum": 0, "default": 0 });
        json!({
            "description": "When two outputs count as the same: `exact` bytes, the same `canonical_json` (the default), or the same after what the object declares.",
            "default": "canonical_json",
            "anyOf": [
                { "type": "string", "enum": ["exact", "canonical_json"] },
                {
                    "type": "object",
                    "properties": {
                        "absolute_tolerance": tolerance("Numbers this far apart are the same."),
                        "relative_tolerance": {
                            "description": "Numbers this far apart are the same, in parts of the larger one.",
                            "type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": 0,
                        },
                        "unordered_arrays": {
                            "description": "JSON pointers of arrays whose order does not count; `*` is any one step.",
                            "type": "array", "maxItems": MOST_PATTERNS,
                            "items": { "type": "string", "pattern": "^(/([^~/]|~[01])*)*$" },
                        },
                    },
                    "additionalProperties": false,
                },
            ],
        })
    }
}

impl Normalisation {
    fn read(map: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let mut found = Found::default();
        let mut rules = Self::default();
        for (name, value) in map {
            let field = format!("{}.{}", OutputClass::FIELD, shorten(name));
            let read = match name.as_str() {
                "absolute_tolerance" => tolerance(value).map(|number| rules.absolute = number),
                "relative_tolerance" => tolerance(value)
                    .filter(|number| *number < 1.0)
                    .map(|number| rules.relative = number),
                "unordered_arrays" => patterns(value).map(|read| rules.unordered = read),
                _ => {
                    let fix = "is not a known field; use absolute_tolerance, relative_tolerance or unordered_arrays";
                    found.push(|| Problem::new(field, value, fix));
                    continue;
                }
            };
            if read.is_none() {
                let fix = match name.as_str() {
                    "absolute_tolerance" => "is not a tolerance; write a number of 0 or more",
                    "relative_tolerance" => "is not a tolerance; write a number from 0 to below 1",
                    _ => {
                        "is not a list of JSON pointers; write at most 32, such as /rows or /groups/*/members"
                    }
                };
                found.push(|| Problem::new(field, value, fix));
            }
        }
        match found.into_vec() {
            none if none.is_empty() => Ok(rules),
            found => Err(found),
        }
    }

    fn is_near(&self, one: f64, other: f64) -> bool {
        let apart = (one - other).abs();
        let scale = one.abs().max(other.abs());
        one == other || apart <= self.absolute || apart <= self.relative * scale
    }

    /// Every pattern is held against the place of every array, and both may be as long as a payload or an output.
    fn steps_of_array(&self) -> u32 {
        let steps = self.unordered.iter().map(|pattern| {
            let bytes: usize = pattern.steps.iter().map(String::len).sum();
            pattern.steps.len() + bytes / BYTES_OF_A_STEP
        });
        u32::try_from(steps.sum::<usize>()).unwrap_or(u32::MAX)
    }

    fn has_tolerance(&self) -> bool {
        self.absolute > 0.0 || self.relative > 0.0
    }
}

fn tolerance(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .filter(|number| number.is_finite() && *number >= 0.0)
}

fn patterns(value: &Value) -> Option<Vec<Pattern>> {
    let items = value
        .as_array()
        .filter(|items| items.len() <= MOST_PATTERNS)?;
    items
        .iter()
        .map(|item| Pattern::read(item.as_str()?))
        .collect()
}

impl Pattern {
    fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self { steps: Vec::new() });
        }
        let steps = text.strip_prefix('/')?.split('/').map(unescaped);
        Some(Self {
            steps: steps.collect::<Option<_>>()?,
        })
    }

    fn fits(&self, path: &[Step]) -> bool {
        self.steps.len() == path.len()
            && self
                .steps
                .iter()
                .zip(path)
                .all(|(wanted, step)| wanted == "*" || *wanted == step.text())
    }
}

fn unescaped(step: &str) -> Option<String> {
    let mut text = String::with_capacity(step.len());
    let mut characters = step.chars();
    while let Some(c) = characters.next() {
        text.push(match c {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}

#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Key(key) => Cow::Borrowed(key),
            Self::Index(index) => Cow::Owned(index.to_string()),
        }
    }
}

struct Comparing<'a> {
    rules: &'a Normalisation,
    left: u32,
    /// What finding out whether an array is unordered takes.
    steps_of_array: u32,
    path: Vec<Step>,
    /// While partners are searched, nobody wants to know where a pair differs.
    searching: u32,
}

type Compared = Result<Option<Difference>, TooMuch>;

impl Comparing<'_> {
    fn compare(&mut self, claimed: &Value, found: &Value) -> Compared {
        self.spend(1)?;
        let is_same = match (claimed, found) {
            (Value::Object(one), Value::Object(other)) => return self.objects(one, other),
            (Value::Array(one), Value::Array(other)) => {
                self.spend(self.steps_of_array)?;
                let is_unordered = self
                    .rules
                    .unordered
                    .iter()
                    .any(|pattern| pattern.fits(&self.path));
                return if is_unordered {
                    self.unordered(one, other)
                } else {
                    self.ordered(one, other)
                };
            }
            (Value::Number(one), Value::Number(other)) => match (one.as_f64(), other.as_f64()) {
                (Some(one), Some(other)) => self.rules.is_near(one, other),
                _ => one == other,
            },
            (one, other) => one == other,
        };
        Ok((!is_same).then(|| self.difference(Some(claimed), Some(found))))
    }

    fn spend(&mut self, steps: u32) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(steps).ok_or(TooMuch)?;
        Ok(())
    }

    /// In the order of their names, so that "first" does not depend on who wrote which first.
    fn objects(&mut self, one: &Map<String, Value>, other: &Map<String, Value>) -> Compared {
        let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            self.path.push(Step::Key(name.clone()));
            let different = self.both(one.get(name), other.get(name))?;
            self.path.pop();
            if different.is_some() {
                return Ok(different);
            }
        }
        Ok(None)
    }

    fn ordered(&mut self, one: &[Value], other: &[Value]) -> Compared {
        for index in 0..one.len().max(other.len()) {
            self.path.push(Step::Index(index));
            let different = self.both(one.get(index), other.get(index))?;
            self.path.pop();
            if different.is_some() {
                return Ok(different);
            }
        }
        Ok(None)
    }

    fn both(&mut self, claimed: Option<&Value>, found: Option<&Value>) -> Compared {
        match (claimed, found) {
            (Some(claimed), Some(found)) => self.compare(claimed, found),
            (claimed, found) => Ok(Some(self.difference(claimed, found))),
        }
    }

    /// Every element must have a partner of its own. With a tolerance one element can be like several, so that the partners have to be searched.
    fn unordered(&mut self, one: &[Value], other: &[Value]) -> Compared {
        // One pattern fits one depth, so that nothing inside is unordered too.
        let is_plain = !self.rules.has_tolerance() && self.rules.unordered.len() == 1;
        if is_plain {
            return self.sorted(one, other);
        }
        if one.len().max(other.len()) > SEARCHED {
            // Equal in this order is equal; what differs in it might have had another partner.
            return match self.sorted(one, other)? {
                None => Ok(None),
                Some(_) => Err(TooMuch),
            };
        }
        let mut partner_of: Vec<Option<usize>> = vec![None; other.len()];
        for index in 0..one.len() {
            let mut tried = vec![false; other.len()];
            if !self.pair((one, other), index, &mut partner_of, &mut tried)? {
                return Ok(Some(self.lonely(index, one.get(index), None)));
            }
        }
        let lonely = partner_of.iter().position(Option::is_none);
        Ok(lonely.map(|index| self.lonely(index, None, other.get(index))))
    }

    /// Kuhn's way: whoever is in the way looks for another partner.
    fn pair(
        &mut self,
        sides: (&[Value], &[Value]),
        index: usize,
        partner_of: &mut [Option<usize>],
        tried: &mut [bool],
    ) -> Result<bool, TooMuch> {
        let (one, other) = sides;
        let Some(mine) = one.get(index) else {
            return Ok(false);
        };
        for (candidate, theirs) in other.iter().enumerate() {
            let is_tried = tried.get_mut(candidate).is_none_or(|tried| *tried);
            if is_tried {
                continue;
            }
            self.path.push(Step::Index(index));
            self.searching += 1;
            let differs = self.compare(mine, theirs)?.is_some();
            self.searching -= 1;
            self.path.pop();
            if differs {
                continue;
            }
            if let Some(tried) = tried.get_mut(candidate) {
                *tried = true;
            }
            let holder = partner_of.get(candidate).copied().flatten();
            let is_free = match holder {
                None => true,
                Some(holder) => self.pair(sides, holder, partner_of, tried)?,
            };
            if is_free {
                if let Some(partner) = partner_of.get_mut(candidate) {
                    *partner = Some(index);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sorted(&mut self, one: &[Value], other: &[Value]) -> Compared {
        let (mine, theirs) = (in_order(one), in_order(other));
        for place in 0..mine.len().max(theirs.len()) {
            let (left, right) = (mine.get(place), theirs.get(place));
            let index = left.or(right).map_or(place, |(_, index, _)| *index);
            self.path.push(Step::Index(index));
            let different = self.both(
                left.map(|(_, _, value)| *value),
                right.map(|(_, _, value)| *value),
            )?;
            self.path.pop();
            if different.is_some() {
                return Ok(different);
            }
        }
        Ok(None)
    }

    fn lonely(
        &mut self,
        index: usize,
        claimed: Option<&Value>,
        found: Option<&Value>,
    ) -> Difference {
        self.path.push(Step::Index(index));
        let difference = self.difference(claimed, found);
        self.path.pop();
        difference
    }

    fn difference(&self, claimed: Option<&Value>, found: Option<&Value>) -> Difference {
        if self.searching > 0 {
            return Difference::default();
        }
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            pointer.push_str(&step.text().replace('~', "~0").replace('/', "~1"));
        }
        Difference {
            pointer,
            missing: match (claimed, found) {
                (None, _) => Some(Side::Claimed),
                (_, None) => Some(Side::Found),
                _ => None,
            },
            claimed: claimed.cloned().unwrap_or_default(),
            found: found.cloned().unwrap_or_default(),
        }
    }
}

/// By their canonical bytes, each with the place that it had.
fn in_order(values: &[Value]) -> Vec<(Vec<u8>, usize, &Value)> {
    let mut sorted: Vec<_> = values
        .iter()
        .enumerate()
        .map(|(index, value)| (canonical::to_bytes(value).unwrap_or_default(), index, value))
        .collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    sorted
}

#[cfg(test)]
#[path = "output_class_tests.rs"]
mod tests;
