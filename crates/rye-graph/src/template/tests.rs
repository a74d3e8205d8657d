use proptest::prelude::*;
use serde_json::json;

use super::*;

fn filled(text: &str) -> (Value, Vec<String>) {
    let node = rye_items::metadata::parse_yaml(json!(text).to_string().as_bytes()).unwrap();
    let mut problems = Vec::new();
    let template = Template::read(&node, Some("item"), &mut problems);
    assert_eq!(problems, [], "{text}");
    let state = json!({"files": 3, "deep": {"list": [{"b": true}]}, "empty": null, "name": "Ada"});
    let (inputs, result, item) = (json!({"x": [1, 2]}), json!({"y": 1.5}), json!("part"));
    let scope = Scope::new(state.as_object().unwrap(), &inputs);
    let scope = scope.result(&result).variable("item", &item);
    let value = template.fill(&scope);
    (value, scope.missing.into_inner())
}

#[test]
fn a_whole_expression_keeps_its_type_and_a_text_is_joined() {
    for (text, expected) in [
        ("${state.files}", json!(3)),
        ("${state.deep.list.0.b}", json!(true)),
        ("${inputs.x}", json!([1, 2])),
        ("${result.y}", json!(1.5)),
        ("${item}", json!("part")),
        ("${ state.name }", json!("Ada")),
        (
            "n=${state.files}, ${state.name}; ${inputs.x}",
            json!("n=3, Ada; [1,2]"),
        ),
        ("${state.none || state.empty || 'x'}", json!("x")),
        ("${state.none || 7}", json!(7)),
        ("${HOME} ${A:-b}", json!("${HOME} ${A:-b}")),
        ("$${state.files}", json!("${state.files}")),
        ("no places", json!("no places")),
        ("a $ b } {c}", json!("a $ b } {c}")),
    ] {
        let (value, missing) = filled(text);
        assert_eq!(value, expected, "{text}");
        assert!(missing.is_empty(), "{text}: {missing:?}");
    }
    let (now, _) = filled("${_now}");
    assert!(now.as_str().unwrap().ends_with('Z'));
    assert!(filled("${_timestamp}").0.as_i64().unwrap() > 1_700_000_000_000);
}

#[test]
fn what_comes_from_elsewhere_looks_like_nothing_that_the_graph_says() {
    let state = json!({"one": "ls\u{202e}", "more": "ls\nrisk: low", "none": null});
    let inputs = json!({});
    for (text, expected) in [
        (
            "Run ${state.one}?\nrisk: high",
            "Run ls\\u{202e}?\nrisk: high",
        ),
        (
            "Run ${state.more}?\nrisk: high",
            "Run \n│ ls\n│ risk: low\n?\nrisk: high",
        ),
        ("${state.more}", "│ ls\n│ risk: low"),
        (
            "${state.more}${state.none}${state.one}",
            "│ ls\n│ risk: low\nls\\u{202e}",
        ),
        ("Run\n${state.more}\nnow?", "Run\n│ ls\n│ risk: low\nnow?"),
        ("as it is\nwritten", "as it is\nwritten"),
    ] {
        let node = rye_items::metadata::parse_yaml(json!(text).to_string().as_bytes()).unwrap();
        let template = Template::read(&node, None, &mut Vec::new());
        let scope = Scope::new(state.as_object().unwrap(), &inputs);
        assert_eq!(template.shown(&scope), expected, "{text}");
    }
}

#[test]
fn what_is_nothing_is_told_with_the_nearest_that_is_something() {
    for (text, value, told) in [
        (
            "${state.file}",
            Value::Null,
            "`state.file` is nothing here; the nearest is `state.files`",
        ),
        (
            "<${state.deep.lst}>",
            json!("<>"),
            "`state.deep.lst` is nothing here; the nearest is `state.deep.list`",
        ),
        (
            "${state.deep.list.4}",
            Value::Null,
            "`state.deep.list.4` is nothing here; the nearest is `state.deep.list.0`",
        ),
        (
            "${result.qqqq}",
            Value::Null,
            "`result.qqqq` is nothing here",
        ),
    ] {
        assert_eq!(filled(text), (value, vec![told.to_owned()]), "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused_with_what_was_probably_meant() {
    let refused = |text: &str| {
        let node = rye_items::metadata::parse_yaml(json!(text).to_string().as_bytes()).unwrap();
        let mut problems = Vec::new();
        Template::read(&node, None, &mut problems);
        let [problem] = problems.as_slice() else {
            panic!("{text}: {problems:?}");
        };
        (
            problem.message.clone(),
            problem.hint.clone().unwrap_or_default(),
        )
    };
    assert_eq!(refused("${stat.x}").1, "did you mean `state`?");
    assert!(refused("${file}").1.contains("$${"));
    assert!(refused("${state..x}").0.contains("empty part"));
    assert!(refused("${state.x").0.contains("no `}`"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_a_value_is_never_read_again(text in ".{0,60}", value in ".{0,30}") {
        let node = Node { at: 0, data: Data::Text(format!("{text}${{state.v}}")) };
        let mut problems = Vec::new();
        let template = Template::read(&node, None, &mut problems);
        let state = json!({"v": value});
        let inputs = Value::Null;
        let filled = template.fill(&Scope::new(state.as_object().unwrap(), &inputs));
        if problems.is_empty() && !text.contains('$') {
            prop_assert_eq!(crate::walk::words(&filled), format!("{text}{value}"));
        }
    }
}
