//! What an item says about itself, read without running it.
//!
//! Which parser a file goes to, and where each field is found, is data: the
//! [`Extractors`] of `tool_extractor.yaml`. The parsers are built in. Each gives
//! values by name, and one pass here turns them into the fields that all items
//! share and checks their types, so that every error has a place in the file.
//!
//! ```
//! use rye_items::ItemKind;
//! use rye_items::metadata::{Extractors, extract};
//!
//! let extractors = Extractors::from_yaml(b"
//! extensions:
//!   .py: { parser: python, comment: '#', kinds: [tool] }
//! fields:
//!   python:
//!     version: [__version__]
//! ")?;
//! let metadata = extract(b"__version__ = '1.0.0'\n", ".py", ItemKind::Tool, &extractors)?;
//! assert_eq!(metadata.version(), Some("1.0.0"));
//! # Ok::<(), rye_items::metadata::MetadataError>(())
//! ```

mod check;
mod encoding;
mod error;
mod extractors;
mod header;
mod javascript;
mod markdown;
mod named_values;
mod node;
mod python;
mod syntax;
#[cfg(test)]
mod tests;
mod text;
mod typed;
mod yaml;

pub use error::MetadataError;
pub use extractors::{Extractors, Parser, Rule};
pub use node::{Data, Entry, Node};
pub use typed::{Effect, Field, Metadata, RiskLevel};

use crate::ItemKind;
use error::Problem;
use extractors::FieldSources;
use named_values::NamedValues;

/// A syntax tree takes some fifty times the memory of its text.
const LARGEST_TREE: usize = 2 << 20;

/// Reads the metadata of a file from its bytes.
///
/// The extension is written with its dot, and one that no rule knows is an
/// error. Metadata of configuration is not type-checked: its keys are its own.
pub fn extract(
    bytes: &[u8],
    extension: &str,
    kind: ItemKind,
    extractors: &Extractors,
) -> Result<Metadata, MetadataError> {
    read(bytes, extension, kind, extractors).map_err(|problem| problem.within(bytes))
}

/// Refuses a file that is not UTF-8, or that declares another encoding to its interpreter. The
/// extension is written with its dot.
pub fn check_encoding(bytes: &[u8], extension: &str) -> Result<(), MetadataError> {
    let checked = text::checked(bytes).and_then(|text| encoding::check(text, extension));
    checked.map_err(|problem| problem.within(bytes))
}

/// Reads a YAML file whose every value is wanted with its place.
pub fn parse_yaml(bytes: &[u8]) -> Result<Node, MetadataError> {
    let read = text::checked(bytes).and_then(yaml::value);
    read.map_err(|problem| problem.within(bytes))
}

fn read(
    bytes: &[u8],
    extension: &str,
    kind: ItemKind,
    extractors: &Extractors,
) -> Result<Metadata, Problem> {
    let rule = rule(extension, kind, extractors)?;
    if rule.parser.builds_a_tree() && bytes.len() > LARGEST_TREE {
        return Err(Problem::new(
            0,
            format!(
                "a program of more than {} MiB is not read",
                LARGEST_TREE >> 20
            ),
        )
        .hint("keep data in a file of its own, and let the tool read it"));
    }
    let text = text::checked(bytes)?;
    encoding::check(text, extension)?;
    let places = extractors.places(rule.parser);
    let found = parse(text, rule, kind, places)?;
    let fields = found.into_fields(places);
    if kind != ItemKind::Config {
        check::all(&fields)?;
    }
    Ok(Metadata::locate(fields, bytes))
}

fn rule<'e>(
    extension: &str,
    kind: ItemKind,
    extractors: &'e Extractors,
) -> Result<&'e Rule, Problem> {
    let rule = extractors.rule(extension).ok_or_else(|| {
        Problem::new(
            0,
            format!("no extractor reads files that end in `{extension}`"),
        )
        .hint("map the extension to a parser in `tool_extractor.yaml`")
    })?;
    if rule.kinds.contains(&kind) {
        Ok(rule)
    } else {
        Err(Problem::new(
            0,
            format!("a {kind} is not written in a file that ends in `{extension}`"),
        ))
    }
}

fn parse(
    text: &str,
    rule: &Rule,
    kind: ItemKind,
    places: &FieldSources,
) -> Result<NamedValues, Problem> {
    match rule.parser {
        Parser::Python => python::read(text, places),
        Parser::JavaScript => javascript::read(text, syntax::Grammar::JavaScript, places),
        Parser::TypeScript => javascript::read(text, syntax::Grammar::TypeScript, places),
        Parser::Yaml => yaml::read(text),
        Parser::Header => header::read(text, &rule.comment, places),
        Parser::Markdown => markdown::read(text, kind),
    }
}
