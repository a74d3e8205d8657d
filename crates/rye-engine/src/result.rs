//! Structured results: asks a model for JSON that matches a schema, and extracts it.

use rye_protocol::{Schema, json};
use serde_json::Value;

const START: &str = "---RESULT_START---";
const END: &str = "---RESULT_END---";

/// The instruction for the system prompt.
pub(crate) fn instruction(schema: &Value) -> String {
    format!(
        "When you are done, end your last answer with a result: one JSON value that matches the \
         schema below, between the lines {START} and {END}, and nothing else between them.\n\n\
         {START}\n(the JSON value)\n{END}\n\nThe schema:\n{schema}"
    )
}

/// Extracts the result of an answer; the error says what is wrong.
pub(crate) fn extract(answer: &str, schema: &Value) -> Result<Value, String> {
    let Some((_, rest)) = answer.rsplit_once(START) else {
        return Err(format!("missing line {START}"));
    };
    let Some((text, _)) = rest.split_once(END) else {
        return Err(format!("missing line {END} after {START}"));
    };
    let value = json::parse(strip_fence(text))
        .map_err(|error| format!("invalid text between the lines: {error}"))?;
    let schema = Schema::new(schema).map_err(|e| format!("invalid schema: {e}"))?;
    match schema.error(&value) {
        Some(error) => Err(format!("the result does not match the schema: {error}")),
        None => Ok(value),
    }
}

/// Why a JSON Schema is invalid; `None` if it is valid.
pub fn schema_error(schema: &Value) -> Option<String> {
    Schema::new(schema).err().map(|error| error.to_string())
}

/// Removes a Markdown code fence around JSON.
fn strip_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inside) = text.strip_prefix("```") else {
        return text;
    };
    let inside = inside.strip_suffix("```").unwrap_or(inside);
    inside
        .split_once('\n')
        .map_or(inside, |(_, rest)| rest)
        .trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn result_is_extracted_or_the_problem_is_reported() {
        let schema = json!({ "type": "object", "required": ["n"],
            "properties": { "n": { "type": "integer" } } });
        let extract_from = |text: &str| extract(text, &schema);
        let valid = Ok(json!({ "n": 1 }));
        let wrap = |text: &str| format!("So:\n{START}\n{text}\n{END}\n");
        assert_eq!(extract_from(&wrap(r#"{"n":1}"#)), valid);
        assert_eq!(extract_from(&wrap("```json\n{\"n\":1}\n```")), valid);
        // The last result counts.
        let twice = wrap(r#"{"n":2}"#) + &wrap(r#"{"n":1}"#);
        assert_eq!(extract_from(&twice), valid);
        for (text, expected) in [
            ("So.".to_owned(), "missing line ---RESULT_START---"),
            (format!("{START} {{}}"), "missing line ---RESULT_END---"),
            (wrap("n = 1"), "between the lines: expected ident"),
            (wrap("{}"), "\"n\" is a required property"),
            (wrap(r#"{"n":"x"}"#), "/n: \"x\" is not of type"),
        ] {
            let error = extract_from(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
