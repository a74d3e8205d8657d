//! Which files go to which parser, and where each field is found: data.

mod codec;
mod field_sources;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use field_sources::LazyFieldSources;
pub(super) use field_sources::{FieldSource, FieldSources};

use super::error::MetadataError;
use super::text;
use super::typed::named;
use crate::{CommentStyle, ItemKind};

named! {
    /// The parsers that are built in.
    Parser {
        /// Python, of whose values only literals count.
        Python = "python",
        /// JavaScript, of whose exports only literals count.
        JavaScript = "javascript",
        /// TypeScript, likewise.
        TypeScript = "typescript",
        /// YAML 1.2.
        Yaml = "yaml",
        /// Comment lines at the beginning of a file of any language.
        Header = "header",
        /// Front matter and prose, and the XML element of a directive.
        Markdown = "markdown",
    }
}

impl Parser {
    /// Whether it reads a whole program into a syntax tree.
    pub(super) fn builds_a_tree(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::TypeScript)
    }
}

/// How files of one extension are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What reads them.
    pub parser: Parser,
    /// How they write a comment.
    pub comment: CommentStyle,
    /// The kinds of items that are written in such files.
    pub kinds: BTreeSet<ItemKind>,
}

/// The rules for all extensions, and the places of the fields for each parser.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extractors {
    /// Most extensions share their rule with others.
    rules: BTreeMap<String, Arc<Rule>>,
    places: LazyFieldSources,
}

impl Extractors {
    /// Reads the rules from the text of `tool_extractor.yaml`.
    pub fn from_yaml(bytes: &[u8]) -> Result<Self, MetadataError> {
        text::checked(bytes)
            .and_then(table::read)
            .map_err(|problem| problem.within(bytes))
    }

    /// Lays other rules over these. An extension, and a field of a parser, that both have is the other's.
    pub fn merge(&mut self, over: Self) {
        self.rules.extend(over.rules);
        self.places.merge(&over.places);
    }

    /// The rule for an extension, which is written with its dot and in its case: `.py`.
    pub fn rule(&self, extension: &str) -> Option<&Rule> {
        self.rules.get(extension).map(Arc::as_ref)
    }

    /// The extensions that items of a kind may have, in alphabetical order.
    pub fn extensions(&self, kind: ItemKind) -> impl Iterator<Item = &str> {
        self.rules
            .iter()
            .filter(move |(_, rule)| rule.kinds.contains(&kind))
            .map(|(extension, _)| extension.as_str())
    }

    /// The comments of all languages, each once.
    pub fn comment_styles(&self) -> Vec<CommentStyle> {
        let mut all: Vec<CommentStyle> = Vec::new();
        for rule in self.rules.values() {
            if !all.contains(&rule.comment) {
                all.push(rule.comment.clone());
            }
        }
        all
    }

    /// Where a parser finds the fields.
    pub(super) fn places(&self, parser: Parser) -> &FieldSources {
        self.places.of(parser)
    }
}
