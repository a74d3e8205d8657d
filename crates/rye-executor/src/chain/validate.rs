//! Whether neighbours of a chain fit each other.

use rye_items::metadata::Metadata;
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::{Chain, Link};

/// Two neighbours: one, and what runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The one.
    pub child: String,
    /// What runs it.
    pub parent: String,
    /// The child may depend on the parent's space.
    pub space_ok: bool,
    /// What the parent needs, the child gives.
    pub io_ok: bool,
    /// The child's version is within the parent's bounds.
    pub version_ok: bool,
    /// What does not fit, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Pair {
    /// Whether they fit.
    pub fn is_ok(&self) -> bool {
        self.space_ok && self.io_ok && self.version_ok
    }
}

/// Looks at each pair of neighbours.
pub fn validate(chain: &Chain) -> Vec<Pair> {
    let neighbours = chain.links.windows(2);
    let neighbours = neighbours.map(|pair| check(&pair[0], &pair[1]));
    // What a tool needs may not come from a space that it cannot depend on either.
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

/// An item may depend on its own space or a lower one.
fn space(child: &Link, parent: &Link) -> Option<String> {
    let (child, parent) = (child.space(), parent.space());
    (child.precedence() < parent.precedence())
        .then(|| format!("an item of the {child} space cannot depend on one of the {parent} space"))
}

/// What the parent requires must be among what the child gives. One that says
/// nothing about it fits.
fn inputs(child: &Metadata, parent: &Metadata) -> Option<String> {
    let required = names(parent.value("inputs")?, true);
    let given = names(child.value("outputs")?, false);
    let missing: Vec<_> = required
        .into_iter()
        .filter(|name| !given.contains(name))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the executor needs {}, which it does not give",
            missing.join(", ")
        )
    })
}

/// The names in a declaration: a list of names or of mappings with one, or a
/// mapping of names. Of inputs, those that are not required may be left out.
fn names(declaration: &Value, required_only: bool) -> Vec<String> {
    let is_required = |about: &Value| {
        !required_only
            || about
                .get("required")
                .is_none_or(|value| value.as_bool() != Some(false))
    };
    match declaration {
        Value::Array(items) => items
            .iter()
            .filter(|item| is_required(item))
            .filter_map(|item| item.as_str().or_else(|| item.get("name")?.as_str()))
            .map(str::to_owned)
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, about)| is_required(about))
            .map(|(name, _)| name.clone())
            .collect(),
        _ => Vec::new(),
    }
}

/// The child's version must be within the bounds that the parent sets.
fn version(child: &Metadata, parent: &Metadata) -> Option<String> {
    let bounds = parent.value("child_constraints")?;
    let bound = |name: &str| bounds.get(name).and_then(Value::as_str);
    let (least, most) = (bound("min_version"), bound("max_version"));
    if least.is_none() && most.is_none() {
        return None;
    }
    let Some(text) = child.version() else {
        return Some("the executor asks for a version, and none is given".to_owned());
    };
    let parse = |text: &str| {
        Version::parse(text).map_err(|_| format!("`{text}` is not a semantic version"))
    };
    let compare = || -> Result<Option<String>, String> {
        let version = parse(text)?;
        if let Some(least) = least
            && version < parse(least)?
        {
            return Ok(Some(format!("version {text} is below {least}")));
        }
        if let Some(most) = most
            && version > parse(most)?
        {
            return Ok(Some(format!("version {text} is above {most}")));
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
        Metadata { fields }
    }

    #[test]
    fn what_the_parent_needs_the_child_must_give() {
        for (outputs, needs, fits) in [
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
        ] {
            assert_eq!(
                inputs(&metadata(&outputs), &metadata(&needs)).is_none(),
                fits,
                "{outputs} {needs}"
            );
        }
    }

    #[test]
    fn a_version_is_within_its_bounds() {
        for (own, bounds, problem) in [
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
                Some("the executor asks for a version, and none is given"),
            ),
            (
                json!({"version": "new"}),
                json!({"child_constraints": {"min_version": "1.0.0"}}),
                Some("`new` is not a semantic version"),
            ),
        ] {
            let found = version(&metadata(&own), &metadata(&bounds));
            assert_eq!(found.as_deref(), problem, "{own} {bounds}");
        }
    }
}
