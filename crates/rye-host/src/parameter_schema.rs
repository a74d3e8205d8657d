//! The part of a tool's JSON Schema that matters for parsing its parameters.

use serde_json::Value;

/// The parameters of a tool.
pub struct Properties {
    all: Vec<Property>,
    is_open: bool,
}

/// One parameter.
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its types.
    pub kinds: Kinds,
    /// Types of the elements of a list.
    pub items: Kinds,
    /// Whether a call must have it.
    pub required: bool,
    /// The schema of the parameter.
    pub schema: Value,
}

/// The types that a value may have; empty means string.
#[derive(Default)]
pub struct Kinds {
    names: Vec<String>,
    choices: Vec<Value>,
}

impl Properties {
    /// The parameters in a schema; any, if there is none.
    pub fn from_schema(schema: Option<&Value>) -> Self {
        let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
        let required: Vec<_> = schema
            .and_then(|schema| schema.get("required")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let root = schema.unwrap_or(&Value::Null);
        let all = properties.into_iter().flatten().map(|(name, schema)| {
            let schema = resolve(schema, root);
            Property {
                name: name.clone(),
                kinds: Kinds::from_schema(schema, root),
                items: schema
                    .get("items")
                    .map(|items| Kinds::from_schema(items, root))
                    .unwrap_or_default(),
                required: required.contains(&name.as_str()),
                schema: schema.clone(),
            }
        });
        let additional = schema.and_then(|schema| schema.get("additionalProperties"));
        Self {
            all: all.collect(),
            is_open: match additional {
                Some(additional) => *additional != Value::Bool(false),
                None => properties.is_none(),
            },
        }
    }

    /// Whether any name is allowed: the schema lists no parameters, or allows additional ones
    /// explicitly.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The parameters in the order of the schema.
    pub fn iter(&self) -> impl Iterator<Item = &Property> {
        self.all.iter()
    }

    /// The names of the parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|property| property.name.as_str())
    }

    /// Finds a parameter by its name, with `_` or `-`.
    pub fn find(&self, typed: &str) -> Option<&Property> {
        let exact = self.all.iter().find(|property| property.name == typed);
        exact.or_else(|| {
            let kebab = |property: &&Property| property.name.replace('_', "-") == typed;
            self.all.iter().find(kebab)
        })
    }

    /// Finds the boolean that `no-NAME` negates.
    pub fn find_negated(&self, typed: &str) -> Option<&Property> {
        let property = self.find(typed.strip_prefix("no-")?)?;
        property.kinds.is_flag().then_some(property)
    }
}

impl Kinds {
    fn from_schema(schema: &Value, root: &Value) -> Self {
        let schema = resolve(schema, root);
        let mut names = Vec::new();
        match schema.get("type") {
            Some(Value::String(name)) => names.push(name.clone()),
            Some(Value::Array(all)) => {
                names.extend(all.iter().filter_map(|n| n.as_str().map(str::to_owned)));
            }
            _ => {}
        }
        for key in ["anyOf", "oneOf"] {
            let variants = schema.get(key).and_then(Value::as_array);
            for variant in variants.into_iter().flatten() {
                // One level only, because schemas may be recursive.
                if let Some(Value::String(name)) = resolve(variant, root).get("type") {
                    names.push(name.clone());
                }
            }
        }
        let choices = schema.get("enum").and_then(Value::as_array).cloned();
        Self {
            names,
            choices: choices.unwrap_or_default(),
        }
    }

    /// Parses a value of one of these types. Falls back to a string, which the validation against
    /// the schema will report.
    pub fn parse(&self, text: &str) -> Value {
        if let Some(choice) = self.choice(text) {
            return choice;
        }
        let json = rye_engine::protocol::json::parse(text).ok();
        let is_allowed = |value: &Value| match value {
            Value::Number(_) => self.has("number") || self.has("integer"),
            Value::Bool(_) => self.has("boolean"),
            Value::Null => self.has("null"),
            Value::Array(_) => self.has("array"),
            Value::Object(_) => self.has("object"),
            Value::String(_) => false,
        };
        json.filter(is_allowed).unwrap_or_else(|| text.into())
    }

    fn has(&self, kind: &str) -> bool {
        self.names.iter().any(|name| name == kind)
    }

    /// Whether values are numbers and not strings.
    pub fn is_numeric(&self) -> bool {
        (self.has("integer") || self.has("number")) && !self.has("string")
    }

    /// Whether the value is a boolean.
    pub fn is_flag(&self) -> bool {
        self.is("boolean")
    }

    /// Whether the value is a list.
    pub fn is_list(&self) -> bool {
        self.is("array")
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.is("object")
    }

    /// Whether this is the only type besides null.
    fn is(&self, kind: &str) -> bool {
        self.has(kind) && self.names.iter().all(|name| name == kind || name == "null")
    }

    /// The choice that the text stands for.
    fn choice(&self, text: &str) -> Option<Value> {
        let matches = |choice: &&Value| match choice {
            Value::String(word) => word == text,
            other => serde_json::from_str::<Value>(text).is_ok_and(|value| value == **other),
        };
        self.choices.iter().find(matches).cloned()
    }

    /// The types, for the help.
    pub fn describe(&self) -> String {
        match self.names.as_slice() {
            [] if self.choices.is_empty() => "any".to_owned(),
            [] => "choice".to_owned(),
            names => names.join(" or "),
        }
    }

    /// The allowed values, if they are listed.
    pub fn choices(&self) -> &[Value] {
        &self.choices
    }
}

/// Resolves a local `$ref`.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    reference
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .unwrap_or(schema)
}
