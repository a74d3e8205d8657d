//! JSON as editors keep it, with comments and a comma too many. No I/O.

/// The same text as plain JSON, line for line: what is no JSON has become spaces. A text
/// that is wrong in another way stays wrong.
pub(super) fn plain(text: &str) -> String {
    let mut out: Vec<char> = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    // Where a comma is that nothing has followed yet.
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
    fn comments_and_last_commas_go_and_texts_stay() {
        for (text, expected) in [
            ("[1, 2,]", json!([1, 2])),
            ("[1, // one\n 2, /* two, */ ]", json!([1, 2])),
            (
                r#"{"a": "// no, }", "b\\": 1,}"#,
                json!({"a": "// no, }", "b\\": 1}),
            ),
            ("\u{feff}{}".trim_start_matches('\u{feff}'), json!({})),
        ] {
            let value: Value = serde_json::from_str(&plain(text)).unwrap();
            assert_eq!(value, expected, "{text}");
        }
        for wrong in ["[,]]", "{\"a\": /* for ever", "[1,,2]", "\"open"] {
            assert!(
                serde_json::from_str::<Value>(&plain(wrong)).is_err(),
                "{wrong}"
            );
        }
    }
}
