//! Work that a tool call gives to another agent: child sessions (tasks), which the call creates and
//! waits for, and threads of the same session, which outlast the call.

use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use rye_protocol::{
    CallId, ErrorCode, ErrorInfo, Limits, Parent, PromptId, Purpose, SessionId, SessionStatus,
    StatusKind, ThreadId,
};
use serde_json::{Value, json};

use crate::engine::{Answer, Inner, ParentBudget, Prompt, Session};
use crate::store::StoreError;
use crate::tool::{ToolContext, ToolError};

/// Maximum depth of child sessions if no limit is set.
const DEFAULT_MAX_DEPTH: u32 = 3;

/// Start of the keys of threads that work in the background.
const BACKGROUND_KEY: &str = "task-";
/// Length of the key of such a thread.
const KEY_LENGTH: usize = BACKGROUND_KEY.len() + 8;
/// Maximum number of threads of a session that work in the background.
const MAX_BACKGROUND: usize = 8;

/// The id of a call's child session. It is derived from the call, so that a repeated call finds
/// its session again.
pub(crate) fn id(
    session: &SessionId,
    thread: &ThreadId,
    prompt: &PromptId,
    call: &CallId,
) -> SessionId {
    let path = json!([session, thread, prompt, call]).to_string();
    let hash = Hash::digest(path).to_hex();
    // Short and printable.
    format!("task-{}", &hash[..32])
        .parse()
        .unwrap_or_else(|_| SessionId::new())
}

/// Whether a task with these arguments works in a thread instead of a child session.
pub(crate) fn is_in_background(args: &Value) -> bool {
    args["background"] == true
}

/// The child session of a running call; closed when the call ends.
pub struct Child {
    session: Session,
    engine: Arc<Inner>,
}

impl Child {
    /// The child's session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sends a prompt and waits for the answer. A repeated call must use the same prompt id.
    pub async fn prompt(&self, id: PromptId, prompt: Prompt) -> Result<Answer, StoreError> {
        if self.session.status() != SessionStatus::Terminated {
            let id = Some(id.clone());
            self.session.prompt(Prompt { id, ..prompt }).await?;
        }
        self.session.wait_for_answer(&id).await
    }

    /// Closes the child session.
    pub async fn close(self) -> Result<(), StoreError> {
        self.engine.terminate(&self.session).await
    }
}

impl ToolContext {
    pub(crate) fn child_id(&self) -> SessionId {
        id(&self.session, &self.thread, &self.prompt, &self.call)
    }

    /// Creates the child session of this call, or opens it again after a restart. It shares the
    /// parent's sandbox and what is left of its budget.
    pub async fn child(&self, model: Option<String>) -> Result<Child, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let parent = engine.open_session(&self.session).ok_or_else(closed)?;
        let parent_data = parent.data();
        let depth = parent_data.depth + 1;
        let max_depth = parent_data.limits.depth.unwrap_or(DEFAULT_MAX_DEPTH);
        if depth > max_depth {
            let message = format!("tasks can be nested at most {max_depth} levels deep");
            return Err(ToolError(ErrorInfo::new(ErrorCode::Limit, message)));
        }
        let limits = Limits {
            depth: Some(max_depth),
            ..self.remaining
        };
        let now = engine.clock.now();
        let data = rye_protocol::Session {
            user_id: parent_data.user_id.clone(),
            org_id: parent_data.org_id.clone(),
            workspace: parent_data.workspace.clone(),
            sandbox: parent_data.sandbox.clone(),
            parent: Some(Parent {
                session: self.session.clone(),
                thread: self.thread.clone(),
            }),
            depth,
            model: model.or_else(|| parent_data.model.clone()),
            system: parent_data.system.clone(),
            project: parent_data.project.clone(),
            settings: parent_data.settings.clone(),
            limits,
            ..rye_protocol::Session::new(self.child_id(), Purpose::Child, now)
        };
        let parent_budget = ParentBudget {
            budget: Arc::clone(&parent.shared().budget),
            thread: self.thread.clone(),
            call: self.call.clone(),
        };
        let session = engine.child(data, parent_budget).await;
        let session = session.map_err(|error| ToolError::failed(error.to_string()))?;
        Ok(Child { session, engine })
    }
    /// Sends a prompt to a new thread of the session, which works on after the call, also after a
    /// restart, and returns its key. A repeated call finds the thread of the first one.
    pub async fn prompt_in_background(&self, prompt: Prompt) -> Result<String, ToolError> {
        let session = self.own_session()?;
        let id = self.child_id();
        let key: String = id.as_str().chars().take(KEY_LENGTH).collect();
        let threads = session.threads();
        let in_background = threads
            .iter()
            .any(|thread| thread.id == self.thread && thread.key.starts_with(BACKGROUND_KEY));
        if in_background || session.data().parent.is_some() {
            return Err(ToolError(ErrorInfo::new(
                ErrorCode::Limit,
                "a task cannot start tasks in the background: call `task` without `background`",
            )));
        }
        let working = threads.iter().filter(|thread| {
            thread.key.starts_with(BACKGROUND_KEY)
                && thread.key != key
                && thread.status != StatusKind::Idle
        });
        if working.count() >= MAX_BACKGROUND {
            let message = format!(
                "{MAX_BACKGROUND} tasks work in the background already: wait for one with \
                 `thread_read`"
            );
            return Err(ToolError(ErrorInfo::new(ErrorCode::Limit, message)));
        }
        let prompt = Prompt {
            id: Some(PromptId::from(id)),
            thread: Some(key.clone()),
            author: self.author.clone(),
            limits: self.remaining,
            ..prompt
        };
        let sent = session.prompt(prompt).await;
        sent.map_err(|error| ToolError::failed(error.to_string()))?;
        Ok(key)
    }

    /// Waits until a thread of the session has nothing left to do, or for this long.
    pub async fn wait_for_thread(
        &self,
        thread: &ThreadId,
        time: Duration,
    ) -> Result<(), ToolError> {
        let session = self.own_session()?;
        let done = session.wait_for_thread(thread);
        match tokio::time::timeout(time, done).await {
            // The reader sees what the thread has done so far.
            Err(_) | Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ToolError::failed(error.to_string())),
        }
    }

    fn own_session(&self) -> Result<Session, ToolError> {
        let engine = self.engine.upgrade();
        let session = engine.and_then(|engine| engine.open_session(&self.session));
        session.ok_or_else(|| ToolError::failed("the session is closed"))
    }
}
