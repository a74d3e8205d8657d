//! What a server says of its tools, and the hash by which that is accepted.

use std::collections::BTreeMap;
use std::fmt;

use lillux::Hash;
use lillux::canonical;
use rmcp::model::Tool;
use serde_json::{Map, Value};

/// The parts of a tool that a model sees or that tell what it may do. They are
/// what is pinned; icons and the like may change.
const PINNED: [&str; 5] = [
    "name",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// How much of the hash of a part is kept: it only tells which parts differ.
const SHORT: usize = 16;

/// What was accepted of a tool, as hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pin {
    /// The SHA-256 of the canonical JSON of all that is pinned.
    pub whole: String,
    /// The beginnings of the hashes of the parts, to tell which of them changed.
    pub parts: BTreeMap<String, String>,
}

impl Pin {
    /// Reads it from the configuration of an item, where there is one.
    pub fn from_config(config: &Map<String, Value>) -> Option<Self> {
        let whole = config.get("pin")?.as_str()?.to_owned();
        let parts = config.get("parts").and_then(Value::as_object);
        let parts = parts.into_iter().flatten();
        let parts =
            parts.filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned())));
        Some(Self {
            whole,
            parts: parts.collect(),
        })
    }

    /// The parts that differ from those of another.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let differs = |part: &&str| self.parts.get(*part) != other.parts.get(*part);
        let parts = PINNED.into_iter().filter(differs);
        parts.map(str::to_owned).collect()
    }
}

/// A tool of a server, as far as it is pinned.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    about: Map<String, Value>,
    /// The hashes of what is pinned.
    pub pin: Pin,
}

impl RemoteTool {
    /// What a server said of a tool. What has no canonical form has no pin: none.
    pub fn new(tool: &Tool) -> Option<Self> {
        let Ok(Value::Object(mut about)) = serde_json::to_value(tool) else {
            return None;
        };
        about.retain(|key, _| PINNED.contains(&key.as_str()));
        let hash = |text: Vec<u8>| Hash::digest(text).to_hex();
        let mut parts = BTreeMap::new();
        for (key, value) in &about {
            let mut part = hash(canonical::to_vec(value).ok()?);
            part.truncate(SHORT);
            parts.insert(key.clone(), part);
        }
        let whole = hash(canonical::to_vec(&about).ok()?);
        let pin = Pin { whole, parts };
        Some(Self { about, pin })
    }

    /// Its name at the server.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// What the server says it does.
    pub fn description(&self) -> &str {
        self.text("description")
    }

    /// The schema of its parameters.
    pub fn input_schema(&self) -> &Value {
        self.about.get("inputSchema").unwrap_or(&Value::Null)
    }

    /// A part of what the server says of it.
    pub(super) fn part(&self, name: &str) -> Option<&Value> {
        self.about.get(name)
    }

    /// A hint that the server gives; none where it gives none.
    pub fn hints(&self, name: &str) -> Option<bool> {
        self.about.get("annotations")?.get(name)?.as_bool()
    }

    /// Whether a call may be sent twice: it changes nothing, or nothing further.
    pub fn is_repeatable(&self) -> bool {
        let says = |name: &str| self.hints(name) == Some(true);
        says("readOnlyHint") || says("idempotentHint")
    }

    fn text(&self, key: &str) -> &str {
        self.about
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// A tool that is not what was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The tool's name at the server.
    pub tool: String,
    /// What was accepted.
    pub accepted: Pin,
    /// What the server says now.
    pub found: Pin,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.accepted.differences(&self.found);
        let what = match differences.as_slice() {
            [] => "what it says of it".to_owned(),
            parts => parts.join(", "),
        };
        write!(f, "`{}` since it was accepted: {what}", self.tool)
    }
}
