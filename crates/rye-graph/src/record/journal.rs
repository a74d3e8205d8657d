//! JournalOptions a record: lines that are chained and signed, flushed when it matters.

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
use super::{JOURNAL, RecordError, Replayed, Written, line_hash};
use crate::event::{Event, JournalLine, NodeError, RunStart, RunStatus};

/// A record that grew by this much since the last snapshot gets another, if the state is
/// not larger still: so snapshots cost no more than the lines do.
const SNAPSHOT_AFTER: usize = 1 << 20;

/// How often this process has waited for the disk, for those who measure.
static COMMITS: AtomicU64 = AtomicU64::new(0);

/// How often this process has waited for the disk for the sake of runs.
pub fn disk_syncs() -> u64 {
    COMMITS.load(Ordering::Relaxed)
}

/// The record of a run that this process walks.
pub(crate) struct Journal {
    run: String,
    folder: PathBuf,
    store: PathBuf,
    file: File,
    key: Option<SigningKey>,
    seq: u64,
    hash: String,
    /// Lines that are not in the file yet.
    waiting: Vec<u8>,
    /// The last of them, which is signed.
    last: Option<(u64, i64, String)>,
    since_snapshot: usize,
    unsynced: bool,
    has_ended: bool,
    /// As many bytes as were written whole.
    length: u64,
    /// The newest snapshot, to be named beside the record once that is on the disk: a name
    /// without its line would look like lines that were cut.
    named: Option<String>,
    /// Why it could not be written on.
    broken: Option<NodeError>,
    /// Where it would go on.
    node: Option<String>,
}

impl Journal {
    /// Begins the record of a new run. What a process left that died before it wrote a line is
    /// no run.
    pub(crate) fn create(
        folder: &Path,
        store: &Path,
        key: Option<SigningKey>,
        started: RunStart,
    ) -> Result<(Self, JournalLine), RecordError> {
        durable::create_dir(folder, 0o700)?;
        let path = folder.join(EVENTS);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .at("create", &path)?;
        durable::sync_dir(folder)?;
        COMMITS.fetch_add(1, Ordering::Relaxed);
        let mut journal = Self::over(&started.run, folder, store, file, key)?;
        journal.file.set_len(0).at("cut", &path)?;
        journal.node = Some(started.start.clone());
        let line = journal.push(Event::Started(Box::new(started)));
        Ok((journal, line))
    }

    /// Goes on with the record of a run.
    pub(crate) fn reopen(
        folder: &Path,
        store: &Path,
        key: Option<SigningKey>,
        replayed: &Replayed,
        file: File,
    ) -> Result<Self, RecordError> {
        let path = folder.join(EVENTS);
        // A line that a dying process did not finish tells of nothing that was acted on.
        file.set_len(replayed.length).at("cut", &path)?;
        (&file).seek(SeekFrom::End(0)).at("open", &path)?;
        let mut journal = Self::over(&replayed.started.run, folder, store, file, key)?;
        journal.length = replayed.length;
        journal.seq = replayed.seq;
        journal.hash.clone_from(&replayed.hash);
        journal.node = replayed.node().map(str::to_owned);
        Ok(journal)
    }

    fn over(
        run: &str,
        folder: &Path,
        store: &Path,
        file: File,
        key: Option<SigningKey>,
    ) -> Result<Self, RecordError> {
        file.try_lock()
            .map_err(|_| RecordError::InUse(run.to_owned()))?;
        // Who walks it, for those who want to see or end it. Without it that is all they lack.
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        if let Ok(handle) = Handle::from_pid(me) {
            let path = folder.join(PROCESS);
            std::fs::write(&path, handle.to_string()).at("write", &path)?;
        }
        Ok(Self {
            run: run.to_owned(),
            folder: folder.to_owned(),
            store: store.to_owned(),
            file,
            key,
            seq: 0,
            hash: String::new(),
            waiting: Vec::new(),
            last: None,
            since_snapshot: 0,
            unsynced: false,
            has_ended: false,
            length: 0,
            named: None,
            broken: None,
            node: None,
        })
    }

    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a line, to be written with the next commit.
    pub(crate) fn push(&mut self, event: Event) -> JournalLine {
        match &event {
            Event::Begin { node, .. } => self.node = Some(node.clone()),
            Event::Step { next, .. } => self.node.clone_from(next),
            Event::End { .. } => self.has_ended = true,
            _ => {}
        }
        self.finish_last(false);
        // Plain data has a JSON form.
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

    fn finish_last(&mut self, sign: bool) {
        let Some((seq, at, text)) = self.last.take() else {
            return;
        };
        let hash = line_hash(&self.hash, seq, at, &text);
        let key = self.key.as_ref().filter(|_| sign);
        let Ok(event) = serde_json::from_str::<&RawValue>(&text) else {
            return;
        };
        let written = Written {
            seq,
            at,
            event,
            hash: hash.to_hex(),
            key: key.map(|key| key.public().fingerprint().to_string()),
            signature: key.map(|key| key.sign_for(JOURNAL, &hash).to_string()),
        };
        if serde_json::to_writer(&mut self.waiting, &written).is_ok() {
            self.waiting.push(b'\n');
            self.hash = written.hash;
        }
    }

    /// Writes what was added, signed. With `sync` it is on the disk when this returns.
    pub(crate) fn commit(&mut self, sync: bool) -> Result<(), RecordError> {
        let outcome = self.write().and_then(|()| self.flush(sync));
        outcome.map_err(|error| self.broke(error))
    }

    /// Notes why it cannot be gone on with.
    pub(crate) fn broke(&mut self, error: RecordError) -> RecordError {
        self.broken = Some(NodeError::new(error.code(), error.to_string()));
        error
    }

    fn flush(&mut self, sync: bool) -> Result<(), RecordError> {
        if !sync || !self.unsynced {
            return Ok(());
        }
        let path = self.folder.join(EVENTS);
        self.file.sync_data().at("flush", path)?;
        COMMITS.fetch_add(1, Ordering::Relaxed);
        self.unsynced = false;
        if let Some(hash) = self.named.take() {
            let (new, path) = (self.folder.join("snapshot.new"), self.folder.join(SNAPSHOT));
            std::fs::write(&new, &hash).at("write", &new)?;
            std::fs::rename(&new, &path).at("write", &path)?;
            COMMITS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), RecordError> {
        self.finish_last(true);
        if self.waiting.is_empty() {
            return Ok(());
        }
        let path = self.folder.join(EVENTS);
        if let Err(error) = self.file.write_all(&self.waiting) {
            // What is there of it is no line, and nothing may follow it.
            let _ = self.file.set_len(self.length);
            return Err(error).at("write", &path).map_err(Into::into);
        }
        self.length += self.waiting.len() as u64;
        self.since_snapshot += self.waiting.len();
        self.waiting.clear();
        self.unsynced = true;
        Ok(())
    }

    /// Whether enough was written for another snapshot.
    pub(crate) fn wants_snapshot(&self, state_size: usize) -> bool {
        self.since_snapshot > SNAPSHOT_AFTER.max(state_size)
    }

    /// Puts the state into the content store, to be named beside the record with the next
    /// commit that waits for the disk.
    pub(crate) fn snapshot(&mut self, state: &Map<String, Value>) -> Result<(), RecordError> {
        let text = serde_json::to_vec(state).unwrap_or_default();
        let stored = Cas::open(&self.store).and_then(|store| store.put(&text));
        let stored = stored.map_err(|error| self.broke(error.into()))?;
        let hash = stored.hash.to_hex();
        self.named = Some(hash.clone());
        self.since_snapshot = 0;
        self.push(Event::Snapshot { hash });
        Ok(())
    }
}

/// A run that is dropped was ended by somebody: a person, a signal, a caller that gave up; or
/// it could not be written down any more.
impl Drop for Journal {
    fn drop(&mut self) {
        if !self.has_ended && !std::thread::panicking() {
            let cancelled = || NodeError::new("cancelled", "it was ended before its time");
            let (status, error, node) = match self.broken.take() {
                // Without a node: it goes on where the lines say that it was.
                Some(error) => (RunStatus::Failed, error, None),
                None => (RunStatus::Cancelled, cancelled(), self.node.clone()),
            };
            self.push(Event::End {
                status,
                error: Some(error),
                output: None,
                node,
            });
            // Where that cannot be written, its process is gone, which tells the same.
            let _ = self.commit(true);
        }
        // Closing the file is not enough: a child process between fork and exec shares the lock.
        let _ = self.file.unlock();
    }
}
