//! Extractor tables.

use insta::assert_snapshot;
use serde_json::json;

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
    for parser in Parser::ALL {
        let fields = SHIPPED.sources(parser).fields().map(|(field, _)| field);
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
#[expect(clippy::too_many_lines, reason = "a table and what comes of it")]
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

    1:13: `extensions` must have a mapping here, not a list
      1 | extensions: [.py]
        |             ^

    2:3: the extension `py` must begin with a dot
      2 |   py: {}
        |   ^

    2:3: `.a b` is not an extension
      2 |   .a b: {}
        |   ^
      hint: an extension is a dot and one word, such as `.py`

    2:3: `.` is not an extension
      2 |   .: {}
        |   ^
      hint: an extension is a dot and one word, such as `.py`

    2:16: there is no parser `perl`
      2 |   .x: {parser: perl, comment: '#', kinds: [tool]}
        |                ^
      hint: the parsers are python, javascript, typescript, yaml, header, markdown

    2:3: `.x` has no `kinds`
      2 |   .x: {parser: yaml, comment: '#'}
        |   ^

    2:31: `comment` must be a comment marker without spaces
      2 |   .x: {parser: yaml, comment: '', kinds: [tool]}
        |                               ^

    2:31: `comment` must have a string here, not a number
      2 |   .x: {parser: yaml, comment: 1, kinds: [tool]}
        |                               ^

    2:22: `comment` has no `prefix`
      2 |   .x: {parser: yaml, comment: {suffix: x}, kinds: [tool]}
        |                      ^

    2:43: `kinds` must not be empty
      2 |   .x: {parser: yaml, comment: '#', kinds: []}
        |                                           ^

    2:44: there is no kind `tools`
      2 |   .x: {parser: yaml, comment: '#', kinds: [tools]}
        |                                            ^
      hint: the kinds are tool, directive, knowledge, config

    2:50: the kind `tool` is given twice
      2 |   .x: {parser: yaml, comment: '#', kinds: [tool, tool]}
        |                                                  ^

    2:51: unknown key `mode`
      2 |   .x: {parser: yaml, comment: '#', kinds: [tool], mode: x}
        |                                                   ^
      hint: the keys are parser, comment, kinds

    3:3: `.x` is given on line 2 and again on line 3
      3 |   .x: {}
        |   ^

    1:10: there is no parser `perl`
      1 | fields: {perl: {}}
        |          ^
      hint: the parsers are python, javascript, typescript, yaml, header, markdown

    3:5: there is no field `versoin`
      3 |     versoin: [__version__]
        |     ^
      hint: the fields are anchor, category, child_constraints, config, config_resolve, config_schema, description, effect, env_config, executor_id, inputs, name, outputs, reads, requires_approval, requires_env, risk_level, sandbox, tags, timeout, title, tool_type, verify_deps, version, writes

    3:14: `version` must have a list here, not a string
      3 |     version: __version__
        |              ^

    3:28: this source is listed twice
      3 |     version: [__version__, __version__]
        |                            ^

    3:15: `CONFIG.` is not a field source
      3 |     version: [CONFIG.]
        |               ^
      hint: a source is a name, followed by keys into its value: `CONFIG.risk_level`

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
