//! Parameters: checked against the tool's schema before anything runs.

mod plain;

use serde_json::{Map, Value};

/// One thing that is wrong with the parameters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Where, as a JSON pointer; empty for the parameters as a whole.
    pub pointer: String,
    /// What.
    pub message: String,
}

/// Parameters, or a schema, that will not do.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// They are not an object.
    #[error("parameters must be a JSON object, not {0}")]
    NotAnObject(&'static str),
    /// They do not fit the schema; all that is wrong with them.
    #[error("{}", listed(.0))]
    Violations(Vec<Violation>),
    /// The tool's own schema is no JSON Schema.
    #[error("the tool's `config_schema` is not a JSON Schema: {0}")]
    Schema(String),
}

/// Checks parameters, and gives them back with the schema's defaults.
pub fn check(schema: Option<&Value>, parameters: Value) -> Result<Value, ParameterError> {
    let Value::Object(mut parameters) = parameters else {
        return Err(ParameterError::NotAnObject(kind(&parameters)));
    };
    let Some(schema) = schema else {
        return Ok(Value::Object(parameters));
    };
    fill_in(schema, &mut parameters);
    fits(schema, parameters).map(Value::Object)
}

/// Gives an object back as it is, if it fits the schema.
pub fn fits(
    schema: &Value,
    object: Map<String, Value>,
) -> Result<Map<String, Value>, ParameterError> {
    let parameters = Value::Object(object);
    if !plain::surely_fits(schema, &parameters) {
        validate(schema, &parameters)?;
    }
    match parameters {
        Value::Object(object) => Ok(object),
        other => Err(ParameterError::NotAnObject(kind(&other))),
    }
}

/// Finds all that does not fit.
fn validate(schema: &Value, parameters: &Value) -> Result<(), ParameterError> {
    let validator =
        jsonschema::validator_for(schema).map_err(|e| ParameterError::Schema(e.to_string()))?;
    let violations: Vec<_> = validator
        .iter_errors(parameters)
        .map(|error| Violation {
            pointer: error.instance_path().to_string(),
            message: brief(&error.to_string()),
        })
        .collect();
    if violations.is_empty() {
        Ok(())
    } else {
        Err(ParameterError::Violations(violations))
    }
}

/// Gives what is missing its default, also in objects that are there.
fn fill_in(schema: &Value, object: &mut Map<String, Value>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, property) in properties {
        match (object.get_mut(name), property.get("default")) {
            (Some(Value::Object(inner)), _) => fill_in(property, inner),
            (None, Some(default)) => {
                object.insert(name.clone(), default.clone());
            }
            _ => {}
        }
    }
}

/// A message must not repeat a value of megabytes.
fn brief(message: &str) -> String {
    const LONGEST: usize = 300;
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

fn listed(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|Violation { pointer, message }| {
        if pointer.is_empty() {
            message.clone()
        } else {
            format!("{pointer}: {message}")
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn kind(value: &Value) -> &'static str {
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
    fn defaults_are_filled_in_and_unknown_keys_pass_unless_refused() {
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
    fn all_violations_are_told_each_with_its_place() {
        let error = check(Some(&schema()), json!({"count": "x", "deep": []})).unwrap_err();
        let ParameterError::Violations(mut violations) = error else {
            panic!("{error}");
        };
        violations.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        let pointers: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(pointers, ["", "/count", "/deep"]);
    }

    #[test]
    fn what_is_no_object_and_what_is_no_schema_is_refused() {
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
    fn a_message_does_not_repeat_a_value_of_megabytes() {
        let huge = json!({"name": ["x".repeat(1 << 20)]});
        let error = check(Some(&schema()), huge).unwrap_err().to_string();
        assert!(error.len() < 1000);
    }
}
