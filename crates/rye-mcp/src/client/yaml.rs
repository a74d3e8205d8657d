//! Writes items as block-style YAML that people can edit.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Formats the fields of an item in their order.
pub fn item_yaml(fields: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_mapping(&mut text, fields, 0);
    text
}

fn write_mapping(text: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (key, value) in fields {
        indent(text, depth);
        text.push_str(&format_string(key));
        text.push(':');
        write_value(text, value, depth);
    }
}

/// Writes a value after its key or dash.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            write_mapping(text, fields, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                indent(text, depth + 1);
                text.push('-');
                write_value(text, item, depth + 1);
            }
        }
        Value::String(string) => {
            let _ = writeln!(text, " {}", format_string(string));
        }
        // Numbers, booleans, null and empty collections are the same in JSON and YAML.
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

/// Formats a string, quoted unless it is unambiguous.
fn format_string(string: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c);
    let starts_plain = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let lower = string.to_ascii_lowercase();
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if starts_plain && string.chars().all(is_plain) && !reserved.contains(&lower.as_str()) {
        return string.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in string.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Characters that YAML does not allow or that are invisible.
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

    fn parse(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn item_is_formatted_in_block_style() {
        let fields = json!({
            "version": "1.0.0",
            "config": {"command": "npx", "args": ["-y", {"vault": "A"}, []], "env": {}},
            "answer": 42, "is": "true",
        });
        let text = item_yaml(fields.as_object().unwrap());
        let expected = "version: \"1.0.0\"\nconfig:\n  command: npx\n  args:\n    - \"-y\"\n    -\n      vault: A\n    - []\n  env: {}\nanswer: 42\nis: \"true\"\n";
        assert_eq!(text, expected);
        assert_eq!(parse(&text), fields);
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
        fn yaml_round_trips(value in any_value()) {
            let mut fields = Map::new();
            fields.insert("value".into(), value);
            let text = item_yaml(&fields);
            prop_assert_eq!(parse(&text), Value::Object(fields), "{}", text);
        }
    }
}
