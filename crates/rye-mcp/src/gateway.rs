//! What the five tools do: the room behind the counter.
//!
//! The [server](crate::server) speaks the protocol; a host implements [`Gateway`] on
//! its own spaces, keys and settings, so that an item means the same to a model as to
//! a person at the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use rye_executor::{Executor, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An answer, for programs and for models.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// A JSON object.
    pub value: Value,
    /// The same in words.
    pub text: String,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayError {
    /// A stable word.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// What else programs may want to know, a JSON object.
    pub details: Box<Value>,
}

impl GatewayError {
    /// A refusal in words.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            details: Box::default(),
        }
    }

    /// With what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// For programs: `{"error": {…}}`.
    pub fn value(&self) -> Value {
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

    /// For models.
    pub fn text(&self) -> String {
        let Self { code, message, .. } = self;
        match &self.hint {
            Some(hint) => format!("{code}: {message}\nhint: {hint}"),
            None => format!("{code}: {message}"),
        }
    }
}

/// An answer, or why there is none.
pub type GatewayResult = Result<ToolReply, GatewayError>;

/// To find items.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// Words.
    #[serde(default)]
    pub query: String,
    /// Of this type alone.
    pub item_type: Option<String>,
    /// Of this space alone.
    pub space: Option<String>,
    /// At most so many.
    pub limit: Option<u64>,
    /// The project's folder.
    pub project_path: Option<PathBuf>,
}

/// To read an item.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRequest {
    /// What kind of item.
    pub item_type: String,
    /// Which.
    pub item_id: String,
    /// The project's folder.
    pub project_path: Option<PathBuf>,
    /// A space to copy it to: `project` or `user`.
    pub destination: Option<String>,
}

/// To run an item.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// What kind of item.
    pub item_type: String,
    /// Which.
    pub item_id: String,
    /// What to do with it: `run`.
    pub action: Option<String>,
    /// Its own parameters.
    pub parameters: Option<Value>,
    /// Find out whether it would run, and run nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Let it run on its own, and answer at once.
    #[serde(default, rename = "async")]
    pub background: bool,
    /// When to give up, in seconds.
    pub timeout: Option<f64>,
    /// The project's folder.
    pub project_path: Option<PathBuf>,
}

/// To sign items.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    /// What kind of item.
    pub item_type: String,
    /// Which; `*`, `**` and `?` stand for others.
    pub item_id: String,
    /// The project's folder.
    pub project_path: Option<PathBuf>,
}

/// To learn how.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelpRequest {
    /// About what; without it, what there is to learn about.
    pub topic: Option<String>,
}

/// An item in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSummary {
    /// Its id.
    pub id: String,
    /// Its title, if it has one.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// The names of its parameters, and whether each must be given.
    pub parameters: Vec<(String, bool)>,
}

/// A call that needs a person's approval.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedCall {
    /// What is asked, in a line.
    pub title: String,
    /// The tool's id; `sign` or `copy` and an item's id for what is no run of a tool.
    pub tool: String,
    /// What it is called with.
    pub parameters: Value,
    /// The hash of all that would run.
    pub chain: Hash,
    /// What would run, component by component.
    pub components: Vec<Component>,
    /// What a person must know to decide.
    pub question: String,
}

/// A file of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Its id.
    pub name: String,
    /// The hash of its bytes.
    pub hash: String,
}

/// A file that would be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedItem {
    /// The item.
    pub item: String,
    /// Its file.
    pub path: PathBuf,
    /// The hash that would be signed.
    pub hash: Hash,
    /// What it says.
    pub text: String,
}

/// A copy of an item that would be made in another space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCopy {
    /// The item.
    pub item: String,
    /// The file that is copied.
    pub from: PathBuf,
    /// The file that would be written.
    pub to: PathBuf,
    /// The hash of its bytes.
    pub hash: Hash,
    /// Its text.
    pub text: String,
}

/// Where a server works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectBounds {
    /// The project of calls that name none, if the client has no roots.
    pub project: PathBuf,
    /// Whether the user chose that project: then the client's roots do not count.
    pub is_fixed: bool,
    /// Directories with keys, secrets and state: no project is one of them or lies below one.
    pub private_dirs: Vec<PathBuf>,
}

/// Who approves calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovalChannel {
    /// The person at the client, through its form; from a terminal where it has none.
    #[default]
    Client,
    /// A person at a terminal, with `rye gate`, whatever the client can do.
    Terminal,
}

/// How it stands with such a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDecision {
    /// Somebody let it run, this once.
    Approved,
    /// Somebody did not.
    Denied,
    /// Nobody has decided: it waits at this gate.
    Pending {
        /// The gate's id.
        gate: String,
    },
}

/// What a server serves.
pub trait Gateway: Send + Sync + 'static {
    /// Where the server works.
    fn project_bounds(&self) -> ProjectBounds;

    /// Who approves calls.
    fn approval_channel(&self) -> ApprovalChannel;

    /// Finds items.
    fn search(&self, project: &Path, ask: &SearchRequest) -> GatewayResult;

    /// Reads an item: `content`, `metadata`, `schema`, `verification`. A `destination` is
    /// ignored.
    fn load(&self, project: &Path, ask: &LoadRequest) -> GatewayResult;

    /// The copy that `load` with a `destination` would make.
    fn plan_copy(&self, project: &Path, ask: &LoadRequest) -> Result<PlannedCopy, GatewayError>;

    /// Makes this copy, if it is still the one that would be made.
    fn copy(&self, project: &Path, ask: &LoadRequest, approved: &PlannedCopy) -> GatewayResult;

    /// What would be signed: files that have no signature of the person's for what is in
    /// them now.
    fn unsigned_items(
        &self,
        project: &Path,
        ask: &SignRequest,
    ) -> Result<Vec<UnsignedItem>, GatewayError>;

    /// Signs items: of those that would be signed none but these, as they are here.
    fn sign(&self, project: &Path, ask: &SignRequest, approved: &[UnsignedItem]) -> GatewayResult;

    /// Tells how.
    fn help(&self, topic: Option<&str>) -> GatewayResult;

    /// Who runs the tools of a project.
    fn executor(&self, project: &Path) -> Result<Arc<Executor>, GatewayError>;

    /// What a person has decided about a call, from elsewhere. One that nobody knows of yet
    /// is written down, for somebody to decide on. An answer is given once: who is told
    /// that it is approved must run it, or it is asked about again.
    fn claim_decision(
        &self,
        project: &Path,
        call: &GatedCall,
    ) -> Result<CallDecision, GatewayError>;

    /// Records what the person at the client decided about a call.
    fn record_decision(
        &self,
        project: &Path,
        call: &GatedCall,
        is_approved: bool,
    ) -> Result<(), GatewayError>;

    /// Starts a tool that runs on its own.
    fn start_background(&self, project: &Path, request: Request) -> GatewayResult;

    /// Items of a type in the order of their ids, from behind one on.
    fn list_items(
        &self,
        project: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError>;
}
