//! The metadata of an item, with the types that its fields have.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::node::Node;
use crate::Position;

/// A value and where in the file it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub at: Position,
}

/// What an item says about itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// All fields by name; those that items share have been checked.
    pub fields: BTreeMap<String, Field>,
}

impl Metadata {
    /// Gives each value its line and column, in one pass over the file.
    pub(super) fn locate(fields: BTreeMap<String, Node>, bytes: &[u8]) -> Self {
        let mut nodes: Vec<_> = fields.into_iter().collect();
        nodes.sort_by_key(|(_, node)| node.at);
        let mut walk = Walk::new(bytes);
        let mut fields = BTreeMap::new();
        for (name, node) in nodes {
            let at = walk.to(node.at);
            let value = node.into_value();
            fields.insert(name, Field { value, at });
        }
        Self { fields }
    }

    /// A field by its name.
    pub fn get(&self, name: &str) -> Option<&Field> {
        self.fields.get(name)
    }

    /// The value of a field, unless it is null.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let value = &self.fields.get(name)?.value;
        (!value.is_null()).then_some(value)
    }

    /// The value of a field that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    /// The version.
    pub fn version(&self) -> Option<&str> {
        self.text("version")
    }

    /// The sort of tool, such as `python` or `runtime`.
    pub fn tool_type(&self) -> Option<&str> {
        self.text("tool_type")
    }

    /// The item that runs this one; none for a primitive.
    pub fn executor_id(&self) -> Option<&str> {
        self.text("executor_id")
    }

    /// The category.
    pub fn category(&self) -> Option<&str> {
        self.text("category")
    }

    /// What the item does.
    pub fn description(&self) -> Option<&str> {
        self.text("description")
    }

    /// The name that the file gives itself, which need not be its id.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// The title.
    pub fn title(&self) -> Option<&str> {
        self.text("title")
    }

    /// The tags.
    pub fn tags(&self) -> Vec<String> {
        self.texts("tags")
    }

    /// How much harm a call can do.
    pub fn risk_level(&self) -> Option<RiskLevel> {
        RiskLevel::from_name(self.text("risk_level")?)
    }

    /// Whether a person has to approve each call.
    pub fn requires_approval(&self) -> Option<bool> {
        self.value("requires_approval")?.as_bool()
    }

    /// Whether a call may be repeated.
    pub fn effect(&self) -> Option<Effect> {
        Effect::from_name(self.text("effect")?)
    }

    /// What the item asks of the sandbox.
    pub fn sandbox(&self) -> Option<&Value> {
        self.value("sandbox")
    }

    /// The environment variables without which it cannot run.
    pub fn requires_env(&self) -> Vec<String> {
        self.texts("requires_env")
    }

    /// The parameters that name files or directories which a call reads.
    pub fn reads(&self) -> Vec<String> {
        self.texts("reads")
    }

    /// The parameters that name files which a call changes.
    pub fn writes(&self) -> Vec<String> {
        self.texts("writes")
    }

    /// How long a call may take, in seconds.
    pub fn timeout(&self) -> Option<f64> {
        self.value("timeout")?.as_f64()
    }

    /// The JSON Schema of the parameters.
    pub fn config_schema(&self) -> Option<&Value> {
        self.value("config_schema")
    }

    /// The names of the parameters: properties of the schema, or the inputs of a directive.
    pub fn parameter_names(&self) -> Vec<String> {
        let properties = self
            .config_schema()
            .and_then(|schema| schema.get("properties"));
        match properties.or_else(|| self.value("inputs")) {
            Some(Value::Object(named)) => named.keys().cloned().collect(),
            Some(Value::Array(inputs)) => inputs.iter().filter_map(input_name).collect(),
            _ => Vec::new(),
        }
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let items = self.value(name).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }
}

/// An input is a name alone, or a mapping that has one.
fn input_name(input: &Value) -> Option<String> {
    let name = input.as_str().or_else(|| input.get("name")?.as_str());
    name.map(str::to_owned)
}

/// Turns bytes into places, front to back.
struct Walk<'t> {
    bytes: &'t [u8],
    offset: usize,
    place: Position,
}

impl<'t> Walk<'t> {
    fn new(bytes: &'t [u8]) -> Self {
        let place = Position::START;
        Self {
            bytes,
            offset: 0,
            place,
        }
    }

    fn to(&mut self, offset: usize) -> Position {
        let offset = offset.clamp(self.offset, self.bytes.len());
        for &byte in &self.bytes[self.offset..offset] {
            // The bytes are UTF-8, in which all but the first of a character begin with 10.
            if byte == b'\n' {
                self.place.line = self.place.line.saturating_add(1);
                self.place.column = 1;
            } else if byte & 0xc0 != 0x80 {
                self.place.column = self.place.column.saturating_add(1);
            }
        }
        self.offset = offset;
        self.place
    }
}

/// Defines an enum whose members are written as names in files.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($(#[$member_doc:meta])* $member:ident = $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $type { $($(#[$member_doc])* #[serde(rename = $name)] $member),* }

        impl $type {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$member),*];

            /// The name that files use.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$member => $name),* }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(super) use named;

named! {
    /// How much harm a call can do.
    RiskLevel {
        /// None to speak of.
        Low = "low",
        /// Some, and it can be undone.
        Medium = "medium",
        /// Much.
        High = "high",
        /// More than one would want to find out about afterwards.
        Critical = "critical",
    }
}

named! {
    /// Whether a call may be repeated when it is not known to have succeeded.
    Effect {
        /// It changes nothing.
        Pure = "pure",
        /// A second call changes nothing more.
        Idempotent = "idempotent",
        /// It must not happen twice.
        AtMostOnce = "at_most_once",
        /// A person decides.
        Ask = "ask",
    }
}
