//! Field sources: the names in a file from which metadata fields are read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A name in the file, and the keys that lead into its value: `CONFIG.risk_level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::metadata) struct FieldSource {
    pub(in crate::metadata) name: String,
    pub(in crate::metadata) path: Vec<String>,
}

/// The sources of each field, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub(in crate::metadata) struct FieldSources {
    fields: Fields,
    /// All source names, so that parsers can skip other names.
    names: BTreeSet<String>,
    /// The names whose whole value is a field.
    direct: BTreeSet<String>,
}

type Fields = BTreeMap<String, Vec<FieldSource>>;

impl From<Fields> for FieldSources {
    fn from(fields: Fields) -> Self {
        let all = || fields.values().flatten();
        let names = all().map(|source| source.name.clone()).collect();
        let direct = all()
            .filter(|source| source.path.is_empty())
            .map(|source| source.name.clone())
            .collect();
        Self {
            fields,
            names,
            direct,
        }
    }
}

impl From<FieldSources> for Fields {
    fn from(sources: FieldSources) -> Self {
        sources.fields
    }
}

impl FieldSources {
    pub(super) const EMPTY: Self = Self {
        fields: BTreeMap::new(),
        names: BTreeSet::new(),
        direct: BTreeSet::new(),
    };

    pub(super) fn merge(&mut self, over: Self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.extend(over.fields);
        *self = fields.into();
    }

    /// All fields with their sources.
    pub(in crate::metadata) fn fields(&self) -> impl Iterator<Item = (&str, &[FieldSource])> {
        self.fields
            .iter()
            .map(|(field, sources)| (field.as_str(), sources.as_slice()))
    }

    /// Whether a field is found under this name, or inside its value.
    pub(in crate::metadata) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the whole value of this name is a field.
    pub(in crate::metadata) fn is_direct(&self, name: &str) -> bool {
        self.direct.contains(name)
    }
}
