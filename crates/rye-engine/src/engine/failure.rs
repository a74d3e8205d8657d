//! Fatal failures: stops the session and stores the error until the session is opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rye_protocol::{
    Batch, ErrorCode, ErrorIds, ErrorInfo, Event, EventKind, Op, SessionStatus, ThreadId,
};

use super::{Session, Shared};
use crate::bus::Notice;
use crate::store::StoreError;

impl Shared {
    /// Stops all threads and stores the failure if the session can still be written.
    pub(crate) async fn fail(&self, thread: Option<&ThreadId>, error: &StoreError) {
        let guard = self.writing.lock().await;
        // The first failure wins; later commits of the other threads are refused.
        if self.closed.is_cancelled() || self.check_failure().is_err() {
            return;
        }
        // Another host owns the session now.
        if matches!(error, StoreError::Fenced(_)) {
            return self.stop(error);
        }
        let committed = self.commit_failure(thread, error).await;
        self.set_failure(error);
        // Release first, so that a subscriber can open the session at once.
        let _ = self.store.release(&self.lease).await;
        if let Ok(event) = committed {
            self.bus.publish(Notice { event, entry: None });
        }
        self.closed.cancel();
        if let Some(engine) = self.engine.upgrade() {
            engine.forget(self);
        }
        drop(guard);
    }

    async fn commit_failure(
        &self,
        thread: Option<&ThreadId>,
        error: &StoreError,
    ) -> Result<Event, StoreError> {
        let mut data = Arc::unwrap_or_clone(self.data());
        data.status_before_error = Some(data.status);
        data.status = SessionStatus::Error;
        data.updated_at = self.clock.now();
        let code = match error {
            StoreError::SessionFailed { .. } => ErrorCode::Internal,
            _ => ErrorCode::Store,
        };
        let mut info = ErrorInfo::new(code, error.to_string()).fatal();
        info.ids = ErrorIds {
            session: Some(data.id.clone()),
            thread: thread.cloned(),
            ..ErrorIds::default()
        };
        let kind = EventKind::Error { error: info };
        let data = Arc::new(data);
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::clone(&data)));
        batch.push(Op::Event(thread.cloned(), Arc::new(kind.clone())));
        // The seal goes first: the error must be the last event.
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
        self.set_data(data);
        Ok(event)
    }
}

impl Session {
    /// Restores the status that a failed session had before.
    pub(super) async fn clear_failure(&self) -> Result<(), StoreError> {
        let shared = self.shared();
        if self.status() != SessionStatus::Error {
            return Ok(());
        }
        self.change_data(|data| {
            data.status = data.status_before_error.take().unwrap_or_default();
        })
        .await?;
        let paused = self.status() == SessionStatus::Paused;
        shared.paused.store(paused, Ordering::Release);
        Ok(())
    }
}
