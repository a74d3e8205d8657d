//! Whether a value fits a JSON Schema.
//!
//! To build a validator takes longer than to start a shell: the schema is held against
//! the schema of schemas, which has to be built first. Nearly all schemas of tools say
//! no more than types, names and limits, and nearly all values fit. For these there is
//! a short way, and a validator is built only where it is needed.
//!
//! ```
//! use rye_schema::Schema;
//! use serde_json::json;
//!
//! let schema = Schema::new(&json!({ "properties": { "n": { "type": "integer" } } }))?;
//! assert!(schema.violations(&json!({ "n": 1 })).is_empty());
//! assert_eq!(schema.violations(&json!({ "n": "one" }))[0].pointer, "/n");
//! # Ok::<(), rye_schema::NotASchema>(())
//! ```

mod plain;

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

pub use plain::surely_fits;

/// A document that is no JSON Schema, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotASchema(String);

/// One thing that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a JSON pointer; empty for the value as a whole.
    pub pointer: String,
    /// What.
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
    is_plain: bool,
    validator: OnceLock<Result<Validator, NotASchema>>,
}

impl Schema {
    /// Takes a document, if it is a schema.
    pub fn new(document: &Value) -> Result<Self, NotASchema> {
        let schema = Self {
            is_plain: plain::is_plain(document),
            document: document.clone(),
            validator: OnceLock::new(),
        };
        if !schema.is_plain {
            schema.validator().as_ref().map_err(Clone::clone)?;
        }
        Ok(schema)
    }

    /// All that is wrong with a value; nothing where it fits.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        if self.is_plain && plain::fits(&self.document, value) {
            return Vec::new();
        }
        let whole = |message: String| Violation {
            pointer: String::new(),
            message,
        };
        match self.validator() {
            Ok(validator) => validator
                .iter_errors(value)
                .map(|error| Violation {
                    pointer: error.instance_path().to_string(),
                    message: error.to_string(),
                })
                .collect(),
            Err(NotASchema(why)) => vec![whole(format!("there is no schema to fit: {why}"))],
        }
    }

    fn validator(&self) -> &Result<Validator, NotASchema> {
        self.validator.get_or_init(|| {
            jsonschema::validator_for(&self.document).map_err(|error| NotASchema(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plain_schema_is_built_only_for_what_does_not_fit() {
        let schema = Schema::new(&json!({ "type": "object", "required": ["a"] })).unwrap();
        assert_eq!(schema.violations(&json!({ "a": 1 })), []);
        assert!(schema.validator.get().is_none());
        let wrong = schema.violations(&json!({}));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(
            wrong[0]
                .to_string()
                .contains("\"a\" is a required property")
        );
    }

    #[test]
    fn a_place_is_told_before_what_is_wrong_there() {
        let schema = json!({ "properties": { "a": { "pattern": "^x" } } });
        let wrong = Schema::new(&schema)
            .unwrap()
            .violations(&json!({ "a": "y" }));
        assert!(wrong[0].to_string().starts_with("/a: "), "{wrong:?}");
    }

    #[test]
    fn what_is_no_schema_is_refused_at_once() {
        for document in [
            json!({ "type": "nonsense" }),
            json!(1),
            json!({ "minLength": -1 }),
        ] {
            assert!(Schema::new(&document).is_err(), "{document}");
        }
    }
}
