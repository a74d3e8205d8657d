//! What cannot be gone on from: it is written down, and the session stands still until
//! somebody opens it again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rye_protocol::{
    Batch, ErrorCode, ErrorIds, ErrorInfo, Event, EventKind, Op, SessionStatus, ThreadId,
};
use serde_json::json;

use super::{Session, Shared};
use crate::bus::Notice;
use crate::store::StoreError;

/// Where a session that broke down keeps how it stood before.
pub(crate) const BEFORE: &str = "status_before_error";

impl Shared {
    /// Stops all threads where they are, and says so in the record as far as that can still
    /// be written.
    pub(crate) async fn break_down(&self, thread: Option<&ThreadId>, error: &StoreError) {
        let alone = self.writing.lock().await;
        // One thread that breaks down is enough; what the others still write is refused.
        if self.closed.is_cancelled() || self.check().is_err() {
            return;
        }
        // A record that another host has taken is not ours to write.
        if matches!(error, StoreError::Fenced(_)) {
            return self.lose(error);
        }
        let told = self.write_down(thread, error).await;
        self.mark_lost(error);
        // Whoever hears of it, and opens it again, finds it free.
        let _ = self.store.release(&self.lease).await;
        if let Ok(event) = told {
            self.bus.tell(Notice { event, entry: None });
        }
        self.closed.cancel();
        drop(alone);
    }

    async fn write_down(
        &self,
        thread: Option<&ThreadId>,
        error: &StoreError,
    ) -> Result<Event, StoreError> {
        let mut data = Arc::unwrap_or_clone(self.data());
        let before = json!(data.status);
        data.metadata.insert(BEFORE.to_owned(), before);
        data.status = SessionStatus::Error;
        data.updated_at = self.clock.now();
        let code = match error {
            StoreError::SessionFailed(_) => ErrorCode::Internal,
            _ => ErrorCode::Store,
        };
        let mut told = ErrorInfo::new(code, error.to_string()).fatal();
        told.ids = ErrorIds {
            session: Some(data.id.clone()),
            thread: thread.cloned(),
            ..ErrorIds::default()
        };
        let kind = EventKind::Error { error: told };
        let data = Arc::new(data);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::clone(&data)));
        batch.push(Op::Event(thread.cloned(), Arc::new(kind.clone())));
        // Before the error, whose number is that of the last event.
        if let Some(seal) = self.seal_rows(&batch) {
            batch.ops.insert(1, seal);
        }
        let number = self.store.commit(&self.lease, batch).await?;
        let event = Event {
            sequence: Some(number),
            session: data.id.clone(),
            thread: thread.cloned(),
            at: data.updated_at,
            kind,
        };
        self.put(data);
        Ok(event)
    }
}

impl Session {
    /// Lets a session that broke down stand as it stood before.
    pub(super) async fn mend(&self) -> Result<(), StoreError> {
        let shared = self.shared();
        let _alone = shared.writing.lock().await;
        let mut data = Arc::unwrap_or_clone(shared.data());
        if data.status != SessionStatus::Error {
            return Ok(());
        }
        let before = data.metadata.remove(BEFORE);
        let before = before.and_then(|it| serde_json::from_value(it).ok());
        data.status = before.unwrap_or(SessionStatus::Running);
        data.updated_at = shared.clock.now();
        let data = Arc::new(data);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::clone(&data)));
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await?;
        let paused = data.status == SessionStatus::Paused;
        shared.paused.store(paused, Ordering::Release);
        shared.put(data);
        Ok(())
    }
}
