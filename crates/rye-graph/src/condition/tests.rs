use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<Condition, Vec<Problem>> {
    let node = rye_items::metadata::parse_yaml(text.as_bytes()).unwrap();
    let mut problems = Vec::new();
    Condition::parse(&node, None, &mut problems).ok_or(problems)
}

#[test]
fn operators_compare_values() {
    let state =
        json!({"n": 5, "s": "hello", "out": "120\n", "l": [1, "a"], "o": {"k": 1}, "z": null});
    let inputs = json!({"limit": 4});
    for (text, expected) in [
        ("{path: state.n, op: eq, value: 5.0}", true),
        ("{path: state.n, op: ne, value: 5}", false),
        ("{path: state.n, op: gt, value: 4}", true),
        ("{path: state.n, op: gt, value: '${inputs.limit}'}", true),
        ("{path: state.n, op: gte, value: 5}", true),
        ("{path: state.n, op: lt, value: 5}", false),
        ("{path: state.n, op: lte, value: 5}", true),
        ("{path: state.out, op: gt, value: 100}", true),
        ("{path: state.s, op: lt, value: world}", true),
        ("{path: state.o, op: gt, value: 1}", false),
        ("{path: state.n, op: in, value: [4, 5]}", true),
        ("{path: state.n, op: not_in, value: [4, 5]}", false),
        ("{path: state.l, op: contains, value: a}", true),
        ("{path: state.o, op: contains, value: k}", true),
        ("{path: state.s, op: contains, value: ell}", true),
        ("{path: state.s, op: starts_with, value: he}", true),
        ("{path: state.s, op: ends_with, value: he}", false),
        ("{path: state.s, op: matches, value: '^h.*o$'}", true),
        ("{path: state.s, op: exists}", true),
        ("{path: state.z, op: exists}", false),
        ("{path: state.none.deep, op: exists, value: false}", true),
        (
            "{all: [{path: state.n, op: exists}, {path: state.q, op: exists}]}",
            false,
        ),
        (
            "{any: [{path: state.n, op: exists}, {path: state.q, op: exists}]}",
            true,
        ),
        ("{not: {path: state.n, op: eq, value: 1}}", true),
        ("{all: []}", true),
    ] {
        let condition = parse(text).unwrap();
        let scope = Scope::new(state.as_object().unwrap(), &inputs);
        assert_eq!(condition.holds(&scope), expected, "{text}");
    }
}

#[test]
fn invalid_conditions_are_reported_with_hints() {
    for (text, code, hint_part) in [
        (
            "{path: state.n, op: gtt, value: 1}",
            "unknown_operator",
            "did you mean `gt`?",
        ),
        ("{path: state.n, op: gt}", "bad_condition", "example"),
        (
            "{path: stat.n, op: exists}",
            "bad_path",
            "did you mean `state`?",
        ),
        (
            "{pth: state.n, op: exists}",
            "unknown_key",
            "did you mean `path`?",
        ),
        ("{path: state.n, op: in, value: 3}", "wrong_type", ""),
        (
            "{path: state.n, op: matches, value: '('}",
            "bad_pattern",
            "",
        ),
        ("{all: 3}", "wrong_type", ""),
        (
            "{not: {path: state.n, op: exists}, op: eq}",
            "bad_condition",
            "",
        ),
        ("text", "wrong_type", "example"),
    ] {
        let problems = parse(text).unwrap_err();
        assert_eq!(problems[0].code, code, "{text}: {problems:?}");
        let hint = problems[0].hint.clone().unwrap_or_default();
        assert!(hint.contains(hint_part), "{text}: {hint}");
    }
}
