//! Requests of the editor that concern the connection, or open a session.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthenticateRequest, AuthenticateResponse, CancelNotification,
    ClientCapabilities, CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest,
    DeleteSessionResponse, Implementation, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
    McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities,
    PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionConfigOption, SessionDeleteCapabilities,
    SessionId as AcpSessionId, SessionInfo, SessionListCapabilities, SessionModeState,
    SessionNotification, SessionResumeCapabilities, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error};
use lillux::time::format_rfc3339;
use parking_lot::Mutex;
use rye_engine::NewSession;
use rye_engine::model::Models as _;
use rye_engine::policy::PermissionMode;
use rye_engine::protocol::{Purpose, Session};
use rye_engine::store::SessionFilter;
use rye_host::projects::Project;
use rye_host::{Failure, settings};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::auth;
use crate::caller::Reach;
use crate::content::PromptContent;
use crate::failure::{error, invalid, store_error, unknown_session};
use crate::history;
use crate::mcp_servers;
use crate::session::{Command, Editor, OpenedSession, SessionHandle, SessionTask};
use crate::settings::{Choice, MODE, Settings};
use crate::transcript::Transcript;

/// Key of the editor's capabilities: it shows the output of commands that it did not start in a
/// terminal. Zed defined it.
const TERMINAL_OUTPUT: &str = "terminal_output";

/// How many sessions are listed at once.
const PAGE: usize = 100;

/// A connection to an editor.
pub(crate) struct Agent {
    reach: Reach,
    /// The model that the user chose for new sessions.
    model: Option<String>,
    client: Mutex<Arc<ClientCapabilities>>,
    sessions: Mutex<HashMap<AcpSessionId, OpenSession>>,
    /// Cancelled when the connection ends.
    stopped: CancellationToken,
}

/// A session that the editor has opened.
#[derive(Clone)]
struct OpenSession {
    handle: SessionHandle,
    project: Arc<Project>,
    workspace: Arc<Path>,
    /// Ends its task.
    stop: CancellationToken,
}

/// Lets the task of a session begin when it is dropped: what it sends must follow the response.
type Begin = oneshot::Sender<()>;

/// The response to a request that opened a session.
pub(crate) struct Opened<T> {
    pub(crate) response: T,
    pub(crate) begin: Begin,
}

impl Agent {
    pub(crate) fn new(reach: Reach, model: Option<String>) -> Self {
        Self {
            reach,
            model,
            client: Mutex::default(),
            sessions: Mutex::default(),
            stopped: CancellationToken::new(),
        }
    }

    /// Ends the tasks of all sessions.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }

    fn client(&self) -> Arc<ClientCapabilities> {
        Arc::clone(&self.client.lock())
    }

    /// Agrees on a version, and tells what this agent can do and which keys are missing.
    pub(crate) fn initialize(
        &self,
        request: InitializeRequest,
    ) -> Result<InitializeResponse, Error> {
        let client = &request.client_capabilities;
        let models = self.reach.projects.models().map_err(error)?;
        let methods = auth::methods(&models, client);
        *self.client.lock() = Arc::new(request.client_capabilities);
        let version = env!("CARGO_PKG_VERSION");
        Ok(InitializeResponse::new(ProtocolVersion::V1)
            .agent_info(Implementation::new("rye", version).title("Rye"))
            .agent_capabilities(capabilities())
            .auth_methods(methods))
    }

    /// Checks that a key was set in the meantime.
    pub(crate) fn authenticate(
        &self,
        request: &AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Error> {
        let models = self.reach.projects.models().map_err(error)?;
        auth::check(&models, &request.method_id.0)?;
        Ok(AuthenticateResponse::new())
    }

    /// Creates a session in a directory.
    pub(crate) async fn new_session(
        &self,
        request: NewSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<Opened<NewSessionResponse>, Error> {
        self.reach.check_prompt()?;
        // The directory of a remote client is not on this machine.
        let workspace = match self.reach.caller() {
            None => workspace(&request.cwd)?,
            Some(_) => self.reach.projects.own().into(),
        };
        let project = self.reach.projects.of_directory(&workspace).await;
        let project = project.map_err(error)?;
        auth::check_model(&project.models, &project.models.default_name())?;
        self.offer_servers(request.mcp_servers, &project)?;
        let dirs = &project.context.settings;
        let new = NewSession {
            workspace: Some(workspace.display().to_string()),
            project: Some(dirs.project().display().to_string()),
            // So that it stays the same when the session is continued elsewhere.
            model: self.model.clone(),
            user_id: self.reach.caller().and_then(|caller| caller.user.clone()),
            org_id: self.reach.caller().and_then(|caller| caller.org.clone()),
            ..NewSession::default()
        };
        let session = self.reach.engine.create_session(new).await;
        let id = session.map_err(store_error)?.id().clone();
        let default_model = self.model.clone();
        let default_model = default_model.unwrap_or_else(|| project.models.default_name());
        let settings = Settings {
            mode: PermissionMode::default(),
            model: default_model.clone(),
            default_model,
        };
        let response = NewSessionResponse::new(AcpSessionId::new(id.as_str()))
            .modes(settings.modes())
            .config_options(settings.options(&project.models));
        let opened = OpenedSession {
            id: id.clone(),
            engine: self.reach.engine.clone(),
            settings,
            transcript: self.transcript(&workspace),
            project: Arc::clone(&project),
            thread: None,
            after: 0,
        };
        let begin = self.open(opened, workspace, connection).await?;
        Ok(Opened { response, begin })
    }

    /// Opens a stored session, and shows its history.
    pub(crate) async fn load_session(
        &self,
        request: LoadSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<Opened<LoadSessionResponse>, Error> {
        let (name, cwd) = (&request.session_id, &request.cwd);
        let servers = request.mcp_servers;
        let stored = self.stored(name, cwd, servers, connection, true).await?;
        let (modes, options) = stored.response;
        let response = LoadSessionResponse::new()
            .modes(modes)
            .config_options(options);
        let begin = stored.begin;
        Ok(Opened { response, begin })
    }

    /// Opens a stored session whose history the editor has.
    pub(crate) async fn resume_session(
        &self,
        request: ResumeSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<Opened<ResumeSessionResponse>, Error> {
        let (name, cwd) = (&request.session_id, &request.cwd);
        let servers = request.mcp_servers;
        let stored = self.stored(name, cwd, servers, connection, false).await?;
        let (modes, options) = stored.response;
        let response = ResumeSessionResponse::new()
            .modes(modes)
            .config_options(options);
        let begin = stored.begin;
        Ok(Opened { response, begin })
    }

    async fn stored(
        &self,
        name: &AcpSessionId,
        cwd: &Path,
        servers: Vec<McpServer>,
        connection: ConnectionTo<Client>,
        shows_history: bool,
    ) -> Result<Opened<(SessionModeState, Vec<SessionConfigOption>)>, Error> {
        let session = self.stored_session(name).await?;
        if session.purpose != Purpose::Interactive {
            let message = format!("session {} takes no prompts", session.id.short());
            return Err(invalid(message));
        }
        let project = self.reach.projects.of_session(&session).await;
        let project = project.map_err(error)?;
        self.offer_servers(servers, &project)?;
        // Its own directory, wherever the editor is.
        let workspace: Arc<Path> = match &session.workspace {
            Some(own) => Path::new(own).into(),
            None => workspace(cwd)?,
        };
        let snapshot = self.reach.engine.snapshot(&session.id).await;
        let snapshot = snapshot.map_err(store_error)?;
        let snapshot = snapshot.ok_or_else(|| unknown_session(name))?;
        let mut transcript = self.transcript(&workspace);
        let thread = history::shown_thread(&snapshot);
        if let Some(thread) = thread {
            let store = self.reach.store();
            let shown = history::updates(&**store, &session.id, thread, &mut transcript).await;
            let shown = shown.map_err(store_error)?;
            for update in shown.into_iter().filter(|_| shows_history) {
                let notification = SessionNotification::new(name.clone(), update);
                connection.send_notification(notification)?;
            }
        }
        let default_model = snapshot.session.model.clone();
        let default_model = default_model.unwrap_or_else(|| project.models.default_name());
        let used = self.reach.engine.current_model(&session.id).await;
        let used = used.map_err(store_error)?.filter(|it| !it.is_empty());
        let settings = Settings {
            mode: snapshot.session.permission_mode,
            // The user goes on with the model that was used last.
            model: used.unwrap_or_else(|| default_model.clone()),
            default_model,
        };
        let response = (settings.modes(), settings.options(&project.models));
        let opened = OpenedSession {
            id: session.id,
            engine: self.reach.engine.clone(),
            project,
            settings,
            transcript,
            thread: thread.map(|thread| (thread.key.clone(), thread.id.clone())),
            after: snapshot.sequence,
        };
        let begin = self.open(opened, workspace, connection).await?;
        Ok(Opened { response, begin })
    }

    /// Offers the servers of the editor to the project. Those of a remote client would run here.
    fn offer_servers(&self, servers: Vec<McpServer>, project: &Project) -> Result<(), Error> {
        match self.reach.caller() {
            None => mcp_servers::offer(servers, &project.offered_servers),
            Some(_) => Ok(()),
        }
    }

    async fn stored_session(&self, name: &AcpSessionId) -> Result<Session, Error> {
        let unknown = || unknown_session(name);
        let id = name.0.parse().map_err(|_| unknown())?;
        let session = self.reach.session(&id).await.map_err(error)?;
        session.ok_or_else(unknown)
    }

    /// Lists the sessions that a person used, newest first.
    pub(crate) async fn list_sessions(
        &self,
        request: ListSessionsRequest,
        _: ConnectionTo<Client>,
    ) -> Result<ListSessionsResponse, Error> {
        let before = request.cursor.map(|cursor| cursor.parse()).transpose();
        let mut before = before.map_err(|_| invalid("the cursor is not one of this agent"))?;
        let cwd = request.cwd.filter(|_| self.reach.caller().is_none());
        let cwd = cwd.map(settings::canonicalize_existing);
        let mut sessions = Vec::new();
        loop {
            let filter = SessionFilter {
                before: before.take(),
                limit: PAGE,
                ..SessionFilter::default()
            };
            let page = self.reach.store().sessions(filter).await;
            let page = page.map_err(store_error)?;
            let last = page.last().map(|last| last.id.clone());
            let visible = page.iter().filter(|session| self.reach.can_see(session));
            sessions.extend(visible.filter_map(session_info));
            if let Some(cwd) = &cwd {
                sessions.retain(|session| session.cwd == *cwd);
            }
            before = last;
            if before.is_none() || sessions.len() >= PAGE {
                let next = before.map(|id| id.to_string());
                return Ok(ListSessionsResponse::new(sessions).next_cursor(next));
            }
        }
    }

    /// Stops the work of a session, so that another process can open it.
    pub(crate) async fn close_session(
        &self,
        request: CloseSessionRequest,
        _: ConnectionTo<Client>,
    ) -> Result<CloseSessionResponse, Error> {
        self.reach.check_prompt()?;
        let session = self.sessions.lock().remove(&request.session_id);
        let session = session.ok_or_else(|| unknown_session(&request.session_id))?;
        let (done, closed) = oneshot::channel();
        session.handle.send(Command::Close(done));
        // No answer means that the task has ended by itself.
        if let Ok(closed) = closed.await {
            closed.map_err(store_error)?;
        }
        Ok(CloseSessionResponse::new())
    }

    /// Deletes a session.
    pub(crate) async fn delete_session(
        &self,
        request: DeleteSessionRequest,
        _: ConnectionTo<Client>,
    ) -> Result<DeleteSessionResponse, Error> {
        self.reach.check_prompt()?;
        let session = self.stored_session(&request.session_id).await?;
        if let Some(open) = self.sessions.lock().remove(&request.session_id) {
            open.stop.cancel();
        }
        let removed = self.reach.engine.remove_session(&session.id).await;
        removed.map_err(store_error)?;
        Ok(DeleteSessionResponse::new())
    }

    fn transcript(&self, workspace: &Path) -> Transcript {
        let meta = self.client().meta.clone().unwrap_or_default();
        let has_terminals = meta.get(TERMINAL_OUTPUT) == Some(&Value::Bool(true));
        Transcript::new(workspace.to_owned(), has_terminals)
    }

    /// Starts the task of a session, in place of an earlier one.
    async fn open(
        &self,
        opened: OpenedSession,
        workspace: Arc<Path>,
        connection: ConnectionTo<Client>,
    ) -> Result<Begin, Error> {
        let name = AcpSessionId::new(opened.id.as_str());
        let stop = self.stopped.child_token();
        let project = Arc::clone(&opened.project);
        let (begin, may_begin) = oneshot::channel();
        let editor = Editor {
            connection,
            client: self.client(),
            caller: self.reach.caller().cloned(),
        };
        let started = SessionTask::start(opened, editor, stop.clone(), may_begin);
        let open = OpenSession {
            handle: started.await.map_err(store_error)?,
            project,
            workspace,
            stop,
        };
        if let Some(earlier) = self.sessions.lock().insert(name, open) {
            earlier.stop.cancel();
        }
        Ok(begin)
    }

    /// Changes what the agent may do without asking.
    pub(crate) async fn set_mode(
        &self,
        request: SetSessionModeRequest,
        _: ConnectionTo<Client>,
    ) -> Result<SetSessionModeResponse, Error> {
        let (id, mode) = (&request.session_id, &*request.mode_id.0);
        let choice = Choice::parse(MODE, mode);
        let choice = choice.ok_or_else(|| invalid(format!("there is no mode `{mode}`")))?;
        self.choose(id, choice).await?;
        Ok(SetSessionModeResponse::new())
    }

    /// Changes an option of a session.
    pub(crate) async fn set_option(
        &self,
        request: SetSessionConfigOptionRequest,
        _: ConnectionTo<Client>,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let option = &request.config_id.0;
        let value = request.value.as_value_id();
        let choice = value.and_then(|value| Choice::parse(option, &value.0));
        let choice = choice.ok_or_else(|| {
            let value = serde_json::to_string(&request.value).unwrap_or_default();
            invalid(format!("the option `{option}` has no value {value}"))
        })?;
        let options = self.choose(&request.session_id, choice).await?;
        Ok(SetSessionConfigOptionResponse::new(options))
    }

    async fn choose(
        &self,
        id: &AcpSessionId,
        choice: Choice,
    ) -> Result<Vec<SessionConfigOption>, Error> {
        match choice {
            Choice::Mode(_) => self.reach.check_decide()?,
            Choice::Model(_) => self.reach.check_prompt()?,
        }
        let session = self.session(id)?;
        let (done, chosen) = oneshot::channel();
        session.handle.send(Command::Set { choice, done });
        let chosen = chosen.await.map_err(|_| unknown_session(id))?;
        Ok(chosen?.options(&session.project.models))
    }

    fn session(&self, id: &AcpSessionId) -> Result<OpenSession, Error> {
        let session = self.sessions.lock().get(id).cloned();
        session.ok_or_else(|| unknown_session(id))
    }

    /// Passes a prompt to the session, which responds when its turn has ended.
    pub(crate) fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
    ) -> Result<(), Error> {
        let session = self.reach.check_prompt();
        let session = session.and_then(|()| self.session(&request.session_id));
        let prompt = session.and_then(|session| {
            let content = PromptContent::new(request.prompt, &session.workspace)?;
            Ok((session, content))
        });
        match prompt {
            Ok((session, content)) => {
                let responder = Box::new(responder);
                session.handle.send(Command::Prompt { content, responder });
                Ok(())
            }
            Err(error) => responder.respond_with_error(error),
        }
    }

    /// Stops the work of a session.
    pub(crate) fn cancel(&self, request: &CancelNotification) {
        let may_cancel = self.reach.check_prompt().is_ok();
        if may_cancel && let Ok(session) = self.session(&request.session_id) {
            session.handle.send(Command::Cancel);
        }
    }
}

fn capabilities() -> AgentCapabilities {
    let sessions = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new())
        .delete(SessionDeleteCapabilities::new());
    let prompts = PromptCapabilities::new().image(true).embedded_context(true);
    AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(prompts)
        .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
        .session_capabilities(sessions)
}

/// A session for the editor's list; none if the editor cannot open it.
fn session_info(session: &Session) -> Option<SessionInfo> {
    let is_listed = session.purpose == Purpose::Interactive && session.unreadable.is_none();
    let cwd = session.workspace.as_ref().or(session.project.as_ref());
    let cwd = cwd.filter(|_| is_listed)?;
    let seconds = i64::try_from(session.updated_at.0 / 1000).unwrap_or(i64::MAX);
    let info = SessionInfo::new(AcpSessionId::new(session.id.as_str()), cwd)
        .title(session.title.clone())
        .updated_at(format_rfc3339(seconds));
    Some(info)
}

/// The directory that a session works in.
fn workspace(cwd: &Path) -> Result<Arc<Path>, Error> {
    let shown = cwd.display();
    if !cwd.is_absolute() {
        return Err(invalid(format!("cwd `{shown}` is not an absolute path")));
    }
    if !cwd.is_dir() {
        return Err(error(Failure::usage(format!(
            "cwd `{shown}` is not a directory"
        ))));
    }
    let real = std::fs::canonicalize(cwd);
    Ok(real.unwrap_or_else(|_| cwd.to_owned()).into())
}
