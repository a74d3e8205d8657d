//! Editors that show the files of sessions.

use std::sync::{Arc, Weak};

use rye_protocol::SessionId;

use super::{Engine, Inner, Session};
use crate::sandbox::EditorFiles;

/// Tools use the files of an editor as long as this exists.
pub struct EditorAttachment {
    engine: Weak<Inner>,
    session: SessionId,
    files: Arc<dyn EditorFiles>,
}

impl Engine {
    /// Lets the tools of a session and of its tasks read and write files of the workspace through
    /// an editor, in place of an earlier one. Searches and commands use the saved files.
    pub fn attach_editor(
        &self,
        session: &SessionId,
        files: Arc<dyn EditorFiles>,
    ) -> EditorAttachment {
        let mut editors = self.inner.editors.lock();
        editors.insert(session.clone(), Arc::clone(&files));
        EditorAttachment {
            engine: Arc::downgrade(&self.inner),
            session: session.clone(),
            files,
        }
    }
}

impl Drop for EditorAttachment {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let mut editors = engine.editors.lock();
        // Another editor may have opened the session.
        let is_current = |files: &Arc<dyn EditorFiles>| Arc::ptr_eq(files, &self.files);
        if editors.get(&self.session).is_some_and(is_current) {
            editors.remove(&self.session);
        }
    }
}

impl Inner {
    /// The editor of a session or, for a task, of the session that a person works with.
    pub(crate) fn editor(&self, session: &SessionId) -> Option<Arc<dyn EditorFiles>> {
        let root = self.open_root(session)?;
        self.editors.lock().get(root.id()).cloned()
    }

    /// The open session that a person works with: this one, or the one that started the task.
    pub(crate) fn open_root(&self, session: &SessionId) -> Option<Session> {
        let mut root = self.open_session(session)?;
        while let Some(parent) = &root.data().parent {
            root = self.open_session(&parent.session)?;
        }
        Some(root)
    }
}
