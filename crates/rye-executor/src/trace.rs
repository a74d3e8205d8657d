//! Trace of a call: the steps that led to the process, for `rye execute --trace`.

use std::time::Duration;

use rye_items::{Dependencies, Library};
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use crate::environment::Environment;
use crate::executor::CallAnchor;
use crate::redact::{REDACTED, is_secret_name};

/// Shorter values are not redacted by content, because they would match unrelated text.
const MIN_SECRET_LENGTH: usize = 4;

/// The steps of a call, in order. A disabled trace records nothing.
#[derive(Debug, Clone)]
pub struct Trace {
    is_enabled: bool,
    /// Values of secret variables, redacted wherever they appear in later steps.
    secrets: Vec<String>,
    steps: Vec<TraceStep>,
}

/// One step of a call and what it produced.
#[derive(Debug, Clone)]
pub struct TraceStep {
    /// Stable name of the step, such as `chain` or `environment`.
    pub name: &'static str,
    /// Result of the step; its structure depends on the step.
    pub detail: Value,
    /// Microseconds since the call began, for steps that take time.
    pub elapsed_us: Option<u64>,
}

impl Trace {
    /// Creates a trace that records nothing.
    pub fn disabled() -> Self {
        Self::new(false)
    }

    /// Creates a trace that records every step.
    pub fn enabled() -> Self {
        Self::new(true)
    }

    fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            secrets: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// The recorded steps, in order.
    pub fn steps(&self) -> &[TraceStep] {
        &self.steps
    }

    fn step(
        &mut self,
        name: &'static str,
        elapsed: Option<Duration>,
        detail: impl FnOnce() -> Value,
    ) {
        if self.is_enabled {
            let elapsed_us =
                elapsed.map(|elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            self.steps.push(TraceStep {
                name,
                detail: detail(),
                elapsed_us,
            });
        }
    }

    pub(crate) fn chain(&mut self, library: &Library, chain: &Chain, elapsed: Duration) {
        self.step("chain", Some(elapsed), || {
            let links = chain.links.iter().chain(chain.named.values());
            let links = links.map(|link| {
                let found = library.find(&link.item.reference).ok();
                let shadowed = found
                    .map(|found| library.shadowed(&found))
                    .unwrap_or_default();
                let shadowed: Vec<_> = shadowed
                    .iter()
                    .map(|other| other.path().display().to_string())
                    .collect();
                json!({
                    "id": link.id(),
                    "space": link.space(),
                    "path": link.item.path.display().to_string(),
                    "hash": link.item.hash,
                    "signed_by": link.item.signer.as_ref().map(|key| key.key.fingerprint()),
                    "shadows": shadowed,
                })
            });
            links.collect()
        });
    }

    pub(crate) fn anchor(&mut self, anchor: &CallAnchor) {
        self.step("anchor", None, || {
            json!({
                "path": anchor.path().display().to_string(),
                "marked": anchor.location.is_marked,
                "declared_by": anchor.declared.as_ref().map(|(_, id)| id),
            })
        });
    }

    pub(crate) fn dependencies(&mut self, dependencies: Option<Dependencies>, elapsed: Duration) {
        self.step("dependencies", Some(elapsed), || match dependencies {
            Some(all) => json!({"files": all.files, "hash": all.hash}),
            None => json!("the tool file alone"),
        });
    }

    pub(crate) fn environment(&mut self, environment: &Environment) {
        if self.is_enabled {
            let secrets = environment
                .origins()
                .filter(|(name, ..)| is_secret_name(name));
            let values = secrets.map(|(_, value, _)| value.to_owned());
            self.secrets = values
                .filter(|value| value.len() >= MIN_SECRET_LENGTH)
                .collect();
        }
        self.step("environment", None, || {
            let all = environment.origins().map(|(name, value, origin)| {
                let shown = if is_secret_name(name) {
                    REDACTED
                } else {
                    value
                };
                (
                    name.to_owned(),
                    json!({"value": shown, "from": origin.to_string()}),
                )
            });
            Value::Object(all.collect())
        });
        let ignored = environment.dotenv_ignored();
        if !ignored.is_empty() {
            self.step("dotenv_ignored", None, || json!(ignored));
        }
    }

    /// Records the merged configuration before placeholders are replaced.
    pub(crate) fn template(&mut self, config: &Map<String, Value>) {
        self.config("template", || config.clone());
    }

    /// Records the rendered configuration and the effective timeout in seconds.
    pub(crate) fn rendered(&mut self, config: &Map<String, Value>, timeout: Option<f64>) {
        self.config("rendered", || {
            let mut config = config.clone();
            if let Some(seconds) = timeout {
                config.insert("timeout".to_owned(), number(seconds));
            }
            config
        });
    }

    fn config(&mut self, name: &'static str, config: impl FnOnce() -> Map<String, Value>) {
        let secrets = std::mem::take(&mut self.secrets);
        self.step(name, None, || redacted(&Value::Object(config()), &secrets));
        self.secrets = secrets;
    }

    pub(crate) fn ready(&mut self, elapsed: Duration) {
        self.step("ready", Some(elapsed), || Value::Null);
    }

    pub(crate) fn done(&mut self, elapsed: Duration) {
        self.step("done", Some(elapsed), || Value::Null);
    }
}

/// Formats whole seconds without a fraction: 5 rather than 5.0.
fn number(seconds: f64) -> Value {
    serde_json::from_str(&seconds.to_string()).unwrap_or_default()
}

/// Redacts fields with secret names, also in strings that contain JSON, and all values in
/// `secrets`.
fn redacted(value: &Value, secrets: &[String]) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let shown = if is_secret_name(name) && !value.is_object() {
                    REDACTED.into()
                } else {
                    redacted(value, secrets)
                };
                (name.clone(), shown)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.iter().map(|item| redacted(item, secrets)).collect(),
        Value::String(text) => match parse_structure(text) {
            Some(inner) => redacted(&inner, secrets).to_string().into(),
            None => secrets
                .iter()
                .fold(text.clone(), |text, secret| text.replace(secret, REDACTED))
                .into(),
        },
        other => other.clone(),
    }
}

/// Parses a string that contains a JSON object or array.
fn parse_structure(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_by_name_and_by_value() {
        let config = json!({
            "command": "/bin/curl",
            "args": ["-H", "Authorization: Bearer s3cr3t", "{}", 7],
            "env": {"API_TOKEN": "x", "MODE": "fast"},
            "input_data": "{\"password\":\"p\",\"name\":\"Ada\",\"keys\":{\"a\":1}}",
        });
        let input = json!({"password": REDACTED, "name": "Ada", "keys": {"a": 1}}).to_string();
        let shown = json!({
            "command": "/bin/curl",
            "args": ["-H", format!("Authorization: Bearer {REDACTED}"), "{}", 7],
            "env": {"API_TOKEN": REDACTED, "MODE": "fast"},
            "input_data": input,
        });
        assert_eq!(redacted(&config, &["s3cr3t".to_owned()]), shown);
    }
}
