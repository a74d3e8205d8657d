//! YAML 1.2 parser with limits and the position of every value.
//!
//! The limits on depth and on copies by aliases keep a hostile file from exhausting the stack or
//! the memory.

mod scalar;

use std::collections::HashMap;

use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use super::error::{Problem, truncate};
use super::named_values::NamedValues;
use super::node::{Data, Entry, MAX_DEPTH, Node};

/// The maximum cost of all copies by aliases. A value costs one.
const MOST_COPIES: usize = 100_000;
/// The number of bytes of text that cost as much as one value.
const TEXT_PER_COPY: usize = 64;

/// Reads a whole file; its keys are the names.
pub(super) fn read(text: &str) -> Result<NamedValues, Problem> {
    let mut values = NamedValues::everything();
    for entry in mapping(text)? {
        values.add(text, &entry.key, entry.value)?;
    }
    Ok(values)
}

/// Parses a text that is one mapping, or empty.
pub(super) fn mapping(text: &str) -> Result<Vec<Entry>, Problem> {
    let node = value(text)?;
    match node.data {
        Data::Map(entries) => Ok(entries),
        Data::Null => Ok(Vec::new()),
        _ => Err(Problem::new(
            node.at,
            format!(
                "metadata must be a mapping of keys to values, not {}",
                node.kind()
            ),
        )),
    }
}

/// Parses a text that is one value. An empty text is null.
pub(super) fn value(text: &str) -> Result<Node, Problem> {
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        emit_unresolved_aliases: true,
    };
    let mut builder = Builder {
        text,
        events: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        copies: 0,
    };
    let mut root = None;
    while let Some((event, at)) = builder.next()? {
        match event {
            Event::DocumentStart(..) if root.is_some() => {
                return Err(Problem::new(at, "there is more than one YAML document"));
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd => {}
            event => root = Some(builder.node(event, at, 0)?.0),
        }
    }
    Ok(root.unwrap_or(Node::new(0, Data::Null)))
}

/// Builds values from parser events.
struct Builder<'t, P> {
    text: &'t str,
    events: P,
    /// Anchored values and their heights.
    anchors: HashMap<usize, (Node, usize)>,
    copies: usize,
}

impl<'t, P> Builder<'t, P>
where
    P: Iterator<Item = Result<(Event<'t>, Span), ScanError>>,
{
    fn next(&mut self) -> Result<Option<(Event<'t>, usize)>, Problem> {
        let event = self.events.next().transpose();
        let event = event.map_err(|error| invalid(self.text, &error))?;
        Ok(event.map(|(event, span)| (event, span.start.byte_offset().unwrap_or(0))))
    }

    /// Builds the value that starts with an event, inside `depth` collections. Also returns
    /// its height.
    fn node(
        &mut self,
        event: Event<'t>,
        at: usize,
        depth: usize,
    ) -> Result<(Node, usize), Problem> {
        let (anchor, data, height) = match event {
            Event::Scalar(value, style, anchor, tag) => (
                anchor,
                scalar::resolve(value, style, tag.as_deref(), at)?,
                0,
            ),
            Event::SequenceStart(..) | Event::MappingStart(..) if depth >= MAX_DEPTH => {
                return Err(too_deep(at));
            }
            Event::SequenceStart(_, anchor, tag) => {
                scalar::expect_collection(tag.as_deref(), "seq", at)?;
                let (items, height) = self.items(depth + 1)?;
                (anchor, Data::List(items), height + 1)
            }
            Event::MappingStart(_, anchor, tag) => {
                scalar::expect_collection(tag.as_deref(), "map", at)?;
                let (entries, height) = self.entries(depth + 1)?;
                (anchor, Data::Map(entries), height + 1)
            }
            Event::Alias(anchor) => {
                let Some((node, height)) = self.anchors.get(&anchor).cloned() else {
                    let message = "the alias refers to a value that contains it";
                    return Err(Problem::new(at, message));
                };
                self.charge_copy(at, &node)?;
                if depth + height > MAX_DEPTH {
                    return Err(too_deep(at));
                }
                return Ok((Node { at, ..node }, height));
            }
            Event::UnresolvedAlias(name) => {
                let message = format!("the alias `*{}` has no anchor before it", truncate(&name));
                return Err(Problem::new(at, message));
            }
            _ => return Err(Problem::new(at, "not valid YAML: a value is missing")),
        };
        let built = (Node::new(at, data), height);
        if anchor != 0 {
            self.charge_copy(at, &built.0)?;
            self.anchors.insert(anchor, built.clone());
        }
        Ok(built)
    }

    /// Builds the items of a list up to its end, and their height.
    fn items(&mut self, depth: usize) -> Result<(Vec<Node>, usize), Problem> {
        let (mut items, mut height) = (Vec::new(), 0);
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let (item, item_height) = self.node(event, at, depth)?;
            height = height.max(item_height);
            items.push(item);
        }
        Ok((items, height))
    }

    /// Builds the entries of a mapping up to its end, and their height. The entries of merged
    /// mappings come last; they don't override others.
    fn entries(&mut self, depth: usize) -> Result<(Vec<Entry>, usize), Problem> {
        let (mut entries, mut merged, mut height) = (Vec::new(), Vec::new(), 0);
        let mut offsets = HashMap::new();
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let is_plain = matches!(event, Event::Scalar(_, ScalarStyle::Plain, ..));
            let (key, _) = self.node(event, at, depth)?;
            let Data::Text(name) = key.data else {
                let message = format!("a key must be a string, not {}", key.kind());
                return Err(Problem::new(at, message).hint("write the key in quotes"));
            };
            let is_merge = is_plain && name == "<<";
            if !is_merge && let Some(first) = offsets.insert(name.clone(), at) {
                return Err(Problem::duplicate(self.text, &name, first, at));
            }
            let Some((event, value_at)) = self.next()? else {
                break;
            };
            let (value, value_height) = self.node(event, value_at, depth)?;
            height = height.max(value_height);
            match value.data {
                _ if !is_merge => entries.push(Entry {
                    key: name,
                    at,
                    value,
                }),
                Data::List(items) => merged.extend(items),
                _ => merged.push(value),
            }
        }
        for node in merged {
            self.charge_copy(node.at, &node)?;
            let Data::Map(inherited) = node.data else {
                let message = format!("only mappings can be merged, not {}", node.kind());
                return Err(Problem::new(node.at, message));
            };
            for entry in inherited {
                if !offsets.contains_key(&entry.key) {
                    offsets.insert(entry.key.clone(), entry.at);
                    entries.push(entry);
                }
            }
        }
        Ok((entries, height))
    }

    /// Adds the cost of a copy, so that a few lines cannot exhaust the memory.
    fn charge_copy(&mut self, at: usize, node: &Node) -> Result<(), Problem> {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            self.copies += 1;
            match &node.data {
                Data::Text(text) => self.copies += text.len() / TEXT_PER_COPY,
                Data::List(items) => waiting.extend(items),
                Data::Map(entries) => {
                    for entry in entries {
                        self.copies += entry.key.len() / TEXT_PER_COPY;
                        waiting.push(&entry.value);
                    }
                }
                Data::Null | Data::Bool(_) | Data::Number(_) => {}
            }
            if self.copies > MOST_COPIES {
                return Err(Problem::new(at, "the aliases expand to too much data"));
            }
        }
        Ok(())
    }
}

fn invalid(text: &str, error: &ScanError) -> Problem {
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return too_deep(at);
    }
    let info = error.info();
    let message = info.lines().next().unwrap_or_default();
    Problem::new(at, format!("not valid YAML: {message}"))
}

fn too_deep(at: usize) -> Problem {
    Problem::new(at, "the values are nested too deeply")
}
