//! Structured results: what a prompt wants as JSON, how a model is told, and whether what it
//! said fits.

use rye_schema::Schema;
use serde_json::Value;

use crate::schema;

/// Where a prompt keeps the schema of what it wants.
pub(crate) const SCHEMA: &str = "result_schema";
/// Where an answer keeps the result that was found in it.
pub const RESULT: &str = "result";
/// Where a message says that nobody asked it: it says what was wrong with a result.
pub(crate) const RETRY: &str = "result_retry";

const START: &str = "---RESULT_START---";
const END: &str = "---RESULT_END---";

/// What a model is told.
pub(crate) fn instruction(schema: &Value) -> String {
    format!(
        "When you are done, end your last answer with a result: one JSON value that fits the \
         schema below, between the lines {START} and {END}, and nothing else between them.\n\n\
         {START}\n(the JSON value)\n{END}\n\nThe schema:\n{schema}"
    )
}

/// The result of an answer; or in words what is wrong with it.
pub(crate) fn find(answer: &str, schema: &Value) -> Result<Value, String> {
    let Some((_, rest)) = answer.rsplit_once(START) else {
        return Err(format!("there is no line {START}"));
    };
    let Some((text, _)) = rest.split_once(END) else {
        return Err(format!("there is no line {END} after {START}"));
    };
    let value: Value = serde_json::from_str(without_fence(text))
        .map_err(|error| format!("what stands between the lines is no JSON: {error}"))?;
    let schema = Schema::new(schema).map_err(|e| format!("the schema is no schema: {e}"))?;
    match schema::validation_error(&schema, &value) {
        Some(wrong) => Err(format!("it does not fit the schema: {wrong}")),
        None => Ok(value),
    }
}

/// In words why a schema is none, if it is none.
pub fn schema_error(schema: &Value) -> Option<String> {
    Schema::new(schema).err().map(|error| error.to_string())
}

/// Models like to fence JSON in.
fn without_fence(text: &str) -> &str {
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
    fn a_result_is_found_or_what_is_wrong_is_told() {
        let schema = json!({ "type": "object", "required": ["n"],
            "properties": { "n": { "type": "integer" } } });
        let found = |text: &str| find(text, &schema);
        let good = Ok(json!({ "n": 1 }));
        let around = |text: &str| format!("So:\n{START}\n{text}\n{END}\n");
        assert_eq!(found(&around(r#"{"n":1}"#)), good);
        assert_eq!(found(&around("```json\n{\"n\":1}\n```")), good);
        // The last one counts.
        let twice = around(r#"{"n":2}"#) + &around(r#"{"n":1}"#);
        assert_eq!(found(&twice), good);
        for (text, wrong) in [
            ("So.".to_owned(), "there is no line ---RESULT_START---"),
            (format!("{START} {{}}"), "there is no line ---RESULT_END---"),
            (around("n = 1"), "no JSON: expected ident"),
            (around("{}"), "\"n\" is a required property"),
            (around(r#"{"n":"x"}"#), "/n: \"x\" is not of type"),
        ] {
            let why = found(&text).unwrap_err();
            assert!(why.contains(wrong), "{why}");
        }
    }
}
