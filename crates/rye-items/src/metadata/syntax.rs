//! Syntax trees: the parsers of tree-sitter, each made once per thread.

use std::cell::RefCell;
use std::ops::ControlFlow;

use tree_sitter::{Language, Node, ParseOptions, Parser, Tree};

use super::error::Problem;

/// A language that has a grammar here.
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

/// Parses a file that must have no error in its syntax.
pub(super) fn parse(text: &str, grammar: Grammar) -> Result<Tree, Problem> {
    let tree = PARSERS
        .with_borrow_mut(|parsers| {
            let parser = parser(&mut parsers[grammar as usize], grammar)?;
            let tree = bounded(parser, text);
            // One that gave up would otherwise go on where it was, with another text.
            parser.reset();
            tree
        })
        .ok_or_else(|| {
            let name = grammar.name();
            Problem::new(0, format!("the file is too tangled to be read as {name}"))
        })?;
    match first_error(tree.root_node()) {
        Some(problem) => Err(described(text, grammar, problem)),
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

/// Parses with a bound on the work, since recovery from errors can go astray.
/// The bound is a count and not a time, so that a file is always or never read.
fn bounded(parser: &mut Parser, text: &str) -> Option<Tree> {
    let bytes = text.as_bytes();
    let mut steps = 10_000 + bytes.len() / 4;
    let mut progress = |_: &tree_sitter::ParseState| match steps.checked_sub(1) {
        Some(left) => {
            steps = left;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let mut input = |at: usize, _| bytes.get(at..).unwrap_or_default();
    parser.parse_with_options(&mut input, None, Some(options))
}

/// The first node that stands for text which fits no rule, or that is missing.
fn first_error(root: Node<'_>) -> Option<Node<'_>> {
    if !root.has_error() {
        return None;
    }
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        if node.is_missing() {
            return Some(node);
        }
        // An error may hold what was understood before it; the innermost says most.
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        if node.is_error() {
            return Some(node);
        }
        loop {
            if cursor.goto_next_sibling() {
                break;
            }
            if !cursor.goto_parent() {
                return Some(root);
            }
            if cursor.node().is_error() {
                return Some(cursor.node());
            }
        }
    }
}

fn described(text: &str, grammar: Grammar, node: Node<'_>) -> Problem {
    let name = grammar.name();
    let at = node.start_byte();
    if node.is_missing() {
        let message = format!("not valid {name}: `{}` is missing here", node.kind());
        return Problem::new(at, message);
    }
    let message = format!("not valid {name}: the syntax is wrong here");
    // An error begins where the statement does that it spoils; what it lacks
    // is often at the end of the file.
    if node.end_byte() >= text.trim_end().len() && node.start_byte() < node.end_byte() {
        return Problem::new(at, message).hint("look for a bracket or quote that is never closed");
    }
    Problem::new(at, message)
}

/// The text of a node.
pub(super) fn source<'t>(text: &'t str, node: Node<'_>) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// The first part of a node that is no comment: what is between its brackets.
pub(super) fn inside(node: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = node.walk();
    let mut parts = node.named_children(&mut cursor);
    parts.find(|part| !part.is_extra())
}
