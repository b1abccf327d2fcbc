//! How much work a stranger's JSON Schema can cause, worked out before it is used. A schema of twenty lines can make a validator try
//! two to the power of forty branches; such a schema is refused, and so is one that refers to itself without going deeper.
//!
//! The measure: how often at most one place of an output is looked at, in an output that is as deep as outputs may be.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::strict_json::MAX_DEPTH;

/// Larger than any schema that people write.
const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// Each of them is compiled before anything runs, and the memory for that is shared among them: see [`pattern_bytes`].
const MAX_PATTERNS: usize = 128;
const MAX_COMPILED_BYTES: usize = 16 << 20;
/// Of one compiled pattern, however few there are.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Looks at one place of the output.
const MAX_VISITS: u64 = 1_000;

/// Schemas inside or behind one another on the way to one place; also the depth of the recursion here and in the validator.
const MAX_STEPS: usize = 400;

/// Applied to the same place of the output, one schema each.
const SAME_PLACE: [&str; 4] = ["not", "if", "then", "else"];
/// Applied to the same place of the output, a list of schemas each.
const SAME_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Applied to the same place of the output, schemas by name.
const SAME_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Applied to every value of an object.
const VALUES: [&str; 3] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
];
/// Applied to every item of an array.
const ITEMS: [&str; 4] = ["items", "additionalItems", "contains", "unevaluatedItems"];
/// They look again at everything that was applied to the same place.
const LOOK_AGAIN: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

const TOO_MUCH: &str =
    "takes too long to check: its branches multiply; refer to each schema from fewer places";

/// Says why a schema would cost too much, with the fix.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!(
            "is {bytes} bytes long; write a schema of at most {MAX_SCHEMA_BYTES}"
        ));
    }
    check_one_root(schema)?;
    let patterns = patterns(schema);
    if patterns > MAX_PATTERNS {
        return Err(format!(
            "has {patterns} regular expressions; use at most {MAX_PATTERNS} in pattern and patternProperties"
        ));
    }
    let mut counter = Counter {
        root: schema,
        known: HashMap::new(),
    };
    counter.visits(schema, MAX_DEPTH, 0).map(drop)
}

/// How large each compiled pattern of a schema may become.
pub(crate) fn pattern_bytes(schema: &Value) -> usize {
    (MAX_COMPILED_BYTES / patterns(schema).max(1)).min(MAX_PATTERN_BYTES)
}

/// How many there are at most: a text that stands under that name in an example is counted too.
fn patterns(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            let own = usize::from(map.get("pattern").is_some_and(Value::is_string));
            let names = map.get("patternProperties").and_then(Value::as_object);
            let inside: usize = map.values().map(patterns).sum();
            own + names.map_or(0, Map::len) + inside
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// An `$id` inside, or draft 4's `id`, would give the pointers below it another root than the one they are followed from here.
fn check_one_root(schema: &Value) -> Result<(), String> {
    let dialect = schema
        .get("$schema")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if dialect.contains("draft-03") || dialect.contains("draft-04") {
        return Err("is written in JSON Schema draft 4 or older; write it in 2020-12".to_owned());
    }
    match schema {
        Value::Object(map) if map.values().any(has_id) => {
            Err("has an $id inside; only the whole schema may have one".to_owned())
        }
        _ => Ok(()),
    }
}

/// A property that is named `$id` holds a schema; only a text is an id.
fn has_id(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            map.get("$id").is_some_and(Value::is_string) || map.values().any(has_id)
        }
        Value::Array(items) => items.iter().any(has_id),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

struct Counter<'a> {
    root: &'a Value,
    /// By the schema's address and the depth below it. `None`: being counted just now.
    known: HashMap<(*const Value, usize), Option<u64>>,
}

impl<'a> Counter<'a> {
    /// How often one place is looked at by this schema and everything that it applies, `depth` levels down.
    fn visits(&mut self, schema: &'a Value, depth: usize, steps: usize) -> Result<u64, String> {
        let Some(map) = schema.as_object() else {
            return Ok(1);
        };
        if steps > MAX_STEPS {
            return Err(format!(
                "has more than {MAX_STEPS} schemas behind one another; flatten it"
            ));
        }
        let key = (std::ptr::from_ref(schema), depth);
        match self.known.insert(key, None) {
            Some(Some(known)) => {
                self.known.insert(key, Some(known));
                return Ok(known);
            }
            Some(None) => {
                return Err(
                    "refers to itself without going deeper into the output; remove that $ref"
                        .to_owned(),
                );
            }
            None => {}
        }
        let same = self.same_place(map, depth, steps + 1)?;
        let below = match depth.checked_sub(1) {
            Some(depth) => self.below(map, depth, steps + 1)?,
            None => 0,
        };
        let again = if LOOK_AGAIN.iter().any(|name| map.contains_key(*name)) {
            2
        } else {
            1
        };
        let visits = same
            .saturating_mul(again)
            .saturating_add(below)
            .saturating_add(1);
        if visits > MAX_VISITS {
            return Err(TOO_MUCH.to_owned());
        }
        self.known.insert(key, Some(visits));
        Ok(visits)
    }

    fn same_place(
        &mut self,
        map: &'a Map<String, Value>,
        depth: usize,
        steps: usize,
    ) -> Result<u64, String> {
        let single = SAME_PLACE.iter().filter_map(|name| map.get(*name));
        let lists = SAME_PLACE_LISTS
            .iter()
            .filter_map(|name| map.get(*name)?.as_array())
            .flatten();
        let maps = SAME_PLACE_MAPS
            .iter()
            .filter_map(|name| map.get(*name)?.as_object());
        let target = self.target(map)?;
        let all: Vec<_> = single
            .chain(lists)
            .chain(maps.flat_map(Map::values))
            .chain(target)
            .collect();
        self.sum(all, depth, steps)
    }

    /// Properties with different names are different places, so that only the costliest counts.
    fn below(
        &mut self,
        map: &'a Map<String, Value>,
        depth: usize,
        steps: usize,
    ) -> Result<u64, String> {
        let schemas = |names: &[&str]| -> Vec<&'a Value> {
            names
                .iter()
                .filter_map(|name| map.get(*name))
                .filter(|value| value.is_object())
                .collect()
        };
        let patterns = map
            .get("patternProperties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values);
        let every_value = schemas(&VALUES).into_iter().chain(patterns).collect();
        let named = map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values)
            .collect();
        let in_order = ["prefixItems", "items"]
            .iter()
            .filter_map(|name| map.get(*name)?.as_array())
            .flatten()
            .collect();

        let object = self
            .sum(every_value, depth, steps)?
            .saturating_add(self.max(named, depth, steps)?);
        let array = self
            .sum(schemas(&ITEMS), depth, steps)?
            .saturating_add(self.max(in_order, depth, steps)?);
        Ok(object.max(array))
    }

    fn sum(&mut self, schemas: Vec<&'a Value>, depth: usize, steps: usize) -> Result<u64, String> {
        schemas.into_iter().try_fold(0u64, |sum, schema| {
            Ok(sum.saturating_add(self.visits(schema, depth, steps)?))
        })
    }

    fn max(&mut self, schemas: Vec<&'a Value>, depth: usize, steps: usize) -> Result<u64, String> {
        schemas.into_iter().try_fold(0u64, |max, schema| {
            Ok(max.max(self.visits(schema, depth, steps)?))
        })
    }

    /// What `$ref` points to. Only pointers into this schema: anything else could not be counted.
    fn target(&self, map: &'a Map<String, Value>) -> Result<Option<&'a Value>, String> {
        for name in ["$dynamicRef", "$recursiveRef"] {
            if map.contains_key(name) {
                return Err(format!(
                    "uses {name}; use $ref with a pointer such as #/$defs/name"
                ));
            }
        }
        let Some(reference) = map.get("$ref").and_then(Value::as_str) else {
            return Ok(None);
        };
        let pointer = reference.strip_prefix('#').and_then(percent_decoded);
        let target = pointer.and_then(|pointer| self.root.pointer(&pointer));
        target.map(Some).ok_or_else(|| {
            let reference = crate::problem::shorten(reference);
            format!("has the $ref `{reference}`; point inside the schema, such as to #/$defs/name (nothing is fetched)")
        })
    }
}

/// A fragment spells some characters as `%20`.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (hex, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_that_people_write_are_accepted() {
        for schema in [
            json!({}),
            json!(false),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/", "type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            // A tree.
            json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "number"}}}),
            // A list of nodes that may be null.
            json!({
                "$defs": {"node": {"anyOf": [{"type": "null"}, {"properties": {"next": {"$ref": "#/$defs/node"}}}]}},
                "items": {"$ref": "#/$defs/node"},
            }),
            json!({"oneOf": (0..200).map(|i| json!({"properties": {"kind": {"const": i}}})).collect::<Vec<_>>()}),
            json!({"$defs": {"a b": {"type": "string"}, "c/d": true}, "allOf": [{"$ref": "#/$defs/a%20b"}, {"$ref": "#/$defs/c~1d"}]}),
            // A name is not a keyword.
            json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn branches_that_multiply_are_refused() {
        let same = json!([{"$ref": "#"}, {"$ref": "#"}]);
        for schema in [
            json!({"properties": {"a": {"anyOf": same}}}),
            json!({"items": {"allOf": same}}),
            json!({"additionalProperties": {"$ref": "#"}, "patternProperties": {"": {"$ref": "#"}}}),
            json!({"contains": {"$ref": "#"}, "items": {"$ref": "#"}}),
            json!({"prefixItems": [{"oneOf": same}]}),
            json!({"not": {"items": {"$ref": "#"}}, "then": {"items": {"$ref": "#"}}}),
        ] {
            assert_eq!(check(&schema), Err(TOO_MUCH.to_owned()), "{schema}");
        }
    }

    #[test]
    fn going_in_circles_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"not": {"$ref": "#"}}]}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
        ] {
            assert!(
                check(&schema).unwrap_err().contains("refers to itself"),
                "{schema}"
            );
        }
    }

    #[test]
    fn a_long_chain_is_refused_and_overflows_nothing() {
        let chain = |length: usize| {
            let link = |i: usize| {
                (
                    format!("d{i}"),
                    json!({"$ref": format!("#/$defs/d{}", i + 1)}),
                )
            };
            let mut defs: Map<String, Value> = (0..length).map(link).collect();
            defs.insert(format!("d{length}"), json!(true));
            json!({"$defs": defs, "$ref": "#/$defs/d0"})
        };
        assert!(check(&chain(5_000)).is_err());
        let longest = chain(MAX_STEPS - 2);
        assert_eq!(check(&longest), Ok(()));
        let validator = crate::output_format::compile(&longest).unwrap();
        assert_eq!(crate::output_format::problems(&validator, &json!(1)), []);
    }

    #[test]
    fn the_deepest_output_and_the_longest_way_overflow_nothing() {
        // Five steps on each level, on every level that an output can have.
        let schema = json!({"not": {"not": {"not": {"not": {"items": {"$ref": "#"}}}}}});
        assert_eq!(check(&schema), Ok(()));
        let validator = crate::output_format::compile(&schema).unwrap();
        let deepest = (0..MAX_DEPTH - 1).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(crate::output_format::problems(&validator, &deepest), []);
    }

    /// Otherwise eight thousand patterns of almost a megabyte each are compiled before anything runs.
    #[test]
    fn the_patterns_of_a_schema_share_a_bounded_memory() {
        let with = |count: usize, repeats: usize| {
            let property = |n: usize| {
                let pattern = format!("[a-z]{{{}}}", repeats + n);
                (format!("p{n}"), json!({"pattern": pattern}))
            };
            let properties: Map<String, Value> = (0..count).map(property).collect();
            json!({"properties": properties})
        };
        assert_eq!(check(&with(MAX_PATTERNS, 1)), Ok(()));
        let refused = check(&with(MAX_PATTERNS + 1, 1)).unwrap_err();
        assert!(refused.contains("regular expressions"), "{refused}");
        assert!(crate::output_format::compile(&with(1, 10_000)).is_ok());
        assert!(crate::output_format::compile(&with(MAX_PATTERNS, 10_000)).is_err());
        let names: Map<String, Value> = (0..=MAX_PATTERNS)
            .map(|n| (format!("^a{n}"), json!(true)))
            .collect();
        assert!(check(&json!({"patternProperties": names})).is_err());
        let named = json!({"properties": {"pattern": {"type": "string"}}});
        assert_eq!(patterns(&named), 0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        for schema in [
            json!({"$dynamicRef": "#x"}),
            json!({"$recursiveRef": "#"}),
            json!({"$ref": "#anchor", "$anchor": "anchor"}),
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"$ref": "#/%zz"}),
            json!({"$ref": "#/$defs/missing"}),
            json!({"items": {"$id": "http://x/", "items": {"$ref": "#"}}}),
            json!({"$defs": {"a": {"$id": "http://x/", "items": {"items": {"$ref": "#"}}}}, "$ref": "#/$defs/a/items"}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}),
            json!({"enum": ["x".repeat(MAX_SCHEMA_BYTES)]}),
        ] {
            assert!(
                check(&schema).is_err(),
                "{}",
                crate::problem::shorten(&schema.to_string())
            );
        }
    }
}
