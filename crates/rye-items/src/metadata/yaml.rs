//! YAML 1.2 parser with limits and the position of every value.
//!
//! Values are built from parser events without recursion, so that a hostile file cannot exhaust
//! the stack.

mod build;
mod scalar;

use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScanError};

use super::error::{Problem, truncate};
use super::named_values::NamedValues;
use super::node::{Data, Entry, MAX_DEPTH, Node};
use build::Builder;

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
    let mut builder = Builder::new(text);
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| invalid(text, &error))?;
        let at = span.start.byte_offset().unwrap_or(0);
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return Err(Problem::new(at, "there is more than one YAML document"));
                }
            }
            Event::Scalar(value, style, anchor, tag) => {
                let data = scalar::resolve(value, style, tag.as_deref(), at)?;
                builder.scalar(at, data, anchor, style)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                scalar::expect_collection(tag.as_deref(), "seq", at)?;
                builder.open_list(at, anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                scalar::expect_collection(tag.as_deref(), "map", at)?;
                builder.open_map(at, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close()?,
            Event::Alias(anchor) => builder.alias(at, anchor)?,
            Event::UnresolvedAlias(name) => {
                let message = format!("the alias `*{}` has no anchor before it", truncate(&name));
                return Err(Problem::new(at, message));
            }
            _ => {}
        }
    }
    Ok(builder.finish())
}

fn invalid(text: &str, error: &ScanError) -> Problem {
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return build::too_deep(at);
    }
    let info = error.info();
    let message = info.lines().next().unwrap_or_default();
    Problem::new(at, format!("not valid YAML: {message}"))
}
