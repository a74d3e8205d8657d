//! Waiting until a store is closed.

use std::sync::mpsc;
use std::time::Duration;

/// Waits until a store is closed.
#[derive(Debug)]
pub struct CloseHandle(mpsc::Receiver<()>);

impl CloseHandle {
    /// A handle, and the sender that the store drops last.
    pub(crate) fn new() -> (mpsc::Sender<()>, Self) {
        let (open, closed) = mpsc::channel();
        (open, Self(closed))
    }

    /// Waits until the last owner has dropped the store, or until the timeout.
    pub fn wait(self, timeout: Duration) {
        // Nothing is ever sent; the channel disconnects when the store is dropped.
        let _ = self.0.recv_timeout(timeout);
    }
}
