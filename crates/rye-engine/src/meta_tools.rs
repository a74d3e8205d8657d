//! The meta tools `list_tools` and `call_tool`, which give a model access to any number of tools.
//!
//! A model sees only these two tools in its prompt and searches for others when it needs them.
//! Each [provider](ToolProvider) has a service name; its tools are called `SERVICE:ID`. A
//! [policy](Policy) decides before each call whether it is allowed, needs a person's approval, or
//! is denied. An approval covers the hash of everything that would run. If the hash has changed
//! by the time of the call, the person is asked again and shown what changed.

mod approval_question;
mod call;
mod commands;
mod list;
mod policy;

use std::any::Any;
use std::sync::Arc;

use rye_protocol::ErrorInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;
use crate::sandbox::Sandbox;
use crate::tool::{EffectClass, Tool, ToolContext, ToolOutput};

pub use approval_question::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION, DENY, DRIFT};
pub(crate) use call::resolve_target;
pub use commands::{CommandEntry, CommandSpec, CommandTools};
pub use policy::{LimitPolicy, Mode, Policy, Rule};

/// Risk level of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// No significant harm.
    Low,
    /// Harm that can be undone.
    Medium,
    /// Serious harm.
    High,
    /// Irreversible harm.
    Critical,
}

impl Risk {
    /// Name of the level in configuration and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The line of a gate's body that states a risk; `None` is unknown.
    pub fn gate_line(risk: Option<Self>) -> String {
        format!("risk: {}", risk.map_or("unknown", Self::as_str))
    }
}

/// Key of a gate's context: the [`Risk`] of the call, `null` if it is unknown.
pub const RISK: &str = "risk";

/// Entry of a list of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolSummary {
    /// Id of the tool within the service.
    pub id: String,
    /// Description for models.
    pub description: String,
    /// Names of the parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// Risk level, if stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Space of the tool's item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
}

/// Search result of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolListing {
    /// Best matches, in order of relevance.
    pub tools: Vec<ToolSummary>,
    /// Number of all matches.
    pub total: usize,
    /// Problems that a person should fix, such as a missing credential.
    pub warnings: Vec<String>,
}

/// A tool as it would run now.
#[derive(Clone)]
pub struct ResolvedTool {
    /// Id of the tool within the service.
    pub id: String,
    /// Description for models.
    pub description: String,
    /// JSON Schema of the parameters.
    pub schema: Option<Value>,
    /// Risk level, if stated.
    pub risk: Option<Risk>,
    /// Space of the tool's item.
    pub space: Option<String>,
    /// The tool declares that a person must approve it.
    pub requires_approval: bool,
    /// Effect class: what happens to a call after a crash.
    pub effect: EffectClass,
    /// Difference from the accepted definition. If set, a person must approve the call even if
    /// the policy allows it.
    pub drift: Option<String>,
    /// Hash of everything that would run.
    pub hash: String,
    /// Files that would run, the tool itself first.
    pub components: Vec<Component>,
    /// State of the provider for the call.
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// Assessment of a call with its parameters, before it is made.
#[derive(Clone)]
pub struct Review {
    /// Reasons why a person must approve the call, in addition to the tool's own declaration.
    pub reasons: Vec<ReviewReason>,
    /// State of the provider for the call.
    pub handle: Arc<dyn Any + Send + Sync>,
}

impl Default for Review {
    fn default() -> Self {
        Self {
            reasons: Vec::new(),
            handle: Arc::new(()),
        }
    }
}

/// A reason why a person must approve a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewReason {
    /// One-line description.
    pub text: String,
    /// A rule of the policy may allow the call regardless.
    pub can_be_allowed_by_rule: bool,
    /// The reason does not depend on the parameters, so an approval for the session or project
    /// also covers later calls.
    pub applies_to_all_params: bool,
}

/// A file that would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Item id or file name.
    pub name: String,
    /// Hash of its bytes, in hex.
    pub hash: String,
    /// Signer, if it is signed.
    pub signed_by: Option<String>,
}

/// Errors of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolProviderError {
    /// The tool has changed since the approval; nothing ran.
    #[error("the tool has changed since it was approved")]
    Changed,
    /// A credential is missing.
    #[error("{service} needs a credential: {remedy}")]
    AuthRequired {
        /// Service that needs the credential.
        service: String,
        /// How a person can provide it.
        remedy: String,
    },
    /// The tool failed or cannot run.
    #[error("{}", .0.message)]
    Failed(ErrorInfo),
}

/// Stored approval of a tool for the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredApproval {
    /// A valid approval exists.
    Granted,
    /// No approval exists.
    NotGranted,
    /// An approval exists but does not apply here, for this reason.
    NotValidHere(String),
}

/// A source of tools for `list_tools` and `call_tool`.
pub trait ToolProvider: Send + Sync + 'static {
    /// Service name, the prefix of the tool ids.
    fn service(&self) -> &str;

    /// Canonical working directory of its tools, if it is not the sandbox's. Approvals are bound to
    /// the working directory.
    fn working_dir(&self) -> Option<String> {
        None
    }

    /// Mode of calls that no rule matches.
    fn default_mode(&self) -> Mode {
        Mode::Allow
    }

    /// Searches tools; an empty query matches all.
    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>>;

    /// Resolves a tool as it would run now, without running it.
    fn resolve<'a>(&'a self, id: &'a str)
    -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>>;

    /// Assesses a call with these parameters, without running it. An error means that no approval
    /// can allow the call.
    fn review<'a>(
        &'a self,
        _: &'a ResolvedTool,
        _params: &'a Value,
        _: &'a dyn Sandbox,
    ) -> BoxFuture<'a, Result<Review, ToolProviderError>> {
        Box::pin(std::future::ready(Ok(Review::default())))
    }

    /// Runs a tool if it is still the one that was resolved and reviewed.
    fn call<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        review: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>>;

    /// Accepts the current definition after a person has approved its drift.
    fn accept_drift<'a>(
        &'a self,
        _: &'a ResolvedTool,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The stored approval of a tool for the project.
    fn stored_approval<'a>(&'a self, _: &'a ResolvedTool) -> BoxFuture<'a, StoredApproval> {
        Box::pin(std::future::ready(StoredApproval::NotGranted))
    }

    /// Whether approvals can be stored for the project.
    fn can_store_approval(&self) -> bool {
        false
    }

    /// Stores the approval of a person for the project.
    fn store_approval<'a>(
        &'a self,
        _: &'a ResolvedTool,
        _by: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Splits a query into lower-case words without stop words, unless it has only stop words.
pub fn query_terms(query: &str) -> Vec<String> {
    let all: Vec<_> = query.split_whitespace().map(str::to_lowercase).collect();
    let is_significant = |word: &&String| !lillux::is_stop_word(word);
    let significant: Vec<_> = all.iter().filter(is_significant).cloned().collect();
    if significant.is_empty() {
        all
    } else {
        significant
    }
}

/// Creates the tools `list_tools` and `call_tool`.
pub fn tools(providers: Vec<Arc<dyn ToolProvider>>, policy: Policy) -> Vec<Arc<dyn Tool>> {
    let hub = Arc::new(ToolHub { providers, policy });
    vec![
        Arc::new(call::CallTool::new(Arc::clone(&hub))),
        Arc::new(list::ListTools::new(hub)),
    ]
}

/// The providers and the policy that the two tools share.
struct ToolHub {
    providers: Vec<Arc<dyn ToolProvider>>,
    policy: Policy,
}

impl ToolHub {
    fn services(&self) -> String {
        let names: Vec<_> = self
            .providers
            .iter()
            .map(|provider| provider.service())
            .collect();
        names.join(", ")
    }
}
