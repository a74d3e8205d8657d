//! What a server says of its tools, and the hash by which that is accepted.

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

/// A tool of a server, as far as it is pinned.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    about: Map<String, Value>,
    /// The SHA-256 of the canonical JSON of what is pinned.
    pub pin: String,
}

impl RemoteTool {
    /// What a server said of a tool. What has no canonical form has no pin: none.
    pub fn new(tool: &Tool) -> Option<Self> {
        let Ok(Value::Object(mut about)) = serde_json::to_value(tool) else {
            return None;
        };
        about.retain(|key, _| PINNED.contains(&key.as_str()));
        let text = canonical::to_vec(&about).ok()?;
        let pin = Hash::of(&text).to_hex();
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
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    /// The tool's name at the server.
    pub tool: String,
    /// The hash that was accepted.
    pub accepted: String,
    /// The hash of what the server says now.
    pub found: String,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
        write!(
            f,
            "`{}` since it was accepted (its description or schema had the hash {}, and now has {})",
            self.tool,
            short(&self.accepted),
            short(&self.found)
        )
    }
}
