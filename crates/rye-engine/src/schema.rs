//! What does not fit a JSON Schema, in words.

use rye_schema::Schema;
use serde_json::Value;

/// All that is wrong with a value; nothing where it fits.
pub(crate) fn wrong(schema: &Schema, value: &Value) -> Option<String> {
    let wrong = schema.violations(value);
    let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}
