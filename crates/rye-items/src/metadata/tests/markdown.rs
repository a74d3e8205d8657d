//! M
use super::values;
use super::*;
use serde_json::json;

#[test]
fn sanity() {
    let m = extract(b"# LSP Diagnostics\n\nRun LSP linters on a file\nand return diagnostics.\n\n```xml\n<directive name=\"lsp\" version=\"1.0.0\">\n  <metadata><description>D &amp; x</description><category>rye/lsp</category><author>rye-os</author><model tier=\"haiku\" /><limits max_turns=\"3\" max_tokens=\"4096\" /><permissions><execute><tool>rye.lsp.*</tool></execute></permissions></metadata>\n  <inputs><input name=\"file_path\" type=\"string\" required=\"true\">Path to the file to lint</input></inputs>\n  <outputs><output name=\"diagnostics\">X</output></outputs>\n</directive>\n```\n", ".md", ItemKind::Directive, &SHIPPED).unwrap();
    assert_eq!(m.version(), Some("1.0.0"));
    let m = extract(
        b"---\ntitle: x\nfoo: 1\n---\n# A\n\npara\n",
        ".md",
        ItemKind::Knowledge,
        &SHIPPED,
    )
    .unwrap();
    assert_eq!(
        values(&m),
        json!({"title": "x", "foo": 1, "description": "para"})
    );
}
