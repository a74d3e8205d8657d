//! Syntax trees from tree-sitter. Each parser is created once per thread.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tree_sitter::{Language, Node, ParseOptions, Parser, Tree};

use super::error::Problem;

/// A language with a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    Python,
    JavaScript,
    TypeScript,
}

impl Grammar {
    fn language(self) -> Language {
        match self {
            Self::Python => tree_sitter_python::LANGUAGE.into(),
            Self::JavaScript => tree_sitter_javascript::LANGUAGE.into(),
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::TypeScript => "TypeScript",
        }
    }
}

thread_local! {
    static PARSERS: RefCell<[Option<Parser>; 3]> = const { RefCell::new([None, None, None]) };
}

/// Parses a file. A syntax error is an error.
pub(super) fn parse(text: &str, grammar: Grammar) -> Result<Tree, Problem> {
    let tree = PARSERS
        .with_borrow_mut(|parsers| {
            let parser = parser(&mut parsers[grammar as usize], grammar)?;
            let tree = parse_bounded(parser, text);
            // Otherwise a cancelled parser would resume with the next text.
            parser.reset();
            tree
        })
        .ok_or_else(|| {
            let name = grammar.name();
            Problem::new(0, format!("the file is too complex to parse as {name}"))
        })?;
    match first_error(tree.root_node()) {
        Some((node, outermost)) => Err(syntax_problem(grammar, node, outermost)),
        None => Ok(tree),
    }
}

fn parser(slot: &mut Option<Parser>, grammar: Grammar) -> Option<&mut Parser> {
    if slot.is_none() {
        let mut parser = Parser::new();
        parser.set_language(&grammar.language()).ok()?;
        *slot = Some(parser);
    }
    slot.as_mut()
}

/// Parses with a limit on the work, because error recovery can take very long.
///
/// The limit is a step count, so that the result does not depend on the machine. Some texts (a
/// hundred thousand continuation lines) make a single step long; only those reach the time limit,
/// which is many times what a file of that size normally takes.
fn parse_bounded(parser: &mut Parser, text: &str) -> Option<Tree> {
    let bytes = text.as_bytes();
    let mut steps = 10_000 + bytes.len() / 4;
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let limit = Duration::from_secs(5) + Duration::from_micros(4) * size;
    let begun = Instant::now();
    let mut progress = |_: &tree_sitter::ParseState| match steps.checked_sub(1) {
        Some(left) if begun.elapsed() < limit => {
            steps = left;
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let mut input = |at: usize, _| bytes.get(at..).unwrap_or_default();
    parser.parse_with_options(&mut input, None, Some(options))
}

/// The first error or missing node, and the outermost error that contains it.
fn first_error(root: Node<'_>) -> Option<(Node<'_>, Option<Node<'_>>)> {
    if !root.has_error() {
        return None;
    }
    let mut cursor = root.walk();
    let mut outermost = None;
    loop {
        let node = cursor.node();
        if node.is_error() {
            outermost = outermost.or(Some(node));
        }
        if node.is_missing() {
            return Some((node, outermost));
        }
        // An error may contain correctly parsed nodes; the innermost error is the most specific.
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        if node.is_error() {
            return Some((node, outermost));
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() || cursor.node().is_error() {
                return Some((cursor.node(), outermost));
            }
        }
    }
}

fn syntax_problem(grammar: Grammar, node: Node<'_>, outermost: Option<Node<'_>>) -> Problem {
    let invalid = |at: usize, what: &str| {
        let name = grammar.name();
        Problem::new(at, format!("not valid {name}: {what}"))
    };
    match outermost.and_then(unclosed) {
        Some((at, mark @ ("(" | "[" | "{"))) => {
            return invalid(at, &format!("`{mark}` is never closed"));
        }
        Some((at, _)) => return invalid(at, "this string is never closed"),
        None => {}
    }
    if node.is_missing() {
        return invalid(
            node.start_byte(),
            &format!("`{}` is missing here", node.kind()),
        );
    }
    invalid(node.start_byte(), "the syntax is wrong here")
}

/// The innermost unclosed bracket or quote in an error.
fn unclosed(error: Node<'_>) -> Option<(usize, &'_ str)> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    for part in error.children(&mut error.walk()) {
        match part.kind() {
            mark @ ("(" | "[" | "{" | "string_start") => open.push((part.start_byte(), mark)),
            ")" | "]" | "}" | "string_end" => drop(open.pop()),
            quote @ ("'" | "\"" | "`") if open.pop_if(|(_, mark)| *mark == quote).is_none() => {
                open.push((part.start_byte(), quote));
            }
            _ => {}
        }
    }
    open.pop()
}

/// The text of a node.
pub(super) fn source<'t>(text: &'t str, node: Node<'_>) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// The first child of a node that is not a comment: the content of its brackets.
pub(super) fn inside(node: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = node.walk();
    let mut parts = node.named_children(&mut cursor);
    parts.find(|part| !part.is_extra())
}
