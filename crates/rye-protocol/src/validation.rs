//! Validates values against JSON Schemas.

use serde::Serialize;
use serde_json::Value;

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

impl Schema {
    /// Compiles a schema; fails if the document is not a valid schema.
    pub fn new(document: &Value) -> Result<Self, InvalidSchema> {
        jsonschema::validator_for(document)
            .map(Self)
            .map_err(|error| InvalidSchema(error.to_string()))
    }

    /// Validates a value; returns an empty list if it is valid.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let errors = self.0.iter_errors(value);
        errors
            .map(|error| Violation {
                pointer: error.instance_path().to_string(),
                message: error.to_string(),
            })
            .collect()
    }

    /// All violations of a value, joined by `; `; `None` if it is valid.
    pub fn error(&self, value: &Value) -> Option<String> {
        let violations = self.violations(value);
        (!violations.is_empty()).then(|| join(&violations))
    }
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
