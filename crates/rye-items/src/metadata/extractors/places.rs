//! Where fields are found.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A name in the file, and the keys that lead into its value: `CONFIG.risk_level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::metadata) struct Place {
    pub(in crate::metadata) name: String,
    pub(in crate::metadata) path: Vec<String>,
}

/// The places of each field, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "BTreeMap<String, Vec<Place>>",
    into = "BTreeMap<String, Vec<Place>>"
)]
pub(in crate::metadata) struct Places {
    fields: BTreeMap<String, Vec<Place>>,
    /// All names, so that a parser need not look at others.
    names: BTreeSet<String>,
    /// The names that are a field on their own, without keys into their value.
    direct: BTreeSet<String>,
}

impl From<BTreeMap<String, Vec<Place>>> for Places {
    fn from(fields: BTreeMap<String, Vec<Place>>) -> Self {
        Self::new(fields)
    }
}

impl From<Places> for BTreeMap<String, Vec<Place>> {
    fn from(places: Places) -> Self {
        places.fields
    }
}

impl Places {
    pub(super) const fn nowhere() -> Self {
        Self {
            fields: BTreeMap::new(),
            names: BTreeSet::new(),
            direct: BTreeSet::new(),
        }
    }

    pub(super) fn new(fields: BTreeMap<String, Vec<Place>>) -> Self {
        let all = || fields.values().flatten();
        let names = all().map(|place| place.name.clone()).collect();
        let direct = all()
            .filter(|place| place.path.is_empty())
            .map(|place| place.name.clone())
            .collect();
        Self {
            fields,
            names,
            direct,
        }
    }

    pub(super) fn merge(&mut self, over: Self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.extend(over.fields);
        *self = Self::new(fields);
    }

    /// Each field with its places.
    pub(in crate::metadata) fn fields(&self) -> impl Iterator<Item = (&str, &[Place])> {
        self.fields
            .iter()
            .map(|(field, places)| (field.as_str(), places.as_slice()))
    }

    /// Whether a field is found under this name, or inside of its value.
    pub(in crate::metadata) fn wants(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the value of this name is a field as it is.
    pub(in crate::metadata) fn is_direct(&self, name: &str) -> bool {
        self.direct.contains(name)
    }
}
