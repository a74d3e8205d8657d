//! Who uses a connection, and which sessions and projects it reaches.

use std::fmt;
use std::sync::Arc;

use agent_client_protocol::{Error, ErrorCode};
use rye_engine::Engine;
use rye_engine::protocol::{Session, SessionId};
use rye_engine::store::SessionStore;
use rye_host::Failure;
use rye_host::projects::Projects;
use serde_json::json;

/// The caller of a connection, and what they may do.
#[derive(Clone)]
pub struct Caller {
    /// Name for the record of prompts and decisions.
    pub name: String,
    /// Owner of new sessions.
    pub user: Option<String>,
    /// Organisation of the owner.
    pub org: Option<String>,
    /// Whether the caller may create sessions, send prompts and change settings.
    pub can_prompt: bool,
    /// Whether the caller may decide at gates, and choose what needs no decision.
    pub can_decide: bool,
    /// Whether the caller may know of a session.
    pub can_see: Arc<dyn Fn(&Session) -> bool + Send + Sync>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a connection reaches.
pub(crate) struct Reach {
    /// Runs the sessions of all projects.
    pub(crate) engine: Engine,
    /// The projects of the process.
    pub(crate) projects: Arc<Projects>,
    /// The client of a server; none is the user's own editor, which reaches all files.
    pub(crate) caller: Option<Caller>,
}

impl Reach {
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Fails unless the caller may send prompts.
    pub(crate) fn check_prompt(&self) -> Result<(), Error> {
        let is_permitted = self.caller().is_none_or(|caller| caller.can_prompt);
        is_permitted
            .then_some(())
            .ok_or_else(|| missing_scope("prompt"))
    }

    /// Fails unless the caller may decide.
    pub(crate) fn check_decide(&self) -> Result<(), Error> {
        let is_permitted = self.caller().is_none_or(|caller| caller.can_decide);
        is_permitted
            .then_some(())
            .ok_or_else(|| missing_scope("decide"))
    }

    pub(crate) fn can_see(&self, session: &Session) -> bool {
        self.caller().is_none_or(|caller| (caller.can_see)(session))
    }

    /// A session that the caller may know of.
    pub(crate) async fn session(&self, id: &SessionId) -> Result<Option<Session>, Failure> {
        let session = self.store().session(id).await?;
        Ok(session.filter(|session| self.can_see(session)))
    }

    pub(crate) fn store(&self) -> &Arc<dyn SessionStore> {
        self.engine.store()
    }
}

fn missing_scope(scope: &str) -> Error {
    let message = format!("the token does not have the scope `{scope}`");
    Error::new(ErrorCode::INVALID_REQUEST, message).data(json!({ "scope": scope }))
}
