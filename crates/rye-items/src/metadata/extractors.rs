//! Extractor tables: which parser reads files of an extension, and where each field comes from.

mod field_sources;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub(super) use field_sources::{FieldSource, FieldSources};

use super::error::MetadataError;
use super::text;
use crate::{CommentStyle, ItemKind};

/// The built-in parsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parser {
    /// Literals that a Python module assigns.
    Python,
    /// Literals that a JavaScript module exports.
    JavaScript,
    /// Literals that a TypeScript module exports.
    TypeScript,
    /// A YAML 1.2 mapping.
    Yaml,
    /// Comment lines at the start of a file in any language.
    Header,
    /// Front matter and prose, and the XML element of a directive.
    Markdown,
}

impl Parser {
    /// All parsers in order.
    pub const ALL: [Self; 6] = [
        Self::Python,
        Self::JavaScript,
        Self::TypeScript,
        Self::Yaml,
        Self::Header,
        Self::Markdown,
    ];

    /// The name in extractor tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Yaml => "yaml",
            Self::Header => "header",
            Self::Markdown => "markdown",
        }
    }

    /// The parser with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|parser| parser.as_str() == name)
    }

    /// Whether the parser builds a syntax tree of the whole file.
    pub(super) fn builds_syntax_tree(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::TypeScript)
    }
}

/// How files of one extension are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The parser for these files.
    pub parser: Parser,
    /// The comment style of the language.
    pub comment: CommentStyle,
    /// The item kinds that such files can have.
    pub kinds: BTreeSet<ItemKind>,
}

/// The rules for all extensions, and the field sources for each parser.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extractors {
    rules: BTreeMap<String, Rule>,
    sources: BTreeMap<Parser, FieldSources>,
}

impl Extractors {
    /// Parses a `tool_extractor.yaml`.
    pub fn from_yaml(bytes: &[u8]) -> Result<Self, MetadataError> {
        text::validate(bytes)
            .and_then(table::read)
            .map_err(|problem| problem.into_error(bytes))
    }

    /// Merges another table, which overrides the same extensions and fields.
    pub fn merge(&mut self, over: Self) {
        self.rules.extend(over.rules);
        for (parser, sources) in over.sources {
            self.sources.entry(parser).or_default().merge(sources);
        }
    }

    /// The rule for an extension with its dot: `.py`. Case matters.
    pub fn rule(&self, extension: &str) -> Option<&Rule> {
        self.rules.get(extension)
    }

    /// The extensions that items of a kind can have, sorted.
    pub fn extensions(&self, kind: ItemKind) -> impl Iterator<Item = &str> {
        self.rules
            .iter()
            .filter(move |(_, rule)| rule.kinds.contains(&kind))
            .map(|(extension, _)| extension.as_str())
    }

    /// The comment styles of all languages, without duplicates.
    pub fn comment_styles(&self) -> Vec<CommentStyle> {
        let mut all: Vec<CommentStyle> = Vec::new();
        for rule in self.rules.values() {
            if !all.contains(&rule.comment) {
                all.push(rule.comment.clone());
            }
        }
        all
    }

    /// The field sources of a parser.
    pub(super) fn sources(&self, parser: Parser) -> &FieldSources {
        static EMPTY: FieldSources = FieldSources::EMPTY;
        self.sources.get(&parser).unwrap_or(&EMPTY)
    }
}
