//! CommandEntry tools as actions: programs that get their secrets as variables, which no model, no
//! history, no event and no log ever has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lillux::{Hash, canonical};
use rye_protocol::{ErrorCode, ErrorInfo, ProcessRef};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Component, ResolvedTool, Review, Risk, ToolListing, ToolProvider, ToolProviderError,
    ToolSummary,
};
use crate::BoxFuture;
use crate::sandbox::{Exec, ExecObserver};
use crate::tool::{Effect, ToolContext, ToolOutput};

/// How long a program runs where nobody says.
const STANDARD: u64 = 120;
/// How much of each stream is kept.
const KEPT: usize = 1 << 20;

/// A program, as a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// What a model reads.
    pub description: String,
    /// The program with its first arguments, as a shell reads it.
    pub run: String,
    /// Which variables hold the credentials for which services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
    /// Further variables, which are no secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How much harm it can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// After how many seconds it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// A command tool, where it is from and who vouches for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandEntry {
    /// What it is.
    pub spec: CommandSpec,
    /// The space of its file.
    pub space: Option<String>,
    /// Who signed that.
    pub signed_by: Option<String>,
}

/// CommandEntry tools by name: the service `command`.
#[derive(Debug, Default)]
pub struct CommandTools {
    all: BTreeMap<String, CommandEntry>,
    /// Services whose credential nobody gave.
    missing: Mutex<BTreeSet<String>>,
}

impl CommandTools {
    /// These.
    pub fn new(all: BTreeMap<String, CommandEntry>) -> Self {
        let missing = Mutex::default();
        Self { all, missing }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn listed(&self, query: &str, limit: usize) -> ToolListing {
        let words = super::query_terms(query);
        let fits = |(name, command): &(&String, &CommandEntry)| {
            let text = format!("{name} {}", command.spec.description).to_lowercase();
            words.is_empty() || words.iter().any(|word| text.contains(word))
        };
        let found: Vec<_> = self.all.iter().filter(fits).collect();
        let missing = self.missing.lock();
        let missing = missing.unwrap_or_else(PoisonError::into_inner);
        let missing = missing.iter();
        ToolListing {
            total: found.len(),
            tools: found.into_iter().take(limit).map(listed).collect(),
            warnings: missing
                .map(|service| format!("auth required: {service} (rye vault set {service})"))
                .collect(),
        }
    }

    fn prepared(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let unknown = || {
            let names: Vec<_> = self.all.keys().map(String::as_str).collect();
            let message = format!("there is no command `{id}`; there are {}", names.join(", "));
            ToolProviderError::Failed(ErrorInfo::new(ErrorCode::UnknownTool, message))
        };
        let command = self.all.get(id).ok_or_else(unknown)?;
        let text = canonical::to_vec(&command.spec).unwrap_or_default();
        let hash = Hash::digest(text).to_hex();
        Ok(ResolvedTool {
            id: id.to_owned(),
            description: command.spec.description.clone(),
            schema: Some(schema()),
            risk: command.spec.risk,
            space: command.space.clone(),
            requires_approval: false,
            // It may ask for a credential, and says itself when it begins.
            effect: Effect::Idempotent,
            drift: None,
            components: vec![Component {
                name: format!("{id}: {}", command.spec.run),
                hash: hash.clone(),
                signed_by: command.signed_by.clone(),
            }],
            hash,
            handle: Arc::new(command.spec.clone()),
        })
    }

    async fn run(
        &self,
        prepared: &ResolvedTool,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        let handle = prepared.handle.downcast_ref::<CommandSpec>();
        let tool = handle.ok_or(ToolProviderError::Changed)?;
        let given: Args = serde_json::from_value(params).unwrap_or_default();
        let mut env = tool.env.clone();
        for (variable, service) in &tool.credentials {
            let secret = context.credential(service).await;
            let secret = secret.map_err(|error| self.without(service, error.0))?;
            env.insert(variable.clone(), secret.to_string());
        }
        let begins = context.set_effect(Effect::AtMostOnce).await;
        begins.map_err(|error| ToolProviderError::Failed(error.0))?;
        let exec = Exec {
            command: command_line(&tool.run, &given.args),
            cwd: None,
            env,
            timeout: Some(Duration::from_secs(tool.timeout.unwrap_or(STANDARD))),
            stdin: given.stdin.into_bytes(),
            max_output: Some(KEPT),
            max_streamed: Some(KEPT),
        };
        let done = context.sandbox.exec(exec, &Ear(context)).await;
        let done = done.map_err(|error| ToolProviderError::Failed(error.into()))?;
        let mut text = done.stdout;
        if !done.stderr.is_empty() {
            let _ = write!(text, "\n[standard error]\n{}", done.stderr);
        }
        match done.exit_code {
            _ if done.timed_out => Err(failed(format!("its time was up\n{text}"))),
            Some(0) => Ok(ToolOutput {
                text,
                data: json!({ "exit_code": 0 }),
                attachments: Vec::new(),
            }),
            Some(code) => Err(failed(format!("it ended with exit code {code}\n{text}"))),
            None => Err(failed(format!("a signal ended it\n{text}"))),
        }
    }

    /// A credential that nobody gave is told in the next listing.
    fn without(&self, service: &str, error: ErrorInfo) -> ToolProviderError {
        if error.code == ErrorCode::AuthRequired {
            let missing = self.missing.lock();
            let mut missing = missing.unwrap_or_else(PoisonError::into_inner);
            missing.insert(service.to_owned());
        }
        ToolProviderError::Failed(error)
    }
}

/// What a model gives.
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
                "description": "Its further arguments, each as it is: no shell reads them."
            },
            "stdin": { "type": "string", "description": "What it reads." }
        },
        "additionalProperties": false
    })
}

fn listed((name, command): (&String, &CommandEntry)) -> ToolSummary {
    ToolSummary {
        id: name.clone(),
        description: command.spec.description.clone(),
        parameters: vec!["args".to_owned(), "stdin".to_owned()],
        risk: command.spec.risk,
        space: command.space.clone(),
    }
}

/// The line that a shell reads, with each argument as one word.
fn command_line(run: &str, args: &[String]) -> String {
    let quoted = args
        .iter()
        .map(|arg| format!(" '{}'", arg.replace('\'', r"'\''")));
    format!("{run}{}", quoted.collect::<String>())
}

fn failed(message: String) -> ToolProviderError {
    ToolProviderError::Failed(ErrorInfo::new(ErrorCode::ToolFailed, message))
}

/// Tells what a program prints.
struct Ear<'a>(&'a ToolContext);

impl ExecObserver for Ear<'_> {
    fn on_start(&self, process: &str) {
        self.0.register_process(ProcessRef(process.to_owned()));
    }

    fn on_output(&self, text: &str) {
        self.0.output(text);
    }
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
        Box::pin(async move { Ok(self.listed(query, limit)) })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(async move { self.prepared(id) })
    }

    fn call<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        _: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        Box::pin(self.run(prepared, params, context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_gives_is_one_word_each() {
        let args = ["a b", "it's", "$(rm -rf /)", ""].map(str::to_owned);
        assert_eq!(
            command_line("gh api", &args),
            r"gh api 'a b' 'it'\''s' '$(rm -rf /)' ''"
        );
    }

    #[test]
    fn what_a_command_is_decides_its_hash() {
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
            all.prepared("gh").map(|it| it.hash).unwrap()
        };
        let other = CommandSpec {
            credentials: BTreeMap::from([("T".to_owned(), "github".to_owned())]),
            ..tool.clone()
        };
        assert_eq!(hash(&tool), hash(&tool.clone()));
        assert_ne!(hash(&tool), hash(&other));
    }
}
