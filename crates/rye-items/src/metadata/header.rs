//! Any language: leading comment lines (`# executor_id: …`), and assignments of
//! literals to dunder names.

use super::error::Problem;
use super::extractors::FieldSources;
use super::named_values::NamedValues;
use super::node::{Data, Node};
use super::text::{Line, is_signature, lines};
use super::yaml;
use crate::CommentStyle;

/// Reads a file by what a line of its language's comments looks like.
pub(super) fn read(
    text: &str,
    comment: &CommentStyle,
    places: &FieldSources,
) -> Result<NamedValues, Problem> {
    let mut found = NamedValues::only_fields();
    comments(text, comment, places, &mut found)?;
    assignments(text, places, &mut found)?;
    Ok(found)
}

/// The comment lines before the first line that is something else.
fn comments(
    text: &str,
    comment: &CommentStyle,
    places: &FieldSources,
    found: &mut NamedValues,
) -> Result<(), Problem> {
    let leading = lines(text, 0).map_while(|line| Remark::of(line, comment));
    let mut remarks = leading.peekable();
    while let Some(remark) = remarks.next() {
        let Some((key, value)) = remark.pair().filter(|(key, _)| places.wants(key)) else {
            continue;
        };
        // Lines that are indented deeper than the key go on with its value.
        let mut block = Block::new(&remark);
        while let Some(next) = remarks.next_if(|next| next.continues(&remark, value)) {
            block.add(&next);
        }
        let node = if block.is_one_line {
            scalar(value, remark.at + remark.text.len() - value.len())?
        } else {
            block.value(key)?
        };
        found.add(text, key, node)?;
    }
    Ok(())
}

/// What is inside of a comment line, or a blank line's nothing.
struct Remark<'t> {
    line: Line<'t>,
    /// Where the inside begins, after the mark and spaces.
    at: usize,
    text: &'t str,
}

impl<'t> Remark<'t> {
    fn of(line: Line<'t>, comment: &CommentStyle) -> Option<Self> {
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

/// The lines of one value, with spaces in place of what makes them comments,
/// so that every byte is where it is in the file.
struct Block {
    at: usize,
    yaml: String,
    is_one_line: bool,
}

impl Block {
    fn new(first: &Remark<'_>) -> Self {
        Self {
            at: first.at,
            yaml: first.text.to_owned(),
            is_one_line: true,
        }
    }

    fn add(&mut self, next: &Remark<'_>) {
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
        let moved = |problem: Problem| problem.after(self.at);
        let entries = yaml::mapping(&self.yaml).map_err(moved)?;
        let mut values = entries.into_iter().filter(|entry| entry.key == key);
        match values.next() {
            Some(entry) => Ok(entry.value.after(self.at)),
            None => Err(Problem::new(
                self.at,
                format!("`{key}` has no value that is valid YAML"),
            )),
        }
    }
}

/// A value on one line: a scalar of YAML, a flow collection, or else a text as it stands.
pub(super) fn scalar(value: &str, at: usize) -> Result<Node, Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
    let marked = value.starts_with(['[', '{', '"', '\'']);
    if marked || value.chars().all(plain) {
        let node = yaml::value(value).map_err(|problem| problem.after(at))?;
        return Ok(node.after(at));
    }
    Ok(Node::text(at, value))
}

/// `__version__ = "1.0.0"` at the beginning of a line.
fn assignments(text: &str, places: &FieldSources, found: &mut NamedValues) -> Result<(), Problem> {
    for line in lines(text, 0) {
        if !line.text.starts_with("__") {
            continue;
        }
        let Some((name, value)) = line.text.split_once('=') else {
            continue;
        };
        let name = name.trim_end();
        if !places.wants(name) || value.starts_with(['=', '~', '>']) {
            continue;
        }
        let value = value.trim();
        let at = line.at + (value.as_ptr().addr() - line.text.as_ptr().addr());
        found.add(text, name, literal(name, value, at)?)?;
    }
    Ok(())
}

/// A string, a number, true, false or nothing, in the words of most languages.
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
