//! The interface between the MCP server and the program that embeds it.
//!
//! The [server](crate::server) implements the protocol. The embedding program implements
//! [`Gateway`] with its own spaces, keys and settings, so that items behave the same for MCP
//! clients and at the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use rye_executor::{Executor, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Successful result of one of the five tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// Structured content, a JSON object.
    pub value: Value,
    /// Text content for models.
    pub text: String,
}

/// Error of a call of one of the five tools.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayError {
    /// Stable error code.
    pub code: String,
    /// Message for people and models.
    pub message: String,
    /// Suggested next step.
    pub hint: Option<String>,
    /// Additional fields for programs, a JSON object.
    pub details: Box<Value>,
}

impl GatewayError {
    /// Creates an error without hint or details.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            details: Box::default(),
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Formats the error for programs: `{"error": {…}}`.
    pub fn to_value(&self) -> Value {
        let mut error = match &*self.details {
            Value::Object(details) => details.clone(),
            _ => serde_json::Map::new(),
        };
        error.insert("code".into(), json!(self.code));
        error.insert("message".into(), json!(self.message));
        if let Some(hint) = &self.hint {
            error.insert("hint".into(), json!(hint));
        }
        json!({ "error": error })
    }

    /// Formats the error for models.
    pub fn to_text(&self) -> String {
        let Self { code, message, .. } = self;
        match &self.hint {
            Some(hint) => format!("{code}: {message}\nhint: {hint}"),
            None => format!("{code}: {message}"),
        }
    }
}

/// Result of one of the five tools.
pub type GatewayResult = Result<ToolReply, GatewayError>;

/// Arguments of `search`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// Words to search for; empty lists all items.
    #[serde(default)]
    pub query: String,
    /// Only items of this type.
    pub item_type: Option<String>,
    /// Only items of this space.
    pub space: Option<String>,
    /// Maximum number of hits.
    pub limit: Option<u64>,
    /// Project directory.
    pub project_path: Option<PathBuf>,
}

/// Arguments of `load`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRequest {
    /// Type of the item.
    pub item_type: String,
    /// Id of the item.
    pub item_id: String,
    /// Project directory.
    pub project_path: Option<PathBuf>,
    /// Space to copy the item to: `project` or `user`.
    pub destination: Option<String>,
}

/// Arguments of `execute`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// Type of the item.
    pub item_type: String,
    /// Id of the item.
    pub item_id: String,
    /// Action; only `run` exists.
    pub action: Option<String>,
    /// Parameters of the item.
    pub parameters: Option<Value>,
    /// Only check whether the item would run.
    #[serde(default)]
    pub dry_run: bool,
    /// Run in the background and return at once.
    #[serde(default, rename = "async")]
    pub background: bool,
    /// Time limit in seconds.
    pub timeout: Option<f64>,
    /// Project directory.
    pub project_path: Option<PathBuf>,
}

/// Arguments of `sign`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    /// Type of the item.
    pub item_type: String,
    /// Id of an item, or a glob with `*`, `**` and `?`.
    pub item_id: String,
    /// Project directory.
    pub project_path: Option<PathBuf>,
}

/// Arguments of `help`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelpRequest {
    /// Topic; without one, the list of topics.
    pub topic: Option<String>,
}

/// Entry of a list of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSummary {
    /// Id of the item.
    pub id: String,
    /// Title from the metadata.
    pub title: Option<String>,
    /// Description from the metadata.
    pub description: Option<String>,
    /// Names of the parameters, and whether each is required.
    pub parameters: Vec<(String, bool)>,
}

/// A call that needs the user's approval.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedCall {
    /// One-line question.
    pub title: String,
    /// Id of the tool; `sign ID` or `copy ID` for calls that do not run a tool.
    pub tool: String,
    /// Parameters of the call.
    pub parameters: Value,
    /// Chain hash: covers every file that the call would run, sign or copy.
    pub chain: Hash,
    /// The files that the chain hash covers.
    pub components: Vec<Component>,
    /// Full text of the question.
    pub question: String,
}

/// A file that a gated call would run, sign or copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Item id.
    pub name: String,
    /// Hash of its bytes, in hex.
    pub hash: String,
    /// Key and owner of the signature, if it is signed.
    #[serde(default)]
    pub signed_by: Option<String>,
}

/// An item to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedItem {
    /// Item reference, `TYPE:ID`.
    pub item: String,
    /// File of the item.
    pub path: PathBuf,
    /// Content hash to be signed.
    pub hash: Hash,
    /// Content of the file.
    pub text: String,
}

/// A copy of an item to be made in another space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCopy {
    /// Item reference, `TYPE:ID`.
    pub item: String,
    /// File to copy.
    pub from: PathBuf,
    /// File to write.
    pub to: PathBuf,
    /// Hash of its bytes.
    pub hash: Hash,
    /// Content of the file.
    pub text: String,
}

/// The projects that a server may work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectBounds {
    /// Project of calls that name none, if the client has no roots.
    pub default_project: PathBuf,
    /// The user chose the default project, so the roots of the client are ignored.
    pub is_fixed: bool,
    /// Directories with keys, secrets and state. No project may be one of them or inside one.
    pub private_dirs: Vec<PathBuf>,
}

/// How the user approves calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovalChannel {
    /// Through a form of the MCP client; at a terminal if the client has no forms.
    #[default]
    Client,
    /// At a terminal with `rye gate`, even if the client has forms.
    Terminal,
}

/// State of the decision about a gated call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDecision {
    /// A person approved the call, for one run.
    Approved {
        /// Id of the record that receives the [result](Gateway::record_result).
        record: String,
    },
    /// A person denied the call, so it must not run.
    Denied,
    /// Not decided yet.
    Pending {
        /// Id of the gate at which the call waits.
        gate: String,
        /// The gate's short id, for people.
        short: String,
    },
}

/// How an approved call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It succeeded.
    Completed,
    /// It failed, or was refused after the approval.
    Failed,
    /// The client cancelled it.
    Cancelled,
}

/// The work behind the five tools, implemented by the embedding program.
pub trait Gateway: Send + Sync + 'static {
    /// The projects that the server may work in.
    fn project_bounds(&self) -> ProjectBounds;

    /// How the user approves calls.
    fn approval_channel(&self) -> ApprovalChannel;

    /// Searches items.
    fn search(&self, project: &Path, request: &SearchRequest) -> GatewayResult;

    /// Reads an item: `content`, `metadata`, `schema`, `verification`. Ignores `destination`.
    fn load(&self, project: &Path, request: &LoadRequest) -> GatewayResult;

    /// The copy that `load` with a `destination` would make, for approval.
    fn plan_copy(&self, project: &Path, request: &LoadRequest)
    -> Result<PlannedCopy, GatewayError>;

    /// Makes the approved copy; fails if the item has changed since.
    fn copy(&self, project: &Path, request: &LoadRequest, approved: &PlannedCopy) -> GatewayResult;

    /// The matching items whose current content the user has not signed.
    fn unsigned_items(
        &self,
        project: &Path,
        request: &SignRequest,
    ) -> Result<Vec<UnsignedItem>, GatewayError>;

    /// Signs the matching items, but only with the approved content.
    fn sign(
        &self,
        project: &Path,
        request: &SignRequest,
        approved: &[UnsignedItem],
    ) -> GatewayResult;

    /// Explains a topic.
    fn help(&self, topic: Option<&str>) -> GatewayResult;

    /// The executor for the tools of a project.
    fn executor(&self, project: &Path) -> Result<Arc<Executor>, GatewayError>;

    /// The user's decision at the terminal about a call. Opens a gate if there is none yet.
    ///
    /// An approval is returned once: the caller must run the call and record its result, or it
    /// needs another approval.
    fn claim_decision(
        &self,
        project: &Path,
        call: &GatedCall,
    ) -> Result<CallDecision, GatewayError>;

    /// Records the user's decision at the MCP client, and returns the id of the record.
    fn record_decision(
        &self,
        project: &Path,
        call: &GatedCall,
        is_approved: bool,
    ) -> Result<String, GatewayError>;

    /// Records the result of an approved call.
    fn record_result(
        &self,
        project: &Path,
        record: &str,
        end: CallEnd,
        result: &Value,
    ) -> Result<(), GatewayError>;

    /// Starts a tool in the background.
    fn start_background(&self, project: &Path, request: Request) -> GatewayResult;

    /// Lists items of a type in the order of their ids, starting after `after`.
    fn list_items(
        &self,
        project: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError>;
}
