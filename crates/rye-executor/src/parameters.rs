//! Parameters: checked against the tool's schema before anything runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rye_items::metadata::Metadata;
use rye_schema::Schema;
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

/// How many schemas are kept; when there are more, all go.
const MOST: usize = 1000;

/// Schemas, each compiled once.
#[derive(Debug, Default)]
pub struct Schemas(Mutex<HashMap<usize, Compiled>>);

/// A schema's metadata, which is held so that its address stays its own, and
/// what the schema compiles to.
type Compiled = (Arc<Metadata>, Arc<Schema>);

impl Schemas {
    /// Checks parameters, and gives them back with the schema's defaults.
    pub fn check(&self, tool: &Arc<Metadata>, parameters: Value) -> Result<Value, ParameterError> {
        let Value::Object(mut parameters) = parameters else {
            return Err(ParameterError::NotAnObject(kind(&parameters)));
        };
        if let Some(schema) = tool.config_schema() {
            fill_in(schema, &mut parameters);
        }
        self.fits(tool, parameters).map(Value::Object)
    }

    /// Gives an object back as it is, if it fits the schema of an item.
    pub fn fits(
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
        fits(&*self.compiled(item, schema)?, object)
    }

    fn compiled(
        &self,
        item: &Arc<Metadata>,
        schema: &Value,
    ) -> Result<Arc<Schema>, ParameterError> {
        let address = Arc::as_ptr(item).addr();
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, schema)) = kept().get(&address) {
            return Ok(Arc::clone(schema));
        }
        let schema = Arc::new(compile(schema)?);
        let mut kept = kept();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(address, (Arc::clone(item), Arc::clone(&schema)));
        Ok(schema)
    }
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
    fits(&compile(schema)?, Value::Object(parameters)).map(Value::Object)
}

fn compile(schema: &Value) -> Result<Schema, ParameterError> {
    Schema::new(schema).map_err(|e| ParameterError::Schema(e.to_string()))
}

fn fits(schema: &Schema, object: Value) -> Result<Map<String, Value>, ParameterError> {
    let violations = schema.violations(&object).into_iter();
    let violations: Vec<_> = violations
        .map(|violation| Violation {
            pointer: violation.pointer,
            message: brief(&violation.message),
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
        other => Err(ParameterError::NotAnObject(kind(&other))),
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
