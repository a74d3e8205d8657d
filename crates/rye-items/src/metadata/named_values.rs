//! What a parser found by name, and how names become fields.

use std::collections::BTreeMap;

use super::error::Problem;
use super::extractors::{FieldSource, FieldSources};
use super::node::{Data, Node};

/// Values by the names that the file gives them.
#[derive(Debug, Default)]
pub(super) struct NamedValues {
    names: BTreeMap<String, Node>,
    /// Whether a name that no field asks for is metadata all the same.
    keep_others: bool,
}

impl NamedValues {
    /// For a language in which a file has many names and few are metadata.
    pub(super) fn only_fields() -> Self {
        Self::default()
    }

    /// For a language in which all that is there is metadata.
    pub(super) fn everything() -> Self {
        Self {
            keep_others: true,
            ..Self::default()
        }
    }

    /// Adds a value that must not be there yet.
    pub(super) fn add(&mut self, text: &str, name: &str, value: Node) -> Result<(), Problem> {
        if let Some(first) = self.names.get(name) {
            return Err(Problem::twice(text, name, first.at, value.at));
        }
        self.names.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds a value unless the name has one, which then wins.
    pub(super) fn add_if_new(&mut self, name: &str, value: Node) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), value);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.names.get(name)
    }

    /// The fields: for each, the first of its places where there is something.
    pub(super) fn into_fields(mut self, places: &FieldSources) -> BTreeMap<String, Node> {
        let mut fields = BTreeMap::new();
        for (field, places) in places.fields() {
            let found = places.iter().find_map(|place| self.at(place));
            if let Some(node) = found {
                fields.insert(field.to_owned(), node.clone());
            }
        }
        if self.keep_others {
            self.names
                .retain(|name, _| !name.starts_with('@') && !places.is_direct(name));
            for (name, node) in self.names {
                fields.entry(name).or_insert(node);
            }
        }
        fields
    }

    fn at(&self, place: &FieldSource) -> Option<&Node> {
        let mut node = self.names.get(&place.name)?;
        for key in &place.path {
            node = node.get(key)?;
        }
        // Inside of a literal a text with placeholders is a template, filled in at the call.
        let template =
            !place.path.is_empty() && matches!(&node.data, Data::Text(text) if text.contains('{'));
        (!template).then_some(node)
    }
}
