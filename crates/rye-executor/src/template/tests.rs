use std::process::Command;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Variables {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn names() -> Placeholders {
    let mut names = Placeholders::default();
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
fn known_placeholders_are_replaced_and_other_text_is_kept() {
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
        let result = render(template, &variables, &names());
        assert_eq!(result, expected, "{template}");
    }
}

/// Runs the script in a real shell and returns its output.
fn run(shell: &str, script: &Script) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(shell);
    let command = command.args(["-c", &script.text]).envs(&script.values);
    let output = command.current_dir(&dir).output().unwrap();
    assert!(output.status.success(), "{script:?}: {output:?}");
    let created: Vec<_> = dir.path().read_dir().unwrap().collect();
    assert!(created.is_empty(), "{script:?} created {created:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Scripts with a placeholder, and the output before and after its value.
const CONTEXTS: [(&str, &str, &str); 12] = [
    ("printf %s {v}", "", ""),
    ("printf %s a{v}b", "a", "b"),
    (r#"printf %s "a {v} b""#, "a ", " b"),
    ("printf %s 'a {v} b'", "a ", " b"),
    (r#"printf %s "$(printf %s {v})""#, "", ""),
    (r#"printf %s "a $(printf %s "{v}") b""#, "a ", " b"),
    (
        r#"printf %s "$( (printf %s '{v}') )$(printf %s b)""#,
        "",
        "b",
    ),
    (r#"printf %s "it's "{v}"#, "it's ", ""),
    (r#"printf %s "\"{v}\"""#, "\"", "\""),
    ("# it isn't\nprintf %s {v}", "", ""),
    ("printf %s a#b\\'{v}", "a#b'", ""),
    ("printf %s {v};printf %s {w}", "", "w w"),
];

#[test]
fn value_in_a_shell_script_is_data_in_every_context() {
    let hostile = [
        "$(touch made)",
        "`touch made`",
        "; touch made #",
        "\"; touch made; \"",
        "'; touch made; '",
        "\\\"; touch made; \\\"",
        ") ; touch made ; (",
        "x' $(touch made) \"y",
        "*  ?",
        "-n",
        "",
        "\\",
        "$HOME ${HOME} {w}",
        "a\nb",
    ];
    for shell in ["sh", "bash"] {
        for (template, before, after) in CONTEXTS {
            for value in hostile {
                let mut names = Placeholders::default();
                names.set("v", value, Origin::Fact);
                names.set("w", "w w", Origin::Fact);
                let script = render_script(template, &Variables::new(), &names, Variables::new());
                let printed = run(shell, &script);
                assert_eq!(printed, format!("{before}{value}{after}"), "{script:?}");
            }
        }
    }
}

#[test]
fn value_is_never_code_even_if_quotes_cannot_be_tracked() {
    for template in [
        "cat <<END\n{v}\nEND",
        "cat <<'END'\ndon't {v}\nEND",
        "case x in x) printf %s {v};; esac",
        r#"printf %s `printf %s "{v}"`"#,
        "printf %s \"${UNSET:-'{v}'}\"",
        ": '{v}",
    ] {
        for value in [
            "$(touch made)",
            "'; touch made; '",
            "\"; touch made; \"",
            "`touch made`",
        ] {
            let mut names = Placeholders::default();
            names.set("v", value, Origin::Fact);
            let script = render_script(template, &Variables::new(), &names, Variables::new());
            let dir = tempfile::tempdir().unwrap();
            let mut command = Command::new("bash");
            let command = command.args(["-c", &script.text]).envs(&script.values);
            // The script may be invalid.
            command.current_dir(&dir).output().unwrap();
            assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{script:?}");
        }
    }
}

#[test]
fn variable_in_a_shell_script_is_data_and_simple_values_stay_readable() {
    let variables = environment(&[("F", "a b'; touch made'"), ("P", "/usr/bin/x"), ("E", "")]);
    for (template, text, values) in [
        (
            "cat ${F}",
            "cat \"$RYE_VALUE_1\"",
            vec!["a b'; touch made'"],
        ),
        (
            "cat \"${F}\"",
            "cat \"\"\"$RYE_VALUE_1\"\"\"",
            vec!["a b'; touch made'"],
        ),
        ("${P} --x", "/usr/bin/x --x", vec![]),
        ("echo ${E}", "echo \"$RYE_VALUE_1\"", vec![""]),
    ] {
        let script = render_script(
            template,
            &variables,
            &Placeholders::default(),
            Variables::new(),
        );
        assert_eq!(script.text, text, "{template}");
        let variables: Vec<_> = script.values.values().collect();
        assert_eq!(variables, values, "{template}");
    }
}

#[test]
fn parameter_in_a_shell_script_is_data_and_configuration_is_code() {
    let mut names = Placeholders::default();
    names.set("name", "$(touch made); `id`", Origin::Fact);
    names.set("command", "printf %s {name} | wc -c", Origin::Configuration);
    let script = render_script("{command}", &Variables::new(), &names, Variables::new());
    assert_eq!(run("sh", &script).trim(), "19");
}

#[test]
fn code_may_contain_configuration_but_no_parameters_or_untrusted_variables() {
    let mut names = names();
    names.set("p", "x", Origin::Parameter);
    names.set("script", "echo {p}", Origin::Configuration);
    let untrusted = BTreeSet::from(["FROM_FILE".to_owned()]);
    for (text, shell, other) in [
        ("echo {greeting}", None, Some("{count}")),
        ("echo {tool_path} ${HOME}", None, Some("{tool_path}")),
        ("echo $(( {p} ))", Some("{p}"), Some("{p}")),
        ("{p}", Some("{p}"), Some("{p}")),
        ("{script}", Some("{p}"), Some("{p}")),
        (
            "x ${FROM_FILE:-1}",
            Some("${FROM_FILE}"),
            Some("${FROM_FILE}"),
        ),
        ("x $FROM_FILE ${p} {unknown}", None, None),
    ] {
        for (kind, rejected) in [(CodeKind::Shell, shell), (CodeKind::Other, other)] {
            let checked = check_code(text, &untrusted, &names, kind);
            let found = checked.err().map(|error| error.reference);
            assert_eq!(found.as_deref(), rejected, "{text} {kind:?}");
        }
    }
}

#[test]
fn unknown_placeholder_in_a_command_is_an_error() {
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
    assert_eq!(error, UnknownPlaceholder("nothing".to_owned()));
}

#[test]
fn nested_values_are_rendered_and_keys_are_not() {
    let value = json!({"{count}": ["{count}", {"a": "{greeting}"}], "n": 1, "b": null});
    let expected = json!({"{count}": [3, {"a": "hi 3 of /p"}], "n": 1, "b": null});
    assert_eq!(render_value(&value, &Variables::new(), &names()), expected);
}

proptest! {
    #[test]
    fn parameter_is_inserted_unchanged(value in "\\PC*") {
        let mut names = names();
        names.set("p", value.clone(), Origin::Fact);
        let variables = environment(&[("HOME", "/h")]);
        let alone = render("{p}", &variables, &names);
        prop_assert_eq!(alone, json!(&value));
        let inside = render("<{p}>${HOME}", &variables, &names);
        prop_assert_eq!(inside, json!(format!("<{value}>/h")));
    }

    #[test]
    fn any_template_renders_without_panic(template in "[\\${}A-Z:a-z_-]{0,40}") {
        let variables = environment(&[("A", "${A}")]);
        render_script(&template, &variables, &names(), Variables::new());
        render(&template, &variables, &names());
    }
}

#[test]
fn fields_with_unknown_placeholders_are_removed() {
    let mut names = Placeholders::default();
    names.set("known", "{unknown}", Origin::Fact);
    let template = json!({"a": "{unknown}", "b": "{known}", "c": ["{unknown}", 1, "x {unknown}"], "d": {"e": "{unknown}"}});
    let known = without_unknown(&template, &names).unwrap();
    assert_eq!(
        render_value(&known, &Variables::new(), &names),
        json!({"b": "{unknown}", "c": [1, "x {unknown}"], "d": {}})
    );
    assert_eq!(without_unknown(&json!("{unknown}"), &names), None);
}
