//! JSON Schema validation errors as text.

use rye_schema::Schema;
use serde_json::Value;

/// All violations of a value, joined by `; `; `None` if it is valid.
pub fn validation_error(schema: &Schema, value: &Value) -> Option<String> {
    let violations = schema.violations(value);
    let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
    (!violations.is_empty()).then(|| violations.join("; "))
}
