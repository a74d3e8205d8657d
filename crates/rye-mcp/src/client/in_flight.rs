//! Requests in flight on a connection.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::error::ClientErrorKind;

/// Tracks the requests of a connection and the reason for abandoning it.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    /// Why this client stopped using the connection, if it did.
    fault: Mutex<Option<ClientErrorKind>>,
    /// Requests that were written completely and are not completed.
    written: Mutex<HashSet<i64>>,
    /// Highest request id so far.
    highest_id: AtomicI64,
}

impl Default for InFlightRequests {
    fn default() -> Self {
        Self {
            fault: Mutex::default(),
            written: Mutex::default(),
            highest_id: AtomicI64::new(-1),
        }
    }
}

impl InFlightRequests {
    /// Registers a request that is about to be written.
    pub(super) fn register(&self, id: i64) {
        self.highest_id.fetch_max(id, Ordering::Relaxed);
    }

    /// Records that a request was written completely, so that the server may execute it.
    pub(super) fn mark_written(&self, id: i64) {
        self.written.lock().insert(id);
    }

    /// Whether a request may have reached the server.
    pub(super) fn was_written(&self, id: i64) -> bool {
        self.written.lock().contains(&id)
    }

    /// Removes a request that is no longer awaited.
    pub(super) fn complete(&self, id: i64) {
        self.written.lock().remove(&id);
    }

    /// Whether a request with this id was ever registered.
    pub(super) fn is_known(&self, id: i64) -> bool {
        (0..=self.highest_id.load(Ordering::Relaxed)).contains(&id)
    }

    /// Marks the connection as unusable. The first reason is kept.
    pub(super) fn fail(&self, fault: ClientErrorKind) {
        self.fault.lock().get_or_insert(fault);
    }

    pub(super) fn fault(&self) -> Option<ClientErrorKind> {
        self.fault.lock().clone()
    }
}
