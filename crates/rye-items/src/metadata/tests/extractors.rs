//! Extractor tables.

use insta::assert_snapshot;
use serde_json::json;

use strum::VariantArray as _;

use super::{SHIPPED, refused, values};
use crate::CommentStyle;
use crate::ItemKind;
use crate::metadata::{Extractors, Parser, extract};

fn read(text: &str) -> Extractors {
    Extractors::from_yaml(text.as_bytes()).unwrap()
}

#[test]
fn system_table_covers_all_item_languages() {
    let extensions = |kind| SHIPPED.extensions(kind).collect::<Vec<_>>();
    assert_eq!(extensions(ItemKind::Config), [".toml", ".yaml", ".yml"]);
    assert_eq!(extensions(ItemKind::Directive), [".md"]);
    assert_eq!(extensions(ItemKind::Knowledge), [".md"]);
    let tools = extensions(ItemKind::Tool);
    for extension in [
        ".py", ".js", ".ts", ".mjs", ".cjs", ".yaml", ".sh", ".rb", ".go", ".rs",
    ] {
        assert!(tools.contains(&extension), "{extension}");
    }
    assert!(tools.is_sorted());
    let comment = |extension| SHIPPED.rule(extension).unwrap().comment.clone();
    let mark = |prefix: &str, suffix: Option<&str>| CommentStyle {
        prefix: prefix.to_owned().into(),
        suffix: suffix.map(|s| s.to_owned().into()),
    };
    assert_eq!(comment(".py"), mark("#", None));
    assert_eq!(comment(".ts"), mark("//", None));
    assert_eq!(comment(".lua"), mark("--", None));
    assert_eq!(comment(".md"), mark("<!--", Some("-->")));
    assert_eq!(SHIPPED.rule(".PY"), None);
    assert_eq!(SHIPPED.rule("py"), None);
}

#[test]
fn system_table_is_an_item() {
    let table =
        include_bytes!("../../../../../system/.ai/tools/rye/core/extractors/tool_extractor.yaml");
    let metadata = extract(table, ".yaml", ItemKind::Tool, &SHIPPED).unwrap();
    assert_eq!(metadata.tool_type(), Some("extractor"));
    assert_eq!(metadata.executor_id(), None);
    assert!(metadata.version().is_some() && metadata.description().is_some());
}

#[test]
fn system_table_maps_every_field_for_every_parser() {
    for parser in Parser::VARIANTS {
        let fields = SHIPPED.sources(*parser).0.keys().map(String::as_str);
        assert!(fields.eq(crate::metadata::check::names()), "{parser:?}");
    }
}

#[test]
fn project_table_overrides_the_system_table() {
    let mut extractors = SHIPPED.clone();
    extractors.merge(read(
        "extensions:\n  .kt: {parser: header, comment: //, kinds: [tool]}\n  \
         .py: {parser: python, comment: '#', kinds: [tool, config]}\n\
         fields:\n  header: {version: [release]}\n",
    ));
    let kotlin = b"// release: 1.0.0\n// version: 2.0.0\n// category: c\n";
    let metadata = extract(kotlin, ".kt", ItemKind::Tool, &extractors).unwrap();
    assert_eq!(
        values(&metadata),
        json!({"version": "1.0.0", "category": "c"})
    );
    assert!(
        extractors
            .extensions(ItemKind::Config)
            .any(|one| one == ".py")
    );
    let metadata = extract(b"__version__ = '1'", ".py", ItemKind::Tool, &extractors).unwrap();
    assert_eq!(metadata.version(), Some("1"));
}

#[test]
fn file_without_a_rule_is_rejected() {
    let unknown = extract(b"x", ".xyz", ItemKind::Tool, &SHIPPED);
    assert_snapshot!(refused(unknown), @r#"
    1:1: no parser is configured for files that end in `.xyz`
      1 | x
        | ^
      hint: map the extension to a parser in `tool_extractor.yaml`
    "#);
    let elsewhere = extract(b"x", ".py", ItemKind::Directive, &SHIPPED);
    assert_snapshot!(refused(elsewhere), @r#"
    1:1: a directive cannot be a file that ends in `.py`
      1 | x
        | ^
    "#);
}

#[test]
fn invalid_tables_are_reported_with_their_position() {
    let row = |row: &str| format!("extensions:\n  .x: {row}\n");
    let fields = |fields: &str| format!("fields:\n  python:\n    {fields}\n");
    let shown: Vec<_> = [
        "extension: {}\n".to_owned(),
        "extensions: [.py]\n".to_owned(),
        "extensions:\n  py: {}\n".to_owned(),
        "extensions:\n  .a b: {}\n".to_owned(),
        "extensions:\n  .: {}\n".to_owned(),
        row("{parser: perl, comment: '#', kinds: [tool]}"),
        row("{parser: yaml, comment: '#'}"),
        row("{parser: yaml, comment: '', kinds: [tool]}"),
        row("{parser: yaml, comment: 1, kinds: [tool]}"),
        row("{parser: yaml, comment: {suffix: x}, kinds: [tool]}"),
        row("{parser: yaml, comment: '#', kinds: []}"),
        row("{parser: yaml, comment: '#', kinds: [tools]}"),
        row("{parser: yaml, comment: '#', kinds: [tool, tool]}"),
        row("{parser: yaml, comment: '#', kinds: [tool], mode: x}"),
        "extensions:\n  .x: {}\n  .x: {}\n".to_owned(),
        "fields: {perl: {}}\n".to_owned(),
        fields("versoin: [__version__]"),
        fields("version: __version__"),
        fields("version: [__version__, __version__]"),
        fields("version: [CONFIG.]"),
        fields("version: [\"@paragraph\"]"),
        "- a\n".to_owned(),
    ]
    .iter()
    .map(|text| refused(Extractors::from_yaml(text.as_bytes())))
    .collect();
    assert_snapshot!(shown.join("\n"), @r#"
    1:1: unknown key `extension`
      1 | extension: {}
        | ^
      hint: the keys are extensions, fields, and those of any item

    1:13: expected mapping start at line 1, column 13
      1 | extensions: [.py]
        |             ^

    2:3: `py` is not an extension: a dot and one word, such as `.py` at line 2, column 3
      2 |   py: {}
        |   ^

    2:3: `.a b` is not an extension: a dot and one word, such as `.py` at line 2, column 3
      2 |   .a b: {}
        |   ^

    2:3: `.` is not an extension: a dot and one word, such as `.py` at line 2, column 3
      2 |   .: {}
        |   ^

    2:16: unknown variant `perl`, expected one of python, javascript, typescript, yaml, header, markdown at line 2, column 16
      2 |   .x: {parser: perl, comment: '#', kinds: [tool]}
        |                ^

    2:22: missing field `kinds` at line 2, column 22
      2 |   .x: {parser: yaml, comment: '#'}
        |                      ^

    2:31: a comment marker must be a word without spaces at line 2, column 31
      2 |   .x: {parser: yaml, comment: '', kinds: [tool]}
        |                               ^

    2:31: a comment must be a marker, or a mapping with `prefix` and `suffix` at line 2, column 31
      2 |   .x: {parser: yaml, comment: 1, kinds: [tool]}
        |                               ^

    2:31: a comment must be a marker, or a mapping with `prefix` and `suffix` at line 2, column 31
      2 |   .x: {parser: yaml, comment: {suffix: x}, kinds: [tool]}
        |                               ^

    2:43: `kinds` must not be empty or contain duplicates at line 2, column 43
      2 |   .x: {parser: yaml, comment: '#', kinds: []}
        |                                           ^

    2:44: unknown variant `tools`, expected one of tool, directive, knowledge, config at line 2, column 44
      2 |   .x: {parser: yaml, comment: '#', kinds: [tools]}
        |                                            ^

    2:43: `kinds` must not be empty or contain duplicates at line 2, column 43
      2 |   .x: {parser: yaml, comment: '#', kinds: [tool, tool]}
        |                                           ^

    2:51: unknown field `mode`, expected one of parser, comment, kinds at line 2, column 51
      2 |   .x: {parser: yaml, comment: '#', kinds: [tool], mode: x}
        |                                                   ^

    3:3: `.x` is given on line 2 and again on line 3
      3 |   .x: {}
        |   ^

    1:10: unknown variant `perl`, expected one of python, javascript, typescript, yaml, header, markdown at line 1, column 10
      1 | fields: {perl: {}}
        |          ^

    3:5: there is no field `versoin`; the fields are anchor, category, child_constraints, config, config_resolve, config_schema, description, effect, env_config, executor_id, inputs, name, outputs, reads, requires_approval, requires_env, risk_level, sandbox, tags, timeout, title, tool_type, verify_deps, version, writes at line 3, column 5
      3 |     versoin: [__version__]
        |     ^

    3:14: expected sequence start at line 3, column 14
      3 |     version: __version__
        |              ^

    3:28: this source is listed twice
      3 |     version: [__version__, __version__]
        |                            ^

    3:15: `CONFIG.` is not a field source: a name, followed by keys into its value, such as `CONFIG.risk_level` at line 3, column 15
      3 |     version: [CONFIG.]
        |               ^

    3:15: python files have no `@paragraph`
      3 |     version: ["@paragraph"]
        |               ^
      hint: available: @docstring

    1:1: metadata must be a mapping of keys to values, not a list
      1 | - a
        | ^
    "#);
}

#[test]
fn serialised_table_round_trips() {
    let json = serde_json::to_vec(&*SHIPPED).unwrap();
    let read: Extractors = serde_json::from_slice(&json).unwrap();
    assert_eq!(read, *SHIPPED);
}
