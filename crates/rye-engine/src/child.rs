//! Child sessions: work that a tool gives to another session and waits for.

use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{
    CallId, ErrorCode, ErrorInfo, Limits, Parent, PromptId, SessionId, SessionStatus, ThreadId,
};
use serde_json::json;

use crate::engine::{Above, Answer, Inner, Prompt, Session};
use crate::store::StoreError;
use crate::tool::{ToolContext, ToolError};

/// How deep sessions have children where no limit says otherwise.
const DEEPEST: u32 = 3;

/// The id of the session that a call is. A call that is made again, after a restart, finds
/// the session that was made the first time.
pub(crate) fn id(
    session: &SessionId,
    thread: &ThreadId,
    prompt: &PromptId,
    call: &CallId,
) -> SessionId {
    let path = json!([session, thread, prompt, call]).to_string();
    let hash = Hash::digest(path).to_hex();
    // Only visible ASCII, and short.
    format!("task-{}", &hash[..32])
        .parse()
        .unwrap_or_else(|_| SessionId::new())
}

/// A child session, for as long as its call runs. If the call is ended before, so is the
/// child.
pub struct Child {
    session: Session,
    engine: Arc<Inner>,
}

impl Child {
    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Asks it something and waits for the answer. The id of the prompt is needed: asked
    /// again after a restart, it is the same one.
    pub async fn prompt(&self, id: PromptId, prompt: Prompt) -> Result<Answer, StoreError> {
        if self.session.status() != SessionStatus::Terminated {
            let id = Some(id.clone());
            self.session.prompt(Prompt { id, ..prompt }).await?;
        }
        self.session.wait_for_answer(&id).await
    }

    /// Nothing more is asked of it.
    pub async fn close(self) -> Result<(), StoreError> {
        self.engine.end(&self.session).await
    }
}

impl ToolContext {
    pub(crate) fn child_id(&self) -> SessionId {
        id(&self.session, &self.thread, &self.prompt, &self.call)
    }

    /// The session that this call is: made the first time, found again after a restart. It
    /// has the sandbox of its parent and what is left of its budget.
    pub async fn child(&self, model: Option<String>) -> Result<Child, ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(gone)?;
        let parent = engine.is_open(&self.session).ok_or_else(gone)?;
        let above = parent.data();
        let depth = above.depth + 1;
        let deepest = above.limits.depth.unwrap_or(DEEPEST);
        if depth > deepest {
            let message = format!("the limit of depth is reached: {deepest}");
            return Err(ToolError(ErrorInfo::new(ErrorCode::Limit, message)));
        }
        let limits = Limits {
            depth: Some(deepest),
            ..self.left
        };
        let data = rye_protocol::Session {
            id: self.child_id(),
            purpose: rye_protocol::Purpose::Child,
            status: SessionStatus::Running,
            parent: Some(Parent {
                session: self.session.clone(),
                thread: self.thread.clone(),
            }),
            depth,
            model: model.or_else(|| above.model.clone()),
            limits,
            usage: rye_protocol::Usage::default(),
            metadata: serde_json::Map::new(),
            snapshot_id: None,
            ..Arc::unwrap_or_clone(above)
        };
        let above = Above {
            budget: Arc::clone(&parent.shared().budget),
            thread: self.thread.clone(),
            call: self.call.clone(),
        };
        let session = engine.child(data, above).await;
        let session = session.map_err(|error| ToolError::failed(error.to_string()))?;
        Ok(Child { session, engine })
    }
}
