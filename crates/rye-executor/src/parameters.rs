//! Validation of parameters against the tool's JSON Schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rye_items::metadata::Metadata;
use rye_schema::Schema;
use serde_json::{Map, Value};

/// A way in which the parameters violate the schema.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// JSON pointer to the value; empty for the root.
    pub pointer: String,
    /// Explanation for the user.
    pub message: String,
}

/// Why parameters were rejected.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// The parameters are not an object.
    #[error("parameters must be a JSON object, not {0}")]
    NotAnObject(&'static str),
    /// The parameters violate the schema; contains all violations.
    #[error("{}", join_violations(.0))]
    Violations(Vec<Violation>),
    /// The tool's schema is invalid.
    #[error("the tool's `config_schema` is not a valid JSON Schema: {0}")]
    Schema(String),
}

/// Capacity of the schema cache; the cache is cleared when it is full.
const CACHE_CAPACITY: usize = 1000;

/// Cache of compiled schemas.
#[derive(Debug, Default)]
pub struct SchemaCache(Mutex<HashMap<usize, CacheEntry>>);

/// Metadata that contains the schema, and the compiled schema. The entry keeps the metadata
/// alive, so that no other metadata can have the address that is the cache key.
type CacheEntry = (Arc<Metadata>, Arc<Schema>);

impl SchemaCache {
    /// Validates parameters and returns them with the schema's defaults filled in.
    pub fn check(&self, tool: &Arc<Metadata>, parameters: Value) -> Result<Value, ParameterError> {
        let Value::Object(mut parameters) = parameters else {
            return Err(ParameterError::NotAnObject(type_name(&parameters)));
        };
        if let Some(schema) = tool.config_schema() {
            fill_in_defaults(schema, &mut parameters);
        }
        self.validate(tool, parameters).map(Value::Object)
    }

    /// Returns the object unchanged if it matches the schema of an item.
    pub fn validate(
        &self,
        item: &Arc<Metadata>,
        object: Map<String, Value>,
    ) -> Result<Map<String, Value>, ParameterError> {
        let Some(schema) = item.config_schema() else {
            return Ok(object);
        };
        let object = Value::Object(object);
        if rye_schema::is_surely_valid(schema, &object) {
            return into_object(object);
        }
        validate(&*self.compiled(item, schema)?, object)
    }

    fn compiled(
        &self,
        item: &Arc<Metadata>,
        schema: &Value,
    ) -> Result<Arc<Schema>, ParameterError> {
        let address = Arc::as_ptr(item).addr();
        let entries = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, schema)) = entries().get(&address) {
            return Ok(Arc::clone(schema));
        }
        let schema = Arc::new(compile(schema)?);
        let mut entries = entries();
        if entries.len() >= CACHE_CAPACITY {
            entries.clear();
        }
        entries.insert(address, (Arc::clone(item), Arc::clone(&schema)));
        Ok(schema)
    }
}

/// Validates parameters and returns them with the schema's defaults filled in.
pub fn check(schema: Option<&Value>, parameters: Value) -> Result<Value, ParameterError> {
    let Value::Object(mut parameters) = parameters else {
        return Err(ParameterError::NotAnObject(type_name(&parameters)));
    };
    let Some(schema) = schema else {
        return Ok(Value::Object(parameters));
    };
    fill_in_defaults(schema, &mut parameters);
    validate(&compile(schema)?, Value::Object(parameters)).map(Value::Object)
}

fn compile(schema: &Value) -> Result<Schema, ParameterError> {
    Schema::new(schema).map_err(|e| ParameterError::Schema(e.to_string()))
}

fn validate(schema: &Schema, object: Value) -> Result<Map<String, Value>, ParameterError> {
    let violations = schema.violations(&object).into_iter();
    let violations: Vec<_> = violations
        .map(|violation| Violation {
            pointer: violation.pointer,
            message: truncate(&violation.message),
        })
        .collect();
    if violations.is_empty() {
        into_object(object)
    } else {
        Err(ParameterError::Violations(violations))
    }
}

fn into_object(value: Value) -> Result<Map<String, Value>, ParameterError> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(ParameterError::NotAnObject(type_name(&other))),
    }
}

/// Inserts the defaults of missing properties, also in nested objects that are present.
fn fill_in_defaults(schema: &Value, object: &mut Map<String, Value>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, property) in properties {
        match (object.get_mut(name), property.get("default")) {
            (Some(Value::Object(inner)), _) => fill_in_defaults(property, inner),
            (None, Some(default)) => {
                object.insert(name.clone(), default.clone());
            }
            _ => {}
        }
    }
}

/// Truncates a message that repeats a long value.
fn truncate(message: &str) -> String {
    const MAX_CHARS: usize = 300;
    match message.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

fn join_violations(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|Violation { pointer, message }| {
        if pointer.is_empty() {
            message.clone()
        } else {
            format!("{pointer}: {message}")
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer", "default": 3, "minimum": 1},
                "deep": {"type": "object", "properties": {"x": {"default": 1}}},
            },
            "required": ["name"],
        })
    }

    #[test]
    fn defaults_are_filled_in_and_unknown_keys_are_allowed() {
        let given = json!({"name": "a", "deep": {}, "other": null});
        let expected = json!({"name": "a", "deep": {"x": 1}, "other": null, "count": 3});
        assert_eq!(check(Some(&schema()), given.clone()).unwrap(), expected);
        assert_eq!(check(None, given.clone()).unwrap(), given);
        let mut strict = schema();
        strict["additionalProperties"] = json!(false);
        let error = check(Some(&strict), given).unwrap_err().to_string();
        assert!(error.contains("other"), "{error}");
    }

    #[test]
    fn all_violations_are_reported_with_pointers() {
        let error = check(Some(&schema()), json!({"count": "x", "deep": []})).unwrap_err();
        let ParameterError::Violations(mut violations) = error else {
            panic!("{error}");
        };
        violations.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        let pointers: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(pointers, ["", "/count", "/deep"]);
    }

    #[test]
    fn non_objects_and_invalid_schemas_are_rejected() {
        assert!(matches!(
            check(None, json!([1])),
            Err(ParameterError::NotAnObject("an array"))
        ));
        let broken = json!({"type": "nonsense"});
        assert!(matches!(
            check(Some(&broken), json!({})),
            Err(ParameterError::Schema(_))
        ));
    }

    #[test]
    fn message_does_not_repeat_a_long_value() {
        let huge = json!({"name": ["x".repeat(1 << 20)]});
        let error = check(Some(&schema()), huge).unwrap_err().to_string();
        assert!(error.len() < 1000);
    }
}
