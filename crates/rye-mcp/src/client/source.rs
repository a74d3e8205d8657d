//! Where a value of a server's configuration comes from.

use std::collections::BTreeMap;

use lillux::envelope::Secret;
use rye_executor::redact::is_secret_name;
use rye_items::vault::{SecretName, Vault};
use serde_json::Value;

/// What only its name makes a secret and is shorter may be a word that stands anywhere.
const SHORTEST: usize = 6;

/// A value as the configuration has it: a text in which `${VAR}` stands for a
/// variable, or a reference to a secret of the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// A text, with `${VAR}` and `${VAR:-default}` in it.
    Text(String),
    /// A secret, and what stands before it: `Bearer `, for one.
    Vault {
        /// What stands before the secret.
        prefix: String,
        /// The secret.
        name: SecretName,
    },
}

/// A value that can be used, and what of it must not be seen.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) text: String,
    pub(super) secrets: Vec<Secret>,
}

impl ConfigValue {
    /// Reads a value: a text, a number, a truth value, or `{vault: NAME}`. The
    /// error is a sentence.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Text(text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok(Self::Text(value.to_string())),
            Value::Object(fields) => {
                let known = |key: &String| key == "vault" || key == "prefix";
                if let Some(other) = fields.keys().find(|key| !known(key)) {
                    return Err(format!("`{other}` is not known beside `vault`"));
                }
                let name = fields.get("vault").and_then(Value::as_str);
                let name = name.ok_or("`vault` is missing: the name of a secret")?;
                let prefix = fields.get("prefix").and_then(Value::as_str);
                Ok(Self::Vault {
                    prefix: prefix.unwrap_or_default().to_owned(),
                    name: name.parse().map_err(|error| format!("{error}"))?,
                })
            }
            _ => Err("it is neither a text nor `{vault: NAME}`".to_owned()),
        }
    }

    /// The value as the configuration has it.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::Vault { prefix, name } => {
                let mut fields = serde_json::Map::new();
                fields.insert("vault".into(), name.as_str().into());
                if !prefix.is_empty() {
                    fields.insert("prefix".into(), prefix.as_str().into());
                }
                Value::Object(fields)
            }
        }
    }

    /// The variables that it takes from the environment.
    pub(super) fn variables(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => pieces(text)
                .filter_map(|piece| match piece {
                    Piece::Variable { name, .. } => Some(name),
                    Piece::Literal(_) => None,
                })
                .collect(),
            Self::Vault { .. } => Vec::new(),
        }
    }

    /// The value to use. `shown_as` is what it is the value of: that of an
    /// `API_KEY` is a secret wherever it comes from. The error is a sentence.
    pub(super) fn open(
        &self,
        shown_as: &str,
        environment: &BTreeMap<String, String>,
        vault: Option<&Vault>,
    ) -> Result<Opened, String> {
        match self {
            Self::Text(text) => {
                let mut opened = Opened::default();
                for piece in pieces(text) {
                    match piece {
                        Piece::Literal(text) => opened.text += text,
                        Piece::Variable { name, default } => {
                            let value = environment.get(name).map(String::as_str).or(default);
                            let value = value.ok_or_else(|| {
                                format!("it needs the variable {name}, which is not set")
                            })?;
                            opened.text += value;
                            if is_secret_name(name) && value.len() >= SHORTEST {
                                opened.secrets.push(Secret::new(value.into()));
                            }
                        }
                    }
                }
                if is_secret_name(shown_as) && opened.text.len() >= SHORTEST {
                    opened.secrets.push(Secret::new(opened.text.clone().into()));
                }
                Ok(opened)
            }
            Self::Vault { prefix, name } => {
                let vault = vault.ok_or("there is no user space, so there is no vault")?;
                let secret = vault.get(None, name).map_err(|error| error.to_string())?;
                let secret = secret.secret;
                let text = std::str::from_utf8(secret.expose());
                let text = text.map_err(|_| format!("the secret {name} is not text"))?;
                // A file that was piped in ends with one.
                let text = text.trim_end_matches(['\r', '\n']);
                Ok(Opened {
                    text: format!("{prefix}{text}"),
                    secrets: vec![Secret::new(text.into())],
                })
            }
        }
    }
}

/// A piece of a text.
enum Piece<'t> {
    Literal(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
}

/// Cuts a text at its variables. What only looks like one stays as it is.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(at) = rest[from..].find("${").map(|at| at + from) {
            if let Some((name, default, length)) = variable(&rest[at..]) {
                if at > 0 {
                    let (before, after) = rest.split_at(at);
                    rest = after;
                    return Some(Piece::Literal(before));
                }
                rest = &rest[length..];
                return Some(Piece::Variable { name, default });
            }
            from = at + 2;
        }
        Some(Piece::Literal(std::mem::take(&mut rest)))
    })
}

/// The variable that a text begins with, and how long its writing is.
fn variable(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let inner = text.strip_prefix("${")?;
    let end = inner.find('}')?;
    let inner = &inner[..end];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let further = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = name.starts_with(first) && name.chars().all(further);
    is_name.then_some((name, default, end + 3))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(value: &Value) -> Result<String, String> {
        let environment = BTreeMap::from([("HOST".to_owned(), "example.org".to_owned())]);
        let source = ConfigValue::read(value)?;
        assert_eq!(ConfigValue::read(&source.to_value()).as_ref(), Ok(&source));
        Ok(source.open("X", &environment, None)?.text)
    }

    #[test]
    fn variables_are_filled_in_and_all_else_stays() {
        for (value, expected) in [
            (json!("plain"), "plain"),
            (json!(""), ""),
            (json!(8080), "8080"),
            (json!(true), "true"),
            (
                json!("https://${HOST}/x?${HOST}"),
                "https://example.org/x?example.org",
            ),
            (json!("${PORT:-80}${EMPTY:-}"), "80"),
            (
                json!("$HOST ${} ${1} ${a b} ${HOST"),
                "$HOST ${} ${1} ${a b} ${HOST",
            ),
            (json!("ä${HOST}ö"), "äexample.orgö"),
        ] {
            assert_eq!(open(&value).as_deref(), Ok(expected), "{value}");
        }
        let error = open(&json!("${NOT_SET}")).unwrap_err();
        assert!(error.contains("NOT_SET"), "{error}");
    }

    #[test]
    fn a_reference_that_is_none_is_told() {
        for (value, word) in [
            (json!({"vault": "A/B"}), "name"),
            (json!({"value": "A"}), "`value`"),
            (json!({}), "`vault` is missing"),
            (json!(["a"]), "neither"),
            (json!(null), "neither"),
        ] {
            let error = ConfigValue::read(&value).unwrap_err();
            assert!(error.contains(word), "{value}: {error}");
        }
    }

    #[test]
    fn secrets_are_known_by_where_they_come_from_and_by_their_name() {
        let environment = BTreeMap::from([
            ("API_TOKEN".to_owned(), "sesame".to_owned()),
            ("HOST".to_owned(), "example.org".to_owned()),
        ]);
        let secrets = |shown_as: &str, text: &str| {
            let source = ConfigValue::Text(text.to_owned());
            let opened = source.open(shown_as, &environment, None).unwrap();
            let texts = opened.secrets.iter();
            texts
                .map(|secret| String::from_utf8_lossy(secret.expose()).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(secrets("args", "--token=${API_TOKEN}"), ["sesame"]);
        assert_eq!(secrets("PASSWORD", "swordfish"), ["swordfish"]);
        assert_eq!(secrets("URL", "https://${HOST}"), [""; 0]);
    }
}
