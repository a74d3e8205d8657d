//! What the sessions of a project run with: models, tools, policy, guides and settings.
//!
//! An engine has a setup of its own. With [`Setups`] it serves several projects, each with another
//! one.

use std::sync::Arc;

use lillux::redact::Redactor;
use rye_protocol::{Session, SessionSettings};

use crate::BoxFuture;
use crate::compaction::Settings;
use crate::credential::Credentials;
use crate::guides::Guides;
use crate::machine::CallLimits;
use crate::model::Models;
use crate::policy::Policy;
use crate::runner::ToolRegistry;
use crate::sandbox::SandboxProvider;

/// What the sessions of a project run with; built by [`Builder::setup`](crate::Builder::setup).
pub struct Setup {
    pub(crate) models: Arc<dyn Models>,
    pub(crate) tools: Arc<ToolRegistry>,
    pub(crate) sandboxes: Arc<dyn SandboxProvider>,
    pub(crate) credentials: Credentials,
    pub(crate) policy: Policy,
    pub(crate) redactor: Redactor,
    pub(crate) calls: CallLimits,
    pub(crate) compaction: Arc<Settings>,
    pub(crate) guides: Option<Arc<dyn Guides>>,
    pub(crate) prompt_on_limit: bool,
    pub(crate) system: String,
}

/// Chooses the setup of each session.
pub trait Setups: Send + Sync + 'static {
    /// The setup of a session, which may not be stored yet; `None` for the engine's own. The error
    /// says why the session cannot run.
    fn setup<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Arc<Setup>>, String>>;
}

/// Why a session cannot be created as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSession {
    /// Its project cannot be used.
    #[error("{0}")]
    Setup(String),
    /// A model does not exist or cannot be used.
    #[error("{0}")]
    Model(String),
    /// A tool does not exist.
    #[error("there is no tool `{name}`; the tools are {known}")]
    Tool {
        /// The requested tool.
        name: String,
        /// The names of all tools.
        known: String,
    },
    /// The compaction settings are invalid.
    #[error("invalid compaction settings: {0}")]
    Compaction(String),
}

impl Setup {
    /// Checks a model, or the default model, and settings of a session.
    pub(crate) fn check(
        &self,
        model: Option<&str>,
        settings: &SessionSettings,
    ) -> Result<(), InvalidSession> {
        let failover = settings.failover.iter().flatten().map(String::as_str);
        let default = || self.models.default_name();
        let model = model.map_or_else(default, str::to_owned);
        for name in std::iter::once(model.as_str()).chain(failover) {
            self.models.get(name).map_err(InvalidSession::Model)?;
        }
        for name in settings.tools.iter().flatten() {
            if !self.tools.names().any(|it| it == name) {
                let known: Vec<_> = self.tools.names().map(String::as_str).collect();
                return Err(InvalidSession::Tool {
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        self.compaction(settings)
            .map(drop)
            .map_err(InvalidSession::Compaction)
    }

    /// The compaction settings of a session; the error is the reason why they are invalid.
    pub(crate) fn compaction(&self, settings: &SessionSettings) -> Result<Arc<Settings>, String> {
        if settings.compaction.is_empty() {
            return Ok(Arc::clone(&self.compaction));
        }
        let settings = self.compaction.with_overrides(&settings.compaction)?;
        Ok(Arc::new(settings))
    }

    /// The tools of a session.
    pub(crate) fn tools(&self, settings: &SessionSettings) -> ToolRegistry {
        match &settings.tools {
            None => (*self.tools).clone(),
            Some(names) => self.tools.only(names),
        }
    }
}
