//! Histories summed up because somebody asks for it.

use rye_protocol::{EntryId, SessionId, StatusKind};
use tokio::sync::oneshot;

use super::session::DEFAULT;
use super::{Engine, Session};
use crate::runner::{Compaction, Mail};
use crate::store::StoreError;

impl Engine {
    /// The number of the last event of a session that is written down, whether it is open or
    /// not; 0 if there is none.
    pub async fn last_event(&self, session: &SessionId) -> Result<u64, StoreError> {
        let record = self.inner.store.snapshot(session).await?;
        Ok(record.map_or(0, |record| record.sequence))
    }
}

impl Session {
    /// Sums up the history of a thread, of `default` where none is named: at once, or when
    /// the model and the tools that are at work have ended. Waits until that is done.
    pub async fn compact(&self, thread: Option<&str>) -> Result<Compaction, StoreError> {
        let running = self.named(thread.unwrap_or(DEFAULT))?;
        let (reply, answer) = oneshot::channel();
        self.send(&running, Mail::Compact(reply))?;
        answer.await.map_err(|_| self.close_reason())
    }

    /// The number of the last event that is written down.
    pub async fn last_event(&self) -> Result<u64, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        Ok(record.map_or(0, |record| record.sequence))
    }

    /// Waits until a thread has nothing left to do.
    pub async fn wait_idle(&self, thread: &str) -> Result<(), StoreError> {
        let running = self.named(thread)?;
        let mut events = self.subscribe(0);
        // What is told live is told to whoever listens by then, and no sooner.
        while running.status() != StatusKind::Idle {
            if events.next().await?.is_none() {
                return Err(self.close_reason());
            }
        }
        Ok(())
    }

    /// Takes back the last sum of a thread's history that stands, and gives its entry: what
    /// it covers is read again. None if there is none, or while a turn is under way.
    pub async fn undo_compaction(
        &self,
        thread: Option<&str>,
    ) -> Result<Option<EntryId>, StoreError> {
        let running = self.named(thread.unwrap_or(DEFAULT))?;
        let (reply, answer) = oneshot::channel();
        self.send(&running, Mail::UndoCompaction(reply))?;
        answer.await.map_err(|_| self.close_reason())?
    }
}
