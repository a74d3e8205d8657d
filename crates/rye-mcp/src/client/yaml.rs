//! Items as they are written: YAML that people read and correct.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The text of an item with these fields, in their order.
pub fn item_yaml(fields: &Map<String, Value>) -> String {
    let mut text = String::new();
    mapping(&mut text, fields, 0);
    text
}

fn mapping(text: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (key, value) in fields {
        indent(text, depth);
        text.push_str(&scalar(key));
        text.push(':');
        below(text, value, depth);
    }
}

/// A value after its key or its dash.
fn below(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            mapping(text, fields, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                indent(text, depth + 1);
                text.push('-');
                below(text, item, depth + 1);
            }
        }
        Value::String(word) => {
            let _ = writeln!(text, " {}", scalar(word));
        }
        // Numbers, truth values, null and what is empty are the same in both.
        other => {
            let _ = writeln!(text, " {other}");
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

/// A word as it is where it cannot be taken for anything else, else in quotes.
fn scalar(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c);
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let lower = word.to_ascii_lowercase();
    let is_taken = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if begins && word.chars().all(plain) && !is_taken.contains(&lower.as_str()) {
        return word.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // What YAML does not let stand, or what nobody would see.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
            c if ('\u{202a}'..='\u{202e}').contains(&c)
                || ('\u{fdd0}'..='\u{fdef}').contains(&c) =>
            {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
            c if u32::from(c) & 0xfffe == 0xfffe => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn an_item_is_written_as_a_person_would() {
        let fields = json!({
            "version": "1.0.0",
            "config": {"command": "npx", "args": ["-y", {"vault": "A"}, []], "env": {}},
            "answer": 42, "is": "true",
        });
        let text = item_yaml(fields.as_object().unwrap());
        let expected = "version: \"1.0.0\"\nconfig:\n  command: npx\n  args:\n    - \"-y\"\n    -\n      vault: A\n    - []\n  env: {}\nanswer: 42\nis: \"true\"\n";
        assert_eq!(text, expected);
        assert_eq!(read(&text), fields);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z0-9 :#'\"{}\\[\\]&*!|>%@`,?-]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map("[ -~]{1,8}", inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_as_it_was(value in any_value()) {
            let mut fields = Map::new();
            fields.insert("value".into(), value);
            let text = item_yaml(&fields);
            prop_assert_eq!(read(&text), Value::Object(fields), "{}", text);
        }
    }
}
