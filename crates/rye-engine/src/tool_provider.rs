//! Providers: the sources of the tools that a model finds with `list_tools` and calls with
//! `call_tool`.
//!
//! Each [provider](ToolProvider) has a service name; its tools are called `SERVICE:ID`.

use std::any::Any;
use std::sync::Arc;

use rye_protocol::ErrorInfo;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::BoxFuture;
use crate::policy::{Mode, Risk};
use crate::sandbox::{Enforcement, Sandbox};
use crate::tool::{EffectClass, ToolContext, ToolOutput};
pub use rye_protocol::policy::ReviewReason;

/// Name of the tool that calls the tools of providers.
pub const CALL_TOOL: &str = "call_tool";

/// The effective tool id and arguments of a call: for `call_tool`, those of the called tool.
pub(crate) fn resolve_target<'a>(tool: &'a str, args: &'a Value) -> (&'a str, &'a Value) {
    match args.get("tool_id").and_then(Value::as_str) {
        Some(id) if tool == CALL_TOOL => (id, args.get("params").unwrap_or(&Value::Null)),
        _ => (tool, args),
    }
}

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
    /// JSON Schema of the parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
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
    /// How the kernel confines the call, if it does.
    pub confinement: Option<Enforcement>,
    /// The confinement lets the call use no more than the commands of the session's sandbox. Its
    /// risk alone then needs no approval.
    pub is_within_sandbox: bool,
    /// Reasons why a person must approve the call, in addition to the tool's own declaration.
    pub reasons: Vec<ReviewReason>,
    /// State of the provider for the call.
    pub handle: Arc<dyn Any + Send + Sync>,
}

impl Default for Review {
    fn default() -> Self {
        Self {
            confinement: None,
            is_within_sandbox: false,
            reasons: Vec::new(),
            handle: Arc::new(()),
        }
    }
}

/// A file that would run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Item id or file name.
    pub name: String,
    /// Hash of its bytes, in hex.
    pub hash: String,
    /// Signer, if it is signed.
    pub signed_by: Option<String>,
    /// Address of the blob with its text, which a gate keeps for a comparison with later versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its text, if the provider knows it. Not recorded.
    #[serde(skip)]
    pub text: Option<Arc<str>>,
}

/// Key of the context of a `call_tool` gate: the files that would run.
pub const COMPONENTS: &str = "components";

/// The files that would run according to the context of a `call_tool` gate.
pub fn components_of(context: &Map<String, Value>) -> Vec<Component> {
    let components = context.get(COMPONENTS).cloned().unwrap_or_default();
    serde_json::from_value(components).unwrap_or_default()
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

    /// The files of the tool when it was last approved for the project, if they have changed since.
    fn last_approved<'a>(&'a self, _: &'a ResolvedTool) -> BoxFuture<'a, Option<Vec<Component>>> {
        Box::pin(std::future::ready(None))
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
