//! What is known of a connection's two directions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::ClientErrorKind;

/// What went over a connection so far.
#[derive(Debug)]
pub(super) struct Wire {
    /// Why nothing more is read from it, if that is our decision.
    fault: Mutex<Option<ClientErrorKind>>,
    /// The requests that have gone out whole and are not settled.
    written: Mutex<HashSet<i64>>,
    /// The highest id of a request so far.
    highest: AtomicI64,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            fault: Mutex::default(),
            written: Mutex::default(),
            highest: AtomicI64::new(-1),
        }
    }
}

impl Wire {
    /// A request is about to go out.
    pub(super) fn begins(&self, id: i64) {
        self.highest.fetch_max(id, Ordering::Relaxed);
    }

    /// All of a request has gone out: it may be carried out from now on.
    pub(super) fn has_written(&self, id: i64) {
        lock(&self.written).insert(id);
    }

    /// Whether a request may have reached the server.
    pub(super) fn was_written(&self, id: i64) -> bool {
        lock(&self.written).contains(&id)
    }

    /// Nobody waits for a request any more.
    pub(super) fn settle(&self, id: i64) {
        lock(&self.written).remove(&id);
    }

    /// Whether such a request was ever made.
    pub(super) fn was_asked(&self, id: i64) -> bool {
        (0..=self.highest.load(Ordering::Relaxed)).contains(&id)
    }

    /// The connection is of no use any more. The first reason counts.
    pub(super) fn fail(&self, fault: ClientErrorKind) {
        lock(&self.fault).get_or_insert(fault);
    }

    pub(super) fn fault(&self) -> Option<ClientErrorKind> {
        lock(&self.fault).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
