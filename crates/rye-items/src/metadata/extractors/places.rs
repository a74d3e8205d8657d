//! Where fields are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A name in the file, and the keys that lead into its value: `CONFIG.risk_level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::metadata) struct Place {
    pub(in crate::metadata) name: String,
    pub(in crate::metadata) path: Vec<String>,
}

/// The places of each field, in the order in which they are tried. As JSON they
/// are kept as they are until somebody asks: a call whose files were all read
/// before does not.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Box<RawValue>", into = "BTreeMap<String, Vec<Place>>")]
pub(in crate::metadata) struct Places {
    json: Option<Box<RawValue>>,
    read: OnceLock<Read>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Read {
    fields: BTreeMap<String, Vec<Place>>,
    /// All names, so that a parser need not look at others.
    names: BTreeSet<String>,
    /// The names that are a field on their own, without keys into their value.
    direct: BTreeSet<String>,
}

impl From<Box<RawValue>> for Places {
    fn from(json: Box<RawValue>) -> Self {
        Self {
            json: Some(json),
            read: OnceLock::new(),
        }
    }
}

impl From<Places> for BTreeMap<String, Vec<Place>> {
    fn from(places: Places) -> Self {
        places.read().fields.clone()
    }
}

impl PartialEq for Places {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl Eq for Places {}

impl Read {
    fn new(fields: BTreeMap<String, Vec<Place>>) -> Self {
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
}

impl Places {
    pub(super) const fn nowhere() -> Self {
        Self {
            json: None,
            read: OnceLock::new(),
        }
    }

    pub(super) fn new(fields: BTreeMap<String, Vec<Place>>) -> Self {
        Self {
            json: None,
            read: Read::new(fields).into(),
        }
    }

    fn read(&self) -> &Read {
        self.read.get_or_init(|| {
            let json = self.json.as_ref();
            let fields = json.and_then(|json| serde_json::from_str(json.get()).ok());
            Read::new(fields.unwrap_or_default())
        })
    }

    pub(super) fn merge(&mut self, over: Self) {
        let mut fields = BTreeMap::from(std::mem::take(self));
        fields.extend(BTreeMap::from(over));
        *self = Self::new(fields);
    }

    /// Each field with its places.
    pub(in crate::metadata) fn fields(&self) -> impl Iterator<Item = (&str, &[Place])> {
        self.read()
            .fields
            .iter()
            .map(|(field, places)| (field.as_str(), places.as_slice()))
    }

    /// Whether a field is found under this name, or inside of its value.
    pub(in crate::metadata) fn wants(&self, name: &str) -> bool {
        self.read().names.contains(name)
    }

    /// Whether the value of this name is a field as it is.
    pub(in crate::metadata) fn is_direct(&self, name: &str) -> bool {
        self.read().direct.contains(name)
    }
}
