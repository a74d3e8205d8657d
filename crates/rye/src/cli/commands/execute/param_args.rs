//! Parses the words after a tool's id into its parameters, by its schema.

use rye_engine::protocol::json;
use rye_host::parameter_schema::{Properties, Property};
use serde_json::{Map, Value};

use super::options::TypedOptions;
use crate::cli::failure::Failure;

/// Parses the words. Names in the tool's schema are parameters; other names are options of rye,
/// until a lone `--`.
pub(in crate::cli::commands) fn parse(
    words: &[String],
    schema: Option<&Value>,
    options: &mut TypedOptions,
) -> Result<Map<String, Value>, Failure> {
    let properties = Properties::from_schema(schema);
    let mut parameters = Map::new();
    let mut after_separator = false;
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "--" && !after_separator {
            after_separator = true;
            continue;
        }
        let Some(option) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            if !after_separator && options.set_short(word) {
                continue;
            }
            let message = format!("unexpected argument `{word}`; write --NAME VALUE");
            return Err(usage_error(message));
        };
        let (name, attached) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // A word that begins with `--` is the next name, never a value.
        let mut value = || {
            let next = || words.next_if(|next| !next.starts_with("--"));
            attached.or_else(next).ok_or_else(|| {
                let message =
                    format!("--{name} needs a value; write --{name}=VALUE if it begins with --");
                usage_error(message)
            })
        };
        if let Some(property) = properties.find(name) {
            if property.kinds.is_flag() {
                let given = attached.or_else(|| words.next_if(|next| is_boolean(next)));
                let given = given.map_or(Value::Bool(true), |text| property.kinds.parse(text));
                insert_once(&mut parameters, property, given)?;
            } else {
                insert(&mut parameters, property, value()?)?;
            }
        } else if let Some(property) = properties.find_negated(name) {
            if attached.is_some() {
                return Err(usage_error(format!("--{name} takes no value")));
            }
            insert_once(&mut parameters, property, Value::Bool(false))?;
        } else if !after_separator && TypedOptions::is_option(name) {
            options.set(name, attached, &mut value)?;
        } else if properties.is_open() {
            let key = name.replace('-', "_");
            if parameters.insert(key, value()?.into()).is_some() {
                return Err(given_twice(name));
            }
        } else {
            return Err(unknown_parameter(name, &properties, after_separator));
        }
    }
    Ok(parameters)
}

fn is_boolean(word: &str) -> bool {
    matches!(word, "true" | "false")
}

fn insert_once(
    parameters: &mut Map<String, Value>,
    property: &Property,
    value: Value,
) -> Result<(), Failure> {
    match parameters.insert(property.name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(given_twice(&property.name)),
    }
}

/// Inserts a typed value; a list parameter collects several.
fn insert(
    parameters: &mut Map<String, Value>,
    property: &Property,
    text: &str,
) -> Result<(), Failure> {
    let invalid_json = |error: serde_json::Error| {
        usage_error(format!(
            "invalid --{}: invalid JSON: {error}",
            property.name
        ))
    };
    if property.kinds.is_list() {
        let items = if text.trim_start().starts_with('[') {
            match json::parse(text).map_err(invalid_json)? {
                Value::Array(items) => items,
                _ => Vec::new(),
            }
        } else {
            vec![property.items.parse(text)]
        };
        let list = parameters
            .entry(&property.name)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all) = list {
            all.extend(items);
        }
        return Ok(());
    }
    let value = if property.kinds.is_object() {
        json::parse(text).map_err(invalid_json)?
    } else {
        property.kinds.parse(text)
    };
    insert_once(parameters, property, value)
}

fn given_twice(name: &str) -> Failure {
    usage_error(format!("--{name} is given twice"))
}

fn unknown_parameter(name: &str, properties: &Properties, after_separator: bool) -> Failure {
    let options = if after_separator {
        &[][..]
    } else {
        TypedOptions::NAMES
    };
    let options = options.iter().map(|name| (*name).to_owned());
    let names = properties.names().map(|name| name.replace('_', "-"));
    let typed = name.replace('_', "-");
    let nearest = names
        .chain(options)
        .map(|known| (strsim::damerau_levenshtein(&typed, &known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min();
    let nearest = nearest.map_or_else(String::new, |(_, known)| {
        format!("; did you mean --{known}?")
    });
    usage_error(format!("unknown parameter --{name}{nearest}"))
}

pub(super) fn usage_error(message: String) -> Failure {
    Failure::usage(message)
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

    fn parse_line(line: &str, schema: Option<&Value>) -> Result<(Value, TypedOptions), String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let mut options = TypedOptions::default();
        match parse(&words, schema, &mut options) {
            Ok(parameters) => Ok((Value::Object(parameters), options)),
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn values_have_the_types_of_the_schema() {
        let schema = schema();
        for (line, expected) in [
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
            let (parameters, options) = parse_line(line, Some(&schema)).unwrap();
            assert_eq!(parameters, expected, "{line}");
            assert!(options.options.timeout.is_none(), "{line}");
        }
    }

    #[test]
    fn any_name_is_a_parameter_if_the_schema_allows_it() {
        let mut schema = schema();
        for (additional, expected) in [
            (json!(true), Ok(json!({"count": 2, "other_name": "1"}))),
            (
                json!({"type": "string"}),
                Ok(json!({"count": 2, "other_name": "1"})),
            ),
            (
                json!(false),
                Err("unknown parameter --other-name; did you mean --user-name?".to_owned()),
            ),
        ] {
            schema["additionalProperties"] = additional;
            let parsed = parse_line("--count 2 --other-name 1", Some(&schema));
            assert_eq!(parsed.map(|(parameters, _)| parameters), expected);
        }
    }

    #[test]
    fn invalid_words_are_rejected_with_a_suggestion() {
        let schema = schema();
        for (line, expected) in [
            ("Ada", "unexpected argument `Ada`; write --NAME VALUE"),
            (
                "--names Ada",
                "unknown parameter --names; did you mean --name?",
            ),
            (
                "--dry-rnu",
                "unknown parameter --dry-rnu; did you mean --dry-run?",
            ),
            ("-- --json", "unknown parameter --json"),
            (
                "--name",
                "--name needs a value; write --name=VALUE if it begins with --",
            ),
            (
                "--name --fast",
                "--name needs a value; write --name=VALUE if it begins with --",
            ),
            ("--name a --name b", "--name is given twice"),
            ("--no-fast=1", "--no-fast takes no value"),
            ("--project x", "--project must come before the tool's id"),
            ("--json=1", "--json takes no value"),
        ] {
            let message = parse_line(line, Some(&schema)).unwrap_err();
            assert_eq!(message, expected, "{line}");
        }
        for line in ["--filter {", "--tags [1"] {
            let message = parse_line(line, Some(&schema)).unwrap_err();
            assert!(message.contains("invalid JSON: EOF"), "{message}");
        }
    }

    #[test]
    fn without_a_schema_values_are_strings() {
        let line = "--name 7 --timeout 5 --json -- --timeout 6";
        let (parameters, options) = parse_line(line, None).unwrap();
        assert_eq!(parameters, json!({"name": "7", "timeout": "6"}));
        let timeout = options.options.timeout;
        assert!(timeout.is_some_and(|time| time.as_secs() == 5));
        assert!(options.json);
    }
}
