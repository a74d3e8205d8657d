use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::*;

fn canonical(text: &str) -> String {
    let bytes = canonicalize(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
    String::from_utf8(bytes).unwrap()
}

fn error(text: impl AsRef<[u8]>) -> String {
    canonicalize(text.as_ref()).unwrap_err().to_string()
}

#[test]
fn each_value_has_one_text() {
    for (loose, expected) in [
        (" { } ", "{}"),
        ("\t[\n]\r\n", "[]"),
        ("[ null , true , false ]", "[null,true,false]"),
        (
            r#"{"b":1,"a":{"d":[],"c":{}}}"#,
            r#"{"a":{"c":{},"d":[]},"b":1}"#,
        ),
        (
            r#"{"a":1,"":2,"A":3,"aa":4}"#,
            r#"{"":2,"A":3,"a":1,"aa":4}"#,
        ),
        // U+FF5E sorts before U+1F600, whose UTF-16 form starts with D83D.
        (r#"{"😀":1,"～":2}"#, r#"{"\uff5e":2,"\ud83d\ude00":1}"#),
        (r#""\u0041\/\u00e9é""#, r#""A/\u00e9\u00e9""#),
        (r#""\u0008\u000c\n\r\t\"\\""#, r#""\b\f\n\r\t\"\\""#),
        ("\"\u{7f}~\u{80}\u{2028}\"", r#""\u007f~\u0080\u2028""#),
        (r#""\u0000\u001F""#, r#""\u0000\u001f""#),
        (r#""\uD83D\uDE00""#, r#""\ud83d\ude00""#),
    ] {
        assert_eq!(canonical(loose), expected, "from {loose}");
    }
}

#[test]
fn integers_keep_their_digits_and_floats_match_python() {
    let many_digits = "9".repeat(400);
    for (loose, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("-1", "-1"),
        ("18446744073709551616", "18446744073709551616"),
        (
            "-170141183460469231731687303715884105729",
            "-170141183460469231731687303715884105729",
        ),
        (&many_digits, &many_digits),
        ("1.0", "1.0"),
        ("1E2", "100.0"),
        ("-0.0", "-0.0"),
        ("-0e5", "-0.0"),
        ("1e15", "1000000000000000.0"),
        ("1e16", "1e+16"),
        ("1234567890123456.7", "1234567890123456.8"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1.25e-7", "1.25e-07"),
        ("1e100", "1e+100"),
        ("5e-324", "5e-324"),
        ("1e-400", "0.0"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("2e23", "2e+23"),
        // Exactly between ….2 and ….3: the even one.
        ("910240335470788.25", "910240335470788.2"),
        ("910240335470788.75", "910240335470788.8"),
    ] {
        assert_eq!(canonical(loose), expected, "from {loose}");
    }
}

#[test]
fn errors_name_the_cause_and_the_location() {
    for (text, message) in [
        ("", "not JSON: EOF while parsing a value at line 1 column 0"),
        (
            "{\n  \"a\": 1.x\n}",
            "not JSON: invalid number at line 2 column 10",
        ),
        ("[1,]", "not JSON: expected value at line 1 column 4"),
        ("{} x", "not JSON: trailing characters at line 1 column 4"),
        ("[01]", "not JSON: invalid number at line 1 column 3"),
        ("NaN", "not JSON: expected value at line 1 column 1"),
        ("\u{feff}{}", "not JSON: expected value at line 1 column 1"),
        (
            "[\"\t\"]",
            "not JSON: control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2",
        ),
        (
            r#"{"a":1,"b":2,"a":3}"#,
            r#"duplicate key "a" at the top level"#,
        ),
        (
            r#"{"x":[0,{"a/b~":{"k":1,"\u006b":2}}]}"#,
            r#"duplicate key "k" at /x/1/a~1b~0"#,
        ),
        (r#"["\ud800"]"#, "lone surrogate in a string at /0"),
        (
            r#"["ok","\udc00 tail"]"#,
            "lone surrogate in a string at /1",
        ),
        (r#"["\ud800\u0041"]"#, "lone surrogate in a string at /0"),
        (r#"{"a":{"\ud800":1}}"#, "lone surrogate in a string at /a"),
        (
            r#"{"a":[1e309]}"#,
            "number too large for a 64-bit float at /a/0",
        ),
        (
            "-1e400",
            "number too large for a 64-bit float at the top level",
        ),
    ] {
        assert_eq!(error(text), message, "for {text}");
    }
    assert_eq!(error(b"[\n \"a\xff\"]"), "not UTF-8 at line 2 column 4");
}

#[test]
fn nesting_limit_matches_serde_json() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(canonical(&nested(MAX_DEPTH)), nested(MAX_DEPTH));
    assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH)).is_ok());
    assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH + 1)).is_err());
    let reason = |depth| match canonicalize(nested(depth).as_bytes()) {
        Err(CanonicalError::Invalid { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(MAX_DEPTH + 1), Reason::TooDeep);
    // Far beyond any stack.
    assert_eq!(reason(1_000_000), Reason::TooDeep);
}

#[test]
fn values_and_json_text_give_the_same_result() {
    #[derive(Serialize)]
    struct Sample {
        z: u128,
        a: Option<&'static str>,
        half: f32,
    }
    let sample = Sample {
        z: u128::MAX,
        a: None,
        half: 0.5,
    };
    assert_eq!(
        String::from_utf8(to_vec(&sample).unwrap()).unwrap(),
        r#"{"a":null,"half":0.5,"z":340282366920938463463374607431768211455}"#
    );
    let unfit = std::collections::HashMap::from([((1, 2), 3)]);
    assert_eq!(
        to_vec(&unfit).unwrap_err().to_string(),
        "cannot serialise as JSON: key must be a string"
    );
}

#[test]
fn strings_iterates_over_values_and_keys() {
    let text = canonical(r#"{"k":["a\"b", "\\", "", 1, {"é":"x"}]}"#);
    let found: Vec<_> = strings(text.as_bytes())
        .map(|s| std::str::from_utf8(s).unwrap())
        .collect();
    assert_eq!(found, ["k", r#"a\"b"#, r"\\", "", r"\u00e9", "x"]);
}

/// Any JSON value whose numbers are integers. Floats have their own properties, because
/// `serde_json` does not parse every float exactly.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

fn any_finite() -> impl Strategy<Value = f64> {
    any::<u64>()
        .prop_map(f64::from_bits)
        .prop_filter("finite", |f| f.is_finite())
}

proptest! {
    #[test]
    fn canonical_text_is_ascii_and_round_trips(value in any_value()) {
        let first = to_vec(&value).unwrap();
        prop_assert!(first.iter().all(|b| matches!(b, b' '..=b'~')));
        prop_assert_eq!(&serde_json::from_slice::<Value>(&first).unwrap(), &value);
        prop_assert_eq!(canonicalize(&first).unwrap(), first);
    }

    #[test]
    fn member_order_does_not_matter(
        members in prop::collection::btree_map(any::<String>(), any::<i64>(), 0..20)
            .prop_map(Vec::from_iter).prop_shuffle()
    ) {
        let shuffled = Value::Object(members.iter().cloned().map(|(k, v)| (k, json!(v))).collect());
        let text = to_vec(&shuffled).unwrap();
        let read: Map<String, Value> = serde_json::from_slice(&text).unwrap();
        prop_assert!(read.keys().is_sorted_by(|a, b| a.chars().lt(b.chars())));
        prop_assert_eq!(read.len(), members.len());
    }

    #[test]
    fn floats_round_trip_exactly_in_any_spelling(float in any_finite()) {
        for spelled in [format!("{float:e}"), format!("{float:E}"), format!("{float:?}")] {
            let text = canonical(&format!("[{spelled}]"));
            // `{:e}` of a whole number has no point, but its exponent makes it a float.
            let back: f64 = text[1..text.len() - 1].parse().unwrap();
            prop_assert_eq!(back.to_bits(), float.to_bits(), "{} as {}", spelled, text);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(text in any::<Vec<u8>>()) {
        if let Ok(first) = canonicalize(&text) {
            prop_assert_eq!(canonicalize(&first).unwrap(), first);
        }
    }
}

#[test]
fn python_writes_the_same_bytes() {
    const SCRIPT: &str = "import json, sys\n\
        for line in sys.stdin.buffer:\n    \
            v = json.loads(line)\n    \
            print(json.dumps(v, sort_keys=True, separators=(',', ':')))\n";
    let texts = python_cases();
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (python.stdin.take().unwrap(), python.stdout.take().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for text in &texts {
                writeln!(stdin, "{text}").unwrap();
            }
            drop(stdin);
        });
        let mut answers = BufReader::new(stdout).lines();
        for text in &texts {
            assert_eq!(
                canonical(text),
                answers.next().unwrap().unwrap(),
                "from {text}"
            );
        }
    });
    assert!(python.wait().unwrap().success());
}

/// One-line JSON texts: values, floats of any bit pattern in several spellings, floats near the
/// limits where the spelling changes, integers.
fn python_cases() -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let mut draw = |strategy: &dyn Fn() -> BoxedStrategy<String>, count: usize| -> Vec<String> {
        let strategy = strategy();
        (0..count)
            .map(|_| strategy.new_tree(&mut runner).unwrap().current())
            .collect()
    };
    let mut texts = draw(&|| any_value().prop_map(|v| v.to_string()).boxed(), 1500);
    texts.extend(draw(
        &|| any_finite().prop_map(|f| format!("[{f:e},{f:?}]")).boxed(),
        3000,
    ));
    texts.extend(draw(
        &|| {
            (-30..30_i32, 0..10_u64.pow(17))
                .prop_map(|(e, m)| format!("{m}e{e}"))
                .boxed()
        },
        2000,
    ));
    // Floats that lie exactly between two of their shortest spellings, and powers of two.
    texts.extend(draw(
        &|| {
            (5e14..2e16, 1..6)
                .prop_map(|(m, e): (f64, _)| format!("{:?}", m.floor() / f64::from(1 << e)))
                .boxed()
        },
        2000,
    ));
    texts.extend((-1074..1024).map(|e| format!("{:e}", 2_f64.powi(e))));
    texts.extend(draw(&|| r"-?[1-9][0-9]{0,80}".boxed(), 300));
    texts.extend(draw(
        &|| r"-?[1-9][0-9]{0,20}\.[0-9]{1,20}([eE][+-]?[0-9]{1,2})?".boxed(),
        1000,
    ));
    texts
}
