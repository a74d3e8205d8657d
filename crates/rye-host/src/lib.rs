//! Configuration in, a running engine out: the only place where implementations of the
//! engine's traits are chosen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_engine::protocol::Session;
use rye_engine::sandbox::Sandbox;
use rye_engine::store::{SessionFilter, SessionStore as _, StoreError};
use rye_engine::{BuildError, Builder, Engine};
use rye_model::Catalogue;
use rye_sandbox::{Local, Virtual};
use rye_store::Sqlite;

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
    /// The file with all sessions.
    pub database: PathBuf,
    /// The folder that sessions are about.
    pub workspace: PathBuf,
    /// Where tools work.
    pub sandbox: SandboxKind,
    /// The model that answers where nobody names one.
    pub model: Option<String>,
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

/// Sessions that were written down, the newest first, for which no engine is needed.
pub async fn sessions(database: &Path, filter: SessionFilter) -> Result<Vec<Session>, StoreError> {
    Sqlite::open(database)?.sessions(filter).await
}

/// An engine to be, with the built-in tools; more can be added. Must be called within a
/// Tokio runtime.
pub fn builder(options: &Options, supervisor: Supervisor) -> Result<Builder, HostError> {
    let mut models = Catalogue::new(&options.workspace);
    if let Some(model) = &options.model {
        models = models.default_model(model);
    }
    let sandbox: Arc<dyn Sandbox> = match options.sandbox {
        SandboxKind::Virtual => Arc::new(Virtual::new()),
        SandboxKind::Local => {
            let local = Local::new(&options.workspace, supervisor);
            Arc::new(local.map_err(|source| HostError::Workspace {
                folder: options.workspace.clone(),
                source,
            })?)
        }
    };
    Ok(Engine::builder()
        .store(Sqlite::open(&options.database)?)
        .models(models)
        .sandbox(sandbox)
        .tools(rye_engine::builtin::tools()))
}
