use proptest::prelude::*;
use serde_json::json;

use super::*;

fn render(text: &str) -> (Value, Vec<String>) {
    let node = rye_items::metadata::parse_yaml(json!(text).to_string().as_bytes()).unwrap();
    let mut problems = Vec::new();
    let template = Template::parse(&node, Some("item"), &mut problems);
    assert_eq!(problems, [], "{text}");
    let state = json!({"files": 3, "deep": {"list": [{"b": true}]}, "empty": null, "name": "Ada"});
    let (inputs, result, item) = (json!({"x": [1, 2]}), json!({"y": 1.5}), json!("part"));
    let scope = Scope::new(state.as_object().unwrap(), &inputs);
    let scope = scope.with_result(&result).with_variable("item", &item);
    let value = template.render(&scope);
    (value, scope.missing.into_inner())
}

#[test]
fn single_expression_keeps_its_type_and_strings_are_joined() {
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
        let (value, missing) = render(text);
        assert_eq!(value, expected, "{text}");
        assert!(missing.is_empty(), "{text}: {missing:?}");
    }
    let (now, _) = render("${_now}");
    assert!(now.as_str().unwrap().ends_with('Z'));
    assert!(render("${_timestamp}").0.as_i64().unwrap() > 1_700_000_000_000);
}

#[test]
fn literal_integer_beyond_64_bits_keeps_its_digits() {
    let large = "123456789012345678901234567890";
    for literal in [large.to_owned(), format!("'{large}'")] {
        let (value, _) = render(&format!("${{state.none || {literal}}}"));
        assert_eq!(value, json!(large));
    }
}

#[test]
fn values_cannot_be_mistaken_for_text_of_the_graph() {
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
        let template = Template::parse(&node, None, &mut Vec::new());
        let scope = Scope::new(state.as_object().unwrap(), &inputs);
        assert_eq!(template.render_for_user(&scope), expected, "{text}");
    }
}

#[test]
fn missing_value_is_reported_with_the_nearest_path() {
    for (text, value, warning) in [
        (
            "${state.file}",
            Value::Null,
            "`state.file` has no value; did you mean `state.files`?",
        ),
        (
            "<${state.deep.lst}>",
            json!("<>"),
            "`state.deep.lst` has no value; did you mean `state.deep.list`?",
        ),
        (
            "${state.deep.list.4}",
            Value::Null,
            "`state.deep.list.4` has no value; did you mean `state.deep.list.0`?",
        ),
        ("${result.qqqq}", Value::Null, "`result.qqqq` has no value"),
    ] {
        assert_eq!(render(text), (value, vec![warning.to_owned()]), "{text}");
    }
}

#[test]
fn invalid_expression_is_reported_with_a_suggestion() {
    let refused = |text: &str| {
        let node = rye_items::metadata::parse_yaml(json!(text).to_string().as_bytes()).unwrap();
        let mut problems = Vec::new();
        Template::parse(&node, None, &mut problems);
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
    assert!(refused("${state..x}").0.contains("empty component"));
    assert!(refused("${state.x").0.contains("without `}`"));
}

proptest! {
    #[test]
    fn any_text_is_parsed_and_values_are_not_evaluated(text in ".{0,60}", value in ".{0,30}") {
        let node = Node { at: 0, data: Data::Text(format!("{text}${{state.v}}")) };
        let mut problems = Vec::new();
        let template = Template::parse(&node, None, &mut problems);
        let state = json!({"v": value});
        let inputs = Value::Null;
        let filled = template.render(&Scope::new(state.as_object().unwrap(), &inputs));
        if problems.is_empty() && !text.contains('$') {
            prop_assert_eq!(crate::walk::display_text(&filled), format!("{text}{value}"));
        }
    }
}
