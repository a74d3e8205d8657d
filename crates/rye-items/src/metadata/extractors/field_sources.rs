//! Field sources: the names in a file from which metadata fields are read.

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
    const EMPTY: Self = Self {
        fields: BTreeMap::new(),
        names: BTreeSet::new(),
        direct: BTreeSet::new(),
    };

    fn merge(&mut self, over: Self) {
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

/// The field sources of all parsers, which are parsed from JSON on first use.
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

    pub(super) fn for_parser(&self, parser: Parser) -> &FieldSources {
        static EMPTY: FieldSources = FieldSources::EMPTY;
        self.read().get(&parser).unwrap_or(&EMPTY)
    }

    pub(super) fn insert(&mut self, parser: Parser, sources: FieldSources) {
        self.change(|all| {
            all.insert(parser, sources);
        });
    }

    pub(super) fn merge(&mut self, over: &Self) {
        self.change(|all| {
            for (parser, sources) in over.read() {
                all.entry(*parser).or_default().merge(sources.clone());
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
