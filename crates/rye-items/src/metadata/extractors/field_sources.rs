//! Where fields are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::Parser;

/// A name in the file, and the keys that lead into its value: `CONFIG.risk_level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::metadata) struct FieldSource {
    pub(in crate::metadata) name: String,
    pub(in crate::metadata) path: Vec<String>,
}

/// The places of each field, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub(in crate::metadata) struct FieldSources {
    fields: Fields,
    /// All names, so that a parser need not look at others.
    names: BTreeSet<String>,
    /// The names that are a field on their own, without keys into their value.
    direct: BTreeSet<String>,
}

type Fields = BTreeMap<String, Vec<FieldSource>>;

impl From<Fields> for FieldSources {
    fn from(fields: Fields) -> Self {
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

impl From<FieldSources> for Fields {
    fn from(places: FieldSources) -> Self {
        places.fields
    }
}

impl FieldSources {
    const NOWHERE: Self = Self {
        fields: BTreeMap::new(),
        names: BTreeSet::new(),
        direct: BTreeSet::new(),
    };

    fn merge(&mut self, over: Self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.extend(over.fields);
        *self = fields.into();
    }

    /// Each field with its places.
    pub(in crate::metadata) fn fields(&self) -> impl Iterator<Item = (&str, &[FieldSource])> {
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

/// The places for each parser. As JSON they are left as they are until somebody
/// asks: a call whose files were all read before does not.
#[derive(Debug, Clone, Default)]
pub(super) struct LazyFieldSources {
    json: Box<[u8]>,
    read: OnceLock<BTreeMap<Parser, FieldSources>>,
}

impl PartialEq for LazyFieldSources {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl Eq for LazyFieldSources {}

impl LazyFieldSources {
    pub(super) fn from_json(json: &[u8]) -> Self {
        Self {
            json: json.into(),
            read: OnceLock::new(),
        }
    }

    pub(super) fn read(&self) -> &BTreeMap<Parser, FieldSources> {
        self.read
            .get_or_init(|| serde_json::from_slice(&self.json).unwrap_or_default())
    }

    pub(super) fn of(&self, parser: Parser) -> &FieldSources {
        static NOWHERE: FieldSources = FieldSources::NOWHERE;
        self.read().get(&parser).unwrap_or(&NOWHERE)
    }

    pub(super) fn insert(&mut self, parser: Parser, places: FieldSources) {
        self.change(|all| {
            all.insert(parser, places);
        });
    }

    pub(super) fn merge(&mut self, over: &Self) {
        self.change(|all| {
            for (parser, places) in over.read() {
                all.entry(*parser).or_default().merge(places.clone());
            }
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<Parser, FieldSources>)) {
        self.read();
        if let Some(all) = self.read.get_mut() {
            change(all);
        }
    }
}
