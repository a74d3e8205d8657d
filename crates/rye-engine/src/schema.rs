//! What does not fit a JSON Schema, in words.

use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// All that is wrong with a value; nothing where it fits.
pub(crate) fn wrong(validator: &Validator, value: &Value) -> Option<String> {
    let wrong: Vec<_> = validator.iter_errors(value).map(describe).collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

#[expect(clippy::needless_pass_by_value, reason = "as the iterator gives it")]
fn describe(error: ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => error.to_string(),
        at => format!("{at}: {error}"),
    }
}
