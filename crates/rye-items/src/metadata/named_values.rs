//! The values that a parser found, by name, and their mapping to metadata fields.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Problem;
use super::extractors::{FieldSource, FieldSources};
use super::node::{Data, Node};
use super::typed::Misspelt;

/// Values by their names in the file.
#[derive(Debug, Default)]
pub(super) struct NamedValues {
    names: BTreeMap<String, Node>,
    /// Whether names that are not a source of any field are metadata too.
    keep_others: bool,
    misspelt: BTreeSet<Misspelt>,
}

impl NamedValues {
    /// For languages in which only some names of a file are metadata.
    pub(super) fn only_fields() -> Self {
        Self::default()
    }

    /// For languages in which all names are metadata.
    pub(super) fn everything() -> Self {
        Self {
            keep_others: true,
            ..Self::default()
        }
    }

    /// Adds a value. A duplicate name is an error.
    pub(super) fn add(&mut self, text: &str, name: &str, value: Node) -> Result<(), Problem> {
        if let Some(first) = self.names.get(name) {
            return Err(Problem::duplicate(text, name, first.at, value.at));
        }
        self.names.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds a value unless the name exists.
    pub(super) fn add_if_new(&mut self, name: &str, value: Node) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), value);
        }
    }

    /// Records a name that is not a source of any field, if it is similar to one.
    pub(super) fn add_other(&mut self, name: &str, sources: &FieldSources) {
        if let Some((field, nearest)) = sources.nearest(name) {
            self.misspelt.insert(Misspelt {
                name: name.to_owned(),
                nearest: nearest.to_owned(),
                field: field.to_owned(),
            });
        }
    }

    pub(super) fn take_misspelt(&mut self) -> Vec<Misspelt> {
        std::mem::take(&mut self.misspelt).into_iter().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.names.get(name)
    }

    /// Maps names to fields. Each field gets the value of its first existing source.
    pub(super) fn into_fields(mut self, sources: &FieldSources) -> BTreeMap<String, Node> {
        let mut fields = BTreeMap::new();
        for (field, sources) in &sources.0 {
            let value = sources.iter().find_map(|source| self.at(source));
            if let Some(node) = value {
                fields.insert(field.clone(), node.clone());
            }
        }
        if self.keep_others {
            self.names
                .retain(|name, _| !name.starts_with('@') && !sources.is_direct(name));
            for (name, node) in self.names {
                fields.entry(name).or_insert(node);
            }
        }
        fields
    }

    fn at(&self, source: &FieldSource) -> Option<&Node> {
        let mut node = self.names.get(&source.name)?;
        for key in &source.path {
            node = node.get(key)?;
        }
        // A string with placeholders inside a literal is a template that is filled at the call.
        let template =
            !source.path.is_empty() && matches!(&node.data, Data::Text(text) if text.contains('{'));
        (!template).then_some(node)
    }
}
