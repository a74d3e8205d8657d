//! JSON Schema validation that is fast for simple schemas and valid values.
//!
//! Building a `jsonschema` validator takes longer than starting a shell, because it validates
//! the schema against the meta-schema first. Most tool schemas only use types, names and
//! limits, and most values are valid. [`Schema`] checks these directly and builds a validator
//! only for other schemas, and to report violations.
//!
//! ```
//! use rye_schema::Schema;
//! use serde_json::json;
//!
//! let schema = Schema::new(&json!({ "properties": { "n": { "type": "integer" } } }))?;
//! assert!(schema.violations(&json!({ "n": 1 })).is_empty());
//! assert_eq!(schema.violations(&json!({ "n": "one" }))[0].pointer, "/n");
//! # Ok::<(), rye_schema::InvalidSchema>(())
//! ```

mod fast_path;

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

pub use fast_path::is_surely_valid;

/// Why a document is not a valid JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

/// A way in which a value does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// A JSON Schema.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    /// The fast path supports all keywords of the schema.
    is_simple: bool,
    validator: OnceLock<Result<Validator, InvalidSchema>>,
}

impl Schema {
    /// Loads a schema; fails if the document is not a valid schema.
    pub fn new(document: &Value) -> Result<Self, InvalidSchema> {
        let schema = Self {
            is_simple: fast_path::is_simple(document),
            document: document.clone(),
            validator: OnceLock::new(),
        };
        if !schema.is_simple {
            schema.validator().as_ref().map_err(Clone::clone)?;
        }
        Ok(schema)
    }

    /// Validates a value; returns an empty list if it is valid.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        if self.is_simple && fast_path::is_valid(&self.document, value) {
            return Vec::new();
        }
        match self.validator() {
            Ok(validator) => validator
                .iter_errors(value)
                .map(|error| Violation {
                    pointer: error.instance_path().to_string(),
                    message: error.to_string(),
                })
                .collect(),
            Err(InvalidSchema(why)) => vec![Violation {
                pointer: String::new(),
                message: format!("invalid schema: {why}"),
            }],
        }
    }

    fn validator(&self) -> &Result<Validator, InvalidSchema> {
        self.validator.get_or_init(|| {
            jsonschema::validator_for(&self.document)
                .map_err(|error| InvalidSchema(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn validator_of_a_simple_schema_is_built_only_for_invalid_values() {
        let schema = Schema::new(&json!({ "type": "object", "required": ["a"] })).unwrap();
        assert_eq!(schema.violations(&json!({ "a": 1 })), []);
        assert!(schema.validator.get().is_none());
        let violations = schema.violations(&json!({}));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(
            violations[0]
                .to_string()
                .contains("\"a\" is a required property")
        );
    }

    #[test]
    fn violation_is_displayed_with_its_pointer() {
        let schema = json!({ "properties": { "a": { "pattern": "^x" } } });
        let violations = Schema::new(&schema)
            .unwrap()
            .violations(&json!({ "a": "y" }));
        assert!(
            violations[0].to_string().starts_with("/a: "),
            "{violations:?}"
        );
    }

    #[test]
    fn invalid_schema_is_refused_on_construction() {
        for document in [
            json!({ "type": "nonsense" }),
            json!(1),
            json!({ "minLength": -1 }),
        ] {
            assert!(Schema::new(&document).is_err(), "{document}");
        }
    }
}
