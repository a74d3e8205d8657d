//! The `<directive>` element as fields.

use super::xml::{self, Element};
use crate::metadata::error::Problem;
use crate::metadata::named_values::NamedValues;
use crate::metadata::node::{Data, Entry, Node};
use crate::metadata::text::words;
use crate::metadata::yaml;

/// Reads the element, which begins at a byte of the file. The attributes, the
/// parts of `<metadata>`, and `<inputs>` and `<outputs>` each are a field.
pub(super) fn read(source: &str, start: usize, found: &mut NamedValues) -> Result<(), Problem> {
    let directive = xml::element(source).map_err(|problem| problem.after(start))?;
    for attribute in &directive.attributes {
        let value = Node::text(attribute.at, &*attribute.value);
        found.add_if_new(&attribute.name, value.after(start));
    }
    for part in &directive.children {
        match part.name.as_str() {
            "metadata" => {
                for (name, value) in grouped(&part.children) {
                    found.add_if_new(&name, adapted(&name, value).after(start));
                }
            }
            "inputs" | "outputs" => {
                let items = part.children.iter().map(declaration).collect();
                let value = Node::new(part.at, Data::List(items));
                found.add_if_new(&part.name, value.after(start));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `<input name="path" type="string" required="true">What it is</input>`.
fn declaration(element: &Element) -> Node {
    let mut entries: Vec<_> = element
        .attributes
        .iter()
        .map(|attribute| {
            let data = match (attribute.name.as_str(), attribute.value.as_str()) {
                ("required", "true") => Data::Bool(true),
                ("required", "false") => Data::Bool(false),
                (_, value) => Data::Text(value.to_owned()),
            };
            entry(&attribute.name, Node::new(attribute.at, data))
        })
        .collect();
    if !matches!(element.name.as_str(), "input" | "output")
        && entries.iter().all(|entry| entry.key != "name")
    {
        // `<file_path>…</file_path>`, which some write for the same.
        entries.insert(0, entry("name", Node::text(element.at, &*element.name)));
    }
    let description = words(&element.text);
    if !description.is_empty() && entries.iter().all(|entry| entry.key != "description") {
        let description = Node::text(element.text_at, description);
        entries.push(entry("description", description));
    }
    Node::new(element.at, Data::Map(entries))
}

/// Elements by name; one that is there several times is a list.
fn grouped(elements: &[Element]) -> Vec<(String, Node)> {
    let mut groups: Vec<(String, Vec<Node>)> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for element in elements {
        let group = *index.entry(element.name.as_str()).or_insert_with(|| {
            groups.push((element.name.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(value(element));
    }
    let single = |(name, mut nodes): (String, Vec<Node>)| match nodes.pop() {
        Some(only) if nodes.is_empty() => (name, only),
        last => {
            nodes.extend(last);
            let at = nodes.first().map_or(0, |first| first.at);
            (name, Node::new(at, Data::List(nodes)))
        }
    };
    groups.into_iter().map(single).collect()
}

/// An element with nothing but text is a text; otherwise its attributes and parts are a mapping.
fn value(element: &Element) -> Node {
    let content = words(&element.text);
    if element.attributes.is_empty() && element.children.is_empty() {
        return Node::text(element.text_at, content);
    }
    let attributes = element.attributes.iter();
    let mut entries: Vec<_> = attributes
        .map(|attribute| entry(&attribute.name, Node::text(attribute.at, &*attribute.value)))
        .collect();
    for (name, value) in grouped(&element.children) {
        if entries
            .iter()
            .take(element.attributes.len())
            .all(|entry| entry.key != name)
        {
            entries.push(entry(&name, value));
        }
    }
    if !content.is_empty() && entries.iter().all(|entry| entry.key != "text") {
        entries.push(entry("text", Node::text(element.text_at, content)));
    }
    Node::new(element.at, Data::Map(entries))
}

/// Gives the parts whose shape others rely on the same shape, however many there are.
fn adapted(name: &str, mut node: Node) -> Node {
    match name {
        "limits" => numbers(&mut node),
        "permissions" => {
            if let Data::Map(actions) = &mut node.data {
                for action in actions {
                    lists(&mut action.value);
                }
            }
        }
        "tags" | "requires_env" | "reads" | "writes" => items(&mut node),
        "timeout" | "requires_approval" => scalar(&mut node),
        _ => {}
    }
    node
}

/// `max_turns="3"` is a number.
fn numbers(node: &mut Node) {
    if let Data::Map(limits) = &mut node.data {
        for limit in limits {
            scalar(&mut limit.value);
        }
    }
}

/// A text that YAML reads as a number, true or false is that.
fn scalar(node: &mut Node) {
    if let Data::Text(text) = &node.data
        && let Ok(read) = yaml::value(text)
        && matches!(read.data, Data::Number(_) | Data::Bool(_))
    {
        node.data = read.data;
    }
}

/// `<tool>a</tool>` is a list of one.
fn lists(node: &mut Node) {
    if let Data::Map(entries) = &mut node.data {
        for entry in entries {
            if let Data::Text(_) = entry.value.data {
                let single = std::mem::replace(&mut entry.value.data, Data::Null);
                let at = entry.value.at;
                entry.value.data = Data::List(vec![Node::new(at, single)]);
            }
        }
    }
}

/// `<tags>a, b</tags>` and `<tags><tag>a</tag><tag>b</tag></tags>` are lists.
fn items(node: &mut Node) {
    let at = node.at;
    match &mut node.data {
        Data::Text(text) => {
            let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
            node.data = Data::List(tags.map(|tag| Node::text(at, tag)).collect());
        }
        Data::Map(entries) if entries.len() == 1 => {
            let inner = entries.remove(0).value;
            node.data = match inner.data {
                Data::List(items) => Data::List(items),
                _ => Data::List(vec![inner]),
            };
        }
        _ => {}
    }
}

fn entry(key: &str, value: Node) -> Entry {
    Entry {
        key: key.to_owned(),
        at: value.at,
        value,
    }
}
