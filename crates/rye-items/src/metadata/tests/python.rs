//! Python files.

use insta::assert_snapshot;
use serde_json::json;

use super::{refusals, tool, values};

#[test]
fn published_tool_is_read() {
    let text = r#"# rye:signed:2026-04-10T03:28:17Z:00:11:22
"""Run a command.

More about it.
"""
from __future__ import annotations
import os

__version__ = "1.0.0"
__tool_type__ = 'python'
__executor_id__: str = "rye/core/runtimes/python/script"
__category__ = "rye/bash"

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What to " "run"},
        "timeout": {"type": "integer", "default": 120, },  # seconds
    },
    "required": ["command"],
}
CONFIG = {"risk_level": "high", "timeout": 2.5}

def execute(params, project_path):
    __version__ = compute()
    return {"success": True}

if __name__ == "__main__":
    CONFIG = 1
"#;
    let metadata = tool(".py", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "tool_type": "python",
            "executor_id": "rye/core/runtimes/python/script",
            "category": "rye/bash",
            "description": "Run a command.",
            "config_schema": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "What to run"},
                    "timeout": {"type": "integer", "default": 120},
                },
                "required": ["command"],
            },
            "config": {"risk_level": "high", "timeout": 2.5},
            "risk_level": "high",
            "timeout": 2.5,
        })
    );
    let at = metadata.get("executor_id").unwrap().at;
    assert_eq!(at.to_string(), "11:24");
    assert_eq!(metadata.parameter_names(), ["command", "timeout"]);
}

/// The value of one name in an otherwise empty file.
fn value(literal: &str) -> serde_json::Value {
    let metadata = tool(".py", &format!("__sandbox__ = {literal}\n")).unwrap();
    metadata.get("sandbox").unwrap().value.clone()
}

#[test]
fn literals_are_evaluated_as_in_python() {
    for (literal, expected) in [
        ("None", json!(null)),
        ("True", json!(true)),
        ("0x_ff", json!(255)),
        ("0o17", json!(15)),
        ("0B101", json!(5)),
        ("1_000", json!(1000)),
        ("00", json!(0)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(u64::MAX)),
        ("+1.5e3", json!(1500.0)),
        ("1_0.2_5", json!(10.25)),
        (".5", json!(0.5)),
        ("-(1)", json!(-1)),
        ("'a' \"b\" r'\\n'", json!("ab\\n")),
        ("('a'\n  # a comment\n  'b')", json!("ab")),
        ("u'x'", json!("x")),
        ("'''a\r\nb'''", json!("a\nb")),
        (
            r"'\x41\u00e4\U0001F600\101\0\d\'\a'",
            json!("AÄ😀A\0\\d'\x07".replace('Ä', "ä")),
        ),
        ("'a\\\nb'", json!("ab")),
        ("()", json!([])),
        ("(1,)", json!([1])),
        ("1, 2", json!([1, 2])),
        ("((((1))))", json!(1)),
        ("[1, [2, {'a': (3,)}],]", json!([1, [2, {"a": [3]}]])),
        ("{}", json!({})),
        ("{'a': 1, ('b'): 2}", json!({"a": 1, "b": 2})),
    ] {
        assert_eq!(value(literal), expected, "{literal}");
    }
}

#[test]
fn all_top_level_assignments_are_read() {
    for text in [
        "__version__ = '1'",
        "__version__: str = '1'",
        "x = __version__ = '1'",
        "import os; __version__ = '1'; x = f()",
        "\u{feff}__version__ = '1'",
        "#!/usr/bin/env python3\r\n# rye:signed:x\r\n__version__ = '1'\r\n",
        "class __version__x: pass\n__version__ = '1'\ndef f():\n  __version__ += 2\n",
        "__version__: str\n__version__ = '1'\n",
    ] {
        let metadata = tool(".py", text).unwrap();
        assert_eq!(metadata.version(), Some("1"), "{text}");
    }
    for text in [
        "",
        "\n\n",
        "# nothing\n",
        "version = '1'\n",
        "class A:\n  __version__ = f()\n",
    ] {
        assert_eq!(tool(".py", text).unwrap().fields.len(), 0, "{text}");
    }
}

#[test]
fn docstring_is_the_default_description() {
    let description = |text: &str| {
        let metadata = tool(".py", text).unwrap();
        metadata.description().map(str::to_owned)
    };
    assert_eq!(
        description("'''\n  One\n  two.\n\n  Three.\n'''").as_deref(),
        Some("One two.")
    );
    assert_eq!(description("# c\n\"x\" 'y'\n").as_deref(), Some("xy"));
    let both = "'''Doc.'''\n__tool_description__ = 'Said.'\n";
    assert_eq!(description(both).as_deref(), Some("Said."));
    for none in ["''", "f'''x'''", "b'x'", "1", "import os\n'''late'''"] {
        assert_eq!(description(none), None, "{none}");
    }
}

#[test]
fn config_entries_are_fields_unless_they_are_templates() {
    let metadata = tool(
        ".py",
        "CONFIG = {'timeout': 5, 'effect': 'pure'}\n__effect__ = 'ask'\n",
    );
    let metadata = metadata.unwrap();
    assert_eq!(metadata.timeout(), Some(5.0));
    assert_eq!(metadata.effect().unwrap().as_str(), "ask");
    let metadata = tool(".py", "CONFIG = {'timeout': '{seconds}'}\n").unwrap();
    assert_eq!(metadata.timeout(), None);
}

#[test]
fn computed_values_are_rejected_with_their_position() {
    assert_snapshot!(refusals(".py", &[
        "CONFIG = {'a': os.environ['X']}",
        "CONFIG = {'a': [1, f'{x}']}",
        "CONFIG = load('ü', 1)",
        "CONFIG = {**base}",
        "CONFIG = {'a': 1 + 2}",
        "CONFIG = [x for x in y]",
        "CONFIG = {'a': other}",
        "CONFIG = {'a': not True}",
        "CONFIG = {'a': -True}",
        "CONFIG = {'a': ...}",
    ]), @r#"
    1:16: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': os.environ['X']}
        |                ^

    1:20: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': [1, f'{x}']}
        |                    ^

    1:10: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = load('ü', 1)
        |          ^

    1:11: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {**base}
        |           ^

    1:16: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': 1 + 2}
        |                ^

    1:10: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = [x for x in y]
        |          ^

    1:16: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': other}
        |                ^

    1:16: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': not True}
        |                ^

    1:16: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | CONFIG = {'a': -True}
        |                ^

    1:16: the value of `CONFIG` contains an ellipsis
      1 | CONFIG = {'a': ...}
        |                ^
    "#);
}

#[test]
fn duplicate_names_are_rejected() {
    assert_snapshot!(refusals(".py", &[
        "__version__ = '1'\n\n__version__ = '2'\n",
        "__version__ = '1'; __version__ = '2'\n",
        "CONFIG = {}\nCONFIG['a'] = 1\n",
        "CONFIG = {}\nCONFIG |= {'a': 1}\n",
        "try:\n    CONFIG = {}\nexcept E:\n    pass\n",
        "if x:\n    pass\nelse:\n    with y:\n        __version__ = '1'\n",
        "a, __version__ = '1', '2'\n",
        "from settings import CONFIG\n",
        "import settings as CONFIG\n",
    ]), @r#"
    3:15: `__version__` is given on line 1 and again on line 3
      3 | __version__ = '2'
        |               ^

    1:34: `__version__` is given twice on line 1
      1 | __version__ = '1'; __version__ = '2'
        |                                  ^

    2:1: `CONFIG` is changed after its assignment; metadata is read without running the file
      2 | CONFIG['a'] = 1
        | ^
      hint: write the whole value in one literal

    2:1: `CONFIG` is changed after its assignment; metadata is read without running the file
      2 | CONFIG |= {'a': 1}
        | ^
      hint: write the whole value in one literal

    2:5: `CONFIG` is assigned inside another statement, so its value depends on running the file
      2 |     CONFIG = {}
        |     ^
      hint: assign it at the top level, where it always has the same value

    5:9: `__version__` is assigned inside another statement, so its value depends on running the file
      5 |         __version__ = '1'
        |         ^
      hint: assign it at the top level, where it always has the same value

    1:4: `__version__` is assigned together with others
      1 | a, __version__ = '1', '2'
        |    ^
      hint: assign it on a separate line: __version__ = …

    1:22: `CONFIG` is imported; metadata is read from this file alone, without running it
      1 | from settings import CONFIG
        |                      ^
      hint: write the value here as a literal

    1:20: `CONFIG` is imported; metadata is read from this file alone, without running it
      1 | import settings as CONFIG
        |                    ^
      hint: write the value here as a literal
    "#);
}

#[test]
fn unsupported_values_are_rejected() {
    assert_snapshot!(refusals(".py", &[
        "CONFIG = {'a': {1, 2}}",
        "CONFIG = {'a': b'x'}",
        "CONFIG = {'a': 1j}",
        "CONFIG = {1: 'a'}",
        "CONFIG = {'a': 1, 'b': 2, 'a': 3}",
        "CONFIG = {'a': 1e999}",
        "CONFIG = {'a': 0x10000000000000000}",
        "CONFIG = {'a': 0123}",
        r"CONFIG = {'a': '\N{BULLET}'}",
        r"CONFIG = {'a': 'ü\ud83d'}",
        r"CONFIG = {'a': '\xg1'}",
    ]), @r#"
    1:16: the value of `CONFIG` contains a set, which has no order
      1 | CONFIG = {'a': {1, 2}}
        |                ^
      hint: write a list: […]

    1:16: the value of `CONFIG` contains bytes
      1 | CONFIG = {'a': b'x'}
        |                ^
      hint: write a string, without the `b`

    1:16: the value of `CONFIG` contains a complex number
      1 | CONFIG = {'a': 1j}
        |                ^

    1:11: a key in `CONFIG` must be a string, not a number
      1 | CONFIG = {1: 'a'}
        |           ^

    1:27: `a` is given twice on line 1
      1 | CONFIG = {'a': 1, 'b': 2, 'a': 3}
        |                           ^

    1:16: the number `1e999` is infinite
      1 | CONFIG = {'a': 1e999}
        |                ^

    1:16: the number `0x10000000000000000` does not fit into 64 bits
      1 | CONFIG = {'a': 0x10000000000000000}
        |                ^

    1:16: not valid Python: `0123` is not a number
      1 | CONFIG = {'a': 0123}
        |                ^

    1:17: a character's name in `\N{…}` is not supported
      1 | CONFIG = {'a': '\N{BULLET}'}
        |                 ^
      hint: write the character itself, or its number as `\uXXXX`

    1:18: half of a surrogate pair is not a character
      1 | CONFIG = {'a': 'ü\ud83d'}
        |                  ^
      hint: write the character itself, or its number as `\UXXXXXXXX`

    1:17: not valid Python: this escape needs 2 hexadecimal digits
      1 | CONFIG = {'a': '\xg1'}
        |                 ^
    "#);
}

#[test]
fn syntax_errors_are_reported_with_their_position() {
    assert_snapshot!(refusals(".py", &[
        "x = 1\ndef f(:\n    pass\n",
        "x = 1\nCONFIG = {'a': [1, 2\n\ndef f():\n    return 1\n",
        "x = 'abc\n",
        "__version__ = '1'\nclass\n",
        "def f()\n    pass\n",
        ")",
    ]), @r#"
    2:7: not valid Python: `)` is missing here
      2 | def f(:
        |       ^

    2:16: not valid Python: `[` is never closed
      2 | CONFIG = {'a': [1, 2
        |                ^

    1:5: not valid Python: this string is never closed
      1 | x = 'abc
        |     ^

    2:1: not valid Python: the syntax is wrong here
      2 | class
        | ^

    1:1: not valid Python: the syntax is wrong here
      1 | def f()
        | ^

    1:1: not valid Python: the syntax is wrong here
      1 | )
        | ^
    "#);
}
