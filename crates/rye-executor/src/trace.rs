//! Trace of a call: the steps that led to the process, for `rye execute --trace`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lillux::Hash;
use lillux::keys::Fingerprint;
use rye_items::{Dependencies, ItemId, Library, Space};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::chain::Chain;
use crate::confinement::CallSandbox;
use crate::environment::{Environment, Origin};
use crate::executor::CallAnchor;
use crate::interpreter::{Candidate, Resolver};
use crate::redact::{REDACTED, Redactor, is_secret_name};

/// The steps of a call, in order. A disabled trace records nothing.
#[derive(Debug, Clone)]
pub struct Trace {
    is_enabled: bool,
    /// Values of secret variables, redacted wherever they appear in later steps.
    secrets: Redactor,
    steps: Vec<TraceStep>,
}

/// One step of a call.
#[derive(Debug, Clone, Serialize)]
pub struct TraceStep {
    /// The step and its result.
    #[serde(flatten)]
    pub kind: TraceStepKind,
    /// Microseconds since the call began, for steps that take time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_us: Option<u64>,
}

/// A step of a call and its result.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TraceStepKind {
    /// The chain was resolved and verified.
    Chain {
        /// The items of the chain, the tool first.
        links: Vec<TraceLink>,
    },
    /// The anchor directory was found.
    Anchor {
        /// The directory.
        path: String,
        /// Name of the marker file; without one, the search starts and ends at `path`.
        marker: Option<String>,
        /// The directories that were searched for a marker, in order.
        searched: Vec<String>,
        /// Id of the item that declares the anchor.
        declared_by: Option<String>,
    },
    /// An interpreter was searched.
    Interpreter {
        /// Environment variable that receives its path.
        variable: String,
        /// Id of the item that declares it.
        declared_by: String,
        /// Path of the interpreter, if one was found.
        found: Option<String>,
        /// The candidates in the order in which they were tried.
        tried: Vec<Candidate>,
    },
    /// The dependencies were verified.
    Dependencies {
        /// `None` if the tool's file is the only one.
        verified: Option<TraceDependencies>,
    },
    /// The environment was built.
    Environment {
        /// The variables by name.
        variables: BTreeMap<String, TraceVariable>,
    },
    /// Variables of `.env` were ignored because no item of the chain declares them.
    DotenvIgnored {
        /// Names of the variables.
        names: BTreeSet<String>,
    },
    /// The items' configurations were merged; placeholders are not yet replaced.
    Template {
        /// The merged configuration.
        config: Map<String, Value>,
    },
    /// Placeholders were replaced.
    Rendered {
        /// The configuration with the effective timeout.
        config: Map<String, Value>,
    },
    /// The kernel will confine the process.
    Sandbox(CallSandbox),
    /// The call is ready to run.
    Ready,
    /// The call has ended.
    Done,
}

/// An item of a chain.
#[derive(Debug, Clone, Serialize)]
pub struct TraceLink {
    /// Id of the item.
    pub id: ItemId,
    /// Space that the item was found in.
    pub space: Space,
    /// File of the item.
    pub path: String,
    /// Hash of the file.
    pub hash: Hash,
    /// Fingerprint of the signer's key.
    pub signed_by: Option<Fingerprint>,
    /// Owner of the signer's key.
    pub owner: Option<String>,
    /// Files of items with the same id in less specific spaces.
    pub shadows: Vec<String>,
}

/// Verified dependencies.
#[derive(Debug, Clone, Serialize)]
pub struct TraceDependencies {
    /// Number of files.
    pub files: usize,
    /// Number of files that did not verify and are accepted in development mode.
    pub unverified: usize,
    /// Hash over all paths and file hashes.
    pub hash: Hash,
}

/// An environment variable.
#[derive(Debug, Clone, Serialize)]
pub struct TraceVariable {
    /// The value; redacted if the name is that of a secret.
    pub value: String,
    /// Source of the value.
    pub from: Origin,
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
            secrets: Redactor::default(),
            steps: Vec::new(),
        }
    }

    /// The recorded steps, in order.
    pub fn steps(&self) -> &[TraceStep] {
        &self.steps
    }

    fn step(&mut self, elapsed: Option<Duration>, kind: impl FnOnce() -> TraceStepKind) {
        if self.is_enabled {
            let elapsed_us =
                elapsed.map(|elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            self.steps.push(TraceStep {
                kind: kind(),
                elapsed_us,
            });
        }
    }

    pub(crate) fn chain(&mut self, library: &Library, chain: &Chain, elapsed: Duration) {
        self.step(Some(elapsed), || {
            let links = chain.links.iter().chain(chain.named.values());
            let links = links.map(|link| {
                let found = library.find_from(link.space(), &link.item.reference).ok();
                let shadowed = found
                    .map(|found| library.shadowed(&found))
                    .unwrap_or_default();
                TraceLink {
                    id: link.id().clone(),
                    space: link.space(),
                    path: link.item.path.display().to_string(),
                    hash: link.item.hash,
                    signed_by: link.item.signer.as_ref().map(|key| key.key.fingerprint()),
                    owner: link.item.signer.as_ref().and_then(|key| key.owner.clone()),
                    shadows: shadowed
                        .iter()
                        .map(|other| other.path().display().to_string())
                        .collect(),
                }
            });
            TraceStepKind::Chain {
                links: links.collect(),
            }
        });
    }

    pub(crate) fn anchor(&mut self, anchor: &CallAnchor) {
        self.step(None, || TraceStepKind::Anchor {
            path: anchor.path().display().to_string(),
            marker: anchor.location.marker.clone(),
            searched: anchor
                .location
                .searched
                .iter()
                .map(|dir| dir.display().to_string())
                .collect(),
            declared_by: anchor.declared.as_ref().map(|(_, id)| id.clone()),
        });
    }

    pub(crate) fn interpreter(
        &mut self,
        resolver: &Resolver,
        declared_by: &ItemId,
        found: Option<&str>,
        tried: Vec<Candidate>,
    ) {
        self.step(None, || TraceStepKind::Interpreter {
            variable: resolver.var.clone(),
            declared_by: declared_by.to_string(),
            found: found.map(str::to_owned),
            tried,
        });
    }

    pub(crate) fn dependencies(&mut self, dependencies: Option<Dependencies>, elapsed: Duration) {
        self.step(Some(elapsed), || TraceStepKind::Dependencies {
            verified: dependencies.map(|all| TraceDependencies {
                files: all.files,
                unverified: all.waived,
                hash: all.hash,
            }),
        });
    }

    pub(crate) fn environment(&mut self, environment: &Environment) {
        if self.is_enabled {
            let variables = environment.origins();
            let secrets = variables.filter(|(name, ..)| is_secret_name(name));
            self.secrets = Redactor::new(secrets.map(|(_, value, _)| value));
        }
        self.step(None, || {
            let variables = environment.origins().map(|(name, value, origin)| {
                let shown = if is_secret_name(name) {
                    REDACTED
                } else {
                    value
                };
                let variable = TraceVariable {
                    value: shown.to_owned(),
                    from: origin.clone(),
                };
                (name.to_owned(), variable)
            });
            TraceStepKind::Environment {
                variables: variables.collect(),
            }
        });
        let ignored = environment.dotenv_ignored();
        if !ignored.is_empty() {
            self.step(None, || TraceStepKind::DotenvIgnored {
                names: ignored.clone(),
            });
        }
    }

    /// Records the merged configuration before placeholders are replaced.
    pub(crate) fn template(&mut self, config: &Map<String, Value>) {
        let secrets = self.secrets.clone();
        self.step(None, || TraceStepKind::Template {
            config: redacted_fields(config, &secrets),
        });
    }

    /// Records the rendered configuration and the effective timeout in seconds.
    pub(crate) fn rendered(&mut self, config: &Map<String, Value>, timeout: Option<f64>) {
        let secrets = self.secrets.clone();
        self.step(None, || {
            let mut config = redacted_fields(config, &secrets);
            if let Some(seconds) = timeout {
                config.insert("timeout".to_owned(), number(seconds));
            }
            TraceStepKind::Rendered { config }
        });
    }

    pub(crate) fn sandbox(&mut self, sandbox: &CallSandbox) {
        self.step(None, || TraceStepKind::Sandbox(sandbox.clone()));
    }

    pub(crate) fn ready(&mut self, elapsed: Duration) {
        self.step(Some(elapsed), || TraceStepKind::Ready);
    }

    pub(crate) fn done(&mut self, elapsed: Duration) {
        self.step(Some(elapsed), || TraceStepKind::Done);
    }
}

/// Formats whole seconds without a fraction: 5 rather than 5.0.
fn number(seconds: f64) -> Value {
    serde_json::from_str(&seconds.to_string()).unwrap_or_default()
}

/// Redacts fields with secret names, also in strings that contain JSON, and all values in
/// `secrets`.
fn redacted(value: &Value, secrets: &Redactor) -> Value {
    match value {
        Value::Object(fields) => Value::Object(redacted_fields(fields, secrets)),
        Value::Array(items) => items.iter().map(|item| redacted(item, secrets)).collect(),
        Value::String(text) => match parse_structure(text) {
            Some(inner) => redacted(&inner, secrets).to_string().into(),
            None => secrets.redact(text).into(),
        },
        other => other.clone(),
    }
}

fn redacted_fields(fields: &Map<String, Value>, secrets: &Redactor) -> Map<String, Value> {
    let fields = fields.iter().map(|(name, value)| {
        let shown = if is_secret_name(name) && !value.is_object() {
            REDACTED.into()
        } else {
            redacted(value, secrets)
        };
        (name.clone(), shown)
    });
    fields.collect()
}

/// Parses a string that contains a JSON object or array.
fn parse_structure(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(redacted(&config, &Redactor::new(["s3cr3t"])), shown);
    }
}
