//! Markdown files.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{SHIPPED, refused, values};
use crate::ItemKind;
use crate::metadata::{Metadata, MetadataError, extract};

fn directive(text: &str) -> Result<Metadata, MetadataError> {
    extract(text.as_bytes(), ".md", ItemKind::Directive, &SHIPPED)
}

fn knowledge(text: &str) -> Result<Metadata, MetadataError> {
    extract(text.as_bytes(), ".md", ItemKind::Knowledge, &SHIPPED)
}

const ELEMENT: &str = r#"<directive name="lsp" version="1.0.0">
  <metadata>
    <description>Runs &quot;linters&quot; &amp; more,
      R&D, <![CDATA[a < b]]></description>
    <category>rye/lsp</category>
    <author>rye-os</author>
    <model tier="haiku" />
    <limits max_turns="3" max_tokens="4096" />
    <permissions><execute><tool>rye.lsp.*</tool></execute><load>*</load></permissions>
  </metadata>
  <!-- a comment -->
  <inputs>
    <input name="file_path" type="string" required="true">Path to the file to lint</input>
    <input name="fix" type="boolean" required="false" />
  </inputs>
  <outputs><output name="diagnostics">What was found</output></outputs>
</directive>"#;

fn element() -> Value {
    json!({
        "name": "lsp",
        "version": "1.0.0",
        "description": "Runs \"linters\" & more, R&D, a < b",
        "category": "rye/lsp",
        "author": "rye-os",
        "model": {"tier": "haiku"},
        "limits": {"max_turns": 3, "max_tokens": 4096},
        "permissions": {"execute": {"tool": ["rye.lsp.*"]}, "load": "*"},
        "inputs": [
            {
                "name": "file_path",
                "type": "string",
                "required": true,
                "description": "Path to the file to lint",
            },
            {"name": "fix", "type": "boolean", "required": false},
        ],
        "outputs": [{"name": "diagnostics", "description": "What was found"}],
    })
}

#[test]
fn published_directive_is_read() {
    let text = format!(
        "<!-- rye:signed:x -->\n# LSP Diagnostics\n\nRun LSP linters.\n\n\
         ```python\n<directive name='no'>\n```\n\n```xml\n{ELEMENT}\n```\n\n<process>\n"
    );
    let metadata = directive(&text).unwrap();
    let mut expected = element();
    expected["title"] = json!("LSP Diagnostics");
    assert_eq!(values(&metadata), expected);
    assert_eq!(metadata.parameter_names(), ["file_path", "fix"]);
    let source = |name: &str| metadata.get(name).unwrap().at.to_string();
    assert_eq!(source("version"), "11:32");
    assert_eq!(source("description"), "13:18");
    assert_eq!(source("inputs"), "22:3");
}

#[test]
fn element_without_markdown_is_a_directive() {
    assert_eq!(values(&directive(ELEMENT).unwrap()), element());
    let after = format!("{ELEMENT} <directive name='other'> & what not");
    assert_eq!(values(&directive(&after).unwrap()), element());
}

#[test]
fn knowledge_ignores_the_directive_element() {
    let metadata = knowledge(&format!("# About\n\n{ELEMENT}\n")).unwrap();
    assert_eq!(values(&metadata), json!({"title": "About"}));
}

#[test]
fn both_forms_of_front_matter_are_read() {
    let yaml = "name: runtime-authoring\ntitle: \"Guide\"\nversion: \"1.0.0\"\n\
        created_at: 2026-02-23T00:00:00Z\ntags:\n  - runtime\n  - yaml\n";
    let expected = json!({
        "name": "runtime-authoring",
        "title": "Guide",
        "version": "1.0.0",
        "created_at": "2026-02-23T00:00:00Z",
        "tags": ["runtime", "yaml"],
        "description": "How to.",
    });
    let body = "\n# Custom\n\nHow to.\n\n```yaml\nversion: 2\n```\n";
    for (open, close) in [
        ("---", "---"),
        ("---", "..."),
        ("```yaml", "```"),
        ("~~~~ yml", "~~~~~"),
    ] {
        for before in ["", "<!-- rye:signed:x -->\n\n", "\u{feff}\n"] {
            let text = format!("{before}{open}\n{yaml}{close}\n{body}");
            for text in [text.replace('\n', "\r\n"), text] {
                let metadata = knowledge(&text).unwrap();
                assert_eq!(values(&metadata), expected, "{text}");
            }
        }
    }
    let metadata = knowledge(&format!("<!-- rye:signed:x -->\n---\n{yaml}---\n")).unwrap();
    assert_eq!(metadata.get("version").unwrap().at.to_string(), "5:10");
}

#[test]
fn front_matter_overrides_the_element() {
    let metadata = directive(&format!("---\nversion: '2'\n---\n{ELEMENT}")).unwrap();
    assert_eq!(metadata.version(), Some("2"));
    assert_eq!(metadata.category(), Some("rye/lsp"));
}

#[test]
fn title_and_description_come_from_prose() {
    for (text, expected) in [
        ("", json!({})),
        ("# A title ##\n", json!({"title": "A title"})),
        ("#no heading\n", json!({})),
        (
            "## Second\n\n- a list\n> a quote\n\nOne\n two.\n\nThree.\n# Late\n",
            json!({"title": "Late", "description": "One two."}),
        ),
        (
            "```\n# in a block\ntext\n```\n# Out\ntext\n",
            json!({"title": "Out", "description": "text"}),
        ),
        ("```\nnever closed\n# x\n", json!({})),
        ("---\n---\n# T\n", json!({"title": "T"})),
    ] {
        assert_eq!(values(&knowledge(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn invalid_documents_are_reported_with_their_position() {
    let deep = "<a>".repeat(200);
    let many: String = (0..100)
        .flat_map(|n| [" a".into(), n.to_string(), "=''".into()])
        .collect();
    let directives = [
        "# x\n---\n",
        "---\nversion: '1'\n",
        "```yaml\nversion: '1'\n``\n",
        "---\nversion: 1.0\n---\n",
        "<!-- s -->\n---\na: 1\nä: [\n---\n",
        "---\n- a\n---\n",
        "<directive name=\"x\"><metadata></directive>",
        "x\n\n```xml\n<directive name=\"x\">\n  <inputs>\n```\n</inputs></directive>\n",
        "<directive name=\"x\" name=\"y\"/>",
        "<directive><a></b\n\u{1b}c></directive>",
        "<directive name=x/>",
        "<directive name=\"&x;\"/>",
        "<directive><metadata>&bomb;</metadata></directive>",
        "<directive><!DOCTYPE x [<!ENTITY a \"b\">]></directive>",
        "<directive><?php x ?></directive>",
        "<directive><metadata><timeout>soon</timeout></metadata></directive>",
        &format!("<directive>{deep}"),
        &format!("<directive{many}/>"),
    ];
    let shown: Vec<_> = directives[1..]
        .iter()
        .map(|text| refused(directive(text)))
        .collect();
    assert!(directive(directives[0]).is_ok());
    assert_snapshot!(shown.join("\n"), @r#"
    1:1: the front matter is never closed
      1 | ---
        | ^
      hint: end it with the same line that starts it

    1:1: the front matter is never closed
      1 | ```yaml
        | ^
      hint: end it with the same line that starts it

    2:10: `version` must be a string, not a number
      2 | version: 1.0
        |          ^
      hint: write it in quotes: "1.0"

    4:4: not valid YAML: unclosed bracket '['
      4 | ä: [
        |    ^

    2:1: metadata must be a mapping of keys to values, not a list
      2 | - a
        | ^

    1:31: not valid XML: expected `</metadata>`, found `</directive>`
      1 | <directive name="x"><metadata></directive>
        |                               ^

    5:3: `<inputs>` is never closed
      5 |   <inputs>
        |   ^

    1:21: not valid XML: the attribute is given twice
      1 | <directive name="x" name="y"/>
        |                     ^

    1:15: not valid XML: expected `</a>`, found `</b\n\u{1b}c>`
      1 | <directive><a></b
        |               ^

    1:17: not valid XML: the value of an attribute needs quotes
      1 | <directive name=x/>
        |                 ^

    1:18: not valid XML: there is no entity `&x;`
      1 | <directive name="&x;"/>
        |                  ^
      hint: write `&amp;` for an ampersand

    1:22: not valid XML: there is no entity `&bomb;`
      1 | <directive><metadata>&bomb;</metadata></directive>
        |                      ^
      hint: write `&amp;` for an ampersand

    1:12: a directive may hold elements and text, but no declarations
      1 | <directive><!DOCTYPE x [<!ENTITY a "b">]></directive>
        |            ^

    1:12: a directive may hold elements and text, but no declarations
      1 | <directive><?php x ?></directive>
        |            ^

    1:31: `timeout` must be a number of seconds, not a string
      1 | <directive><metadata><timeout>soon</timeout></metadata></directive>
        |                               ^

    1:201: the elements are nested too deeply
      1 | <a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>
        |                                     ^

    1:1: the element has too many attributes
      1 | <directive a0='' a1='' a2='' a3='' a4='' a5='' a6='' a7='' a8='' a9='' a
        | ^
    "#);
}
