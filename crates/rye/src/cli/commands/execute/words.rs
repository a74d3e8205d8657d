//! From words after a tool's id to its parameters, by its schema.

use serde_json::{Map, Value};

use super::options::Own;
use super::schema::{Kinds, Properties, Property};
use crate::cli::failure::Failure;

/// Reads the words. Names that the tool has are its parameters; other names are
/// options of the call, until a lone `--`.
pub(super) fn read(
    words: &[String],
    schema: Option<&Value>,
    own: &mut Own,
) -> Result<Map<String, Value>, Failure> {
    let properties = Properties::of(schema);
    let mut parameters = Map::new();
    let mut only_the_tools = false;
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "--" && !only_the_tools {
            only_the_tools = true;
            continue;
        }
        let Some(option) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            if !only_the_tools && own.short(word) {
                continue;
            }
            let message = format!("`{word}` has no name; a parameter is typed --NAME VALUE");
            return Err(wrong(message));
        };
        let (name, attached) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // A word that begins with `--` is the next name, never a value.
        let mut value = || {
            let next = || words.next_if(|next| !next.starts_with("--"));
            attached.or_else(next).ok_or_else(|| {
                let message = format!(
                    "--{name} needs a value; one that begins with -- is typed --{name}=VALUE"
                );
                wrong(message)
            })
        };
        if let Some(property) = properties.find(name) {
            if property.kinds.is_flag() {
                let given = attached.or_else(|| words.next_if(|next| is_boolean(next)));
                let given = given.map_or(Value::Bool(true), |text| property.kinds.read(text));
                once(&mut parameters, property, given)?;
            } else {
                add(&mut parameters, property, value()?)?;
            }
        } else if let Some(property) = properties.find_negated(name) {
            if attached.is_some() {
                return Err(wrong(format!("--{name} takes no value")));
            }
            once(&mut parameters, property, Value::Bool(false))?;
        } else if !only_the_tools && Own::has(name) {
            own.set(name, attached, &mut value)?;
        } else if properties.are_any() {
            let key = name.to_owned();
            if parameters.insert(key, value()?.into()).is_some() {
                return Err(twice(name));
            }
        } else {
            return Err(unknown(name, &properties, only_the_tools));
        }
    }
    Ok(parameters)
}

fn is_boolean(word: &str) -> bool {
    matches!(word, "true" | "false")
}

fn once(
    parameters: &mut Map<String, Value>,
    property: &Property,
    value: Value,
) -> Result<(), Failure> {
    match parameters.insert(property.name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(twice(&property.name)),
    }
}

/// Adds a value that was typed; a list takes several.
fn add(
    parameters: &mut Map<String, Value>,
    property: &Property,
    text: &str,
) -> Result<(), Failure> {
    let not_json = |error: serde_json::Error| {
        wrong(format!(
            "the value of --{} is not JSON: {error}",
            property.name
        ))
    };
    if property.kinds.is_list() {
        let items = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map_err(not_json)?
        } else {
            vec![property.items.read(text)]
        };
        let there = parameters
            .entry(&property.name)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all) = there {
            all.extend(items);
        }
        return Ok(());
    }
    let value = if property.kinds.is_object() {
        serde_json::from_str(text).map_err(not_json)?
    } else {
        property.kinds.read(text)
    };
    once(parameters, property, value)
}

fn twice(name: &str) -> Failure {
    wrong(format!("--{name} is given twice"))
}

fn unknown(name: &str, properties: &Properties, only_the_tools: bool) -> Failure {
    let own = if only_the_tools { &[][..] } else { Own::NAMES };
    let own = own.iter().map(|name| (*name).to_owned());
    let names = properties.names().map(|name| name.replace('_', "-"));
    let typed = name.replace('_', "-");
    let near = names
        .chain(own)
        .map(|known| (strsim::damerau_levenshtein(&typed, &known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min();
    let near = near.map_or_else(String::new, |(_, known)| {
        format!("; did you mean --{known}?")
    });
    wrong(format!("the tool has no parameter --{name}{near}"))
}

pub(super) fn wrong(message: String) -> Failure {
    Failure::usage(message)
}

impl Kinds {
    /// A value of one of these kinds, if the text can be read as one; else the text,
    /// with which the schema's check will find fault.
    fn read(&self, text: &str) -> Value {
        if let Some(choice) = self.choice(text) {
            return choice;
        }
        let json: Option<Value> = serde_json::from_str(text).ok();
        let fits = |value: &Value| match value {
            Value::Number(_) => self.has("number") || self.has("integer"),
            Value::Bool(_) => self.has("boolean"),
            Value::Null => self.has("null"),
            Value::Array(_) => self.has("array"),
            Value::Object(_) => self.has("object"),
            Value::String(_) => false,
        };
        json.filter(fits).unwrap_or_else(|| text.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "name": {"type": "string"},
                "user_name": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": ["number", "null"]},
                "fast": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "numbers": {"type": "array", "items": {"$ref": "#/$defs/n"}},
                "filter": {"type": "object"},
                "level": {"enum": ["low", 2]},
                "timeout": {"type": "number"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            },
            "$defs": {"n": {"type": "integer"}},
        })
    }

    fn parse(typed: &str, schema: Option<&Value>) -> Result<(Value, Own), String> {
        let words: Vec<_> = typed.split_whitespace().map(str::to_owned).collect();
        let mut own = Own::default();
        match read(&words, schema, &mut own) {
            Ok(parameters) => Ok((Value::Object(parameters), own)),
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn words_become_values_of_the_types_that_the_schema_says() {
        let schema = schema();
        for (typed, expected) in [
            ("", json!({})),
            ("--name Ada", json!({"name": "Ada"})),
            ("--name=Ada", json!({"name": "Ada"})),
            ("--name 7", json!({"name": "7"})),
            ("--name=--x", json!({"name": "--x"})),
            ("--name -x", json!({"name": "-x"})),
            ("--name= ", json!({"name": ""})),
            ("--user-name a", json!({"user_name": "a"})),
            ("--user_name a", json!({"user_name": "a"})),
            ("--count -7", json!({"count": -7})),
            ("--count x", json!({"count": "x"})),
            ("--count 1.5", json!({"count": 1.5})),
            ("--ratio null", json!({"ratio": null})),
            ("--fast", json!({"fast": true})),
            ("--fast --name a", json!({"fast": true, "name": "a"})),
            ("--fast=false", json!({"fast": false})),
            ("--fast false", json!({"fast": false})),
            ("--no-fast", json!({"fast": false})),
            ("--fast=maybe", json!({"fast": "maybe"})),
            ("--tags a --tags 2", json!({"tags": ["a", "2"]})),
            (
                r#"--tags ["a","b"] --tags c"#,
                json!({"tags": ["a", "b", "c"]}),
            ),
            ("--numbers 1 --numbers x", json!({"numbers": [1, "x"]})),
            (r#"--filter {"a":[1]}"#, json!({"filter": {"a": [1]}})),
            ("--level low", json!({"level": "low"})),
            ("--level 2", json!({"level": 2})),
            ("--either 5", json!({"either": 5})),
            ("--either five", json!({"either": "five"})),
            ("--timeout 5", json!({"timeout": 5})),
            ("-- --timeout 5", json!({"timeout": 5})),
        ] {
            let (parameters, own) = parse(typed, Some(&schema)).unwrap();
            assert_eq!(parameters, expected, "{typed}");
            assert!(own.options.timeout.is_none(), "{typed}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_may_have_been_meant() {
        let schema = schema();
        for (typed, expected) in [
            (
                "Ada",
                "`Ada` has no name; a parameter is typed --NAME VALUE",
            ),
            (
                "--names Ada",
                "the tool has no parameter --names; did you mean --name?",
            ),
            (
                "--dry-rnu",
                "the tool has no parameter --dry-rnu; did you mean --dry-run?",
            ),
            ("-- --json", "the tool has no parameter --json"),
            (
                "--name",
                "--name needs a value; one that begins with -- is typed --name=VALUE",
            ),
            (
                "--name --fast",
                "--name needs a value; one that begins with -- is typed --name=VALUE",
            ),
            ("--name a --name b", "--name is given twice"),
            ("--no-fast=1", "--no-fast takes no value"),
            ("--project x", "--project belongs before the tool's id"),
            ("--json=1", "--json takes no value"),
        ] {
            let message = parse(typed, Some(&schema)).unwrap_err();
            assert_eq!(message, expected, "{typed}");
        }
        for typed in ["--filter {", "--tags [1"] {
            let message = parse(typed, Some(&schema)).unwrap_err();
            assert!(message.contains("is not JSON: EOF"), "{message}");
        }
    }

    #[test]
    fn without_a_schema_values_are_texts_and_options_are_the_calls() {
        let (parameters, own) = parse("--name 7 --timeout 5 --json -- --timeout 6", None).unwrap();
        assert_eq!(parameters, json!({"name": "7", "timeout": "6"}));
        assert!(own.options.timeout.is_some_and(|time| time.as_secs() == 5));
        assert!(own.json);
    }
}
