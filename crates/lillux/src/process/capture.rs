//! What a process wrote: the beginning in memory, all of it in the store if it is long.

use std::borrow::Cow;
use std::io::Write;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cas::{Cas, CasError};
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
    spill: Option<Spill>,
}

/// A blob being written by a thread that may wait for the disk.
///
/// `None` ends the stream. A channel that closes without it belongs to a call
/// that was cancelled, whose blob nobody will ask for.
struct Spill {
    chunks: mpsc::Sender<Option<Vec<u8>>>,
    writer: JoinHandle<Result<Option<Hash>, CasError>>,
}

impl Capture {
    pub(super) fn new(limit: usize, store: Option<Cas>) -> Self {
        Self {
            kept: Vec::new(),
            total: 0,
            limit,
            store,
            spill: None,
        }
    }

    /// Takes the next bytes. Waits only for a store that cannot keep up.
    pub(super) async fn take(&mut self, bytes: &[u8]) {
        let room = self.limit - self.kept.len();
        let (kept, excess) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.total += bytes.len() as u64;
        if excess.is_empty() {
            return;
        }
        if let Some(store) = self.store.take() {
            let spill = Spill::start(store);
            spill.write(self.kept.clone()).await;
            self.spill = Some(spill);
        }
        if let Some(spill) = &self.spill {
            spill.write(excess.to_vec()).await;
        }
    }

    pub(super) async fn finish(self) -> Captured {
        let exceeded = self.total > self.kept.len() as u64;
        let overflow = match self.spill {
            Some(spill) => Some(spill.finish().await),
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

impl Spill {
    fn start(store: Cas) -> Self {
        // Few, so that a fast process waits for a slow disk instead of filling memory.
        let (chunks, mut receiver) = mpsc::channel::<Option<Vec<u8>>>(4);
        let writer = tokio::task::spawn_blocking(move || {
            let mut blob = store.writer()?;
            while let Some(chunk) = receiver.blocking_recv() {
                // A blob that could not be written says why when it is finished.
                if chunk.is_none_or(|chunk| blob.write_all(&chunk).is_err()) {
                    return Ok(Some(blob.finish()?.hash));
                }
            }
            Ok(None)
        });
        Self { chunks, writer }
    }

    /// A writer that failed has closed its end, and tells why at the end.
    async fn write(&self, chunk: Vec<u8>) {
        let _ = self.chunks.send(Some(chunk)).await;
    }

    async fn finish(self) -> Overflow {
        let _ = self.chunks.send(None).await;
        match self.writer.await {
            Ok(Ok(Some(hash))) => Overflow::Stored(hash),
            Ok(Err(error)) => Overflow::Failed(error),
            // The runtime is shutting down, and this future with it.
            Ok(Ok(None)) | Err(_) => Overflow::Dropped,
        }
    }
}
