//! What a process wrote: the beginning in memory, all of it in the store if it is long.

use std::borrow::Cow;
use std::io::Write;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::cas::{BlobWriter, Cas, CasError};
use crate::hash::Hash;

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An output stream, as far as it was kept.
#[derive(Debug)]
pub struct Captured {
    /// The first bytes, as many as the limit allows.
    pub bytes: Vec<u8>,
    /// How many bytes there were in all.
    pub total: u64,
    /// What became of the rest, if there was more than the limit.
    pub overflow: Option<Overflow>,
}

/// Where the excess of a stream went.
#[derive(Debug)]
pub enum Overflow {
    /// The whole stream, first byte to last, is in the store under this hash.
    Stored(Hash),
    /// It could not be stored, and is lost beyond the limit.
    Failed(CasError),
    /// There was no store to put it in; it was counted and dropped.
    Dropped,
}

impl Captured {
    /// The kept bytes as text, with what is not UTF-8 replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether there was more than was kept in memory.
    pub fn is_truncated(&self) -> bool {
        self.overflow.is_some()
    }
}

/// A stream being captured.
pub(super) struct Capture {
    kept: Vec<u8>,
    total: u64,
    limit: usize,
    store: Option<Cas>,
    /// The blob, in the hands of a thread that may wait for the disk. Nobody
    /// finishes that of a command that is cancelled, so it leaves nothing.
    spill: Option<JoinHandle<Result<BlobWriter, CasError>>>,
    failed: Option<CasError>,
}

impl Capture {
    pub(super) fn new(limit: usize, store: Option<Cas>) -> Self {
        Self {
            kept: Vec::new(),
            total: 0,
            limit,
            store,
            spill: None,
            failed: None,
        }
    }

    /// Takes the next bytes. Waits only while the last ones are being stored.
    pub(super) async fn take(&mut self, bytes: &[u8]) {
        let room = self.limit - self.kept.len();
        let (kept, excess) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.total += bytes.len() as u64;
        if excess.is_empty() {
            return;
        }
        if let Some(store) = self.store.take() {
            let beginning = self.kept.clone();
            self.spill = Some(spawn_blocking(move || write(store.writer()?, &beginning)));
        }
        if let Some(blob) = self.blob().await {
            let excess = excess.to_vec();
            self.spill = Some(spawn_blocking(move || write(blob, &excess)));
        }
    }

    /// The blob once all of it so far is written, if there is one and it could be.
    async fn blob(&mut self) -> Option<BlobWriter> {
        match self.spill.take()?.await {
            Ok(Ok(blob)) => Some(blob),
            Ok(Err(error)) => {
                self.failed = Some(error);
                None
            }
            // The runtime is shutting down, and this future with it.
            Err(_) => None,
        }
    }

    pub(super) async fn finish(mut self) -> Captured {
        let exceeded = self.total > self.kept.len() as u64;
        let stored = match self.blob().await {
            Some(blob) => spawn_blocking(move || blob.finish()).await.ok(),
            None => self.failed.take().map(Err),
        };
        let overflow = match stored {
            Some(Ok(stored)) => Some(Overflow::Stored(stored.hash)),
            Some(Err(error)) => Some(Overflow::Failed(error)),
            None if exceeded => Some(Overflow::Dropped),
            None => None,
        };
        Captured {
            bytes: self.kept,
            total: self.total,
            overflow,
        }
    }
}

fn write(mut blob: BlobWriter, bytes: &[u8]) -> Result<BlobWriter, CasError> {
    match blob.write_all(bytes) {
        Ok(()) => Ok(blob),
        // The blob knows the place, and says it when it is finished.
        Err(error) => Err(blob.finish().err().unwrap_or(CasError::Source(error))),
    }
}
