//! Command tools: configured programs that get their secrets as environment variables. Models,
//! history, events and logs never contain the secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lillux::{Hash, canonical};
use rye_protocol::{ErrorCode, ErrorInfo};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::OutputForwarder;
use rye_engine::BoxFuture;
use rye_engine::policy::Risk;
use rye_engine::sandbox::Exec;
use rye_engine::tool::{EffectClass, ToolContext, ToolOutput};
use rye_engine::tool_provider::{
    Component, ResolvedTool, Review, ToolListing, ToolProvider, ToolProviderError, ToolSummary,
};

/// Default timeout, in seconds.
const DEFAULT_TIMEOUT: u64 = 120;
/// Maximum size of each output stream, in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// Configuration of a command tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// Description for models.
    pub description: String,
    /// Program and leading arguments, in shell syntax.
    pub run: String,
    /// Environment variables for credentials, with the service of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
    /// Further environment variables, which are not secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Risk level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Timeout in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// A command tool with its origin and signer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandEntry {
    /// The command and its parameters, as configured.
    pub spec: CommandSpec,
    /// Space of its file.
    pub space: Option<String>,
    /// Signer of its file.
    pub signed_by: Option<String>,
}

/// Provider of command tools: the service `command`.
#[derive(Debug, Default)]
pub struct CommandTools {
    all: BTreeMap<String, CommandEntry>,
    /// Services whose credential was requested in vain.
    missing: Mutex<BTreeSet<String>>,
}

impl CommandTools {
    /// Creates the provider from tools by name.
    pub fn new(all: BTreeMap<String, CommandEntry>) -> Self {
        let missing = Mutex::default();
        Self { all, missing }
    }

    /// Whether there are no command tools.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn search(&self, query: &str, limit: usize) -> ToolListing {
        let words = super::query_terms(query);
        let matches = |(name, command): &(&String, &CommandEntry)| {
            let text = format!("{name} {}", command.spec.description).to_lowercase();
            words.is_empty() || words.iter().any(|word| text.contains(word))
        };
        let found: Vec<_> = self.all.iter().filter(matches).collect();
        let missing = self.missing.lock();
        let missing = missing.unwrap_or_else(PoisonError::into_inner);
        let missing = missing.iter();
        ToolListing {
            total: found.len(),
            tools: found.into_iter().take(limit).map(summary).collect(),
            warnings: missing
                .map(|service| format!("auth required: {service} (rye vault set {service})"))
                .collect(),
        }
    }

    fn resolve_entry(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let unknown = || {
            let names: Vec<_> = self.all.keys().map(String::as_str).collect();
            let message = format!("unknown command `{id}`; available: {}", names.join(", "));
            ToolProviderError::Failed(ErrorInfo::new(ErrorCode::UnknownTool, message))
        };
        let command = self.all.get(id).ok_or_else(unknown)?;
        let text = canonical::to_vec(&command.spec).unwrap_or_default();
        let hash = Hash::digest(text).to_hex();
        let text = serde_json::to_string_pretty(&command.spec).unwrap_or_default();
        Ok(ResolvedTool {
            id: id.to_owned(),
            description: command.spec.description.clone(),
            schema: Some(schema()),
            risk: command.spec.risk,
            space: command.space.clone(),
            requires_approval: false,
            // A call may wait for a credential; `run` sets the final effect class.
            effect: EffectClass::Idempotent,
            drift: None,
            components: vec![Component {
                name: format!("{id}: {}", command.spec.run),
                hash: hash.clone(),
                signed_by: command.signed_by.clone(),
                text: Some((text + "\n").into()),
                ..Component::default()
            }],
            hash,
            handle: Arc::new(command.spec.clone()),
        })
    }

    async fn run(
        &self,
        tool_ref: &ResolvedTool,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        let handle = tool_ref.handle.downcast_ref::<CommandSpec>();
        let tool = handle.ok_or(ToolProviderError::Changed)?;
        let args: Args = serde_json::from_value(params).unwrap_or_default();
        let mut env = tool.env.clone();
        for (variable, service) in &tool.credentials {
            let secret = context.credential(service).await;
            let secret = secret.map_err(|error| self.note_missing(service, error.0))?;
            env.insert(variable.clone(), secret.to_string());
        }
        let marked = context.set_effect(EffectClass::AtMostOnce).await;
        marked.map_err(|error| ToolProviderError::Failed(error.0))?;
        let exec = Exec {
            command: command_line(&tool.run, &args.args),
            cwd: None,
            env,
            timeout: Some(Duration::from_secs(tool.timeout.unwrap_or(DEFAULT_TIMEOUT))),
            stdin: args.stdin.into_bytes(),
            max_output: Some(MAX_OUTPUT),
            max_streamed: Some(MAX_OUTPUT),
        };
        let output = context.exec(exec, &OutputForwarder(context)).await;
        let output = output.map_err(|error| ToolProviderError::Failed(error.into()))?;
        let mut text = output.stdout;
        if !output.stderr.is_empty() {
            let _ = write!(text, "\n[standard error]\n{}", output.stderr);
        }
        match output.exit_code {
            _ if output.timed_out => Err(failed(format!("timed out\n{text}"))),
            Some(0) => Ok(ToolOutput::new(text, json!({ "exit_code": 0 }))),
            Some(code) => Err(failed(format!("exited with code {code}\n{text}"))),
            None => Err(failed(format!("killed by a signal\n{text}"))),
        }
    }

    /// Remembers a missing credential for the warnings of the next listing.
    fn note_missing(&self, service: &str, error: ErrorInfo) -> ToolProviderError {
        if error.code == ErrorCode::AuthRequired {
            let missing = self.missing.lock();
            let mut missing = missing.unwrap_or_else(PoisonError::into_inner);
            missing.insert(service.to_owned());
        }
        ToolProviderError::Failed(error)
    }
}

/// Arguments of a call.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    args: Vec<String>,
    stdin: String,
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "args": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Further arguments, passed literally."
            },
            "stdin": { "type": "string", "description": "Standard input." }
        },
        "additionalProperties": false
    })
}

fn summary((name, command): (&String, &CommandEntry)) -> ToolSummary {
    ToolSummary {
        id: name.clone(),
        description: command.spec.description.clone(),
        parameters: vec!["args".to_owned(), "stdin".to_owned()],
        risk: command.spec.risk,
        space: command.space.clone(),
        schema: Some(schema()),
    }
}

/// Builds a shell command line with each argument quoted.
fn command_line(run: &str, args: &[String]) -> String {
    let quoted = args
        .iter()
        .map(|arg| format!(" '{}'", arg.replace('\'', r"'\''")));
    format!("{run}{}", quoted.collect::<String>())
}

fn failed(message: String) -> ToolProviderError {
    ToolProviderError::Failed(ErrorInfo::new(ErrorCode::ToolFailed, message))
}

impl ToolProvider for CommandTools {
    fn service(&self) -> &'static str {
        "command"
    }

    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>> {
        Box::pin(async move { Ok(self.search(query, limit)) })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(async move { self.resolve_entry(id) })
    }

    fn call<'a>(
        &'a self,
        tool_ref: &'a ResolvedTool,
        _: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        Box::pin(self.run(tool_ref, params, context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_the_shell() {
        let args = ["a b", "it's", "$(rm -rf /)", ""].map(str::to_owned);
        assert_eq!(
            command_line("gh api", &args),
            r"gh api 'a b' 'it'\''s' '$(rm -rf /)' ''"
        );
    }

    #[test]
    fn hash_depends_on_the_configuration() {
        let tool = CommandSpec {
            run: "gh".to_owned(),
            ..CommandSpec::default()
        };
        let hash = |tool: &CommandSpec| {
            let command = CommandEntry {
                spec: tool.clone(),
                ..CommandEntry::default()
            };
            let all = CommandTools::new(BTreeMap::from([("gh".to_owned(), command)]));
            all.resolve_entry("gh").map(|it| it.hash).unwrap()
        };
        let other = CommandSpec {
            credentials: BTreeMap::from([("T".to_owned(), "github".to_owned())]),
            ..tool.clone()
        };
        assert_eq!(hash(&tool), hash(&tool.clone()));
        assert_ne!(hash(&tool), hash(&other));
    }
}
