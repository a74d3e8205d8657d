//! What a tool's schema says about its parameters, as far as typing them goes.

use serde_json::Value;

/// The parameters of a tool.
pub(super) struct Properties {
    all: Vec<Property>,
    any: bool,
}

/// One parameter.
pub(super) struct Property {
    pub(super) name: String,
    pub(super) kinds: Kinds,
    /// What a list holds.
    pub(super) items: Kinds,
    pub(super) required: bool,
    /// Its own part of the schema.
    pub(super) about: Value,
}

/// The types that a value may have; none is a text.
#[derive(Default)]
pub(super) struct Kinds {
    names: Vec<String>,
    choices: Vec<Value>,
}

impl Properties {
    pub(super) fn of(schema: Option<&Value>) -> Self {
        let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
        let required: Vec<_> = schema
            .and_then(|schema| schema.get("required")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let root = schema.unwrap_or(&Value::Null);
        let all = properties.into_iter().flatten().map(|(name, about)| {
            let about = resolved(about, root);
            Property {
                name: name.clone(),
                kinds: Kinds::of(about, root),
                items: about
                    .get("items")
                    .map(|items| Kinds::of(items, root))
                    .unwrap_or_default(),
                required: required.contains(&name.as_str()),
                about: about.clone(),
            }
        });
        Self {
            all: all.collect(),
            any: properties.is_none(),
        }
    }

    /// Whether nobody says which there are.
    pub(super) fn are_any(&self) -> bool {
        self.any
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Property> {
        self.all.iter()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|property| property.name.as_str())
    }

    /// By its name, or by its name as options are usually typed.
    pub(super) fn find(&self, typed: &str) -> Option<&Property> {
        let exact = self.all.iter().find(|property| property.name == typed);
        exact.or_else(|| {
            let kebab = |property: &&Property| property.name.replace('_', "-") == typed;
            self.all.iter().find(kebab)
        })
    }

    /// The boolean that `no-NAME` denies.
    pub(super) fn find_negated(&self, typed: &str) -> Option<&Property> {
        let property = self.find(typed.strip_prefix("no-")?)?;
        property.kinds.is_flag().then_some(property)
    }
}

impl Kinds {
    fn of(about: &Value, root: &Value) -> Self {
        let about = resolved(about, root);
        let mut names = Vec::new();
        match about.get("type") {
            Some(Value::String(name)) => names.push(name.clone()),
            Some(Value::Array(all)) => {
                names.extend(all.iter().filter_map(|n| n.as_str().map(str::to_owned)));
            }
            _ => {}
        }
        for key in ["anyOf", "oneOf"] {
            let variants = about.get(key).and_then(Value::as_array);
            for variant in variants.into_iter().flatten() {
                // One step down: what refers to itself has no end.
                if let Some(Value::String(name)) = resolved(variant, root).get("type") {
                    names.push(name.clone());
                }
            }
        }
        let choices = about.get("enum").and_then(Value::as_array).cloned();
        Self {
            names,
            choices: choices.unwrap_or_default(),
        }
    }

    pub(super) fn has(&self, kind: &str) -> bool {
        self.names.iter().any(|name| name == kind)
    }

    pub(super) fn is_flag(&self) -> bool {
        self.is("boolean")
    }

    pub(super) fn is_list(&self) -> bool {
        self.is("array")
    }

    pub(super) fn is_object(&self) -> bool {
        self.is("object")
    }

    /// Whether this is the kind, but for null.
    fn is(&self, kind: &str) -> bool {
        self.has(kind) && self.names.iter().all(|name| name == kind || name == "null")
    }

    /// The choice that reads like this.
    pub(super) fn choice(&self, text: &str) -> Option<Value> {
        let reads = |choice: &&Value| match choice {
            Value::String(word) => word == text,
            other => serde_json::from_str::<Value>(text).is_ok_and(|value| value == **other),
        };
        self.choices.iter().find(reads).cloned()
    }

    /// For the help.
    pub(super) fn words(&self) -> String {
        match self.names.as_slice() {
            [] if self.choices.is_empty() => "any".to_owned(),
            [] => "choice".to_owned(),
            names => names.join(" or "),
        }
    }

    pub(super) fn choices(&self) -> &[Value] {
        &self.choices
    }
}

/// What a reference within the schema leads to.
fn resolved<'a>(about: &'a Value, root: &'a Value) -> &'a Value {
    let reference = about.get("$ref").and_then(Value::as_str);
    reference
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .unwrap_or(about)
}
