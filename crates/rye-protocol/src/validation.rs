//! Validates values against JSON Schemas.

use std::collections::BTreeSet;

use jsonschema::error::ValidationErrorKind as Kind;
use serde::Serialize;
use serde_json::Value;

use crate::json;

/// A compiled JSON Schema.
///
/// ```
/// use rye_protocol::Schema;
/// use serde_json::json;
///
/// let schema = Schema::new(&json!({ "properties": { "n": { "type": "integer" } } }))?;
/// assert!(schema.violations(&json!({ "n": 1 })).is_empty());
/// assert_eq!(schema.violations(&json!({ "n": "one" }))[0].pointer, "/n");
/// # Ok::<(), rye_protocol::InvalidSchema>(())
/// ```
#[derive(Debug)]
pub struct Schema(jsonschema::Validator);

/// Why a document is not a valid JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

/// A way in which a value does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer to the value; empty for the root.
    pub pointer: String,
    /// Explanation for the user.
    pub message: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "{}: ", self.pointer)?;
        }
        f.write_str(&self.message)
    }
}

impl Violation {
    fn new(error: &jsonschema::ValidationError<'_>) -> Self {
        Self {
            pointer: error.instance_path().to_string(),
            message: error.to_string(),
        }
    }
}

impl Schema {
    /// Compiles a schema; fails if the document is not a valid schema.
    pub fn new(document: &Value) -> Result<Self, InvalidSchema> {
        jsonschema::validator_for(document)
            .map(Self)
            .map_err(|error| InvalidSchema(error.to_string()))
    }

    /// Validates a value; returns an empty list if it is valid. A string that is an integer of
    /// more than 64 bits also matches where a number is expected.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let errors: Vec<_> = self.0.iter_errors(value).collect();
        if errors.is_empty() {
            return Vec::new();
        }
        let integers = large_integers(&errors);
        if integers.is_empty() {
            return errors.iter().map(Violation::new).collect();
        }
        let mut numbers = value.clone();
        for pointer in &integers {
            if let Some(number) = numbers.pointer_mut(pointer) {
                *number = approximate(number);
            }
        }
        let errors = self.0.iter_errors(&numbers);
        let violations = errors.map(|error| {
            let mut violation = Violation::new(&error);
            if let Some(Value::String(digits)) = value.pointer(&violation.pointer) {
                let number = error.instance().to_string();
                violation.message = violation.message.replacen(&number, digits, 1);
            }
            violation
        });
        violations.collect()
    }

    /// Pointers to the strings that are integers of more than 64 bits where this schema expects
    /// numbers.
    pub fn large_integers(&self, value: &Value) -> BTreeSet<String> {
        large_integers(&self.0.iter_errors(value).collect::<Vec<_>>())
    }

    /// All violations of a value, joined by `; `; `None` if it is valid.
    pub fn error(&self, value: &Value) -> Option<String> {
        let violations = self.violations(value);
        (!violations.is_empty()).then(|| join(&violations))
    }
}

/// Pointers to what is a string with a large integer, and violates the schema for being a string.
fn large_integers(errors: &[jsonschema::ValidationError<'_>]) -> BTreeSet<String> {
    let is_large = |error: &&jsonschema::ValidationError<'_>| {
        let is_type = matches!(
            error.kind(),
            Kind::Type { .. } | Kind::AnyOf { .. } | Kind::OneOfNotValid { .. }
        );
        is_type
            && error
                .instance()
                .as_str()
                .is_some_and(json::is_large_integer)
    };
    let errors = errors.iter().filter(is_large);
    errors
        .map(|error| error.instance_path().to_string())
        .collect()
}

/// A number that is about as large as the integer in a string.
fn approximate(value: &Value) -> Value {
    let number = value.as_str().and_then(|digits| digits.parse::<f64>().ok());
    number.map_or(Value::Null, |it| it.clamp(f64::MIN, f64::MAX).into())
}

/// Joins violations to one text.
pub fn join(violations: &[Violation]) -> String {
    let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violation_is_displayed_with_its_pointer() {
        let schema = json!({ "properties": { "a": { "pattern": "^x" } }, "minProperties": 1 });
        let schema = Schema::new(&schema).unwrap();
        assert_eq!(schema.error(&json!({ "a": "x" })), None);
        let error = schema.error(&json!({ "a": "y" })).unwrap();
        assert_eq!(error, "/a: \"y\" does not match \"^x\"");
        assert!(schema.error(&json!({})).unwrap().starts_with("{}"));
    }

    #[test]
    fn string_with_a_large_integer_matches_a_number() {
        let schema = json!({ "properties": {
            "n": { "type": "integer", "minimum": 0 },
            "list": { "items": { "anyOf": [{ "type": "number" }, { "type": "null" }] } },
            "text": { "type": "string" },
        }});
        let schema = Schema::new(&schema).unwrap();
        let large = "123456789012345678901";
        let value = json!({ "n": large, "list": [null, large], "text": large, "other": large });
        assert_eq!(schema.error(&value), None);
        let expected = ["/list/1", "/n"].map(str::to_owned);
        assert_eq!(schema.large_integers(&value), expected.into());
        for (value, pointer) in [
            (json!({ "n": "12" }), "/n"),
            (json!({ "n": "-123456789012345678901" }), "/n"),
            (json!({ "n": large, "list": ["x"] }), "/list/0"),
        ] {
            let violations = schema.violations(&value);
            let pointers: Vec<_> = violations.iter().map(|it| &it.pointer).collect();
            assert_eq!(pointers, [pointer], "{value}");
            assert!(!violations[0].message.contains("e+"), "{violations:?}");
        }
    }

    #[test]
    fn invalid_schema_is_refused() {
        for document in [
            json!({ "type": "nonsense" }),
            json!(1),
            json!({ "minLength": -1 }),
        ] {
            assert!(Schema::new(&document).is_err(), "{document}");
        }
    }
}
