//! Metadata extraction: reads an item's metadata without running it.
//!
//! The [`Extractors`] of `tool_extractor.yaml` configure which parser reads a file and where each
//! field comes from. The parsers are built in. Each parser returns values by name; this module maps
//! them to the fields that all items share and checks their types. Every error has a position in
//! the file.
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
mod literal;
mod markdown;
mod named_values;
mod node;
mod python;
mod string;
mod syntax;
#[cfg(test)]
mod tests;
mod text;
mod typed;
mod yaml;

pub use check::names as field_names;
pub use error::MetadataError;
pub use extractors::{Extractors, Parser, Rule};
pub use node::{Data, Entry, Node};
pub use rye_protocol::{EffectClass, Risk};
pub use typed::{Field, Metadata, Misspelt};

use crate::ItemKind;
use error::Problem;
use extractors::FieldSources;
use named_values::NamedValues;

/// The maximum size of a source file. A syntax tree takes about fifty times the memory of its
/// text.
const MAX_PARSED_SIZE: usize = 2 << 20;

/// Extracts the metadata of a file.
///
/// The extension includes its dot; an unknown extension is an error. Configuration is not
/// type-checked, because its keys are not metadata fields.
pub fn extract(
    bytes: &[u8],
    extension: &str,
    kind: ItemKind,
    extractors: &Extractors,
) -> Result<Metadata, MetadataError> {
    read(bytes, extension, kind, extractors).map_err(|problem| problem.into_error(bytes))
}

/// Rejects a file that is not UTF-8, or that declares another encoding to its interpreter. The
/// extension includes its dot.
pub fn check_encoding(bytes: &[u8], extension: &str) -> Result<(), MetadataError> {
    let checked = text::validate(bytes).and_then(|text| encoding::check(text, extension));
    checked.map_err(|problem| problem.into_error(bytes))
}

/// Checks that a JavaScript or TypeScript tool exports its metadata. A module without an executor
/// under any name is not a tool and can use the names for itself. The extension includes its dot.
pub fn check_exports(
    bytes: &[u8],
    extension: &str,
    extractors: &Extractors,
) -> Result<(), MetadataError> {
    let Some(parser) = extractors.rule(extension).map(|rule| rule.parser) else {
        return Ok(());
    };
    let grammar = match parser {
        Parser::JavaScript => syntax::Grammar::JavaScript,
        Parser::TypeScript => syntax::Grammar::TypeScript,
        _ => return Ok(()),
    };
    let sources = extractors.sources(parser);
    let checked =
        text::validate(bytes).and_then(|text| javascript::check_exports(text, grammar, sources));
    checked.map_err(|problem| problem.into_error(bytes))
}

/// Parses a YAML file into a tree with the position of every value.
pub fn parse_yaml(bytes: &[u8]) -> Result<Node, MetadataError> {
    let read = text::validate(bytes).and_then(yaml::value);
    read.map_err(|problem| problem.into_error(bytes))
}

fn read(
    bytes: &[u8],
    extension: &str,
    kind: ItemKind,
    extractors: &Extractors,
) -> Result<Metadata, Problem> {
    let rule = rule(extension, kind, extractors)?;
    if rule.parser.builds_syntax_tree() && bytes.len() > MAX_PARSED_SIZE {
        return Err(Problem::new(
            0,
            format!(
                "a source file of more than {} MiB is not parsed",
                MAX_PARSED_SIZE >> 20
            ),
        )
        .hint("move data to a separate file that the tool reads"));
    }
    let text = text::validate(bytes)?;
    encoding::check(text, extension)?;
    let sources = extractors.sources(rule.parser);
    let mut values = parse(text, rule, kind, sources)?;
    let misspelt = values.take_misspelt();
    let fields = values.into_fields(sources);
    if kind != ItemKind::Config {
        check::check_fields(&fields)?;
    }
    Ok(Metadata {
        misspelt,
        ..Metadata::locate(fields, bytes)
    })
}

fn rule<'e>(
    extension: &str,
    kind: ItemKind,
    extractors: &'e Extractors,
) -> Result<&'e Rule, Problem> {
    let rule = extractors.rule(extension).ok_or_else(|| {
        Problem::new(
            0,
            format!("no parser is configured for files that end in `{extension}`"),
        )
        .hint("map the extension to a parser in `tool_extractor.yaml`")
    })?;
    if rule.kinds.contains(&kind) {
        Ok(rule)
    } else {
        Err(Problem::new(
            0,
            format!("a {kind} cannot be a file that ends in `{extension}`"),
        ))
    }
}

fn parse(
    text: &str,
    rule: &Rule,
    kind: ItemKind,
    sources: &FieldSources,
) -> Result<NamedValues, Problem> {
    match rule.parser {
        Parser::Python => python::read(text, sources),
        Parser::JavaScript => javascript::read(text, syntax::Grammar::JavaScript, sources),
        Parser::TypeScript => javascript::read(text, syntax::Grammar::TypeScript, sources),
        Parser::Yaml => yaml::read(text),
        Parser::Header => header::read(text, &rule.comment, sources),
        Parser::Markdown => markdown::read(text, kind),
    }
}
