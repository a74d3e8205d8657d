//! Captures an output stream: the beginning in memory, all of it in the store if it is long.

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

/// A captured output stream.
#[derive(Debug)]
pub struct CapturedOutput {
    /// The first bytes of the stream, up to the limit.
    pub bytes: Vec<u8>,
    /// Length of the whole stream in bytes.
    pub total: u64,
    /// What happened to a stream that is longer than the limit.
    pub overflow: Option<Overflow>,
}

/// What happened to a stream that exceeded the limit.
#[derive(Debug)]
pub enum Overflow {
    /// The whole stream, from its first byte, is in the store under this hash.
    Stored(Hash),
    /// Storing the stream failed; the bytes beyond the limit are lost.
    Failed(CasError),
    /// There was no store; the bytes beyond the limit were counted and dropped.
    Dropped,
}

impl CapturedOutput {
    /// The captured bytes as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether the stream was longer than the limit.
    pub fn is_truncated(&self) -> bool {
        self.overflow.is_some()
    }
}

/// Captures a stream, such as a process's output or the body of an HTTP response.
#[derive(Debug)]
pub struct OutputCapture {
    /// The first bytes, up to `limit`.
    head: Vec<u8>,
    total: u64,
    limit: usize,
    spill: Spill,
    /// Bytes that are not yet handed to the blob writer.
    pending: Vec<u8>,
}

/// Where a stream that is longer than the limit is stored.
#[derive(Debug)]
enum Spill {
    /// There is no store.
    None,
    /// A store that was not needed so far.
    Store(Cas),
    /// A blob that contains all bytes except the pending ones.
    Blob(BlobWriter),
    /// A blob that a blocking thread writes to. If the command is cancelled, the blob is never
    /// finished and leaves no file.
    Writing(JoinHandle<Result<BlobWriter, CasError>>),
    /// Writing failed.
    Failed(CasError),
}

impl OutputCapture {
    /// Captures at most `limit` bytes in memory, and a longer stream in `store`.
    pub fn new(limit: usize, store: Option<Cas>) -> Self {
        Self {
            head: Vec::new(),
            total: 0,
            limit,
            spill: store.map_or(Spill::None, Spill::Store),
            pending: Vec::new(),
        }
    }

    /// Adds bytes. Waits only while earlier bytes are being written. If the future is dropped
    /// while it waits, the bytes are captured nevertheless.
    pub async fn push(&mut self, bytes: &[u8]) {
        let room = self.limit - self.head.len();
        let (head, excess) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.total += bytes.len() as u64;
        if excess.is_empty() {
            return;
        }
        match self.spill {
            Spill::None | Spill::Failed(_) => return,
            Spill::Store(_) => self.pending.extend_from_slice(&self.head),
            Spill::Blob(_) | Spill::Writing(_) => {}
        }
        self.pending.extend_from_slice(excess);
        self.wait_for_writer().await;
        self.write_pending();
    }

    /// Waits for the writing thread, if there is one.
    async fn wait_for_writer(&mut self) {
        if let Spill::Writing(writing) = &mut self.spill {
            self.spill = match writing.await {
                Ok(Ok(blob)) => Spill::Blob(blob),
                Ok(Err(error)) => Spill::Failed(error),
                // The runtime is shutting down.
                Err(_) => Spill::None,
            };
        }
    }

    /// Starts a blocking thread that writes the pending bytes, unless one is running.
    fn write_pending(&mut self) {
        self.spill = match std::mem::replace(&mut self.spill, Spill::None) {
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

    /// Ends the capture and waits until a long stream is stored.
    pub async fn finish(mut self) -> CapturedOutput {
        while !self.pending.is_empty() && !matches!(self.spill, Spill::None | Spill::Failed(_)) {
            self.wait_for_writer().await;
            self.write_pending();
        }
        self.wait_for_writer().await;
        let overflow = match self.spill {
            Spill::Blob(blob) => match spawn_blocking(move || blob.finish()).await {
                Ok(Ok(stored)) => Some(Overflow::Stored(stored.hash)),
                Ok(Err(error)) => Some(Overflow::Failed(error)),
                Err(_) => Some(Overflow::Dropped),
            },
            Spill::Failed(error) => Some(Overflow::Failed(error)),
            Spill::None | Spill::Store(_) | Spill::Writing(_) => {
                let exceeded = self.total > self.head.len() as u64;
                exceeded.then_some(Overflow::Dropped)
            }
        };
        CapturedOutput {
            bytes: self.head,
            total: self.total,
            overflow,
        }
    }
}

fn write(mut blob: BlobWriter, bytes: &[u8]) -> Result<BlobWriter, CasError> {
    match blob.write_all(bytes) {
        Ok(()) => Ok(blob),
        // `finish` returns the error with the path.
        Err(error) => Err(blob.finish().err().unwrap_or(CasError::Source(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cancelled_push_loses_no_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Cas::open(dir.path()).unwrap();
        let mut capture = OutputCapture::new(3, Some(store.clone()));
        let mut all = Vec::new();
        for number in 0..200u8 {
            let bytes = [number; 100];
            all.extend_from_slice(&bytes);
            tokio::select! {
                biased;
                () = capture.push(&bytes) => {}
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
