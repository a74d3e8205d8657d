//! Compares our evaluation of literals with that of the real interpreters.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::ItemKind;
use crate::metadata::{Extractors, extract};

const LITERALS: u32 = 3000;

/// An extractor table in which any value may be a field.
fn anything() -> Extractors {
    let table = b"
extensions:
  .py: {parser: python, comment: '#', kinds: [tool]}
  .js: {parser: javascript, comment: //, kinds: [tool]}
  .ts: {parser: typescript, comment: //, kinds: [tool]}
fields:
  python: &x {sandbox: [X]}
  javascript: *x
  typescript: *x
";
    Extractors::from_yaml(table).unwrap()
}

fn generated(strategy: &impl Strategy<Value = String>) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let literal = |_| strategy.new_tree(&mut runner).unwrap().current();
    (0..LITERALS).map(literal).collect()
}

/// Evaluates all literals with one interpreter process; null for a literal that it rejects.
fn evaluate(program: &str, script: &str, literals: &[String]) -> Vec<Value> {
    let mut child = Command::new(program)
        .args([if program == "node" { "-e" } else { "-c" }, script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let input = serde_json::to_vec(literals).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Replaces numbers by their exact bits.
fn exact(value: &Value, doubles: bool) -> Value {
    match value {
        Value::Number(number) if doubles || number.is_f64() => {
            // JSON has no negative zero.
            let number = number.as_f64().unwrap() + 0.0;
            json!({"f": number.to_bits().to_string()})
        }
        Value::Number(number) => json!({"i": number.to_string()}),
        Value::Array(items) => items.iter().map(|item| exact(item, doubles)).collect(),
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            if doubles {
                // JavaScript orders numeric keys differently.
                entries.sort_by_key(|(key, _)| *key);
            }
            let entries = entries.into_iter();
            let pairs = entries.map(|(key, value)| json!([key, exact(value, doubles)]));
            json!({"o": pairs.collect::<Value>()})
        }
        other => other.clone(),
    }
}

/// Compares our results with the interpreter's. Returns how many literals both accept.
fn compare(extension: &str, before: &str, literals: &[String], theirs: &[Value]) -> usize {
    let extractors = anything();
    let mut read = 0;
    for (literal, theirs) in literals.iter().zip(theirs) {
        let text = format!("{before}{literal}\n");
        let ours = extract(text.as_bytes(), extension, ItemKind::Tool, &extractors);
        let ours = match ours {
            Ok(metadata) => {
                let field = metadata.get("sandbox");
                json!({"v": exact(&field.unwrap().value, extension != ".py")})
            }
            Err(error) if error.is_unsupported => continue,
            Err(error) => {
                assert_eq!(theirs, &Value::Null, "refused: {error}\n{text}");
                continue;
            }
        };
        assert_eq!(&ours, theirs, "{text}");
        read += 1;
    }
    read
}

fn nested(
    leaf: BoxedStrategy<String>,
    pair: BoxedStrategy<String>,
    tuples: bool,
) -> BoxedStrategy<String> {
    let space = prop::sample::select(vec!["", " ", "\n  ", " "]);
    let end = prop::sample::select(vec!["", ",", " "]);
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let items = prop::collection::vec(inner.clone(), 1..5);
        let pairs = prop::collection::vec((pair.clone(), inner.clone()), 1..5);
        let list = (items.clone(), space.clone(), end.clone()).prop_map(|(items, space, end)| {
            format!("[{space}{}{end}]", items.join(&format!(",{space}")))
        });
        let map = (pairs, space.clone(), end.clone()).prop_map(|(pairs, space, end)| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(k, v)| format!("{k}:{space}{v}"))
                .collect();
            format!("{{{space}{}{end}}}", pairs.join(", "))
        });
        let group = items.prop_map(move |items| match (&items[..], tuples) {
            ([one], _) => format!("({one})"),
            (items, true) => format!("({})", items.join(",")),
            (items, false) => format!("[{}]", items.join(",")),
        });
        prop_oneof![list, map, group]
    })
    .boxed()
}

/// The content of a string: characters, valid and invalid escapes.
fn content() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        6 => "[a-zA-Z0-9 äß€😀{}$#]{1,4}",
        3 => prop::sample::select(vec![
            r"\n", r"\t", r"\\", r"\'", r#"\""#, r"\a", r"\b", r"\f", r"\r", r"\v", r"\x41", r"\xe4", r"\u00e4", r"\u2028",
            r"\ud83d\ude00", r"\d", r"\q", r"\0", r"\`", "\\\n", r"\$",
        ]).prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            r"\x4", r"\u12", r"\ud83d", r"\777", r"\12", r"\08", r"\U0001F600", r"\U00110000", r"\u{1F600}", r"\u{0000000041}",
            r"\u{110000}", r"\N{BULLET}", r"\u{}",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4)
        .prop_map(|pieces| pieces.concat())
        .boxed()
}

#[test]
fn python_evaluates_literals_the_same_way() {
    let quote = prop::sample::select(vec!["'", "\"", "'''", "\"\"\""]);
    let prefix = prop::sample::select(vec!["", "", "", "r", "R", "u", "b", "f", "Rb"]);
    let one = (prefix, quote, content())
        .prop_map(|(prefix, quote, content)| format!("{prefix}{quote}{content}{quote}"))
        .boxed();
    let string = prop_oneof![4 => one.clone(), 1 => (one.clone(), one).prop_map(|(a, b)| format!("{a} {b}"))].boxed();
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        "[+-]?(0x_?[0-9a-fA-F]{1,16}|0[oO][0-7]{1,8}|0b[01]{1,8}|[0-9]{1,3}(_[0-9]{1,3}){0,2})",
        "[+-]?[0-9]{1,20}\\.?[0-9]{0,20}([eE][+-]?[0-9]{1,3})?",
        "\\.[0-9]{1,5}[jJ]?",
    ];
    let word = prop::sample::select(vec![
        "None", "True", "False", "...", "x", "-True", "1 + 2", "--1", "{1, 2}", "()", "{}", "[]",
    ]);
    let leaf =
        prop_oneof![3 => string.clone(), 3 => number, 2 => word.prop_map(str::to_owned)].boxed();
    let key = prop_oneof![8 => "'[a-z]{1,5}'", 2 => string, 1 => Just("1".to_owned())].boxed();
    let literals = generated(&nested(leaf, key, true));
    let theirs = evaluate("python3", include_str!("oracle.py"), &literals);
    let read = compare(".py", "X = ", &literals, &theirs);
    assert!(read > 500, "only {read} of {LITERALS} were literals");
}

#[test]
fn node_evaluates_literals_the_same_way() {
    let quote = prop::sample::select(vec!["'", "\"", "`"]);
    let string = (quote, content())
        .prop_map(|(quote, content)| format!("{quote}{content}{quote}"))
        .boxed();
    let number = prop_oneof![
        any::<i32>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        "[+-]?(0[xX][0-9a-fA-F]{1,16}|0[oO][0-7]{1,8}|0b[01]{1,8}|[0-9]{1,3}(_[0-9]{1,3}){0,2})n?",
        "[+-]?[0-9]{1,20}\\.?[0-9]{0,20}([eE][+-]?[0-9]{1,3})?",
        "\\.[0-9]{1,5}",
    ];
    let word = prop::sample::select(vec![
        "null",
        "true",
        "false",
        "undefined",
        "NaN",
        "f()",
        "{}",
        "[]",
        "[,]",
        "/x/",
    ]);
    let leaf =
        prop_oneof![3 => string.clone(), 3 => number, 2 => word.prop_map(str::to_owned)].boxed();
    let key = prop_oneof![4 => "[a-z$_][a-zA-Z0-9]{0,5}", 4 => "'[a-z]{1,5}'", 2 => string, 1 => Just("1".to_owned())].boxed();
    let literals = generated(&nested(leaf, key, false));
    let theirs = evaluate("node", include_str!("oracle.js"), &literals);
    for extension in [".js", ".ts"] {
        let read = compare(extension, "export const X = ", &literals, &theirs);
        assert!(read > 500, "only {read} of {LITERALS} were literals");
    }
}
