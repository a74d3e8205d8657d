//! Random and malicious input.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use strum::VariantArray as _;

use super::{SHIPPED, refused, tool};
use crate::ItemKind;
use crate::metadata::{Extractors, Parser, extract};

/// One extension for each parser, and an item kind that it supports.
const EACH: [(&str, ItemKind); 8] = [
    (".py", ItemKind::Tool),
    (".js", ItemKind::Tool),
    (".ts", ItemKind::Tool),
    (".yaml", ItemKind::Tool),
    (".sh", ItemKind::Tool),
    (".md", ItemKind::Directive),
    (".md", ItemKind::Knowledge),
    (".toml", ItemKind::Config),
];

/// Reads the bytes with every parser.
fn read_all(bytes: &[u8]) {
    for (extension, kind) in EACH {
        match extract(bytes, extension, kind, &SHIPPED) {
            Ok(metadata) => {
                let lines = bytes.split(|&b| b == b'\n').count();
                for field in metadata.fields.values() {
                    assert!(field.at.line as usize <= lines);
                }
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    let _ = Extractors::from_yaml(bytes);
}

#[test]
fn all_parsers_are_tested() {
    for parser in Parser::VARIANTS {
        let rule = |(extension, _): &(&str, _)| SHIPPED.rule(extension).unwrap().parser;
        assert!(EACH.iter().any(|each| rule(each) == *parser), "{parser:?}");
    }
}

#[test]
fn oversized_source_file_is_rejected_quickly() {
    let text = "x = 1\n".repeat(400_000);
    for extension in [".py", ".js", ".ts"] {
        let error = tool(extension, &text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a source file of more than 2 MiB is not parsed"
        );
    }
}

/// The stack size of a server thread, half of that of a test.
const SMALL_STACK: usize = 1024 * 1024;

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let mut texts = Vec::new();
    for depth in [60, 200, 3_000] {
        for (open, close) in [
            ("[", "]"),
            ("(", ")"),
            ("{'a': ", "}"),
            ("-", ""),
            ("[[1,2],", "]"),
        ] {
            let value = nested(open, close, depth);
            texts.push(format!("__sandbox__ = {value}\n"));
            texts.push(format!("export const __sandbox__ = {value};\n"));
            texts.push(format!("module.exports = {value};\n"));
            texts.push(format!("sandbox: {value}\n"));
            texts.push(format!("# sandbox: {value}\n"));
            texts.push(format!("if {value}:\n  x = 1\n"));
        }
        texts.push(nested("<directive><a>", "</a></directive>", depth));
        texts.push("- ".repeat(depth));
        texts.push("? ".repeat(depth));
        texts.push("a = ".repeat(depth) + "1\n");
        texts.push("__sandbox__ = ".repeat(depth) + "1\n");
        texts.push("> ".repeat(depth));
    }
    // Aliases can nest deeper than the text.
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for n in 1..5_000 {
        chain += &[
            "a",
            &n.to_string(),
            ": &a",
            &n.to_string(),
            " [*a",
            &(n - 1).to_string(),
            "]\n",
        ]
        .concat();
    }
    texts.push(chain);
    let mut blocks = String::new();
    for depth in 0..300 {
        blocks += &[&" ".repeat(depth), "if x:\n"].concat();
    }
    texts.push(blocks + &" ".repeat(300) + "__version__ = 1\n");
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
    let reading = thread.spawn(move || texts.iter().for_each(|text| read_all(text.as_bytes())));
    reading.unwrap().join().unwrap();
}

#[test]
fn nesting_up_to_the_limit_is_accepted() {
    let value = "[".repeat(50) + &"]".repeat(50);
    for (extension, before) in [
        (".py", "__sandbox__ = "),
        (".js", "export const __sandbox__ = "),
        (".yaml", "sandbox: "),
    ] {
        assert!(
            tool(extension, &format!("{before}{value}\n")).is_ok(),
            "{extension}"
        );
    }
    let value = "[".repeat(90) + &"]".repeat(90);
    let error = refused(tool(".py", &format!("__sandbox__ = {value}\n")));
    assert!(
        error.starts_with("1:80: the value of `__sandbox__` is nested too deeply"),
        "{error}"
    );
}

/// Asserts that the time is proportional to the file size, with tolerance for a busy machine.
#[track_caller]
fn is_quick(extension: &str, kind: ItemKind, text: &str) {
    let before = Instant::now();
    let _ = extract(text.as_bytes(), extension, kind, &SHIPPED);
    let taken = before.elapsed();
    assert!(
        taken < Duration::from_secs(20),
        "{taken:?} for {} bytes",
        text.len()
    );
}

#[test]
fn parsing_time_is_proportional_to_file_size() {
    const SIZE: usize = 64 * 1024;
    let repeated = |part: &str| part.repeat(SIZE / part.len());
    for part in [
        "x = 1\n",
        "# version\n",
        "'",
        "(",
        "__sandbox__ = 1\n",
        "}",
        "a b ",
        "f'{",
        "\\\n",
    ] {
        is_quick(".py", ItemKind::Tool, &repeated(part));
        is_quick(".js", ItemKind::Tool, &repeated(part));
    }
    // The known text that can reach the time limit, at a size that does not.
    is_quick(".py", ItemKind::Tool, &"\\\n".repeat(5_000));
    let list = repeated("1,");
    is_quick(".py", ItemKind::Tool, &format!("__sandbox__ = [{list}]"));
    is_quick(
        ".ts",
        ItemKind::Tool,
        &format!("export const __sandbox__ = [{list}]"),
    );
    is_quick(".yaml", ItemKind::Tool, &format!("sandbox: [{list}]"));
    is_quick(
        ".py",
        ItemKind::Tool,
        &format!("__sandbox__ = ({}1)", repeated("#\n")),
    );
    is_quick(
        ".py",
        ItemKind::Tool,
        &format!("__sandbox__ = '{}'", repeated("\\x41")),
    );
    let keys: Vec<_> = (0..SIZE / 16).map(|n| format!("k{n}: {n}")).collect();
    is_quick(".yaml", ItemKind::Tool, &format!("{{{}}}", keys.join(", ")));
    is_quick(".yaml", ItemKind::Tool, &keys.join("\n"));
    for part in [
        "a: &a b\n",
        "- ",
        "&a ",
        "!x ",
        "#\n",
        "'",
        "? ",
        "a:\n ",
        "{",
        "a: *b\n",
    ] {
        is_quick(".yaml", ItemKind::Tool, &repeated(part));
    }
    for part in [
        "# version: 1\n",
        "#\n",
        "# config:\n",
        "#  x\n",
        "__version__ = 1\n",
        "\n",
    ] {
        is_quick(".sh", ItemKind::Tool, &repeated(part));
    }
    for part in [
        "# x\n",
        "```\n",
        "text\n",
        "<a>",
        "<!-- x -->\n",
        "---\n",
        "<directive\n",
        "&",
    ] {
        is_quick(".md", ItemKind::Directive, &repeated(part));
        let inside = format!("<directive>{}</directive>", repeated(part));
        is_quick(".md", ItemKind::Directive, &inside);
    }
    is_quick(
        ".md",
        ItemKind::Directive,
        &format!("<directive {}/>", repeated("a='' ")),
    );
    let parts = repeated("<a>x</a>");
    let parts = format!("<directive><metadata>{parts}</metadata></directive>");
    is_quick(".md", ItemKind::Directive, &parts);
}

#[test]
fn alias_expansion_is_limited() {
    let long = "x".repeat(1_000_000);
    let aliases = "*a, ".repeat(10_000);
    let error = refused(tool(".yaml", &format!("a: &a {long}\nb: [{aliases}]\n")));
    assert!(error.starts_with("2:"), "{error}");
    assert!(
        error.contains("the aliases expand to too much data"),
        "{error}"
    );
}

/// Fragments of the syntax of all parsers.
const PIECES: [&str; 72] = [
    "__version__",
    "__sandbox__",
    "CONFIG",
    " = ",
    "'",
    "\"",
    "\"\"\"",
    "'''",
    "`",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    ";",
    "\n",
    "\r\n",
    " ",
    "  ",
    "\t",
    "#",
    "# version: ",
    "//",
    "/**",
    "*/",
    "@tags ",
    "@executor_id",
    "export const ",
    "export {",
    "module.exports",
    "exports.",
    "as const",
    "1",
    "-1",
    "0x",
    "1e9",
    ".5",
    "\\",
    "\\x4",
    "\\u{",
    "\\ud83d",
    "\\N{",
    "f'",
    "b'",
    "r'",
    "None",
    "true",
    "null",
    "def f(",
    "if x:",
    "try:",
    "import ",
    "---",
    "...",
    "```yaml",
    "```xml",
    "```",
    "<directive",
    "<metadata>",
    "</",
    ">",
    "&amp;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "&a",
    "*a",
    "<<: ",
];

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,100}") {
        read_all(text.as_bytes());
    }

    #[test]
    fn mixtures_of_syntax_never_panic(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40),
    ) {
        read_all(pieces.concat().as_bytes());
    }

    #[test]
    fn positions_point_at_the_values(
        before in prop::collection::vec("#[ a-zä]{0,10}", 0..5),
        version in "[a-z0-9.]{1,10}",
    ) {
        let text = before.join("\n") + &format!("\n__version__ = \"{version}\"\n");
        let metadata = tool(".py", &text).unwrap();
        let field = metadata.get("version").unwrap();
        prop_assert_eq!(field.value.as_str(), Some(version.as_str()));
        prop_assert_eq!(field.at.column, 15);
        prop_assert_eq!(field.at.line as usize, before.len().max(1) + 1);
    }
}
