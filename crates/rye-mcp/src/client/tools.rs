//! Definitions of a server's tools, and the pins of accepted definitions.

use std::collections::BTreeMap;
use std::fmt;

use lillux::Hash;
use lillux::canonical;
use rmcp::model::Tool;
use serde_json::{Map, Value};

/// Parts of a definition that are pinned: what a model sees, and what describes the tool's
/// effects. Other parts, such as icons, may change.
const PINNED_PARTS: [&str; 5] = [
    "name",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// Length of the hash of a part in hex digits. It only shows which parts differ.
const PART_HASH_LEN: usize = 16;

/// Hashes of an accepted tool definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pin {
    /// SHA-256 of the canonical JSON of all pinned parts.
    pub hash: String,
    /// Shortened hashes of the parts, to show which of them changed.
    pub parts: BTreeMap<String, String>,
}

impl Pin {
    /// Reads the pin from the `config` of a tool item.
    pub fn from_config(config: &Map<String, Value>) -> Option<Self> {
        let hash = config.get("pin")?.as_str()?.to_owned();
        let parts = config.get("parts").and_then(Value::as_object);
        let parts = parts.into_iter().flatten();
        let parts =
            parts.filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned())));
        Some(Self {
            hash,
            parts: parts.collect(),
        })
    }

    /// Names of the parts whose hashes differ.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let differs = |part: &&str| self.parts.get(*part) != other.parts.get(*part);
        let parts = PINNED_PARTS.into_iter().filter(differs);
        parts.map(str::to_owned).collect()
    }
}

/// The pinned parts of a tool definition.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    definition: Map<String, Value>,
    /// Hashes of the definition.
    pub pin: Pin,
}

impl RemoteTool {
    /// Creates the definition and its pin; `None` if it has no canonical JSON.
    pub fn new(tool: &Tool) -> Option<Self> {
        let Ok(Value::Object(mut definition)) = serde_json::to_value(tool) else {
            return None;
        };
        definition.retain(|key, _| PINNED_PARTS.contains(&key.as_str()));
        let hash = |text: Vec<u8>| Hash::digest(text).to_hex();
        let mut parts = BTreeMap::new();
        for (key, value) in &definition {
            let mut part = hash(canonical::to_vec(value).ok()?);
            part.truncate(PART_HASH_LEN);
            parts.insert(key.clone(), part);
        }
        let hash = hash(canonical::to_vec(&definition).ok()?);
        let pin = Pin { hash, parts };
        Some(Self { definition, pin })
    }

    /// Name of the tool at the server.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// The server's description of the tool.
    pub fn description(&self) -> &str {
        self.text("description")
    }

    /// JSON Schema of the parameters.
    pub fn input_schema(&self) -> &Value {
        self.definition.get("inputSchema").unwrap_or(&Value::Null)
    }

    /// A pinned part of the definition.
    pub(super) fn part(&self, name: &str) -> Option<&Value> {
        self.definition.get(name)
    }

    /// A boolean annotation of the tool, such as `readOnlyHint`.
    pub fn hint(&self, name: &str) -> Option<bool> {
        self.definition.get("annotations")?.get(name)?.as_bool()
    }

    /// Whether repeating a call has no further effect, according to the annotations.
    pub fn is_repeatable(&self) -> bool {
        let has_hint = |name: &str| self.hint(name) == Some(true);
        has_hint("readOnlyHint") || has_hint("idempotentHint")
    }

    fn text(&self, key: &str) -> &str {
        self.definition
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// A tool whose definition differs from the accepted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Name of the tool at the server.
    pub tool: String,
    /// Accepted definition.
    pub accepted: Pin,
    /// Current definition.
    pub current: Pin,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.accepted.differences(&self.current);
        let changed = match differences.as_slice() {
            [] => "unknown parts".to_owned(),
            parts => parts.join(", "),
        };
        write!(
            f,
            "definition of tool `{}` changed since it was accepted: {changed}",
            self.tool
        )
    }
}
