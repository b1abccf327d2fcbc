//! `expected_output_format`: the JSON Schema that a payload's output must satisfy. Nothing is ever fetched for it, and its patterns
//! run in linear time, because a stranger may have written it.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::json_path::JsonPath;
use crate::problem::Problem;
use crate::schema_cost;

/// What a payload says about its output.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputFormat {
    /// No promise: stdout is the output.
    Anything,
    /// stdout is JSON that this schema accepts.
    Schema(OutputSchema),
}

/// A schema that is known to be one.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema(Value);

/// A reader wants the first reasons, not ten thousand.
const MAX_REASONS: usize = 20;

impl OutputFormat {
    /// Reads the field: `true` is no promise, an object or `false` is a schema.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bool(true) => Ok(Self::Anything),
            Value::Bool(false) | Value::Object(_) => {
                schema_cost::check(value)?;
                compile(value)?;
                Ok(Self::Schema(OutputSchema(value.clone())))
            }
            Value::String(_) => Err(
                "is a string; write the JSON Schema itself as an object, not as text, or true for any output".to_owned(),
            ),
            Value::Null | Value::Number(_) | Value::Array(_) => {
                Err("is not a JSON Schema; write an object, or true for any output".to_owned())
            }
        }
    }
}

impl OutputSchema {
    /// Why the schema refuses the value; empty when it accepts it.
    pub fn problems(&self, output: &Value) -> Vec<Problem> {
        match compile(&self.0) {
            Ok(validator) => problems(&validator, output),
            // It compiled when it was read, and compiling depends on nothing else.
            Err(fix) => vec![Problem::new("expected_output_format", &self.0, fix)],
        }
    }

    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

/// Why a document breaks a schema, at most [`MAX_REASONS`].
pub(crate) fn problems(validator: &Validator, document: &Value) -> Vec<Problem> {
    let problem = |error: jsonschema::ValidationError<'_>| {
        let path = JsonPath::from_pointer(error.instance_path().as_str()).to_string();
        let value = error.instance().to_string();
        Problem::new(
            path,
            value,
            crate::problem::shorten(&error.masked_with("the value").to_string()),
        )
    };
    validator
        .iter_errors(document)
        .take(MAX_REASONS)
        .map(problem)
        .collect()
}

pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(schema_cost::pattern_bytes(schema)))
        .build(schema)
        .map_err(|error| {
            let at = JsonPath::from_pointer(error.instance_path().as_str());
            let reason = crate::problem::shorten(&error.to_string());
            format!("is not a JSON Schema that can be used, at {at}: {reason}; correct it ($ref may only point inside the schema)")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(value: Value) -> OutputSchema {
        match OutputFormat::read(&value) {
            Ok(OutputFormat::Schema(schema)) => schema,
            other => panic!("{value} is {other:?}"),
        }
    }

    #[test]
    fn true_promises_nothing() {
        assert_eq!(OutputFormat::read(&json!(true)), Ok(OutputFormat::Anything));
    }

    #[test]
    fn what_is_not_a_schema_is_refused() {
        for value in [
            json!(null),
            json!(1),
            json!([]),
            json!("{\"type\":\"object\"}"),
            json!({"type": "colour"}),
            json!({"type": 1}),
            json!({"minimum": "1"}),
            json!({"pattern": "("}),
            json!({"required": "a"}),
            json!({"$ref": "#/$defs/missing"}),
        ] {
            assert!(OutputFormat::read(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn nothing_is_fetched() {
        for reference in [
            "https://example.com/schema.json",
            "http://127.0.0.1:1/x",
            "file:///etc/passwd",
            "other.json",
        ] {
            let value = json!({"properties": {"a": {"$ref": reference}}});
            assert!(OutputFormat::read(&value).is_err(), "{reference}");
        }
    }

    #[test]
    fn patterns_that_take_exponential_time_do_not() {
        let schema = schema(json!({"pattern": "^(a+)+$"}));
        assert_eq!(
            schema
                .problems(&json!(format!("{}b", "a".repeat(10_000))))
                .len(),
            1
        );
        assert!(OutputFormat::read(&json!({"pattern": "((a{1000}){1000}){1000}"})).is_err());
    }

    #[test]
    fn a_schema_that_refers_to_itself_does_not_overflow() {
        for value in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
            json!({"not": {"$ref": "#"}}),
            json!({"if": {"$ref": "#"}, "then": true}),
            json!({"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]}),
        ] {
            if let Ok(OutputFormat::Schema(schema)) = OutputFormat::read(&value) {
                let _ = schema.problems(&json!({"a": [1, "x"]}));
            }
        }
    }

    #[test]
    fn a_schema_that_takes_exponential_time_is_refused_before_it_is_used() {
        for applicator in ["anyOf", "allOf", "oneOf"] {
            let mut defs = serde_json::Map::new();
            for i in 0..40 {
                let next = format!("#/$defs/d{}", i + 1);
                defs.insert(
                    format!("d{i}"),
                    json!({applicator: [{"$ref": next}, {"$ref": next}]}),
                );
            }
            defs.insert("d40".into(), json!({"type": "string"}));
            let schema = json!({"$defs": defs, "$ref": "#/$defs/d0"});
            let refused = OutputFormat::read(&schema).unwrap_err();
            assert!(refused.contains("takes too long"), "{refused}");
        }
    }

    #[test]
    fn reasons_name_the_place() {
        let schema = schema(json!({
            "type": "object",
            "properties": {"sum": {"type": "integer"}, "items": {"items": {"type": "string"}}},
            "required": ["sum"],
        }));
        assert_eq!(schema.problems(&json!({"sum": 3, "items": ["a"]})), []);
        let found: Vec<_> = schema
            .problems(&json!({"sum": "3", "items": ["a", 1]}))
            .into_iter()
            .map(|p| p.field)
            .collect();
        assert_eq!(found, ["sum", "items[1]"]);
        assert_eq!(schema.problems(&json!([])).len(), 1);
    }

    #[test]
    fn reasons_are_bounded() {
        let schema = schema(json!({"items": {"type": "string"}}));
        let found = schema.problems(&json!(vec![1; 10_000]));
        assert_eq!(found.len(), MAX_REASONS);
        assert!(found.iter().all(|p| p.to_string().len() < 500));
    }

    #[test]
    fn false_accepts_nothing() {
        assert_eq!(schema(json!(false)).problems(&json!(null)).len(), 1);
    }
}
