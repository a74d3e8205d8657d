use proptest::prelude::*;
use serde_json::json;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Variables {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn names() -> Names {
    let mut names = Names::default();
    names.set("tool_path", "/p/{project_path}/x.py", Origin::Fact);
    names.set("project_path", "/p", Origin::Fact);
    names.set("count", 3, Origin::Fact);
    names.set("list", json!(["a", 1]), Origin::Fact);
    names.set("greeting", "hi {who}", Origin::Configuration);
    names.set("who", "{count} of {project_path}", Origin::Configuration);
    names.set("again", "{again}", Origin::Configuration);
    names.set("evil", "${HOME} {project_path} $(reboot)", Origin::Fact);
    names
}

#[test]
fn each_placeholder_gets_its_value_and_what_is_none_stays() {
    let variables = environment(&[("HOME", "/h o"), ("EMPTY", ""), ("TRICK", "{count}${HOME}")]);
    for (template, expected) in [
        ("", json!("")),
        ("plain", json!("plain")),
        ("${HOME}/x", json!("/h o/x")),
        ("${NONE}", json!("")),
        ("${NONE:-a b}", json!("a b")),
        ("${EMPTY:-d}|${EMPTY}", json!("d|")),
        (
            "${home} ${1} ${A-b} ${} $HOME ${",
            json!("${home} ${1} ${A-b} ${} $HOME ${"),
        ),
        ("{count}", json!(3)),
        ("{list}", json!(["a", 1])),
        ("n={count} l={list}", json!("n=3 l=[\"a\",1]")),
        ("{unknown} {} {a b} {", json!("{unknown} {} {a b} {")),
        ("{{count}}", json!("{3}")),
        ("echo ${count} {count}", json!("echo ${count} 3")),
        ("{greeting}!", json!("hi 3 of /p!")),
        ("{tool_path}", json!("/p/{project_path}/x.py")),
        ("{evil}", json!("${HOME} {project_path} $(reboot)")),
        ("x {evil}", json!("x ${HOME} {project_path} $(reboot)")),
        ("${TRICK}", json!("{count}${HOME}")),
        ("{project_path}${TRICK}{count}", json!("/p{count}${HOME}3")),
        ("{again}", json!("{again}")),
    ] {
        let result = render(template, &variables, Quoting::None, &names());
        assert_eq!(result, expected, "{template}");
    }
}

#[test]
fn a_variable_in_a_shells_string_is_one_word() {
    let variables = environment(&[("F", "a b'; rm -rf /'"), ("P", "/usr/bin/x"), ("E", "")]);
    for (template, expected) in [
        ("cat ${F}", r"cat 'a b'\''; rm -rf /'\'''"),
        ("${P} --x", "/usr/bin/x --x"),
        ("echo ${E}", "echo ''"),
    ] {
        let result = render(template, &variables, Quoting::Shell, &Names::default());
        assert_eq!(result, json!(expected), "{template}");
    }
}

#[test]
fn a_parameter_in_a_shells_string_is_data_and_configuration_is_code() {
    let mut names = Names::default();
    names.set("name", "$(reboot); `id`", Origin::Fact);
    names.set("command", "echo {name} | wc", Origin::Configuration);
    let render = |text| render(text, &Variables::new(), Quoting::Shell, &names);
    assert_eq!(render("{command}"), json!("echo '$(reboot); `id`' | wc"));
    assert_eq!(render("{name}"), json!("'$(reboot); `id`'"));
}

#[test]
fn a_command_must_know_all_its_placeholders() {
    let variables = environment(&[("PY", "/bin/{x}")]);
    assert_eq!(
        render_command("${PY}", &variables, &names()),
        Ok("/bin/{x}".to_owned())
    );
    assert_eq!(
        render_command("{project_path}/run", &variables, &names()),
        Ok("/p/run".to_owned())
    );
    let error = render_command("{nothing}", &variables, &names()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`{nothing}` in the command stands for nothing"
    );
}

#[test]
fn values_are_rendered_all_the_way_down_and_keys_are_not() {
    let value = json!({"{count}": ["{count}", {"a": "{greeting}"}], "n": 1, "b": null});
    let expected = json!({"{count}": [3, {"a": "hi 3 of /p"}], "n": 1, "b": null});
    assert_eq!(render_value(&value, &Variables::new(), &names()), expected);
}

proptest! {
    #[test]
    fn a_parameter_arrives_as_it_was_given(value in "\\PC*") {
        let mut names = names();
        names.set("p", value.clone(), Origin::Fact);
        let variables = environment(&[("HOME", "/h")]);
        let alone = render("{p}", &variables, Quoting::None, &names);
        prop_assert_eq!(alone, json!(&value));
        let inside = render("<{p}>${HOME}", &variables, Quoting::None, &names);
        prop_assert_eq!(inside, json!(format!("<{value}>/h")));
    }

    #[test]
    fn any_template_is_rendered(template in "[\\${}A-Z:a-z_-]{0,40}") {
        render(&template, &environment(&[("A", "${A}")]), Quoting::Shell, &names());
    }
}

#[test]
fn what_stands_for_nothing_is_left_out_and_what_only_looks_so_stays() {
    let mut names = Names::default();
    names.set("known", "{unknown}", Origin::Fact);
    let template = json!({"a": "{unknown}", "b": "{known}", "c": ["{unknown}", 1, "x {unknown}"], "d": {"e": "{unknown}"}});
    let given = given(&template, &names).unwrap();
    assert_eq!(
        render_value(&given, &Variables::new(), &names),
        json!({"b": "{unknown}", "c": [1, "x {unknown}"], "d": {}})
    );
    assert_eq!(super::given(&json!("{unknown}"), &names), None);
}
