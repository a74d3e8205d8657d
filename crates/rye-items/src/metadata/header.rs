//! Parser for any language: reads leading comment lines (`# executor_id: …`) and assignments of
//! literals to dunder names.

use super::error::Problem;
use super::extractors::FieldSources;
use super::named_values::NamedValues;
use super::node::{Data, Node};
use super::text::{Line, is_signature, lines};
use super::yaml;
use crate::CommentStyle;

/// Reads the metadata of a file with this comment style.
pub(super) fn read(
    text: &str,
    comment: &CommentStyle,
    sources: &FieldSources,
) -> Result<NamedValues, Problem> {
    let mut values = NamedValues::only_fields();
    comments(text, comment, sources, &mut values)?;
    assignments(text, sources, &mut values)?;
    Ok(values)
}

/// Reads the comment lines before the first line of code.
fn comments(
    text: &str,
    comment: &CommentStyle,
    sources: &FieldSources,
    values: &mut NamedValues,
) -> Result<(), Problem> {
    let leading = lines(text, 0).map_while(|line| CommentLine::parse(line, comment));
    let mut lines_of_comment = leading.peekable();
    while let Some(comment_line) = lines_of_comment.next() {
        let Some((key, value)) = comment_line.pair() else {
            continue;
        };
        if !sources.contains(key) {
            values.add_other(key, sources);
            continue;
        }
        // Lines that are indented deeper than the key continue its value.
        let mut block = Block::new(&comment_line);
        while let Some(next) = lines_of_comment.next_if(|next| next.continues(&comment_line, value))
        {
            block.add(&next);
        }
        let node = if block.is_one_line {
            scalar(
                value,
                comment_line.at + comment_line.text.len() - value.len(),
            )?
        } else {
            block.value(key)?
        };
        values.add(text, key, node)?;
    }
    Ok(())
}

/// The text of a comment line; empty for a blank line.
struct CommentLine<'t> {
    line: Line<'t>,
    /// The byte offset of the text, after the comment prefix and spaces.
    at: usize,
    text: &'t str,
}

impl<'t> CommentLine<'t> {
    fn parse(line: Line<'t>, comment: &CommentStyle) -> Option<Self> {
        let empty = Self {
            line,
            at: line.end(),
            text: "",
        };
        if line.is_blank() || is_signature(line.text) || line.text.starts_with("#!") {
            return Some(empty);
        }
        let inside = line.text.trim_start().strip_prefix(&*comment.prefix)?;
        let inside = inside.trim_end();
        let inside = match &comment.suffix {
            Some(suffix) => inside.strip_suffix(&**suffix)?.trim_end(),
            None => inside,
        };
        let text = inside.trim_start();
        let end = inside.as_ptr().addr() + inside.len() - line.text.as_ptr().addr();
        Some(Self {
            line,
            at: line.at + end - text.len(),
            text,
        })
    }

    /// `key: value`.
    fn pair(&self) -> Option<(&'t str, &'t str)> {
        let (key, value) = self.text.split_once(':')?;
        let word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let apart = value.is_empty() || value.starts_with([' ', '\t']);
        (word && apart).then_some((key, value.trim()))
    }

    fn indent(&self) -> usize {
        self.at - self.line.at
    }

    fn continues(&self, first: &Self, value: &str) -> bool {
        let listed = value.is_empty() && self.text.starts_with("- ");
        let deeper = self.indent() > first.indent();
        !self.text.is_empty() && (deeper || listed && self.indent() == first.indent())
    }
}

/// The lines of one value. Spaces replace the comment prefixes, so that byte offsets match the
/// file.
struct Block {
    at: usize,
    yaml: String,
    is_one_line: bool,
}

impl Block {
    fn new(first: &CommentLine<'_>) -> Self {
        Self {
            at: first.at,
            yaml: first.text.to_owned(),
            is_one_line: true,
        }
    }

    fn add(&mut self, next: &CommentLine<'_>) {
        let before = next.at.saturating_sub(self.at + self.yaml.len());
        let indent = next.indent().min(before.saturating_sub(1));
        self.yaml
            .extend(std::iter::repeat_n(' ', before - indent - 1));
        self.yaml.push('\n');
        self.yaml.extend(std::iter::repeat_n(' ', indent));
        self.yaml.push_str(next.text);
        self.is_one_line = false;
    }

    fn value(&self, key: &str) -> Result<Node, Problem> {
        let moved = |problem: Problem| problem.shifted(self.at);
        let entries = yaml::mapping(&self.yaml).map_err(moved)?;
        let mut values = entries.into_iter().filter(|entry| entry.key == key);
        match values.next() {
            Some(entry) => Ok(entry.value.shifted(self.at)),
            None => Err(Problem::new(
                self.at,
                format!("`{key}` has no value that is valid YAML"),
            )),
        }
    }
}

/// Parses a value on one line: a YAML scalar, a flow collection, or otherwise a plain string.
pub(super) fn scalar(value: &str, at: usize) -> Result<Node, Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
    let marked = value.starts_with(['[', '{', '"', '\'']);
    if marked || value.chars().all(plain) {
        let node = yaml::value(value).map_err(|problem| problem.shifted(at))?;
        return Ok(node.shifted(at));
    }
    Ok(Node::text(at, value))
}

/// Reads assignments such as `__version__ = "1.0.0"` at the start of a line.
fn assignments(
    text: &str,
    sources: &FieldSources,
    values: &mut NamedValues,
) -> Result<(), Problem> {
    for line in lines(text, 0) {
        if !line.text.starts_with("__") {
            continue;
        }
        let Some((name, value)) = line.text.split_once('=') else {
            continue;
        };
        let name = name.trim_end();
        if value.starts_with(['=', '~', '>']) {
            continue;
        }
        if !sources.contains(name) {
            values.add_other(name, sources);
            continue;
        }
        let value = value.trim();
        let at = line.at + (value.as_ptr().addr() - line.text.as_ptr().addr());
        values.add(text, name, literal(name, value, at)?)?;
    }
    Ok(())
}

/// Parses a string, number, boolean or null in the syntax of most languages.
fn literal(name: &str, value: &str, at: usize) -> Result<Node, Problem> {
    let computed = || {
        let message = format!(
            "the value of `{name}` is computed; metadata is read without running the file, so only literals count"
        );
        Problem::new(at, message)
    };
    let value = value.trim_end_matches(';').trim_end();
    if let Some(quote) = value.chars().next().filter(|c| "\"'".contains(*c)) {
        let inside = value[1..]
            .find(quote)
            .map(|end| (&value[1..=end], &value[end + 2..]));
        let (inside, rest) = inside.ok_or_else(computed)?;
        let ended = rest.trim_start().is_empty() || rest.trim_start().starts_with(['#', '/', '-']);
        if !ended || inside.contains(['\\', '$']) || inside.contains("#{") {
            return Err(computed().hint("write a string without escapes and placeholders"));
        }
        return Ok(Node::text(at, inside));
    }
    let word = value.split([' ', '\t', '#']).next().unwrap_or_default();
    let data = match word {
        "nil" | "null" | "None" | "undef" => Data::Null,
        "true" | "True" => Data::Bool(true),
        "false" | "False" => Data::Bool(false),
        _ => match yaml::value(word).map(|node| node.data) {
            Ok(Data::Number(number)) => Data::Number(number),
            _ => return Err(computed()),
        },
    };
    Ok(Node::new(at, data))
}
