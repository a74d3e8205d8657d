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

/// A stream being captured: of a process here, of a response elsewhere.
#[derive(Debug)]
pub struct Capture {
    kept: Vec<u8>,
    total: u64,
    limit: usize,
    spill: Spill,
    /// What is still to be stored.
    pending: Vec<u8>,
}

/// Where the whole stream goes once it is longer than the limit.
#[derive(Debug)]
enum Spill {
    /// There is no store.
    Nowhere,
    /// A store, not needed so far.
    Store(Cas),
    /// A blob, all of it so far written.
    Blob(BlobWriter),
    /// A blob in the hands of a thread that may wait for the disk. Nobody
    /// finishes that of a command that is cancelled, so it leaves nothing.
    Writing(JoinHandle<Result<BlobWriter, CasError>>),
    /// It could not be written.
    Failed(CasError),
}

impl Capture {
    /// Begins a stream of which at most `limit` bytes stay in memory.
    pub fn new(limit: usize, store: Option<Cas>) -> Self {
        Self {
            kept: Vec::new(),
            total: 0,
            limit,
            spill: store.map_or(Spill::Nowhere, Spill::Store),
            pending: Vec::new(),
        }
    }

    /// Takes the next bytes. Waits only while earlier ones are being stored.
    /// May be dropped while it waits: what it was given is taken all the same.
    pub async fn take(&mut self, bytes: &[u8]) {
        let room = self.limit - self.kept.len();
        let (kept, excess) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.total += bytes.len() as u64;
        if excess.is_empty() {
            return;
        }
        match self.spill {
            Spill::Nowhere | Spill::Failed(_) => return,
            Spill::Store(_) => self.pending.extend_from_slice(&self.kept),
            Spill::Blob(_) | Spill::Writing(_) => {}
        }
        self.pending.extend_from_slice(excess);
        self.written().await;
        self.write_pending();
    }

    /// Waits until what was being written is written, or could not be.
    async fn written(&mut self) {
        if let Spill::Writing(writing) = &mut self.spill {
            self.spill = match writing.await {
                Ok(Ok(blob)) => Spill::Blob(blob),
                Ok(Err(error)) => Spill::Failed(error),
                // The runtime is shutting down, and this future with it.
                Err(_) => Spill::Nowhere,
            };
        }
    }

    /// Has a thread write what is pending, unless one is writing.
    fn write_pending(&mut self) {
        self.spill = match std::mem::replace(&mut self.spill, Spill::Nowhere) {
            Spill::Store(store) => {
                let pending = std::mem::take(&mut self.pending);
                Spill::Writing(spawn_blocking(move || write(store.writer()?, &pending)))
            }
            Spill::Blob(blob) => {
                let pending = std::mem::take(&mut self.pending);
                Spill::Writing(spawn_blocking(move || write(blob, &pending)))
            }
            other => other,
        };
    }

    /// The stream is over: waits until it is stored, if it was long.
    pub async fn finish(mut self) -> Captured {
        while !self.pending.is_empty() && !matches!(self.spill, Spill::Nowhere | Spill::Failed(_)) {
            self.written().await;
            self.write_pending();
        }
        self.written().await;
        let overflow = match self.spill {
            Spill::Blob(blob) => match spawn_blocking(move || blob.finish()).await {
                Ok(Ok(stored)) => Some(Overflow::Stored(stored.hash)),
                Ok(Err(error)) => Some(Overflow::Failed(error)),
                Err(_) => Some(Overflow::Dropped),
            },
            Spill::Failed(error) => Some(Overflow::Failed(error)),
            Spill::Nowhere | Spill::Store(_) | Spill::Writing(_) => {
                let exceeded = self.total > self.kept.len() as u64;
                exceeded.then_some(Overflow::Dropped)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_take_that_is_dropped_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Cas::open(folder.path()).unwrap();
        let mut capture = Capture::new(3, Some(store.clone()));
        let mut all = Vec::new();
        for number in 0..200u8 {
            let bytes = [number; 100];
            all.extend_from_slice(&bytes);
            tokio::select! {
                biased;
                () = capture.take(&bytes) => {}
                () = std::future::ready(()) => {}
            }
        }
        let captured = capture.finish().await;
        assert_eq!(captured.total, all.len() as u64);
        let Some(Overflow::Stored(hash)) = captured.overflow else {
            panic!("{captured:?}");
        };
        assert!(store.get(&hash).unwrap() == all);
    }
}
