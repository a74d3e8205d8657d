//! Typed access to the metadata of an item.

use std::collections::BTreeMap;

use rye_protocol::{EffectClass, Risk};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::node::Node;
use crate::Position;

/// A metadata value and its position in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The value as JSON.
    pub value: Value,
    /// The position of its first character.
    pub at: Position,
}

/// The metadata of an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// All fields by name. The shared fields have been type-checked.
    pub fields: BTreeMap<String, Field>,
    /// Names in a program that are probably misspelt names of fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misspelt: Vec<Misspelt>,
}

/// A name in a program that has no meaning, but is similar to that of a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Misspelt {
    /// The name in the file.
    pub name: String,
    /// The similar name.
    pub nearest: String,
    /// The field that the similar name stands for.
    pub field: String,
}

impl Metadata {
    /// Converts byte offsets to line and column, in one pass over the file.
    pub(super) fn locate(fields: BTreeMap<String, Node>, bytes: &[u8]) -> Self {
        let mut nodes: Vec<_> = fields.into_iter().collect();
        nodes.sort_by_key(|(_, node)| node.at);
        let (mut at, mut offset) = (Position::START, 0);
        let mut fields = BTreeMap::new();
        for (name, node) in nodes {
            let end = node.at.clamp(offset, bytes.len());
            at = at.after(&bytes[offset..end]);
            offset = end;
            let value = node.into_value();
            fields.insert(name, Field { value, at });
        }
        Self {
            fields,
            misspelt: Vec::new(),
        }
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

    /// The value of a field, if it is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    /// The version.
    pub fn version(&self) -> Option<&str> {
        self.text("version")
    }

    /// The type of the tool, such as `python` or `runtime`.
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

    /// The `name` field, which may differ from the id.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// The title.
    pub fn title(&self) -> Option<&str> {
        self.text("title")
    }

    /// The tags.
    pub fn tags(&self) -> Vec<String> {
        self.strings("tags")
    }

    /// How much harm a call can do; none if the item does not declare it.
    pub fn risk_level(&self) -> Option<Risk> {
        Risk::from_name(self.text("risk_level")?)
    }

    /// Whether each call needs approval.
    pub fn requires_approval(&self) -> Option<bool> {
        self.value("requires_approval")?.as_bool()
    }

    /// The effect class.
    pub fn effect(&self) -> Option<EffectClass> {
        EffectClass::from_name(self.text("effect")?)
    }

    /// The sandbox configuration of the item.
    pub fn sandbox(&self) -> Option<&Value> {
        self.value("sandbox")
    }

    /// The required environment variables.
    pub fn requires_env(&self) -> Vec<String> {
        self.strings("requires_env")
    }

    /// The parameters whose values are paths that a call reads.
    pub fn reads(&self) -> Vec<String> {
        self.strings("reads")
    }

    /// The parameters whose values are paths that a call writes.
    pub fn writes(&self) -> Vec<String> {
        self.strings("writes")
    }

    /// The timeout of a call in seconds.
    pub fn timeout(&self) -> Option<f64> {
        self.value("timeout")?.as_f64()
    }

    /// The JSON Schema of the parameters.
    pub fn config_schema(&self) -> Option<&Value> {
        self.value("config_schema")
    }

    /// The names of the parameters: the properties of the schema, or the inputs of a directive.
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

    fn strings(&self, name: &str) -> Vec<String> {
        let items = self.value(name).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }
}

/// The name of an input, which is a string or a mapping with `name`.
fn input_name(input: &Value) -> Option<String> {
    let name = input.as_str().or_else(|| input.get("name")?.as_str());
    name.map(str::to_owned)
}
