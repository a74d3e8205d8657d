//! YAML 1.2, within limits, and with the place of every value.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};
use serde_saphyr::{
    Error, Localizer, Location, Options, SnippetMode, Spanned, UserMessageFormatter,
};

use super::error::{Problem, brief};
use super::found::Found;
use super::node::{DEEPEST, Data, Entry, Node};

/// Reads a whole file, whose keys are the names.
pub(super) fn read(text: &str) -> Result<Found, Problem> {
    let mut found = Found::everything();
    for entry in mapping(text)? {
        found.add(text, &entry.key, entry.value)?;
    }
    Ok(found)
}

/// Reads a text that is one mapping, or nothing.
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

/// Reads a text that is one value.
pub(super) fn value(text: &str) -> Result<Node, Problem> {
    let spanned: Spanned<Raw> = serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| problem(text, &error))?;
    node(text, spanned)
}

/// Limits that no honest file meets, and no hostile one gets far with.
fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: DEEPEST,
        flow_nesting_limit: DEEPEST,
        max_aliases: 10_000,
        max_anchors: 10_000,
    };
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = 100_000;
    aliases.max_replay_stack_depth = 16;
    serde_saphyr::options! {
        budget: budget,
        alias_limits: aliases,
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn problem(text: &str, error: &Error) -> Problem {
    let error = error.without_snippet();
    let at = error
        .location()
        .map_or(0, |location| offset(text, location));
    let formatter = UserMessageFormatter;
    let formatter = formatter.with_localizer(&WithoutPlace);
    let mut rendering = serde_saphyr::RenderOptions::new(&formatter);
    rendering.snippets = SnippetMode::Off;
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{}` is given twice", brief(key))
        }
        Error::MultipleDocuments { .. } => "the file has more than one YAML document".to_owned(),
        other => format!("not valid YAML: {}", other.render_with_options(rendering)),
    };
    Problem::new(at, message)
}

/// The place is told by the excerpt, so the message does not repeat it.
struct WithoutPlace;

impl Localizer for WithoutPlace {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }
}

fn offset(text: &str, location: Location) -> usize {
    if let Some(byte) = location.span().byte_offset() {
        return usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    }
    let line = usize::try_from(location.line()).unwrap_or(usize::MAX);
    let column = usize::try_from(location.column()).unwrap_or(usize::MAX);
    let Some(line) = super::text::lines(text, 0).nth(line.saturating_sub(1)) else {
        return text.len();
    };
    let mut characters = line.text.char_indices().map(|(at, _)| at);
    line.at
        + characters
            .nth(column.saturating_sub(1))
            .unwrap_or(line.text.len())
}

/// A value as the parser gives it.
enum Raw {
    Null,
    Bool(bool),
    Integer(Number),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Raw, E> {
        Ok(Raw::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}

fn node(text: &str, raw: Spanned<Raw>) -> Result<Node, Problem> {
    let at = offset(text, raw.referenced);
    let data = match raw.value {
        Raw::Null => Data::Null,
        Raw::Bool(flag) => Data::Bool(flag),
        Raw::Integer(number) => Data::Number(number),
        Raw::Float(number) => Data::Number(float(text, at, number, raw.defined)?),
        Raw::Text(text) => Data::Text(text),
        Raw::List(items) => {
            let items = items.into_iter();
            Data::List(
                items
                    .map(|item| node(text, item))
                    .collect::<Result<_, _>>()?,
            )
        }
        Raw::Map(entries) => {
            let entries = entries.into_iter();
            Data::Map(
                entries
                    .map(|(key, value)| entry(text, key, value))
                    .collect::<Result<_, _>>()?,
            )
        }
    };
    Ok(Node::new(at, data))
}

fn entry(text: &str, key: Spanned<Raw>, value: Spanned<Raw>) -> Result<Entry, Problem> {
    let key = node(text, key)?;
    let at = key.at;
    match key.data {
        Data::Text(key) => Ok(Entry {
            key,
            at,
            value: node(text, value)?,
        }),
        _ => Err(
            Problem::new(at, format!("a key must be a text, not {}", key.kind()))
                .hint("write the key in quotes"),
        ),
    }
}

/// A number that is no integer, or that is written like one and would lose digits.
fn float(text: &str, at: usize, number: f64, written: Location) -> Result<Number, Problem> {
    let span = written.span();
    let range = span
        .byte_offset()
        .zip(span.byte_len())
        .and_then(|(start, length)| {
            let start = usize::try_from(start).ok()?;
            Some(start..start.checked_add(usize::try_from(length).ok()?)?)
        });
    let source = range.and_then(|range| text.get(range)).unwrap_or_default();
    let digits = source.trim().trim_start_matches(['+', '-']);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let reason = if digits.starts_with('0') {
            "begins with a zero, which says nothing clear about its base"
        } else {
            "does not fit into 64 bits"
        };
        return Err(Problem::new(
            at,
            format!("the number `{}` {reason}", brief(source.trim())),
        )
        .hint("write it in quotes if it is a text"));
    }
    Number::from_f64(number).ok_or_else(|| {
        Problem::new(at, "a number must be finite").hint("write it in quotes if it is a text")
    })
}
