//! JSON with comments and trailing commas (JSONC). No I/O.

/// Removes comments and trailing commas and keeps line numbers. Other syntax errors remain.
pub(super) fn to_json(text: &str) -> String {
    let mut out: Vec<char> = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    // Position of the last comma if only whitespace and comments follow it.
    let mut comma = None;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('/', Some('/')) => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
            }
            ('/', Some('*')) => {
                chars.next();
                let mut before = ' ';
                for inner in chars.by_ref() {
                    if inner == '\n' {
                        out.push(inner);
                    }
                    if (before, inner) == ('*', '/') {
                        break;
                    }
                    before = inner;
                }
                out.push(' ');
            }
            ('"', _) => {
                comma = None;
                out.push(c);
                let mut escaped = false;
                for inner in chars.by_ref() {
                    out.push(inner);
                    match inner {
                        _ if escaped => escaped = false,
                        '\\' => escaped = true,
                        '"' => break,
                        _ => {}
                    }
                }
            }
            (',', _) => {
                comma = Some(out.len());
                out.push(c);
            }
            (']' | '}', _) => {
                if let Some(at) = comma.take() {
                    out[at] = ' ';
                }
                out.push(c);
            }
            (c, _) => {
                if !c.is_whitespace() {
                    comma = None;
                }
                out.push(c);
            }
        }
    }
    out.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_removed_outside_strings() {
        for (text, expected) in [
            ("[1, 2,]", json!([1, 2])),
            ("[1, // one\n 2, /* two, */ ]", json!([1, 2])),
            (
                r#"{"a": "// no, }", "b\\": 1,}"#,
                json!({"a": "// no, }", "b\\": 1}),
            ),
            ("\u{feff}{}".trim_start_matches('\u{feff}'), json!({})),
        ] {
            let value: Value = serde_json::from_str(&to_json(text)).unwrap();
            assert_eq!(value, expected, "{text}");
        }
        for invalid in ["[,]]", "{\"a\": /* for ever", "[1,,2]", "\"open"] {
            assert!(
                serde_json::from_str::<Value>(&to_json(invalid)).is_err(),
                "{invalid}"
            );
        }
    }
}
