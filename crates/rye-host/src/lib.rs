//! Configuration in, a running engine out: the only place where implementations of the
//! engine's traits are chosen.
//!
//! [`builder`] makes what `rye prompt` uses. A program of your own may choose otherwise;
//! here is one that keeps nothing, with a tool that asks before it does something:
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
//! let deploy = ToolDef::new("deploy", "Puts it into production.", json!({ "type": "object" }));
//! let engine = Engine::builder()
//!     .store(rye_store::MemoryStore::new())
//!     .models(rye_model::Catalogue::new(".").with("scripted:demo", script.parse()?))
//!     .sandbox(Arc::new(rye_sandbox::Virtual::new()))
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
//!     panic!("nobody said anything");
//! };
//! assert_eq!(last.content(), "approve by ada");
//! # Ok(())
//! # }
//! ```

mod approvals;
mod approved;
mod bridge;
mod call_gates;
mod commands;
mod compaction;
mod config;
mod credentials;
mod graphs;
mod guides;
mod items;
mod models;
mod oauth;
pub mod replay;
mod script;
mod servers;
pub mod transfer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_engine::sandbox::Sandbox;
use rye_engine::store::StoreError;
use rye_engine::{BuildError, Builder, Engine};
use rye_items::vault::Vault;
use rye_sandbox::{Local, Virtual};
use rye_store::FileBlobs;

pub use approvals::{APPROVALS, ApprovalsError, approvals};
pub use bridge::{ASKING, Bridge, BridgeError, bridge, executor, executor_with};
pub use call_gates::{CallGateError, CallGates};
pub use commands::{COMMANDS, commands};
pub use compaction::{COMPACTION, CompactionError, compaction};
pub use credentials::{Credentials, redactor};
pub use graphs::Trusted;
pub use guides::Files;
pub use items::Items;
pub use models::{MODELS, ModelsError, models};
pub use oauth::HttpRefresher;
pub use rye_model::{Catalogue, ModelSummary, Overrides, Script, ScriptCall, ScriptedAnswer, Step};
pub use rye_store::{FileReport, Integrity, SqliteStore, diagnose};
pub use script::{SCRIPT_HEADER, script};
pub use servers::{Servers, server_environment};

/// Where an agent's tools work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxKind {
    /// Files in memory, and a small shell that starts no processes.
    #[default]
    Virtual,
    /// The workspace itself. Nothing is confined.
    Local,
}

/// What a host is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file with all sessions. The folder `blobs` beside it has what is too long for it.
    pub database: PathBuf,
    /// The project, whose `.env` tools get.
    pub project: PathBuf,
    /// The folder that sessions are about.
    pub workspace: PathBuf,
    /// Where tools work.
    pub sandbox: SandboxKind,
    /// Where secrets are, and the key that credentials are sealed to.
    pub vault: Option<Vault>,
    /// Private directories, which no agent may use, and home directories of the user. The
    /// database and its blobs are private without being named here.
    pub protected: ProtectedPaths,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The file with all sessions cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workspace cannot be used.
    #[error("cannot work in {}: {source}", folder.display())]
    Workspace {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something does not fit together.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The file with all sessions, opened once for all that a process does with it; only to be
/// read where nothing can be written.
pub fn store(database: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_or_read_only(database)
}

/// An engine to be, with these [models] and the built-in tools; more can be added. Must be
/// called within a Tokio runtime.
pub fn builder(
    options: &Options,
    models: Catalogue,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, HostError> {
    builder_on(store(&options.database)?, options, models, supervisor)
}

/// The files with all sessions, and what is kept beside them.
fn records(database: &Path) -> impl Iterator<Item = PathBuf> {
    let database = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    let beside = ["", "-wal", "-shm"].map(|suffix| {
        let mut name = database.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    });
    beside.into_iter().chain([database.with_file_name("blobs")])
}

/// The same on a [store] that is open already, which is that of the options.
pub fn builder_on(
    store: SqliteStore,
    options: &Options,
    models: Catalogue,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, HostError> {
    let sandbox: Arc<dyn Sandbox> = match options.sandbox {
        SandboxKind::Virtual => Arc::new(Virtual::new()),
        SandboxKind::Local => {
            let local = Local::new(&options.workspace, supervisor);
            let local = local.map_err(|source| HostError::Workspace {
                folder: options.workspace.clone(),
                source,
            })?;
            let mut protected = options.protected.clone();
            protected.private.extend(records(&options.database));
            Arc::new(local.protected(protected, &options.project))
        }
    };
    Ok(Engine::builder()
        .store(store)
        .blobs(FileBlobs::new(options.database.with_file_name("blobs")))
        .models(models)
        .redactor(redactor(options.vault.as_ref(), &options.project))
        .credentials(Arc::new(Credentials::new(
            &options.database,
            options.vault.clone(),
        )))
        .refresher(HttpRefresher)
        .sandbox(sandbox)
        .tools(rye_engine::builtin::tools()))
}
