//! Converts the `<directive>` element to metadata fields.

use super::xml::{self, Element};
use crate::metadata::error::Problem;
use crate::metadata::named_values::NamedValues;
use crate::metadata::node::{Data, Entry, Node};
use crate::metadata::text::collapse_whitespace;
use crate::metadata::yaml;

/// Reads the element, which starts at a byte offset of the file. Its attributes, the children of
/// `<metadata>`, `<inputs>` and `<outputs>` become fields.
pub(super) fn read(source: &str, start: usize, values: &mut NamedValues) -> Result<(), Problem> {
    let directive = xml::element(source).map_err(|problem| problem.shifted(start))?;
    for attribute in &directive.attributes {
        let value = Node::text(attribute.at, &*attribute.value);
        values.add_if_new(&attribute.name, value.shifted(start));
    }
    for part in &directive.children {
        match part.name.as_str() {
            "metadata" => {
                for (name, value) in grouped(&part.children) {
                    values.add_if_new(&name, normalize(&name, value).shifted(start));
                }
            }
            "inputs" | "outputs" => {
                let items = part.children.iter().map(declaration).collect();
                let value = Node::new(part.at, Data::List(items));
                values.add_if_new(&part.name, value.shifted(start));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Converts `<input name="path" type="string" required="true">What it is</input>`.
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
        // The alternative form `<file_path>…</file_path>`.
        entries.insert(0, entry("name", Node::text(element.at, &*element.name)));
    }
    let description = collapse_whitespace(&element.text);
    if !description.is_empty() && entries.iter().all(|entry| entry.key != "description") {
        let description = Node::text(element.text_at, description);
        entries.push(entry("description", description));
    }
    Node::new(element.at, Data::Map(entries))
}

/// Groups elements by name; repeated elements become a list.
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

/// Converts an element: a string if it contains only text, otherwise a mapping of its attributes
/// and children.
fn value(element: &Element) -> Node {
    let content = collapse_whitespace(&element.text);
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

/// Normalizes fields to the type that their consumers expect.
fn normalize(name: &str, mut node: Node) -> Node {
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

/// Converts numeric strings such as `max_turns="3"` to numbers.
fn numbers(node: &mut Node) {
    if let Data::Map(limits) = &mut node.data {
        for limit in limits {
            scalar(&mut limit.value);
        }
    }
}

/// Converts a string to the number or boolean that YAML reads it as.
fn scalar(node: &mut Node) {
    if let Data::Text(text) = &node.data
        && let Ok(read) = yaml::value(text)
        && matches!(read.data, Data::Number(_) | Data::Bool(_))
    {
        node.data = read.data;
    }
}

/// Converts single children such as `<tool>a</tool>` to lists.
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

/// Converts `<tags>a, b</tags>` and `<tags><tag>a</tag><tag>b</tag></tags>` to lists.
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
