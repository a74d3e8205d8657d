//! Validation of parameters against the tool's JSON Schema.

use rye_protocol::{Schema, join_violations, json};
use serde_json::{Map, Value};

pub use rye_protocol::Violation;

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

/// Validates parameters and returns them with the schema's defaults filled in.
pub fn check(schema: Option<&Value>, parameters: Value) -> Result<Value, ParameterError> {
    let Value::Object(mut parameters) = parameters else {
        return Err(ParameterError::NotAnObject(type_name(&parameters)));
    };
    if let Some(schema) = schema {
        fill_in_defaults(schema, &mut parameters);
    }
    validate(schema, parameters).map(Value::Object)
}

/// Returns an object unchanged if it matches the schema of an item.
pub(crate) fn validate(
    schema: Option<&Value>,
    object: Map<String, Value>,
) -> Result<Map<String, Value>, ParameterError> {
    let Some(schema) = schema else {
        return Ok(object);
    };
    let mut value = Value::Object(object);
    let schema = Schema::new(schema).map_err(|e| ParameterError::Schema(e.to_string()))?;
    let mut violations = schema.violations(&value);
    for violation in &mut violations {
        truncate(&mut violation.message);
    }
    if violations.is_empty() {
        Ok(value
            .as_object_mut()
            .map(std::mem::take)
            .unwrap_or_default())
    } else {
        Err(ParameterError::Violations(violations))
    }
}

/// Parameters as JSON. Integers of more than 64 bits, which are strings, become numbers where the
/// schema expects them.
pub(crate) fn to_json(schema: Option<&Value>, parameters: &Value) -> String {
    if has_large_integer(parameters)
        && let Some(Ok(schema)) = schema.map(Schema::new)
    {
        return json::write_with_integers(parameters, &schema.large_integers(parameters));
    }
    parameters.to_string()
}

fn has_large_integer(value: &Value) -> bool {
    match value {
        Value::String(text) => json::is_large_integer(text),
        Value::Array(items) => items.iter().any(has_large_integer),
        Value::Object(fields) => fields.values().any(has_large_integer),
        _ => false,
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
fn truncate(message: &mut String) {
    const MAX_CHARS: usize = 300;
    if let Some((end, _)) = message.char_indices().nth(MAX_CHARS) {
        message.truncate(end);
        message.push('…');
    }
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
