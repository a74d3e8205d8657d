//! What was found out on the way of a call, for those who want to see it.

use std::time::Duration;

use rye_items::{Dependencies, Library};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use crate::environment::Environment;
use crate::executor::CallAnchor;

/// Names that hold secrets: what they are is shown, what they hold is not.
const SECRET: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// The steps of a call, each with what it found, and when.
#[derive(Debug, Clone, Serialize)]
pub struct Trace {
    #[serde(skip)]
    on: bool,
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
            steps: Vec::new(),
        }
    }

    /// Everything is.
    pub fn on() -> Self {
        Self {
            on: true,
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
            let links = chain.links.iter().map(|link| {
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
                "marked": anchor.declared.as_ref().is_some_and(|(_, anchored, _)| anchored.is_marked),
                "declared_by": anchor.declared.as_ref().map(|(.., id)| id),
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
        self.step("environment", None, || {
            let all = environment.origins().map(|(name, value, origin)| {
                let shown = if is_secret(name) { "***" } else { value };
                (
                    name.to_owned(),
                    json!({"value": shown, "from": origin.to_string()}),
                )
            });
            Value::Object(all.collect())
        });
    }

    pub(crate) fn config(&mut self, when: &'static str, config: &Map<String, Value>) {
        let what = match when {
            "before" => "template",
            _ => "rendered",
        };
        self.step(what, None, || Value::Object(config.clone()));
    }

    pub(crate) fn ready(&mut self, at: Duration) {
        self.step("ready", Some(at), || Value::Null);
    }

    pub(crate) fn done(&mut self, at: Duration) {
        self.step("done", Some(at), || Value::Null);
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|word| name.contains(word))
}
