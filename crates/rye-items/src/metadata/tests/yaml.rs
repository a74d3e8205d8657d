//! YAML files.

use insta::assert_snapshot;
use serde_json::json;

use super::{SHIPPED, refusals, refused, tool, values};
use crate::ItemKind;
use crate::metadata::extract;

#[test]
fn published_runtime_is_read() {
    let text = "\
# rye:signed:2026-04-10T03:28:17Z:00:11:22
version: \"1.0.0\"
tool_type: runtime
executor_id: rye/core/primitives/execute
category: rye/core/runtimes/ruby
description: \"Ruby runtime executor - executes Ruby scripts with Bundler support\"

env_config:
  interpreter: {type: system_binary, binary: ruby, var: RYE_RUBY, fallback: /usr/bin/ruby}
  env:
    RUBY_ENV: production

anchor:
  enabled: true
  markers_any: [\"Gemfile\", \"Rakefile\"]
  env_paths:
    RUBYLIB:
      prepend: [\"{anchor_path}\", \"{anchor_path}/lib/ruby\"]

config:
  command: \"${RYE_RUBY}\"
  args:
    - \"{tool_path}\"
  timeout: 300
homepage: https://example.org
";
    let metadata = tool(".yaml", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "tool_type": "runtime",
            "executor_id": "rye/core/primitives/execute",
            "category": "rye/core/runtimes/ruby",
            "description": "Ruby runtime executor - executes Ruby scripts with Bundler support",
            "env_config": {
                "interpreter": {
                    "type": "system_binary",
                    "binary": "ruby",
                    "var": "RYE_RUBY",
                    "fallback": "/usr/bin/ruby",
                },
                "env": {"RUBY_ENV": "production"},
            },
            "anchor": {
                "enabled": true,
                "markers_any": ["Gemfile", "Rakefile"],
                "env_paths": {"RUBYLIB": {"prepend": ["{anchor_path}", "{anchor_path}/lib/ruby"]}},
            },
            "config": {"command": "${RYE_RUBY}", "args": ["{tool_path}"], "timeout": 300},
            "homepage": "https://example.org",
        })
    );
    assert_eq!(metadata.get("executor_id").unwrap().at.to_string(), "4:14");
    assert_eq!(metadata.get("homepage").unwrap().at.to_string(), "25:11");
}

#[test]
fn scalars_are_those_of_yaml_1_2() {
    for (scalar, expected) in [
        ("no", json!("no")),
        ("on", json!("on")),
        ("yes", json!("yes")),
        ("true", json!(true)),
        ("~", json!(null)),
        ("1.0.0", json!("1.0.0")),
        ("2026-02-23T00:00:00Z", json!("2026-02-23T00:00:00Z")),
        ("0x1F", json!(31)),
        ("0o17", json!(15)),
        ("-3", json!(-3)),
        ("1e3", json!(1000.0)),
        ("'1'", json!("1")),
        ("!!str 1", json!("1")),
        ("inf", json!("inf")),
        ("12:30", json!("12:30")),
        ("|\n  a\n  b", json!("a\nb\n")),
        (">-\n  a\n  b", json!("a b")),
        ("{a: [1, {b: c}]}", json!({"a": [1, {"b": "c"}]})),
    ] {
        let metadata = tool(".yaml", &format!("own: {scalar}\n")).unwrap();
        assert_eq!(metadata.get("own").unwrap().value, expected, "{scalar}");
    }
}

#[test]
fn aliases_and_merges_are_resolved() {
    let text = "base: &base {a: 1, b: 2}\nmine:\n  <<: *base\n  b: 3\nsame: *base\n";
    let metadata = tool(".yaml", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({"base": {"a": 1, "b": 2}, "mine": {"b": 3, "a": 1}, "same": {"a": 1, "b": 2}})
    );
    assert_eq!(metadata.get("same").unwrap().at.to_string(), "5:7");
}

#[test]
fn an_empty_file_has_no_metadata() {
    for text in [
        "",
        "\n",
        "# rye:signed:x\n",
        "---\n",
        "{}\n",
        "\u{feff}# x\n",
    ] {
        assert_eq!(tool(".yaml", text).unwrap().fields.len(), 0, "{text:?}");
    }
}

#[test]
fn configuration_is_not_type_checked() {
    let text = b"version: 1\ntimeout: {connect: 5}\n";
    let metadata = extract(text, ".yaml", ItemKind::Config, &SHIPPED).unwrap();
    assert_eq!(
        values(&metadata),
        json!({"version": 1, "timeout": {"connect": 5}})
    );
    assert_eq!((metadata.version(), metadata.timeout()), (None, None));
    assert!(extract(text, ".yaml", ItemKind::Tool, &SHIPPED).is_err());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table and what comes of it")]
fn invalid_files_are_reported_with_their_position() {
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
        c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n\
        e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n";
    let deep_flow = format!("a: {}{}\n", "[".repeat(100), "]".repeat(100));
    let mut deep_block = String::new();
    for depth in 0..100 {
        deep_block += &" ".repeat(depth);
        deep_block += "a:\n";
    }
    assert_snapshot!(refusals(".yaml", &[
        "a: 1\nb: {c: 2, c: 3}\n",
        "a: 1\nä: x\na: 2\n",
        "- a\n- b\n",
        "just text\n",
        "a: 1\n---\nb: 2\n",
        "1: a\n",
        "a: {true: b}\n",
        "[a]: b\n",
        "a: .nan\n",
        "a: 1e999\n",
        "a: 0644\n",
        "a: 0x10000000000000000\n",
        "a: *nowhere\n",
        "a: !!python/object:os.system x\n",
        "a: !include /etc/passwd\n",
        "a: [1, 2\nb: 3\n",
        "a: b: c\n",
        "a: 'x\n",
        "a: &a [*a]\n",
        bomb,
        &deep_flow,
        &deep_block,
    ]), @r#"
    2:11: `c` is given twice on line 2
      2 | b: {c: 2, c: 3}
        |           ^

    3:1: `a` is given on line 1 and again on line 3
      3 | a: 2
        | ^

    1:1: metadata must be a mapping of keys to values, not a list
      1 | - a
        | ^

    1:1: metadata must be a mapping of keys to values, not a string
      1 | just text
        | ^

    2:1: there is more than one YAML document
      2 | ---
        | ^

    1:1: a key must be a string, not a number
      1 | 1: a
        | ^
      hint: write the key in quotes

    1:5: a key must be a string, not true
      1 | a: {true: b}
        |     ^
      hint: write the key in quotes

    1:1: a key must be a string, not a list
      1 | [a]: b
        | ^
      hint: write the key in quotes

    1:4: the number `.nan` is not finite
      1 | a: .nan
        |    ^
      hint: write it in quotes if it is a string

    1:4: the number `1e999` is not finite
      1 | a: 1e999
        |    ^
      hint: write it in quotes if it is a string

    1:4: the number `0644` begins with a zero, which leaves open what base it has
      1 | a: 0644
        |    ^
      hint: write it in quotes if it is a string

    1:4: the number `0x10000000000000000` does not fit into 64 bits
      1 | a: 0x10000000000000000
        |    ^
      hint: write it in quotes if it is a string

    1:4: the alias `*nowhere` has no anchor before it
      1 | a: *nowhere
        |    ^

    1:30: the tag `!!python/object:os.system` is not supported
      1 | a: !!python/object:os.system x
        |                              ^

    1:13: the tag `!include` is not supported
      1 | a: !include /etc/passwd
        |             ^

    2:2: not valid YAML: illegal placement of ':' indicator
      2 | b: 3
        |  ^

    1:5: not valid YAML: mapping values are not allowed in this context
      1 | a: b: c
        |     ^

    2:1: not valid YAML: invalid indentation in multiline quoted scalar
      2 | 
        | ^

    1:8: the alias refers to a value that contains it
      1 | a: &a [*a]
        |        ^

    5:32: the aliases expand to too much data
      5 | e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
        |                                ^

    1:68: the values are nested too deeply
      1 | [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
        |                                     ^

    65:65: the values are nested too deeply
      65 |                                                                 a:
         |                                                                 ^
    "#);
    let error = extract(b"a: x\xff\n", ".yaml", ItemKind::Tool, &SHIPPED);
    assert_snapshot!(refused(error), @r#"
    1:5: the file is not UTF-8: invalid byte 0xff
      1 | a: x�
        |     ^
      hint: save the file as UTF-8
    "#);
    assert_snapshot!(refused(tool(".yaml", "a: x\nb: \0\n")), @r#"
    2:4: the file contains a NUL byte, so it is not text
      2 | b:  
        |    ^
    "#);
}
