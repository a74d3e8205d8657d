//! Builds values from YAML events: keys, aliases and merges, with limits.

use std::collections::HashMap;

use serde_saphyr::granit_parser::ScalarStyle;

use crate::metadata::error::Problem;
use crate::metadata::node::{Data, Entry, MAX_DEPTH, Node};

/// The maximum cost of all copies by aliases. A value costs one.
const MOST_COPIES: usize = 100_000;
/// The number of bytes of text that cost as much as one value.
const TEXT_PER_COPY: usize = 64;

/// A complete value and its depth.
#[derive(Clone)]
struct CompleteNode {
    node: Node,
    depth: usize,
}

/// A list or mapping that is still open.
struct OpenCollection {
    at: usize,
    anchor: usize,
    depth: usize,
    collection: Collection,
}

enum Collection {
    List(Vec<Node>),
    Map(Mapping),
}

#[derive(Default)]
struct Mapping {
    entries: Vec<Entry>,
    offsets: HashMap<String, usize>,
    key: Option<Key>,
    merged: Vec<Node>,
}

enum Key {
    Text(String, usize),
    Merge,
}

/// The state of the builder.
pub(super) struct Builder<'t> {
    text: &'t str,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, CompleteNode>,
    copies: usize,
    root: Option<Node>,
}

impl<'t> Builder<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            open: Vec::new(),
            anchors: HashMap::new(),
            copies: 0,
            root: None,
        }
    }

    pub(super) fn finish(self) -> Node {
        self.root.unwrap_or(Node::new(0, Data::Null))
    }

    pub(super) fn scalar(
        &mut self,
        at: usize,
        data: Data,
        anchor: usize,
        style: ScalarStyle,
    ) -> Result<(), Problem> {
        let merges = style == ScalarStyle::Plain && data == Data::Text("<<".to_owned());
        if merges
            && let Some(mapping) = self.mapping()
            && mapping.key.is_none()
        {
            mapping.key = Some(Key::Merge);
            return Ok(());
        }
        let node = Node::new(at, data);
        self.complete(CompleteNode { node, depth: 0 }, anchor)
    }

    pub(super) fn open_list(&mut self, at: usize, anchor: usize) -> Result<(), Problem> {
        self.open(at, anchor, Collection::List(Vec::new()))
    }

    pub(super) fn open_map(&mut self, at: usize, anchor: usize) -> Result<(), Problem> {
        self.open(at, anchor, Collection::Map(Mapping::default()))
    }

    pub(super) fn close(&mut self) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let data = match open.collection {
            Collection::List(items) => Data::List(items),
            Collection::Map(mapping) => Data::Map(mapping.with_merged(self)?),
        };
        let node = Node::new(open.at, data);
        let depth = open.depth + 1;
        self.complete(CompleteNode { node, depth }, open.anchor)
    }

    pub(super) fn alias(&mut self, at: usize, anchor: usize) -> Result<(), Problem> {
        let Some(value) = self.anchors.get(&anchor) else {
            return Err(Problem::new(
                at,
                "the alias refers to a value that contains it",
            ));
        };
        let mut value = value.clone();
        value.node.at = at;
        self.charge_copy(at, &value.node)?;
        if self.open.len() + value.depth > MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.complete(value, 0)
    }

    fn open(&mut self, at: usize, anchor: usize, collection: Collection) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.open.push(OpenCollection {
            at,
            anchor,
            depth: 0,
            collection,
        });
        Ok(())
    }

    /// Adds a complete value to the innermost open collection.
    fn complete(&mut self, value: CompleteNode, anchor: usize) -> Result<(), Problem> {
        if anchor != 0 {
            self.charge_copy(value.node.at, &value.node)?;
            self.anchors.insert(anchor, value.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(value.node);
            return Ok(());
        };
        open.depth = open.depth.max(value.depth);
        match &mut open.collection {
            Collection::List(items) => items.push(value.node),
            Collection::Map(mapping) => mapping.push(self.text, value.node)?,
        }
        Ok(())
    }

    fn mapping(&mut self) -> Option<&mut Mapping> {
        match &mut self.open.last_mut()?.collection {
            Collection::Map(mapping) => Some(mapping),
            Collection::List(_) => None,
        }
    }

    /// Adds the cost of a copy, so that a few lines cannot exhaust the memory.
    fn charge_copy(&mut self, at: usize, node: &Node) -> Result<(), Problem> {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            self.copies += 1;
            match &node.data {
                Data::Text(text) => self.copies += text.len() / TEXT_PER_COPY,
                Data::List(items) => waiting.extend(items),
                Data::Map(entries) => {
                    for entry in entries {
                        self.copies += entry.key.len() / TEXT_PER_COPY;
                        waiting.push(&entry.value);
                    }
                }
                Data::Null | Data::Bool(_) | Data::Number(_) => {}
            }
            if self.copies > MOST_COPIES {
                return Err(Problem::new(at, "the aliases expand to too much data"));
            }
        }
        Ok(())
    }
}

impl Mapping {
    /// Adds a key or a value, whichever is next.
    fn push(&mut self, text: &str, node: Node) -> Result<(), Problem> {
        match self.key.take() {
            None => {
                let Data::Text(key) = node.data else {
                    let message = format!("a key must be a string, not {}", node.kind());
                    return Err(Problem::new(node.at, message).hint("write the key in quotes"));
                };
                if let Some(first) = self.offsets.insert(key.clone(), node.at) {
                    return Err(Problem::duplicate(text, &key, first, node.at));
                }
                self.key = Some(Key::Text(key, node.at));
            }
            Some(Key::Text(key, at)) => self.entries.push(Entry {
                key,
                at,
                value: node,
            }),
            Some(Key::Merge) => match node.data {
                Data::Map(_) => self.merged.push(node),
                Data::List(items) => self.merged.extend(items),
                _ => return Err(not_mergeable(&node)),
            },
        }
        Ok(())
    }

    /// The entries, including those of merged mappings with other keys.
    fn with_merged(mut self, builder: &mut Builder<'_>) -> Result<Vec<Entry>, Problem> {
        for merged in std::mem::take(&mut self.merged) {
            builder.charge_copy(merged.at, &merged)?;
            let Data::Map(entries) = merged.data else {
                return Err(not_mergeable(&merged));
            };
            for entry in entries {
                if !self.offsets.contains_key(&entry.key) {
                    self.offsets.insert(entry.key.clone(), entry.at);
                    self.entries.push(entry);
                }
            }
        }
        Ok(self.entries)
    }
}

fn not_mergeable(node: &Node) -> Problem {
    let message = format!("only mappings can be merged, not {}", node.kind());
    Problem::new(node.at, message)
}

/// The error for values that exceed the maximum depth.
pub(super) fn too_deep(at: usize) -> Problem {
    Problem::new(at, "the values are nested too deeply")
}
