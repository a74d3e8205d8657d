//! Compatibility of neighbouring links: spaces, inputs and outputs, versions.

use rye_items::metadata::Metadata;
use semver::Version;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Chain, Link};

/// Compatibility of an item with its executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Id of the item.
    pub child: String,
    /// Id of its executor.
    pub parent: String,
    /// Whether the child may depend on an item of the parent's space.
    pub space_ok: bool,
    /// Whether the child provides all inputs that the parent requires.
    pub io_ok: bool,
    /// Whether the child's version is within the parent's bounds.
    pub version_ok: bool,
    /// Explanations of failed checks, for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Pair {
    /// Whether all checks passed.
    pub fn is_ok(&self) -> bool {
        self.space_ok && self.io_ok && self.version_ok
    }
}

/// Checks each pair of neighbouring links, and the tool with each named item.
pub fn validate(chain: &Chain) -> Vec<Pair> {
    let neighbours = chain.links.windows(2);
    let neighbours = neighbours.map(|pair| check(&pair[0], &pair[1]));
    let named = chain.named.values().map(|link| check(chain.tool(), link));
    neighbours.chain(named).collect()
}

fn check(child: &Link, parent: &Link) -> Pair {
    let space = space(child, parent);
    let io = inputs(&child.metadata, &parent.metadata);
    let version = version(&child.metadata, &parent.metadata);
    let (space_ok, io_ok, version_ok) = (space.is_none(), io.is_none(), version.is_none());
    Pair {
        child: child.id().to_string(),
        parent: parent.id().to_string(),
        space_ok,
        io_ok,
        version_ok,
        problems: [space, io, version].into_iter().flatten().collect(),
    }
}

/// An item may depend on items of its own space or of a lower one.
fn space(child: &Link, parent: &Link) -> Option<String> {
    let path = parent.item.path.display();
    let (child, parent) = (child.space(), parent.space());
    (child < parent).then(|| {
        format!("an item of the {child} space cannot depend on one of the {parent} space ({path})")
    })
}

/// The child's outputs must include the parent's required inputs. Items without declarations
/// are compatible.
fn inputs(child: &Metadata, parent: &Metadata) -> Option<String> {
    let required = names(parent.value("inputs")?, true);
    let provided = names(child.value("outputs")?, false);
    let missing: Vec<_> = required
        .into_iter()
        .filter(|name| !provided.contains(name))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the executor requires {}, which the item does not provide",
            missing.join(", ")
        )
    })
}

/// The names in a declaration, which is a JSON Schema of an object, a list of names, a list of
/// mappings with a `name`, or a mapping. With `required_only`, optional names are skipped: in a
/// schema those that `required` doesn't list, otherwise those with `required: false`,
/// `optional: true` or a `default`.
fn names(declaration: &Value, required_only: bool) -> Vec<String> {
    let is_required = |declaration: &Value| {
        let flag = |key: &str| declaration.get(key).and_then(Value::as_bool);
        let is_optional = flag("required") == Some(false)
            || flag("optional") == Some(true)
            || declaration.get("default").is_some();
        !required_only || !is_optional
    };
    match declaration {
        Value::Object(schema) if is_object_schema(schema) => {
            let required = schema.get("required").and_then(Value::as_array);
            let required = required.into_iter().flatten().filter_map(Value::as_str);
            let mut names: Vec<_> = required.map(str::to_owned).collect();
            if !required_only {
                let properties = schema.get("properties").and_then(Value::as_object);
                names.extend(properties.into_iter().flat_map(|all| all.keys().cloned()));
            }
            names
        }
        Value::Array(items) => items
            .iter()
            .filter(|item| is_required(item))
            .filter_map(|item| item.as_str().or_else(|| item.get("name")?.as_str()))
            .map(str::to_owned)
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, declaration)| is_required(declaration))
            .map(|(name, _)| name.clone())
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a mapping is a JSON Schema rather than a mapping of names.
fn is_object_schema(mapping: &Map<String, Value>) -> bool {
    let is_schema = |key: &str| match (key, mapping.get(key)) {
        ("type", Some(Value::String(kind))) => kind == "object",
        ("properties", Some(Value::Object(_))) | ("required", Some(Value::Array(_))) => true,
        _ => false,
    };
    ["type", "properties", "required"]
        .into_iter()
        .any(is_schema)
}

/// The child's version must be within the parent's `child_constraints`.
fn version(child: &Metadata, parent: &Metadata) -> Option<String> {
    let bounds = parent.value("child_constraints")?;
    let bound = |name: &str| bounds.get(name).and_then(Value::as_str);
    let (min, max) = (bound("min_version"), bound("max_version"));
    if min.is_none() && max.is_none() {
        return None;
    }
    let Some(text) = child.version() else {
        return Some("the executor requires a version, but the item declares none".to_owned());
    };
    let parse = |text: &str| {
        Version::parse(text).map_err(|_| format!("`{text}` is not a semantic version"))
    };
    let compare = || -> Result<Option<String>, String> {
        let version = parse(text)?;
        if let Some(min) = min
            && version < parse(min)?
        {
            return Ok(Some(format!("version {text} is below {min}")));
        }
        if let Some(max) = max
            && version > parse(max)?
        {
            return Ok(Some(format!("version {text} is above {max}")));
        }
        Ok(None)
    };
    compare().unwrap_or_else(Some)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rye_items::Position;
    use rye_items::metadata::Field;
    use serde_json::json;

    use super::*;

    fn metadata(fields: &Value) -> Metadata {
        let fields: BTreeMap<_, _> = fields
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                let field = Field {
                    value: value.clone(),
                    at: Position::START,
                };
                (name.clone(), field)
            })
            .collect();
        Metadata {
            fields,
            ..Metadata::default()
        }
    }

    #[test]
    fn child_must_provide_required_inputs() {
        for (outputs, required, is_ok) in [
            (json!({}), json!({"inputs": ["a"]}), true),
            (json!({"outputs": ["a", "b"]}), json!({}), true),
            (
                json!({"outputs": ["a", "b"]}),
                json!({"inputs": ["a"]}),
                true,
            ),
            (json!({"outputs": ["b"]}), json!({"inputs": ["a"]}), false),
            (
                json!({"outputs": ["b"]}),
                json!({"inputs": [{"name": "a", "required": false}]}),
                true,
            ),
            (
                json!({"outputs": [{"name": "a"}]}),
                json!({"inputs": {"a": {}}}),
                true,
            ),
            (
                json!({"outputs": []}),
                json!({"inputs": {"a": {"required": true}}}),
                false,
            ),
            (
                json!({"outputs": ["b"]}),
                json!({"inputs": {"a": {"default": 1}, "c": {"optional": true}}}),
                true,
            ),
            (
                json!({"outputs": {"type": "object", "properties": {"a": {"type": "string"}}}}),
                json!({"inputs": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}}),
                true,
            ),
            (
                json!({"outputs": {"type": "object", "properties": {"b": {}}}}),
                json!({"inputs": {"properties": {"a": {}}, "required": ["a"]}}),
                false,
            ),
            (
                json!({"outputs": []}),
                json!({"inputs": {"type": "object", "properties": {"a": {}}}}),
                true,
            ),
        ] {
            assert_eq!(
                inputs(&metadata(&outputs), &metadata(&required)).is_none(),
                is_ok,
                "{outputs} {required}"
            );
        }
    }

    #[test]
    fn version_must_be_within_bounds() {
        for (child, parent, problem) in [
            (json!({"version": "1.2.0"}), json!({}), None),
            (json!({}), json!({"child_constraints": {}}), None),
            (
                json!({"version": "1.2.0"}),
                json!({"child_constraints": {"min_version": "1.2.0", "max_version": "2.0.0"}}),
                None,
            ),
            (
                json!({"version": "1.10.0"}),
                json!({"child_constraints": {"min_version": "1.9.0"}}),
                None,
            ),
            (
                json!({"version": "1.2.0-rc.1"}),
                json!({"child_constraints": {"min_version": "1.2.0"}}),
                Some("version 1.2.0-rc.1 is below 1.2.0"),
            ),
            (
                json!({"version": "3.0.0"}),
                json!({"child_constraints": {"max_version": "2.9.9"}}),
                Some("version 3.0.0 is above 2.9.9"),
            ),
            (
                json!({}),
                json!({"child_constraints": {"min_version": "1.0.0"}}),
                Some("the executor requires a version, but the item declares none"),
            ),
            (
                json!({"version": "new"}),
                json!({"child_constraints": {"min_version": "1.0.0"}}),
                Some("`new` is not a semantic version"),
            ),
        ] {
            let found = version(&metadata(&child), &metadata(&parent));
            assert_eq!(found.as_deref(), problem, "{child} {parent}");
        }
    }
}
