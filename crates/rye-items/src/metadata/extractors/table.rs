//! Reads `tool_extractor.yaml`, with a place for whatever is wrong in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::field_sources::{FieldSource, FieldSources};
use super::{Extractors, Parser, Rule};
use crate::CommentStyle;
use crate::ItemKind;
use crate::metadata::error::{Problem, brief};
use crate::metadata::node::{Data, Entry, Node};
use crate::metadata::{check, yaml};

/// Reads the whole file, which is an item itself and so has fields besides.
pub(super) fn read(text: &str) -> Result<Extractors, Problem> {
    let mut extractors = Extractors::default();
    for entry in yaml::mapping(text)? {
        match entry.key.as_str() {
            "extensions" => {
                for row in rows(&entry)? {
                    extractors
                        .rules
                        .insert(extension(row)?, Arc::new(rule(row)?));
                }
            }
            "fields" => {
                for row in rows(&entry)? {
                    let parser = parser(&row.key, row.at)?;
                    extractors.places.insert(parser, places(parser, row)?);
                }
            }
            key if check::names().any(|name| name == key) => {}
            _ => return Err(unknown(&entry, "extensions, fields, and those of any item")),
        }
    }
    Ok(extractors)
}

fn extension(row: &Entry) -> Result<String, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-".contains(c);
    match row.key.strip_prefix('.') {
        Some(name) if !name.is_empty() && name.chars().all(allowed) => Ok(row.key.clone()),
        Some(_) => Err(
            Problem::new(row.at, format!("`{}` is not an extension", brief(&row.key)))
                .hint("an extension is a dot and one word, such as `.py`"),
        ),
        None => Err(Problem::new(
            row.at,
            format!("the extension `{}` must begin with a dot", brief(&row.key)),
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
            _ => return Err(unknown(entry, "parser, comment, kinds")),
        }
    }
    let missing = |key: &str| {
        let message = format!("`{}` has no `{key}`", brief(&row.key));
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
        Problem::new(at, format!("there is no parser `{}`", brief(name)))
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
                    _ => return Err(unknown(part, "prefix, suffix")),
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
        let message = format!("`{}` must be a mark without spaces", brief(&entry.key));
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
            Problem::new(item.at, format!("there is no kind `{}`", brief(name)))
                .hint(format!("the kinds are {}", known.join(", ")))
        })?;
        if !kinds.insert(kind) {
            let message = format!("the kind `{kind}` is given twice");
            return Err(Problem::new(item.at, message));
        }
    }
    Ok(kinds)
}

fn places(parser: Parser, row: &Entry) -> Result<FieldSources, Problem> {
    let mut fields = BTreeMap::new();
    for entry in rows(row)? {
        if !check::names().any(|name| name == entry.key) {
            let known: Vec<_> = check::names().collect();
            let message = format!("there is no field `{}`", brief(&entry.key));
            let hint = format!("the fields are {}", known.join(", "));
            return Err(Problem::new(entry.at, message).hint(hint));
        }
        let mut places: Vec<FieldSource> = Vec::new();
        for item in list(entry)? {
            let place = place(parser, item_text(entry, item)?, item.at)?;
            if places.contains(&place) {
                return Err(Problem::new(item.at, "this place is given twice"));
            }
            places.push(place);
        }
        fields.insert(entry.key.clone(), places);
    }
    Ok(fields.into())
}

fn place(parser: Parser, text: &str, at: usize) -> Result<FieldSource, Problem> {
    let mut parts = text.split('.').map(str::to_owned);
    let name = parts.next().unwrap_or_default();
    let path: Vec<_> = parts.collect();
    if name.is_empty() || name == "@" || path.iter().any(String::is_empty) {
        let message = format!("`{}` is not a place", brief(text));
        return Err(Problem::new(at, message)
            .hint("a place is a name, with keys into its value after dots: `CONFIG.risk_level`"));
    }
    let derived = derived(parser);
    if name.starts_with('@') && !derived.is_empty() && !derived.contains(&name.as_str()) {
        let message = format!("{parser} files have no `{}`", brief(&name));
        return Err(Problem::new(at, message).hint(format!("there is {}", derived.join(", "))));
    }
    Ok(FieldSource { name, path })
}

/// The names that a parser makes up for what has none. In JavaScript, any tag
/// of the doc comment is one.
fn derived(parser: Parser) -> &'static [&'static str] {
    match parser {
        Parser::Python => &["@docstring"],
        Parser::Markdown => &["@heading", "@paragraph"],
        Parser::JavaScript | Parser::TypeScript | Parser::Yaml | Parser::Header => &[],
    }
}

fn rows(entry: &Entry) -> Result<&[Entry], Problem> {
    match &entry.value.data {
        Data::Map(rows) => Ok(rows),
        _ => Err(not(entry, &entry.value, "a mapping")),
    }
}

fn list(entry: &Entry) -> Result<&[Node], Problem> {
    match &entry.value.data {
        Data::List(items) if !items.is_empty() => Ok(items),
        Data::List(_) => Err(Problem::new(
            entry.value.at,
            format!("`{}` must not be empty", brief(&entry.key)),
        )),
        _ => Err(not(entry, &entry.value, "a list")),
    }
}

fn text(entry: &Entry) -> Result<&str, Problem> {
    item_text(entry, &entry.value)
}

fn item_text<'n>(entry: &Entry, node: &'n Node) -> Result<&'n str, Problem> {
    match &node.data {
        Data::Text(text) => Ok(text),
        _ => Err(not(entry, node, "a text")),
    }
}

fn not(entry: &Entry, node: &Node, expected: &str) -> Problem {
    let message = format!(
        "`{}` must have {expected} here, not {}",
        brief(&entry.key),
        node.kind()
    );
    Problem::new(node.at, message)
}

fn unknown(entry: &Entry, known: &str) -> Problem {
    Problem::new(entry.at, format!("unknown key `{}`", brief(&entry.key)))
        .hint(format!("the keys are {known}"))
}
