//! A minimal XML parser for directives. Rejects entity expansion and external references.

use quick_xml::errors::IllFormedError;
use quick_xml::escape::{EscapeError, resolve_xml_entity};
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::metadata::error::{Problem, truncate};
use crate::metadata::node::MAX_DEPTH;

/// The maximum number of attributes of an element.
const MOST_ATTRIBUTES: usize = 64;

/// An element and its byte offset.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) at: usize,
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Element>,
    /// The concatenated text of the element, without its children.
    pub(super) text: String,
    /// The byte offset of that text.
    pub(super) text_at: usize,
}

/// An attribute and the byte offset of its value.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) at: usize,
}

/// Parses the element at the start of a text. Ignores the text after it.
pub(super) fn element(text: &str) -> Result<Element, Problem> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().allow_dangling_amp = true;
    let mut open: Vec<Element> = Vec::new();
    loop {
        let at = usize::try_from(reader.buffer_position()).unwrap_or(text.len());
        let event = reader.read_event().map_err(|error| {
            let at = usize::try_from(reader.error_position()).unwrap_or(text.len());
            invalid(&error, at)
        })?;
        let closed = match event {
            Event::Start(start) => {
                if open.len() >= MAX_DEPTH {
                    return Err(Problem::new(at, "the elements are nested too deeply"));
                }
                open.push(opened(text, &start, at)?);
                None
            }
            Event::Empty(start) => Some(opened(text, &start, at)?),
            Event::End(_) => open.pop(),
            Event::Text(content) => {
                push(&mut open, &content.xml10_content(), at);
                None
            }
            Event::CData(content) => {
                push(&mut open, &content.xml10_content(), at);
                None
            }
            Event::GeneralRef(reference) => {
                push(&mut open, &resolved(&reference, at)?, at);
                None
            }
            Event::Comment(_) => None,
            Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {
                let message = "a directive may hold elements and text, but no declarations";
                return Err(Problem::new(at, message));
            }
            Event::Eof => return Err(unclosed(&open, at)),
        };
        if let Some(element) = closed {
            match open.last_mut() {
                Some(parent) => parent.children.push(element),
                None => return Ok(element),
            }
        }
    }
}

fn invalid(error: &quick_xml::Error, at: usize) -> Problem {
    let what = match error {
        quick_xml::Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
            let (expected, found) = (truncate(expected), truncate(found));
            format!("expected `</{expected}>`, found `</{found}>`")
        }
        error => error.to_string(),
    };
    Problem::new(at, format!("not valid XML: {what}"))
}

fn opened(text: &str, start: &BytesStart<'_>, at: usize) -> Result<Element, Problem> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| invalid_attribute(&error, at))?;
        let name = attribute.key.as_ref();
        let value_at = attribute
            .value
            .as_ptr()
            .addr()
            .checked_sub(text.as_ptr().addr());
        let value_at = value_at.filter(|at| *at <= text.len()).unwrap_or(at);
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| invalid_value(&error, value_at))?;
        attributes.push(Attribute {
            name: name.to_owned(),
            value: value.into_owned(),
            at: value_at,
        });
        if attributes.len() > MOST_ATTRIBUTES {
            return Err(Problem::new(at, "the element has too many attributes"));
        }
    }
    Ok(Element {
        name: start.name().as_ref().to_owned(),
        at,
        attributes,
        children: Vec::new(),
        text: String::new(),
        text_at: at,
    })
}

/// The error for an invalid attribute. Offsets are relative to the element's name.
fn invalid_attribute(error: &AttrError, at: usize) -> Problem {
    let (offset, what) = match error {
        AttrError::ExpectedEq(offset) => (offset, "an attribute needs `=` and a value"),
        AttrError::ExpectedValue(offset) => (offset, "an attribute needs a value"),
        AttrError::UnquotedValue(offset) => (offset, "the value of an attribute needs quotes"),
        AttrError::ExpectedQuote(offset, _) => (offset, "the quotes of a value are never closed"),
        AttrError::Duplicated(offset, _) => (offset, "the attribute is given twice"),
    };
    Problem::new(at + 1 + offset, format!("not valid XML: {what}"))
}

fn invalid_value(error: &quick_xml::Error, at: usize) -> Problem {
    let problem = match error {
        quick_xml::Error::Escape(EscapeError::UnrecognizedEntity(_, name)) => unknown(name, at),
        quick_xml::Error::Escape(EscapeError::UnterminatedEntity(_)) => {
            Problem::new(at, "not valid XML: an entity needs `;` at its end")
        }
        error => Problem::new(at, format!("not valid XML: {error}")),
    };
    problem.hint("write `&amp;` for an ampersand")
}

fn unknown(entity: &str, at: usize) -> Problem {
    Problem::new(
        at,
        format!("not valid XML: there is no entity `&{};`", truncate(entity)),
    )
    .hint("write `&amp;` for an ampersand")
}

fn push(open: &mut [Element], content: &str, at: usize) {
    if let Some(element) = open.last_mut() {
        if element.text.trim().is_empty() {
            let indent = content.len() - content.trim_start().len();
            element.text_at = at + indent;
        }
        element.text.push_str(content);
    }
}

/// Resolves a character reference, or one of the five predefined entities.
fn resolved(reference: &BytesRef<'_>, at: usize) -> Result<String, Problem> {
    let name = reference.xml10_content();
    match reference.resolve_char_ref() {
        Ok(Some(character)) => return Ok(character.to_string()),
        Ok(None) => {}
        Err(error) => return Err(Problem::new(at, format!("not valid XML: {error}"))),
    }
    match resolve_xml_entity(&name) {
        Some(text) => Ok(text.to_owned()),
        None => Err(unknown(&name, at)),
    }
}

fn unclosed(open: &[Element], end: usize) -> Problem {
    match open.last() {
        Some(element) => {
            let message = format!("`<{}>` is never closed", truncate(&element.name));
            Problem::new(element.at, message)
        }
        None => Problem::new(end, "an element is missing here"),
    }
}
