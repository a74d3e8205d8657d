//! Configuration values: text with environment variables, or a reference to a vault secret.

use std::collections::BTreeMap;

use lillux::envelope::Secret;
use lillux::template::{Segment, VARIABLE, Variable};
use rye_executor::redact::is_secret_name;
use rye_items::vault::{SecretName, Vault};
use serde_json::Value;

/// Shorter values are not treated as secrets because of their name alone: redacting a short
/// word would garble unrelated output.
const MIN_SECRET_LEN: usize = 6;

/// A value of a server's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// Text that may contain `${VAR}` and `${VAR:-default}`.
    Text(String),
    /// A secret of the vault.
    Vault {
        /// Text to put before the secret, such as `Bearer `.
        prefix: String,
        /// Name of the secret.
        name: SecretName,
    },
}

/// A resolved value and the secrets in it.
#[derive(Default)]
pub(super) struct ResolvedValue {
    pub(super) text: String,
    pub(super) secrets: Vec<Secret>,
}

impl ConfigValue {
    /// Parses a string, a number, a boolean, or `{vault: NAME}`. The error is a message for the
    /// user.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Text(text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok(Self::Text(value.to_string())),
            Value::Object(fields) => {
                let known = |key: &String| key == "vault" || key == "prefix";
                if let Some(other) = fields.keys().find(|key| !known(key)) {
                    return Err(format!("unknown key `{other}`; known keys: vault, prefix"));
                }
                let name = fields.get("vault").and_then(Value::as_str);
                let name = name.ok_or("`vault` is missing; it names a secret")?;
                let prefix = fields.get("prefix").and_then(Value::as_str);
                Ok(Self::Vault {
                    prefix: prefix.unwrap_or_default().to_owned(),
                    name: name.parse().map_err(|error| format!("{error}"))?,
                })
            }
            _ => Err("expected a string or `{vault: NAME}`".to_owned()),
        }
    }

    /// Formats the value as in a configuration.
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

    /// Names of the environment variables in the value.
    pub(super) fn variables(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => segments(text)
                .filter_map(|segment| match segment {
                    Segment::Placeholder { value, .. } => Some(value.name),
                    Segment::Text(_) => None,
                })
                .collect(),
            Self::Vault { .. } => Vec::new(),
        }
    }

    /// Fills in variables and secrets. The value of a key such as `API_KEY` is treated as a
    /// secret wherever it comes from. The error is a message for the user.
    pub(super) fn resolve(
        &self,
        key: &str,
        environment: &BTreeMap<String, String>,
        vault: Option<&Vault>,
    ) -> Result<ResolvedValue, String> {
        match self {
            Self::Text(text) => {
                let mut resolved = ResolvedValue::default();
                for segment in segments(text) {
                    match segment {
                        Segment::Text(text) => resolved.text += text,
                        Segment::Placeholder {
                            value: Variable { name, default },
                            ..
                        } => {
                            let value = environment.get(name).map(String::as_str).or(default);
                            let value = value
                                .ok_or_else(|| format!("environment variable {name} is not set"))?;
                            resolved.text += value;
                            if is_secret_name(name) && value.len() >= MIN_SECRET_LEN {
                                resolved.secrets.push(Secret::new(value.into()));
                            }
                        }
                    }
                }
                if is_secret_name(key) && resolved.text.len() >= MIN_SECRET_LEN {
                    resolved
                        .secrets
                        .push(Secret::new(resolved.text.clone().into()));
                }
                Ok(resolved)
            }
            Self::Vault { prefix, name } => {
                let vault = vault.ok_or("no vault: there is no user space")?;
                let secret = vault.get(None, name).map_err(|error| error.to_string())?;
                let secret = secret.secret;
                let text = std::str::from_utf8(secret.expose());
                let text = text.map_err(|_| format!("secret {name} is not UTF-8"))?;
                // A secret that was piped in from a file ends with a line break.
                let text = text.trim_end_matches(['\r', '\n']);
                Ok(ResolvedValue {
                    text: format!("{prefix}{text}"),
                    secrets: vec![Secret::new(text.into())],
                })
            }
        }
    }
}

/// Splits a text at its variables. Malformed variables stay literal.
fn segments(text: &str) -> impl Iterator<Item = Segment<'_, Variable<'_>>> {
    VARIABLE.segments(text, |inner| {
        Variable::parse(inner, |c| c.is_ascii_alphabetic())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolve(value: &Value) -> Result<String, String> {
        let environment = BTreeMap::from([("HOST".to_owned(), "example.org".to_owned())]);
        let config_value = ConfigValue::parse(value)?;
        assert_eq!(
            ConfigValue::parse(&config_value.to_value()).as_ref(),
            Ok(&config_value)
        );
        Ok(config_value.resolve("X", &environment, None)?.text)
    }

    #[test]
    fn variables_are_resolved_and_other_text_is_literal() {
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
            assert_eq!(resolve(&value).as_deref(), Ok(expected), "{value}");
        }
        let error = resolve(&json!("${NOT_SET}")).unwrap_err();
        assert!(error.contains("NOT_SET"), "{error}");
    }

    #[test]
    fn invalid_references_are_rejected() {
        for (value, expected) in [
            (json!({"vault": "A/B"}), "name"),
            (json!({"value": "A"}), "`value`"),
            (json!({}), "`vault`"),
            (json!(["a"]), "vault"),
            (json!(null), "vault"),
        ] {
            let error = ConfigValue::parse(&value).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn secrets_are_detected_by_variable_name_and_by_key() {
        let environment = BTreeMap::from([
            ("API_TOKEN".to_owned(), "sesame".to_owned()),
            ("HOST".to_owned(), "example.org".to_owned()),
        ]);
        let secrets = |key: &str, text: &str| {
            let config_value = ConfigValue::Text(text.to_owned());
            let resolved = config_value.resolve(key, &environment, None).unwrap();
            let texts = resolved.secrets.iter();
            texts
                .map(|secret| String::from_utf8_lossy(secret.expose()).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(secrets("args", "--token=${API_TOKEN}"), ["sesame"]);
        assert_eq!(secrets("PASSWORD", "swordfish"), ["swordfish"]);
        assert_eq!(secrets("URL", "https://${HOST}"), [""; 0]);
    }
}
