//! What a schedule or hook starts.

use std::fmt;
use std::sync::Arc;

use rye_engine::store::StoreError;
use rye_engine::{BoxFuture, Engine, NewSession, Prompt};
use rye_protocol::{Author, PromptId, Session, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Work to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
// Gates have actions too.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = StartAction))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Send a prompt to an agent.
    Prompt {
        /// The text.
        text: String,
        /// The session that gets it; without it, each prompt starts a session.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        session: Option<SessionId>,
        /// Key of the thread; by default `default`.
        #[serde(default)]
        thread: Option<String>,
        /// Model of the prompt.
        #[serde(default)]
        model: Option<String>,
        /// Role of the prompt.
        #[serde(default)]
        role: Option<String>,
    },
    /// Run a graph.
    Graph {
        /// Id of the graph.
        graph: String,
        /// Its inputs.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        inputs: Map<String, Value>,
    },
}

/// Who owns a definition, and the sessions that it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owner {
    /// The user.
    pub user: Option<String>,
    /// Their organisation.
    pub org: Option<String>,
    /// The project directory.
    pub project: String,
    /// Name of the person or program that created it.
    pub created_by: String,
}

impl Owner {
    /// Whether its work may continue a session: the session has the same owner, or the definition
    /// is bound to nobody.
    pub(crate) fn can_use(&self, session: &Session) -> bool {
        let is_unbounded = self.user.is_none() && self.org.is_none();
        let is_own = |own: &Option<String>, other: &Option<String>| own.is_some() && own == other;
        is_unbounded || is_own(&self.user, &session.user_id) || is_own(&self.org, &session.org_id)
    }
}

/// Why work is started, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occasion {
    /// Identifies the occasion. Becomes the id of the prompt, and of the session if it is new.
    pub key: String,
    /// Channel of the prompt, such as `schedule`.
    pub channel: &'static str,
    /// Metadata of a new session.
    pub metadata: Map<String, Value>,
}

/// Work that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StartedWork {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The prompt, unless a graph runs.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub prompt: Option<PromptId>,
}

/// Why work cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// Stable code.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// Whether a later attempt may succeed.
    pub is_transient: bool,
}

impl StartError {
    fn invalid(code: &str, message: impl fmt::Display) -> Self {
        Self {
            code: code.to_owned(),
            message: message.to_string(),
            is_transient: false,
        }
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        let (code, is_transient) = match &error {
            StoreError::Unavailable(_) => ("store_unavailable", true),
            StoreError::InUse { .. } => ("in_use", true),
            StoreError::Fenced(_) => ("fenced", true),
            StoreError::Sandbox(..) => ("sandbox", true),
            StoreError::NotFound { .. } => ("not_found", false),
            StoreError::Conflict { .. } => ("conflict", false),
            _ => ("refused", false),
        };
        Self {
            code: code.to_owned(),
            message: error.to_string(),
            is_transient,
        }
    }
}

/// Starts runs of graphs.
pub trait GraphStarter: Send + Sync + 'static {
    /// Starts a run with this id in the background, unless it has been started before.
    fn start<'a>(
        &'a self,
        run: &'a SessionId,
        graph: &'a str,
        inputs: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), StartError>>;
}

/// Starts work.
#[derive(Clone)]
pub struct Launcher {
    /// The engine that gets prompts.
    pub engine: Engine,
    /// What starts graphs.
    pub graphs: Arc<dyn GraphStarter>,
}

impl Launcher {
    /// Starts work, once for each occasion: starting it again returns the same.
    pub async fn start(
        &self,
        action: &Action,
        owner: &Owner,
        occasion: Occasion,
    ) -> Result<StartedWork, StartError> {
        let id = || {
            let id: Result<SessionId, _> = occasion.key.parse();
            id.map_err(|error| StartError::invalid("invalid_id", error))
        };
        match action {
            Action::Graph { graph, inputs } => {
                let session = id()?;
                self.graphs.start(&session, graph, inputs).await?;
                let prompt = None;
                Ok(StartedWork { session, prompt })
            }
            Action::Prompt {
                text,
                session,
                thread,
                model,
                role,
            } => {
                let session = match session {
                    Some(session) => self.existing(session, owner).await?,
                    None => self.create(id()?, owner, occasion.metadata.clone()).await?,
                };
                let prompt = Prompt {
                    id: Some(PromptId::from(id()?)),
                    author: Some(Author {
                        name: owner.created_by.clone(),
                        channel: Some(occasion.channel.to_owned()),
                    }),
                    thread: thread.clone(),
                    model: model.clone(),
                    role: role.clone(),
                    ..Prompt::from(text)
                };
                let prompt = Some(self.engine.submit(&session, prompt).await?);
                Ok(StartedWork { session, prompt })
            }
        }
    }

    /// A session that the owner may use.
    async fn existing(&self, id: &SessionId, owner: &Owner) -> Result<SessionId, StartError> {
        let session = self.engine.session_data(id).await?;
        let session = session.filter(|session| owner.can_use(session));
        let missing = || StartError::invalid("not_found", format!("there is no session {id}"));
        session.map(|session| session.id).ok_or_else(missing)
    }

    /// A new session, or the one that an earlier attempt has created.
    async fn create(
        &self,
        id: SessionId,
        owner: &Owner,
        metadata: Map<String, Value>,
    ) -> Result<SessionId, StartError> {
        let new = NewSession {
            id: Some(id),
            user_id: owner.user.clone(),
            org_id: owner.org.clone(),
            workspace: Some(owner.project.clone()),
            project: Some(owner.project.clone()),
            metadata,
            unattended: true,
            ..NewSession::default()
        };
        Ok(self.engine.ensure_session(new).await?.id)
    }
}
