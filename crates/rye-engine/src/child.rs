//! Child sessions (tasks), which a tool call creates and waits for.

use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{
    CallId, ErrorCode, ErrorInfo, Limits, Parent, PromptId, Purpose, SessionId, SessionStatus,
    ThreadId,
};
use serde_json::json;

use crate::engine::{Answer, Inner, ParentBudget, Prompt, Session};
use crate::store::StoreError;
use crate::tool::{ToolContext, ToolError};

/// Maximum depth of child sessions if no limit is set.
const DEFAULT_MAX_DEPTH: u32 = 3;

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
}
