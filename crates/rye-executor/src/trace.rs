//! What was found out on the way of a call, for those who want to see it.

use std::time::Duration;

use rye_items::{Dependencies, Library};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use crate::environment::Environment;
use crate::executor::CallAnchor;
use crate::mask::{MASK, looks_secret};

/// What is shorter would be found in every other word.
const SHORTEST: usize = 4;

/// The steps of a call, each with what it found, and when.
#[derive(Debug, Clone, Serialize)]
pub struct Trace {
    #[serde(skip)]
    on: bool,
    /// What variables hold that are secrets, to be masked wherever it turns up.
    #[serde(skip)]
    secrets: Vec<String>,
    steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// What was done.
    pub what: &'static str,
    /// What it found.
    pub found: Value,
    /// Microseconds since the call began, where they say something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
}

impl Trace {
    /// Nothing is written down.
    pub fn off() -> Self {
        Self {
            on: false,
            secrets: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Everything is.
    pub fn on() -> Self {
        Self {
            on: true,
            secrets: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// What was written down.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn step(&mut self, what: &'static str, at: Option<Duration>, found: impl FnOnce() -> Value) {
        if self.on {
            let at_us = at.map(|at| u64::try_from(at.as_micros()).unwrap_or(u64::MAX));
            self.steps.push(Step {
                what,
                found: found(),
                at_us,
            });
        }
    }

    pub(crate) fn chain(&mut self, library: &Library, chain: &Chain, at: Duration) {
        self.step("chain", Some(at), || {
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
                "marked": anchor.anchored.is_marked,
                "declared_by": anchor.declared.as_ref().map(|(_, id)| id),
            })
        });
    }

    pub(crate) fn dependencies(&mut self, dependencies: Option<Dependencies>, at: Duration) {
        self.step("dependencies", Some(at), || match dependencies {
            Some(all) => json!({"files": all.files, "hash": all.hash}),
            None => json!("the tool file alone"),
        });
    }

    pub(crate) fn environment(&mut self, environment: &Environment) {
        if self.on {
            let secrets = environment
                .origins()
                .filter(|(name, ..)| looks_secret(name));
            let values = secrets.map(|(_, value, _)| value.to_owned());
            self.secrets = values.filter(|value| value.len() >= SHORTEST).collect();
        }
        self.step("environment", None, || {
            let all = environment.origins().map(|(name, value, origin)| {
                let shown = if looks_secret(name) { MASK } else { value };
                (
                    name.to_owned(),
                    json!({"value": shown, "from": origin.to_string()}),
                )
            });
            Value::Object(all.collect())
        });
        let left_out = environment.left_out();
        if !left_out.is_empty() {
            self.step("left out of .env", None, || json!(left_out));
        }
    }

    pub(crate) fn template(&mut self, config: &Map<String, Value>) {
        self.config("template", || config.clone());
    }

    /// The configuration as it is used, with the timeout that holds.
    pub(crate) fn rendered(&mut self, config: &Map<String, Value>, timeout: Option<f64>) {
        self.config("rendered", || {
            let mut config = config.clone();
            if let Some(seconds) = timeout {
                config.insert("timeout".to_owned(), number(seconds));
            }
            config
        });
    }

    fn config(&mut self, what: &'static str, config: impl FnOnce() -> Map<String, Value>) {
        let secrets = std::mem::take(&mut self.secrets);
        self.step(what, None, || masked(&Value::Object(config()), &secrets));
        self.secrets = secrets;
    }

    pub(crate) fn ready(&mut self, at: Duration) {
        self.step("ready", Some(at), || Value::Null);
    }

    pub(crate) fn done(&mut self, at: Duration) {
        self.step("done", Some(at), || Value::Null);
    }
}

/// Seconds as people write them: 5 rather than 5.0.
fn number(seconds: f64) -> Value {
    serde_json::from_str(&seconds.to_string()).unwrap_or_default()
}

/// A value without the secrets in it: what stands under a name that holds them,
/// also in a text that is JSON, and what such variables hold.
fn masked(value: &Value, secrets: &[String]) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let shown = if looks_secret(name) && !value.is_object() {
                    MASK.into()
                } else {
                    masked(value, secrets)
                };
                (name.clone(), shown)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.iter().map(|item| masked(item, secrets)).collect(),
        Value::String(text) => match structure(text) {
            Some(inner) => masked(&inner, secrets).to_string().into(),
            None => secrets
                .iter()
                .fold(text.clone(), |text, secret| text.replace(secret, MASK))
                .into(),
        },
        other => other.clone(),
    }
}

/// The object or array that a text spells.
fn structure(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_name_and_wherever_their_value_turns_up() {
        let config = json!({
            "command": "/bin/curl",
            "args": ["-H", "Authorization: Bearer s3cr3t", "{}", 7],
            "env": {"API_TOKEN": "x", "MODE": "fast"},
            "input_data": "{\"password\":\"p\",\"name\":\"Ada\",\"keys\":{\"a\":1}}",
        });
        let shown = json!({
            "command": "/bin/curl",
            "args": ["-H", "Authorization: Bearer [masked]", "{}", 7],
            "env": {"API_TOKEN": "[masked]", "MODE": "fast"},
            "input_data": "{\"password\":\"[masked]\",\"name\":\"Ada\",\"keys\":{\"a\":1}}",
        });
        assert_eq!(masked(&config, &["s3cr3t".to_owned()]), shown);
    }
}
