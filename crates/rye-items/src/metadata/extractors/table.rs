//! Parses `tool_extractor.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use super::field_sources::{FieldSource, FieldSources};
use super::{Extractors, Parser, Rule};
use crate::CommentStyle;
use crate::ItemKind;
use crate::metadata::error::{Problem, truncate};
use crate::metadata::node::{Data, Entry, Node};
use crate::metadata::{check, yaml};

/// Parses the whole file. It is an item too, so it may contain the shared metadata fields.
pub(super) fn read(text: &str) -> Result<Extractors, Problem> {
    let mut extractors = Extractors::default();
    for entry in yaml::mapping(text)? {
        match entry.key.as_str() {
            "extensions" => {
                for row in rows(&entry)? {
                    extractors.rules.insert(extension(row)?, rule(row)?);
                }
            }
            "fields" => {
                for row in rows(&entry)? {
                    let parser = parser(&row.key, row.at)?;
                    extractors.sources.insert(parser, sources(parser, row)?);
                }
            }
            key if check::names().any(|name| name == key) => {}
            _ => {
                return Err(unknown_key(
                    &entry,
                    "extensions, fields, and those of any item",
                ));
            }
        }
    }
    Ok(extractors)
}

fn extension(row: &Entry) -> Result<String, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-".contains(c);
    match row.key.strip_prefix('.') {
        Some(name) if !name.is_empty() && name.chars().all(allowed) => Ok(row.key.clone()),
        Some(_) => Err(Problem::new(
            row.at,
            format!("`{}` is not an extension", truncate(&row.key)),
        )
        .hint("an extension is a dot and one word, such as `.py`")),
        None => Err(Problem::new(
            row.at,
            format!(
                "the extension `{}` must begin with a dot",
                truncate(&row.key)
            ),
        )),
    }
}

fn rule(row: &Entry) -> Result<Rule, Problem> {
    let (mut parser_, mut comment_, mut kinds_) = (None, None, None);
    for entry in rows(row)? {
        match entry.key.as_str() {
            "parser" => parser_ = Some(parser(text(entry)?, entry.value.at)?),
            "comment" => comment_ = Some(comment(entry)?),
            "kinds" => kinds_ = Some(kinds(entry)?),
            _ => return Err(unknown_key(entry, "parser, comment, kinds")),
        }
    }
    let missing = |key: &str| {
        let message = format!("`{}` has no `{key}`", truncate(&row.key));
        Problem::new(row.at, message)
    };
    Ok(Rule {
        parser: parser_.ok_or_else(|| missing("parser"))?,
        comment: comment_.ok_or_else(|| missing("comment"))?,
        kinds: kinds_.ok_or_else(|| missing("kinds"))?,
    })
}

fn parser(name: &str, at: usize) -> Result<Parser, Problem> {
    Parser::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Parser::ALL.iter().map(|parser| parser.as_str()).collect();
        Problem::new(at, format!("there is no parser `{}`", truncate(name)))
            .hint(format!("the parsers are {}", known.join(", ")))
    })
}

/// `"#"`, or `{prefix: "<!--", suffix: "-->"}`.
fn comment(entry: &Entry) -> Result<CommentStyle, Problem> {
    let (mut prefix, mut suffix) = (None, None);
    match &entry.value.data {
        Data::Map(parts) => {
            for part in parts {
                match part.key.as_str() {
                    "prefix" => prefix = Some(mark(part)?),
                    "suffix" => suffix = Some(mark(part)?),
                    _ => return Err(unknown_key(part, "prefix, suffix")),
                }
            }
        }
        _ => prefix = Some(mark(entry)?),
    }
    let prefix = prefix.ok_or_else(|| Problem::new(entry.at, "`comment` has no `prefix`"))?;
    Ok(CommentStyle {
        prefix: prefix.into(),
        suffix: suffix.map(Into::into),
    })
}

fn mark(entry: &Entry) -> Result<String, Problem> {
    let mark = text(entry)?;
    if mark.is_empty() || mark.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let message = format!(
            "`{}` must be a comment marker without spaces",
            truncate(&entry.key)
        );
        return Err(Problem::new(entry.value.at, message));
    }
    Ok(mark.to_owned())
}

fn kinds(entry: &Entry) -> Result<BTreeSet<ItemKind>, Problem> {
    let mut kinds = BTreeSet::new();
    for item in list(entry)? {
        let name = item_text(entry, item)?;
        let kind = name.parse::<ItemKind>().map_err(|_| {
            let known: Vec<_> = ItemKind::ALL.iter().map(|kind| kind.as_str()).collect();
            Problem::new(item.at, format!("there is no kind `{}`", truncate(name)))
                .hint(format!("the kinds are {}", known.join(", ")))
        })?;
        if !kinds.insert(kind) {
            let message = format!("the kind `{kind}` is given twice");
            return Err(Problem::new(item.at, message));
        }
    }
    Ok(kinds)
}

fn sources(parser: Parser, row: &Entry) -> Result<FieldSources, Problem> {
    let mut fields = BTreeMap::new();
    for entry in rows(row)? {
        if !check::names().any(|name| name == entry.key) {
            let known: Vec<_> = check::names().collect();
            let message = format!("there is no field `{}`", truncate(&entry.key));
            let hint = format!("the fields are {}", known.join(", "));
            return Err(Problem::new(entry.at, message).hint(hint));
        }
        let mut sources: Vec<FieldSource> = Vec::new();
        for item in list(entry)? {
            let source = source(parser, item_text(entry, item)?, item.at)?;
            if sources.contains(&source) {
                return Err(Problem::new(item.at, "this source is listed twice"));
            }
            sources.push(source);
        }
        fields.insert(entry.key.clone(), sources);
    }
    Ok(fields.into())
}

fn source(parser: Parser, text: &str, at: usize) -> Result<FieldSource, Problem> {
    let mut parts = text.split('.').map(str::to_owned);
    let name = parts.next().unwrap_or_default();
    let path: Vec<_> = parts.collect();
    if name.is_empty() || name == "@" || path.iter().any(String::is_empty) {
        let message = format!("`{}` is not a field source", truncate(text));
        return Err(Problem::new(at, message)
            .hint("a source is a name, followed by keys into its value: `CONFIG.risk_level`"));
    }
    let synthetic_names = synthetic_names(parser);
    if name.starts_with('@')
        && !synthetic_names.is_empty()
        && !synthetic_names.contains(&name.as_str())
    {
        let message = format!("{} files have no `{}`", parser.as_str(), truncate(&name));
        return Err(
            Problem::new(at, message).hint(format!("available: {}", synthetic_names.join(", ")))
        );
    }
    Ok(FieldSource { name, path })
}

/// The synthetic names of a parser for values without a name. In JavaScript, every tag of the doc
/// comment is one.
fn synthetic_names(parser: Parser) -> &'static [&'static str] {
    match parser {
        Parser::Python => &["@docstring"],
        Parser::Markdown => &["@heading", "@paragraph"],
        Parser::JavaScript | Parser::TypeScript | Parser::Yaml | Parser::Header => &[],
    }
}

fn rows(entry: &Entry) -> Result<&[Entry], Problem> {
    match &entry.value.data {
        Data::Map(rows) => Ok(rows),
        _ => Err(type_problem(entry, &entry.value, "a mapping")),
    }
}

fn list(entry: &Entry) -> Result<&[Node], Problem> {
    match &entry.value.data {
        Data::List(items) if !items.is_empty() => Ok(items),
        Data::List(_) => Err(Problem::new(
            entry.value.at,
            format!("`{}` must not be empty", truncate(&entry.key)),
        )),
        _ => Err(type_problem(entry, &entry.value, "a list")),
    }
}

fn text(entry: &Entry) -> Result<&str, Problem> {
    item_text(entry, &entry.value)
}

fn item_text<'n>(entry: &Entry, node: &'n Node) -> Result<&'n str, Problem> {
    match &node.data {
        Data::Text(text) => Ok(text),
        _ => Err(type_problem(entry, node, "a string")),
    }
}

fn type_problem(entry: &Entry, node: &Node, expected: &str) -> Problem {
    let message = format!(
        "`{}` must have {expected} here, not {}",
        truncate(&entry.key),
        node.kind()
    );
    Problem::new(node.at, message)
}

fn unknown_key(entry: &Entry, known: &str) -> Problem {
    Problem::new(entry.at, format!("unknown key `{}`", truncate(&entry.key)))
        .hint(format!("the keys are {known}"))
}
