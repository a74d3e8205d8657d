//! The header parser, for any language with comments.

use insta::assert_snapshot;
use serde_json::json;

use super::{refusals, tool, values};

#[test]
fn leading_comments_are_read_until_the_first_code() {
    let text = "\
#!/usr/bin/env bash
# rye:signed:2026-04-10T03:28:17Z:00:11:22
#
# Counts lines: all of them.
# Note: not metadata, and neither is this.

# version: 1.0.0
# executor_id: rye/core/runtimes/bash/bash
# description: Does this: and that # really
# tags: [a, \"b c\"]
# timeout: 2.5
# requires_approval: true
# risk_level: low
# config_schema:
#   type: object
#   properties:
#     path: {type: string}
# requires_env:
# - TOKEN
# own: not asked for

set -e
# category: too/late
";
    let metadata = tool(".sh", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "executor_id": "rye/core/runtimes/bash/bash",
            "description": "Does this: and that # really",
            "tags": ["a", "b c"],
            "timeout": 2.5,
            "requires_approval": true,
            "risk_level": "low",
            "config_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            "requires_env": ["TOKEN"],
        })
    );
    let source = |name: &str| metadata.get(name).unwrap().at.to_string();
    assert_eq!(source("executor_id"), "8:16");
    assert_eq!(source("tags"), "10:9");
    assert_eq!(source("config_schema"), "15:5");
}

#[test]
fn dunder_assignments_are_read() {
    let text = "\
# rye:signed:TIMESTAMP:HASH:SIG:FP
\"\"\"
Tool description
\"\"\"

__version__ = \"1.0.0\"
__tool_type__ = 'ruby' # what it is
__executor_id__ = \"rye/core/runtimes/ruby/ruby\"
__timeout__ = 30
__requires_approval__ = false
__category__ = nil

def execute(params, project_path)
  __version__ = compute
  { success: true }
end

if __FILE__ == $0
end
";
    let metadata = tool(".rb", text).unwrap();
    assert_eq!(
        values(&metadata),
        json!({
            "version": "1.0.0",
            "tool_type": "ruby",
            "executor_id": "rye/core/runtimes/ruby/ruby",
            "timeout": 30,
            "requires_approval": false,
            "category": null,
        })
    );
    assert_eq!(metadata.get("version").unwrap().at.to_string(), "6:15");
}

#[test]
fn comment_style_depends_on_the_language() {
    for (extension, text) in [
        (".go", "// version: 1.0.0\npackage main\n"),
        (".rs", "//version: 1.0.0\r\n"),
        (".lua", "#!/usr/bin/lua\n-- version: 1.0.0\n"),
        (".toml", "# version: 1.0.0\n"),
    ] {
        let kind = match extension {
            ".toml" => crate::ItemKind::Config,
            _ => crate::ItemKind::Tool,
        };
        let metadata = super::extract(text.as_bytes(), extension, kind, &super::SHIPPED);
        assert_eq!(metadata.unwrap().version(), Some("1.0.0"), "{text}");
    }
    let metadata = tool(".go", "# version: 1.0.0\n").unwrap();
    assert_eq!(metadata.fields.len(), 0);
}

#[test]
fn invalid_values_are_reported_with_their_position() {
    assert_snapshot!(refusals(".sh", &[
        "# version: 1.0\n",
        "# a\n# version: 1.0.0\n# b\n# version: 1.0.0\n",
        "# tags: [a, b\n",
        "# tags: a, b\n",
        "#   config:\n#      a: 1\n#      a: 2\n",
        "# config:\n#   a: [1,\n#       ü: }]\n",
        "# timeout: soon\n",
        "__version__=$(cat VERSION)\n",
        "__version__ = \"1.#{minor}\"\n",
        "__version__ = \"1\"\n__version__ = \"2\"\n",
        "__version__ = 'a' + 'b'\n",
        "__version__ = \"open\n",
    ]), @r#"
    1:12: `version` must be a string, not a number
      1 | # version: 1.0
        |            ^
      hint: write it in quotes: "1.0"

    4:12: `version` is given on line 2 and again on line 4
      4 | # version: 1.0.0
        |            ^

    1:9: not valid YAML: unclosed bracket '['
      1 | # tags: [a, b
        |         ^

    1:9: `tags` must be a list of strings, not a string
      1 | # tags: a, b
        |         ^
      hint: write it as a list: ["a", "b"]

    3:8: `a` is given on line 2 and again on line 3
      3 | #      a: 2
        |        ^

    2:8: not valid YAML: mismatched bracket '[' closed by '}'
      2 | #   a: [1,
        |        ^

    1:12: `timeout` must be a number of seconds, not a string
      1 | # timeout: soon
        |            ^

    1:13: the value of `__version__` is computed; metadata is read without running the file, so only literals count
      1 | __version__=$(cat VERSION)
        |             ^

    1:15: the value of `__version__` is computed; metadata is read without running the file, so only literals count
      1 | __version__ = "1.#{minor}"
        |               ^
      hint: write a string without escapes and placeholders

    2:15: `__version__` is given on line 1 and again on line 2
      2 | __version__ = "2"
        |               ^

    1:15: the value of `__version__` is computed; metadata is read without running the file, so only literals count
      1 | __version__ = 'a' + 'b'
        |               ^
      hint: write a string without escapes and placeholders

    1:15: the value of `__version__` is computed; metadata is read without running the file, so only literals count
      1 | __version__ = "open
        |               ^
    "#);
}
