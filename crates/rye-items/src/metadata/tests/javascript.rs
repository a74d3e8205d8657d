//! JavaScript and TypeScript files.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{refusals, tool, values};

#[test]
fn exports_of_a_tool_are_read() {
    let text = "\
#!/usr/bin/env node
// rye:signed:2026-04-10T03:28:17Z:00:11:22
import fs from 'node:fs';

export const __version__ = \"1.0.0\";
export const __executor_id__ = 'rye/core/runtimes/node/node', other = compute();
const schema = {
  type: 'object',
  properties: { path: { type: `string`, 'x-y': [1, -2.5, null,] } }, // where
};
export { schema as CONFIG_SCHEMA };
export default async function execute(params) { return {}; }
const CONFIG = compute();
";
    let metadata = tool(".mjs", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "executor_id": "rye/core/runtimes/node/node",
            "config_schema": {
                "type": "object",
                "properties": {"path": {"type": "string", "x-y": [1, -2.5, null]}},
            },
        })
    );
    assert_eq!(metadata.get("executor_id").unwrap().at.to_string(), "6:32");
    assert_eq!(metadata.parameter_names(), ["path"]);
}

#[test]
fn tags_of_the_leading_doc_comment_are_read() {
    let text = "\
// rye:signed:x
/**
 * Does a thing,
 * and another.
 *
 * More about it.
 * @executor_id rye/core/runtimes/node/node
 * @version 1.0.0
 * @tags [a, b]
 * @timeout 30
 * @param {string} x nothing of ours
 */
export const __version__ = '2.0.0';
/** @category too/late */
";
    let metadata = tool(".js", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "2.0.0",
            "executor_id": "rye/core/runtimes/node/node",
            "description": "Does a thing, and another.",
            "tags": ["a", "b"],
            "timeout": 30,
        })
    );
    assert_eq!(metadata.get("executor_id").unwrap().at.to_string(), "7:17");
    let metadata = tool(".js", "/** Short. */").unwrap();
    assert_eq!(metadata.description(), Some("Short."));
    assert_eq!(metadata.get("description").unwrap().at.to_string(), "1:5");
}

#[test]
fn commonjs_modules_are_read() {
    for text in [
        "module.exports = { execute, __version__: '1', CONFIG };\nconst CONFIG = { a: 1 };",
        "exports.__version__ = '1'; exports.CONFIG = { a: 1 };",
        "module.exports.__version__ = '1'; module.exports.CONFIG = { 'a': 1 }",
        "const api = { __version__: '1', CONFIG: { a: 1 }, ...more };\nmodule.exports = exports = api;",
    ] {
        let metadata = tool(".cjs", text).unwrap();
        let expected = json!({"version": "1", "config": {"a": 1}});
        assert_eq!(values(&metadata), expected, "{text}");
    }
}

#[test]
fn typescript_types_are_ignored() {
    let text = "\
import type { Schema } from './types';
export type CONFIG_RESOLVE = string;
export interface ANCHOR { a: string }
export const __version__: string = '1' as const;
export const CONFIG = { a: [1, 2] as const, b: <number>3, c: 'x'! } as const satisfies Schema;
enum Level { Low }
export default async function execute<T>(params: T): Promise<void> {}
";
    for extension in [".ts", ".mts", ".cts"] {
        let metadata = tool(extension, text).unwrap();
        let expected = json!({"version": "1", "config": {"a": [1, 2], "b": 3, "c": "x"}});
        assert_eq!(values(&metadata), expected);
    }
}

/// The value of one name in an otherwise empty file.
fn value(literal: &str) -> Value {
    let metadata = tool(".js", &format!("export const __sandbox__ = {literal};\n")).unwrap();
    metadata.get("sandbox").unwrap().value.clone()
}

#[test]
fn literals_are_evaluated_as_in_javascript() {
    for (literal, expected) in [
        ("null", json!(null)),
        ("true", json!(true)),
        ("0xff", json!(255)),
        ("0o17", json!(15)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("1.0", json!(1)),
        ("-.5e1", json!(-5)),
        ("+2.5", json!(2.5)),
        ("1e21", json!(1e21)),
        (
            r"'\x41\u00e4\u{1F600}\ud83d\ude00\0\q\''",
            json!("Aä😀😀\0q'"),
        ),
        ("'a\\\nb'", json!("ab")),
        ("`a\r\nb\\`$`", json!("a\nb`$")),
        ("[]", json!([])),
        ("({ a: (1), })", json!({"a": 1})),
    ] {
        assert_eq!(value(literal), expected, "{literal}");
    }
}

#[test]
fn computed_values_are_rejected_with_their_position() {
    assert_snapshot!(refusals(".js", &[
        "export const CONFIG = { a: process.env.X };",
        "export const CONFIG = { a: `x${y}` };",
        "export const CONFIG = { ...base };",
        "export const CONFIG = { [key]: 1 };",
        "export const CONFIG = { short };",
        "export const CONFIG = { run() {} };",
        "export const CONFIG = Object.freeze({});",
        "export const CONFIG = { a: undefined };",
        "export const CONFIG = { a: 1 + 1 };",
        "export const CONFIG = { a: /x/ };",
        "export let CONFIG;",
        "export function CONFIG() {}",
        "import { CONFIG } from './x.js'; export { CONFIG };",
        "export { CONFIG } from './x.js';",
        "const CONFIG = {}; CONFIG.a = 1; export { CONFIG };",
        "module.exports = { CONFIG: load() };",
    ]), @r#"
    1:28: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { a: process.env.X };
        |                            ^

    1:30: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { a: `x${y}` };
        |                              ^

    1:25: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { ...base };
        |                         ^

    1:25: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { [key]: 1 };
        |                         ^

    1:25: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { short };
        |                         ^

    1:25: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { run() {} };
        |                         ^

    1:23: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = Object.freeze({});
        |                       ^

    1:28: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { a: undefined };
        |                            ^

    1:28: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { a: 1 + 1 };
        |                            ^

    1:28: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export const CONFIG = { a: /x/ };
        |                            ^

    1:12: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export let CONFIG;
        |            ^

    1:17: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | export function CONFIG() {}
        |                 ^

    1:43: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | import { CONFIG } from './x.js'; export { CONFIG };
        |                                           ^

    1:10: `CONFIG` is exported from another file; metadata is read from this file alone, without running it
      1 | export { CONFIG } from './x.js';
        |          ^
      hint: write the value here as a literal

    1:20: `CONFIG` is changed after its declaration; metadata is read without running the file
      1 | const CONFIG = {}; CONFIG.a = 1; export { CONFIG };
        |                    ^
      hint: write the whole value in one literal

    1:28: the value of `CONFIG` is computed; metadata is read without running the file, so only literals count
      1 | module.exports = { CONFIG: load() };
        |                            ^
    "#);
}

#[test]
fn unsupported_values_are_rejected() {
    assert_snapshot!(refusals(".js", &[
        "export const CONFIG = { a: 10n };",
        "export const CONFIG = { a: 1e999 };",
        "export const CONFIG = { a: 017 };",
        "export const CONFIG = { a: [1,,2] };",
        "export const CONFIG = { a: 1, 'a': 2 };",
        "export const CONFIG = { 1: 2 };",
        "export const CONFIG = { __proto__: {} };",
        r"export const CONFIG = { a: 'ü\ud83d' };",
        r"export const CONFIG = { a: '\07' };",
        "export const __version__ = '1';\nexports.__version__ = '2';",
        "/**\n * @version 1.0\n */",
        "/**\n * @tags [a\n */",
    ]), @r#"
    1:28: the number `10n` is a bigint, which metadata cannot hold
      1 | export const CONFIG = { a: 10n };
        |                            ^

    1:28: the number `1e999` is infinite
      1 | export const CONFIG = { a: 1e999 };
        |                            ^

    1:28: the number `017` begins with a zero, which modules do not allow
      1 | export const CONFIG = { a: 017 };
        |                            ^

    1:31: the value of `CONFIG` has a hole in an array
      1 | export const CONFIG = { a: [1,,2] };
        |                               ^
      hint: write null

    1:31: `a` is given twice on line 1
      1 | export const CONFIG = { a: 1, 'a': 2 };
        |                               ^

    1:25: a key in `CONFIG` must be a string, not a number
      1 | export const CONFIG = { 1: 2 };
        |                         ^
      hint: write it in quotes

    1:25: `__proto__` sets the prototype of an object and is not a key
      1 | export const CONFIG = { __proto__: {} };
        |                         ^

    1:30: half of a surrogate pair is not a character
      1 | export const CONFIG = { a: 'ü\ud83d' };
        |                              ^
      hint: write the character itself

    1:29: an octal escape is not allowed in a module
      1 | export const CONFIG = { a: '\07' };
        |                             ^
      hint: write the character's number as `\xXX`

    2:23: `__version__` is given on line 1 and again on line 2
      2 | exports.__version__ = '2';
        |                       ^

    2:13: `version` must be a string, not a number
      2 |  * @version 1.0
        |             ^
      hint: write it in quotes: "1.0"

    2:10: not valid YAML: unclosed bracket '['
      2 |  * @tags [a
        |          ^
    "#);
}

#[test]
fn syntax_errors_are_reported_with_their_position() {
    assert_snapshot!(refusals(".ts", &[
        "export const CONFIG = {a: [1, 2\n\nfunction f() { return 1 }\n",
        "const x = 1;\nconst y = = 2;\n",
        "const x = 'abc\n",
        "function f( {\n",
    ]), @r#"
    1:27: not valid TypeScript: `[` is never closed
      1 | export const CONFIG = {a: [1, 2
        |                           ^

    2:9: not valid TypeScript: the syntax is wrong here
      2 | const y = = 2;
        |         ^

    1:11: not valid TypeScript: this string is never closed
      1 | const x = 'abc
        |           ^

    1:13: not valid TypeScript: `{` is never closed
      1 | function f( {
        |             ^
    "#);
}
