//! Assembles an engine from configuration: stores, models, sandbox, tools and policies.
//!
//! [`builder`] returns the engine that `rye prompt` uses, [`meta_tools()`] the tools with which an
//! agent reaches signed items, MCP servers and commands. [`replay`] repeats a recorded session,
//! and [`transfer`] reads and writes exported sessions.
//!
//! You can also build an engine yourself. This one keeps its sessions in memory and has a tool
//! that asks for approval:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rye_engine::protocol::{EntryKind, EventKind};
//! use rye_engine::BoxFuture;
//! use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
//! use rye_engine::{Decision, Engine, NewSession};
//! use serde_json::{Value, json};
//!
//! struct Deploy(ToolDef);
//!
//! impl Tool for Deploy {
//!     fn def(&self) -> &ToolDef {
//!         &self.0
//!     }
//!
//!     fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
//!         Box::pin(async move {
//!             let request = DecisionRequest::approval("deploy", "deploy to production?");
//!             let answer = context.request_decision(request).await?;
//!             Ok(ToolOutput::text(format!("{} by {}", answer.action, answer.by)))
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = "steps: [{ tool_calls: [{ name: deploy }] }, { text: '${last_tool_result}' }]";
//! let deploy = ToolDef::new("deploy", "Deploys to production.", json!({ "type": "object" }));
//! let engine = Engine::builder()
//!     .store(rye_store::MemoryStore::new())
//!     .models(rye_model::Catalogue::new(".").with("scripted:demo", script.parse()?))
//!     .sandbox(Arc::new(rye_sandbox::VirtualSandbox::new()))
//!     .tool(Deploy(deploy))
//!     .build()?;
//!
//! let session = engine.create_session(NewSession::default()).await?;
//! session.prompt("ship it").await?;
//! let mut events = session.subscribe(0);
//! while let Some(notice) = events.next().await? {
//!     match notice.event.kind {
//!         EventKind::DecisionGate { gate } => {
//!             let (action, by, source) = ("approve".into(), "ada".into(), "demo".into());
//!             let decision = Decision { action, value: Value::Null, by, source };
//!             engine.decide(&gate.id, decision).await?;
//!         }
//!         EventKind::TurnEnd { .. } => break,
//!         _ => {}
//!     }
//! }
//! let entries = session.entries(&session.threads()[0].id, None, 100).await?;
//! let Some(EntryKind::Message(last)) = entries.last().map(|entry| &entry.kind) else {
//!     panic!("the thread has no message");
//! };
//! assert_eq!(last.content(), "approve by ada");
//! # Ok(())
//! # }
//! ```

pub mod accept;
mod artifacts;
pub mod automation;
mod batch;
pub mod call;
mod call_gates;
pub mod catalogue;
mod checks;
mod commands;
mod compaction_config;
mod config;
mod context;
mod credentials;
pub mod doctor;
pub mod engine;
pub mod eval;
pub mod failure;
mod failure_from;
pub mod follower;
pub mod gateway;
pub mod graph_file;
mod guides;
pub mod help;
pub mod init;
mod item_tools;
pub mod load;
mod log;
pub mod lookup;
pub mod mcp;
pub mod mcp_items;
mod mcp_tools;
mod meta_tools;
mod model_script;
pub mod model_test;
mod models;
mod oauth;
pub mod parameter_schema;
mod policy_file;
mod project_approvals;
pub mod projects;
pub mod replay;
pub mod runs;
pub mod sandbox;
pub mod search;
pub mod session_changes;
pub mod session_check;
pub mod session_engine;
pub mod settings;
pub mod sign;
mod targets;
mod tool_confiner;
pub mod transfer;
mod trusted_keys;
pub mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_engine::store::{SessionStore, StoreError};
use rye_engine::{BuildError, Builder, Engine};
use rye_items::vault::Vault;
use rye_store::FileBlobs;

pub use artifacts::{Artifact, ArtifactKind, artifact_bytes, artifacts};
pub use batch::{Batch, Row};
pub use call_gates::{CallGateError, CallGates};
pub use checks::{CHECKS_FILE, load_checks};
pub use commands::{COMMANDS_FILE, load_commands};
pub use compaction_config::{COMPACTION_FILE, CompactionError, load_compaction};
pub use context::{Context, Progress, Reporter, accept_hint};
pub use credentials::{Credentials, redactor};
pub use failure::{Failure, FailureKind};
pub use follower::{AnswerUpdate, Approval, Follower, SessionObserver, event_json};
pub use guides::FileGuides;
pub use item_tools::ItemTools;
pub use log::{LogFormat, LogOptions, start_log};
pub use mcp_tools::{McpTools, OfferedServers, server_environment};
pub use meta_tools::{MetaTools, MetaToolsError, executor_with, graphs, meta_tools};
pub use model_script::{SCRIPT_HEADER, model_script};
pub use models::{MODELS_FILE, ModelsError, load_models};
pub use oauth::{
    ClientAuth, HttpRefresher, LoginError, LoginMethod, OAUTH_FILE, OAuthService, OAuthServices,
    ServiceLogins, load_oauth,
};
pub use policy_file::{POLICY_FILE, PolicyError, load_policy};
pub use project_approvals::store_project_approval;
pub use rye_model::{Catalogue, ModelSummary, Overrides, Script, ScriptCall, ScriptedAnswer, Step};
pub use rye_store::{FileReport, Integrity, SqliteStore, diagnose};
pub use rye_tools::CheckSpec;
use rye_tools::Checks;
use sandbox::HostSandboxes;
pub use sandbox::SandboxOptions;
pub use trusted_keys::TrustedKeys;

/// Name of the session database in the state directory.
pub const DATABASE: &str = "sessions.db";

/// Where an agent's tools run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxKind {
    /// Files in memory, and a small shell that starts no processes.
    #[default]
    Virtual,
    /// The workspace itself, without confinement.
    Local,
    /// The workspace itself, confined by the kernel.
    Confined,
    /// The workspace, in a container.
    Docker,
    /// Another machine.
    Remote,
}

impl From<rye_engine::protocol::SandboxKind> for SandboxKind {
    fn from(kind: rye_engine::protocol::SandboxKind) -> Self {
        match kind {
            rye_engine::protocol::SandboxKind::Local => Self::Local,
            rye_engine::protocol::SandboxKind::Confined => Self::Confined,
            rye_engine::protocol::SandboxKind::Docker => Self::Docker,
            rye_engine::protocol::SandboxKind::Remote => Self::Remote,
            rye_engine::protocol::SandboxKind::Virtual => Self::Virtual,
        }
    }
}

/// Options of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The session database. Long outputs are stored in the directory `blobs` next to it.
    pub database: PathBuf,
    /// Secrets, and the key that encrypts credentials.
    pub vault: Option<Vault>,
    /// Where tools run. The database and its blobs are always private, and the `.env` file of the
    /// project is for tools.
    pub sandbox: SandboxOptions,
    /// Checks of the files that tools change; see [`load_checks`].
    pub checks: Vec<CheckSpec>,
}

/// Why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The session database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The parts of the engine do not fit together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A check is invalid.
    #[error("{0}")]
    Check(String),
}

/// Opens the session database, read-only if it cannot be written. Open it once per process.
pub fn store(database: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_or_read_only(database)
}

/// Returns a builder for an engine with [models](load_models) and the built-in tools. Must be
/// called within a Tokio runtime.
pub fn builder(
    options: &Options,
    models: Catalogue,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, HostError> {
    let store = Arc::new(store(&options.database)?);
    builder_with_store(store, options, models, supervisor)
}

/// The files of the session database, and the blob directory.
fn database_files(database: &Path) -> impl Iterator<Item = PathBuf> {
    let database = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    let files = ["", "-wal", "-shm"].map(|suffix| {
        let mut name = database.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    });
    files.into_iter().chain([database.with_file_name("blobs")])
}

/// Like [`builder`], with a [store] that is already open. It must be the database of the options.
pub fn builder_with_store(
    store: Arc<dyn SessionStore>,
    options: &Options,
    models: Catalogue,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, HostError> {
    Ok(builder_without_store(options, models, supervisor)?.shared_store(store))
}

/// Like [`builder`], without the store. Must be called within a Tokio runtime.
pub(crate) fn builder_without_store(
    options: &Options,
    models: Catalogue,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, HostError> {
    let checks = Checks::new(options.checks.clone()).map_err(HostError::Check)?;
    let network = options.sandbox.confinement.network.clone();
    let web_client = sandbox::web_client(network, options.vault.clone());
    let mut sandboxes = options.sandbox.clone();
    let private = &mut sandboxes.protected.private;
    private.extend(database_files(&options.database));
    let project = &options.sandbox.project;
    Ok(Engine::builder()
        .blobs(FileBlobs::new(options.database.with_file_name("blobs")))
        .models(models)
        .redactor(redactor(options.vault.as_ref(), project))
        .credentials(Arc::new(Credentials::new(
            &options.database,
            options.vault.clone(),
        )))
        .refresher(HttpRefresher)
        .sandbox_provider(HostSandboxes::new(
            sandboxes,
            options.vault.clone(),
            supervisor,
            options.database.parent().unwrap_or(Path::new(".")),
        ))
        .tools(rye_tools::tools_with_checks(checks))
        .tool(rye_tools::fetch(web_client)))
}
