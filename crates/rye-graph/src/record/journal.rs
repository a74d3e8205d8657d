//! Writes the journal of a run: lines that are chained and signed, flushed where a crash matters.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lillux::PathContext as _;
use lillux::cas::Cas;
use lillux::durable;
use lillux::keys::SigningKey;
use lillux::process::Handle;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::runs::{EVENTS, PROCESS, SNAPSHOT};
use super::{JOURNAL, RecordError, Replay, StoredLine, line_hash};
use crate::event::{Event, JournalLine, NodeError, RunStart, RunStatus};

/// Bytes of journal after which a snapshot is taken, unless the state is larger.
const SNAPSHOT_AFTER: usize = 1 << 20;

/// Number of flushes to disk.
static DISK_SYNCS: AtomicU64 = AtomicU64::new(0);

/// Number of times that this process flushed journals to disk, for benchmarks.
pub fn disk_syncs() -> u64 {
    DISK_SYNCS.load(Ordering::Relaxed)
}

/// Journal of a run that this process executes.
pub(crate) struct Journal {
    run: String,
    run_dir: PathBuf,
    store: PathBuf,
    file: File,
    key: Option<SigningKey>,
    seq: u64,
    hash: String,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// The last pending line, which the commit signs.
    last: Option<(u64, i64, String)>,
    since_snapshot: usize,
    unsynced: bool,
    has_ended: bool,
    /// Length of the file up to the last complete line.
    length: u64,
    /// Hash of the latest snapshot, to be written to the snapshot file after the next flush.
    pending_snapshot: Option<String>,
    /// The error that made the journal unusable.
    failure: Option<NodeError>,
    /// The node to continue with.
    node: Option<String>,
}

impl Journal {
    /// Creates the journal of a new run. An empty file of a killed process is reused.
    pub(crate) fn create(
        run_dir: &Path,
        store: &Path,
        key: Option<SigningKey>,
        started: RunStart,
    ) -> Result<(Self, JournalLine), RecordError> {
        durable::create_dir(run_dir, 0o700)?;
        let path = run_dir.join(EVENTS);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .at("create", &path)?;
        durable::sync_dir(run_dir)?;
        DISK_SYNCS.fetch_add(1, Ordering::Relaxed);
        let mut journal = Self::open(&started.run, run_dir, store, file, key)?;
        journal.file.set_len(0).at("cut", &path)?;
        journal.node = Some(started.start.clone());
        let line = journal.push(Event::Started(Box::new(started)));
        Ok((journal, line))
    }

    /// Opens the journal of a run to continue it.
    pub(crate) fn reopen(
        run_dir: &Path,
        store: &Path,
        key: Option<SigningKey>,
        replay: &Replay,
        file: File,
    ) -> Result<Self, RecordError> {
        let path = run_dir.join(EVENTS);
        // Remove an incomplete last line; its event had no effect yet.
        file.set_len(replay.length).at("cut", &path)?;
        (&file).seek(SeekFrom::End(0)).at("open", &path)?;
        let mut journal = Self::open(&replay.started.run, run_dir, store, file, key)?;
        journal.length = replay.length;
        journal.seq = replay.seq;
        journal.hash.clone_from(&replay.hash);
        journal.node = replay.node().map(str::to_owned);
        Ok(journal)
    }

    fn open(
        run: &str,
        run_dir: &Path,
        store: &Path,
        file: File,
        key: Option<SigningKey>,
    ) -> Result<Self, RecordError> {
        file.try_lock()
            .map_err(|_| RecordError::InUse(run.to_owned()))?;
        // Lets other processes find and stop the run; optional.
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        if let Ok(handle) = Handle::from_pid(me) {
            let path = run_dir.join(PROCESS);
            std::fs::write(&path, handle.to_string()).at("write", &path)?;
        }
        Ok(Self {
            run: run.to_owned(),
            run_dir: run_dir.to_owned(),
            store: store.to_owned(),
            file,
            key,
            seq: 0,
            hash: String::new(),
            pending: Vec::new(),
            last: None,
            since_snapshot: 0,
            unsynced: false,
            has_ended: false,
            length: 0,
            pending_snapshot: None,
            failure: None,
            node: None,
        })
    }

    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Adds an event; the next commit writes it.
    pub(crate) fn push(&mut self, event: Event) -> JournalLine {
        match &event {
            Event::Begin { node, .. } => self.node = Some(node.clone()),
            Event::Step { next, .. } => self.node.clone_from(next),
            Event::End { .. } => self.has_ended = true,
            _ => {}
        }
        self.encode_last(false);
        // Serialising plain data cannot fail.
        let text = serde_json::to_string(&event).unwrap_or_default();
        let line = JournalLine {
            seq: self.seq + 1,
            at: lillux::time::now().epoch_ms,
            event,
        };
        self.seq = line.seq;
        self.last = Some((line.seq, line.at, text));
        line
    }

    fn encode_last(&mut self, sign: bool) {
        let Some((seq, at, text)) = self.last.take() else {
            return;
        };
        let hash = line_hash(&self.hash, seq, at, &text);
        let key = self.key.as_ref().filter(|_| sign);
        let Ok(event) = serde_json::from_str::<&RawValue>(&text) else {
            return;
        };
        let stored = StoredLine {
            seq,
            at,
            event,
            hash: hash.to_hex(),
            key: key.map(|key| key.public().fingerprint().to_string()),
            signature: key.map(|key| key.sign_for(JOURNAL, &hash).to_string()),
        };
        if serde_json::to_writer(&mut self.pending, &stored).is_ok() {
            self.pending.push(b'\n');
            self.hash = stored.hash;
        }
    }

    /// Writes the pending lines and signs the last one. With `sync`, flushes them to disk.
    pub(crate) fn commit(&mut self, sync: bool) -> Result<(), RecordError> {
        let outcome = self.write().and_then(|()| self.flush(sync));
        outcome.map_err(|error| self.fail(error))
    }

    /// Records the error that makes the journal unusable.
    pub(crate) fn fail(&mut self, error: RecordError) -> RecordError {
        self.failure = Some(NodeError::new(error.code(), error.to_string()));
        error
    }

    fn flush(&mut self, sync: bool) -> Result<(), RecordError> {
        if !sync || !self.unsynced {
            return Ok(());
        }
        let path = self.run_dir.join(EVENTS);
        self.file.sync_data().at("flush", path)?;
        DISK_SYNCS.fetch_add(1, Ordering::Relaxed);
        self.unsynced = false;
        if let Some(hash) = self.pending_snapshot.take() {
            let (new, path) = (
                self.run_dir.join("snapshot.new"),
                self.run_dir.join(SNAPSHOT),
            );
            std::fs::write(&new, &hash).at("write", &new)?;
            std::fs::rename(&new, &path).at("write", &path)?;
            DISK_SYNCS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), RecordError> {
        self.encode_last(true);
        if self.pending.is_empty() {
            return Ok(());
        }
        let path = self.run_dir.join(EVENTS);
        if let Err(error) = self.file.write_all(&self.pending) {
            // Remove the partial line, so that nothing can follow it.
            let _ = self.file.set_len(self.length);
            return Err(error).at("write", &path).map_err(Into::into);
        }
        self.length += self.pending.len() as u64;
        self.since_snapshot += self.pending.len();
        self.pending.clear();
        self.unsynced = true;
        Ok(())
    }

    /// Whether enough was written since the last snapshot.
    pub(crate) fn wants_snapshot(&self, state_size: usize) -> bool {
        self.since_snapshot > SNAPSHOT_AFTER.max(state_size)
    }

    /// Stores a snapshot of the state. The next flush writes its hash to the snapshot file.
    pub(crate) fn snapshot(&mut self, state: &Map<String, Value>) -> Result<(), RecordError> {
        let text = serde_json::to_vec(state).unwrap_or_default();
        let stored = Cas::open(&self.store).and_then(|store| store.put(&text));
        let stored = stored.map_err(|error| self.fail(error.into()))?;
        let hash = stored.hash.to_hex();
        self.pending_snapshot = Some(hash.clone());
        self.since_snapshot = 0;
        self.push(Event::Snapshot { hash });
        Ok(())
    }
}

/// Dropping an unfinished journal records that the run was cancelled or that the journal failed.
impl Drop for Journal {
    fn drop(&mut self) {
        if !self.has_ended && !std::thread::panicking() {
            let cancelled = || NodeError::new("cancelled", "the run was cancelled");
            let (status, error, node) = match self.failure.take() {
                // Without a node, the run resumes at its journaled position.
                Some(error) => (RunStatus::Failed, error, None),
                None => (RunStatus::Cancelled, cancelled(), self.node.clone()),
            };
            self.push(Event::End {
                status,
                error: Some(error),
                output: None,
                node,
            });
            // If this fails, the missing process shows that the run was interrupted.
            let _ = self.commit(true);
        }
        // Closing the file is not enough: a child process between fork and exec shares the lock.
        let _ = self.file.unlock();
    }
}
