//! Extractor tables: which parser reads files of an extension, and where each field comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_saphyr::{Location, Spanned};
use strum::{IntoStaticStr, VariantArray};

use super::error::{MetadataError, Problem, truncate};
use super::{check, text, yaml};
use crate::{CommentStyle, ItemKind};

/// The built-in parsers.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
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
    /// Whether the parser builds a syntax tree of the whole file.
    pub(super) fn builds_syntax_tree(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::TypeScript)
    }
}

/// How files of one extension are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The parser for these files.
    pub parser: Parser,
    /// The comment style of the language.
    pub comment: CommentStyle,
    /// The item kinds that such files can have.
    #[serde(deserialize_with = "kinds")]
    pub kinds: BTreeSet<ItemKind>,
}

fn kinds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<ItemKind>, D::Error> {
    let listed = Vec::<ItemKind>::deserialize(deserializer)?;
    let kinds: BTreeSet<_> = listed.iter().copied().collect();
    if kinds.is_empty() || kinds.len() < listed.len() {
        let message = "`kinds` must not be empty or contain duplicates";
        return Err(serde::de::Error::custom(message));
    }
    Ok(kinds)
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
            .and_then(Self::from_text)
            .map_err(|problem| problem.into_error(bytes))
    }

    fn from_text(text: &str) -> Result<Self, Problem> {
        for entry in yaml::mapping(text)? {
            let own = ["extensions", "fields"];
            if !own
                .into_iter()
                .chain(check::names())
                .any(|it| it == entry.key)
            {
                let message = format!("unknown key `{}`", truncate(&entry.key));
                let hint = "the keys are extensions, fields, and those of any item";
                return Err(Problem::new(entry.at, message).hint(hint));
            }
        }
        let options = serde_saphyr::options! { with_snippet: false };
        let table: Table = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map_or(0, |location| offset(&location));
            Problem::new(at, error.to_string())
        })?;
        let rules = table.extensions.into_iter();
        let mut extractors = Self {
            rules: rules.map(|(extension, rule)| (extension.0, rule)).collect(),
            sources: BTreeMap::new(),
        };
        for (parser, fields) in table.fields {
            let sources = extractors.sources.entry(parser).or_default();
            for (field, listed) in fields {
                for (index, source) in listed.iter().enumerate() {
                    check_synthetic_name(parser, source)?;
                    if listed[..index].iter().any(|it| it.value == source.value) {
                        let at = offset(&source.referenced);
                        return Err(Problem::new(at, "this source is listed twice"));
                    }
                }
                let listed = listed.into_iter().map(|source| source.value).collect();
                sources.0.insert(field.0, listed);
            }
        }
        Ok(extractors)
    }

    /// Merges another table, which overrides the same extensions and fields.
    pub fn merge(&mut self, over: Self) {
        self.rules.extend(over.rules);
        for (parser, sources) in over.sources {
            self.sources.entry(parser).or_default().0.extend(sources.0);
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
        static EMPTY: FieldSources = FieldSources(BTreeMap::new());
        self.sources.get(&parser).unwrap_or(&EMPTY)
    }
}

/// The sources of each field, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct FieldSources(pub(super) BTreeMap<String, Vec<FieldSource>>);

impl FieldSources {
    fn all(&self) -> impl Iterator<Item = &FieldSource> {
        self.0.values().flatten()
    }

    /// Whether a field is found under this name, or inside its value.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.all().any(|source| source.name == name)
    }

    /// The field whose source is probably meant by a name that differs from it by one or two
    /// typing errors, and that source. Short names are ordinary words, and so are plurals.
    pub(super) fn nearest(&self, name: &str) -> Option<(&str, &str)> {
        const MIN_LENGTH: usize = 7;
        let is_plural = |one: &str, other: &str| one.strip_suffix(['s', 'S']) == Some(other);
        let sources = self.0.iter().flat_map(|(field, sources)| {
            let names = sources.iter().map(|source| source.name.as_str());
            names.map(move |name| (field.as_str(), name))
        });
        let similar = sources.filter_map(|(field, source)| {
            let letters = source.trim_matches(['_', '@']).len();
            let [name_part, source_part] = [name, source].map(|it| it.trim_matches(['_', '@']));
            let distance = strsim::osa_distance(name, source);
            let max_distance = if letters < 8 { 1 } else { 2 };
            let is_similar = source.len() >= MIN_LENGTH
                && (1..=max_distance).contains(&distance)
                && !is_plural(name_part, source_part)
                && !is_plural(source_part, name_part);
            is_similar.then_some((distance, field, source))
        });
        let (_, field, source) = similar.min()?;
        (!self.contains(name)).then_some((field, source))
    }

    /// Whether the whole value of this name is a field.
    pub(super) fn is_direct(&self, name: &str) -> bool {
        let mut all = self.all();
        all.any(|source| source.name == name && source.path.is_empty())
    }
}

/// A name in the file, and the keys that lead into its value: `CONFIG.risk_level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct FieldSource {
    pub(super) name: String,
    pub(super) path: Vec<String>,
}

impl TryFrom<String> for FieldSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.split('.').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        let path: Vec<_> = parts.collect();
        if name.is_empty() || name == "@" || path.iter().any(String::is_empty) {
            let text = truncate(&text);
            return Err(format!(
                "`{text}` is not a field source: a name, followed by keys into its value, such as \
                 `CONFIG.risk_level`"
            ));
        }
        Ok(Self { name, path })
    }
}

impl From<FieldSource> for String {
    fn from(source: FieldSource) -> Self {
        let keys = source.path.iter().map(|key| format!(".{key}"));
        source.name.clone() + &keys.collect::<Self>()
    }
}

/// The file `tool_extractor.yaml`. It is an item too, so it also contains shared metadata fields.
#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    extensions: BTreeMap<Extension, Rule>,
    #[serde(default)]
    fields: BTreeMap<Parser, BTreeMap<SharedField, Vec<Spanned<FieldSource>>>>,
}

/// The extension of a file, with its dot.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
struct Extension(String);

impl TryFrom<String> for Extension {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-".contains(c);
        let name = text.strip_prefix('.').unwrap_or_default();
        if name.is_empty() || !name.chars().all(allowed) {
            let text = truncate(&text);
            return Err(format!(
                "`{text}` is not an extension: a dot and one word, such as `.py`"
            ));
        }
        Ok(Self(text))
    }
}

/// The name of a shared metadata field.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
struct SharedField(String);

impl TryFrom<String> for SharedField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if check::names().any(|name| name == text) {
            return Ok(Self(text));
        }
        let known: Vec<_> = check::names().collect();
        let (text, known) = (truncate(&text), known.join(", "));
        Err(format!(
            "there is no field `{text}`; the fields are {known}"
        ))
    }
}

/// Checks the name of a value that has no name in the file. In JavaScript, every tag of the doc
/// comment is one.
fn check_synthetic_name(parser: Parser, source: &Spanned<FieldSource>) -> Result<(), Problem> {
    let known: &[&str] = match parser {
        Parser::Python => &["@docstring"],
        Parser::Markdown => &["@heading", "@paragraph"],
        Parser::JavaScript | Parser::TypeScript | Parser::Yaml | Parser::Header => return Ok(()),
    };
    let name = source.value.name.as_str();
    if !name.starts_with('@') || known.contains(&name) {
        return Ok(());
    }
    let parser: &str = parser.into();
    let message = format!("{parser} files have no `{}`", truncate(name));
    let hint = format!("available: {}", known.join(", "));
    Err(Problem::new(offset(&source.referenced), message).hint(hint))
}

fn offset(location: &Location) -> usize {
    let offset = location.span().byte_offset().unwrap_or_default();
    usize::try_from(offset).unwrap_or(usize::MAX)
}
