//! Compaction on request.

use rye_protocol::{SessionId, StatusKind};
use tokio::sync::oneshot;

use super::session::DEFAULT;
use super::{Engine, Session};
use crate::runner::{CompactionOutcome, ThreadCommand, UndoOutcome};
use crate::store::StoreError;

impl Engine {
    /// Sequence number of a session's last stored event; 0 if there is none.
    pub async fn last_event(&self, session: &SessionId) -> Result<u64, StoreError> {
        let record = self.inner.store.snapshot(session).await?;
        Ok(record.map_or(0, |record| record.sequence))
    }
}

impl Session {
    /// Compacts the history of a thread, by default `default`, as soon as no model or tool call
    /// runs. Waits for the outcome.
    pub async fn compact(&self, thread: Option<&str>) -> Result<CompactionOutcome, StoreError> {
        let running = self.thread_by_key(thread.unwrap_or(DEFAULT))?;
        let (reply, answer) = oneshot::channel();
        self.send(&running, ThreadCommand::Compact(reply))?;
        answer.await.map_err(|_| self.close_reason())
    }

    /// Sequence number of the last stored event.
    pub async fn last_event(&self) -> Result<u64, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        Ok(record.map_or(0, |record| record.sequence))
    }

    /// Waits until a thread is idle.
    pub async fn wait_idle(&self, thread: &str) -> Result<(), StoreError> {
        let running = self.thread_by_key(thread)?;
        let mut events = self.subscribe(0);
        // Status events are published to existing subscribers only, so subscribe before the check.
        while running.status() != StatusKind::Idle {
            if events.next().await?.is_none() {
                return Err(self.close_reason());
            }
        }
        Ok(())
    }

    /// Undoes the last compaction of a thread.
    pub async fn undo_compaction(&self, thread: Option<&str>) -> Result<UndoOutcome, StoreError> {
        let running = self.thread_by_key(thread.unwrap_or(DEFAULT))?;
        let (reply, answer) = oneshot::channel();
        self.send(&running, ThreadCommand::UndoCompaction(reply))?;
        answer.await.map_err(|_| self.close_reason())?
    }
}
