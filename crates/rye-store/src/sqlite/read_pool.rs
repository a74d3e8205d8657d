//! A pool of reader threads. Each has its own connection, so that reads never wait for the
//! writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rusqlite::Connection;
use rye_engine::store::{StoreError, StoreFuture};
use tokio::sync::oneshot;

use super::error::{DbError, DbResult};
use super::integrity::FileHealth;
use super::read_only::ChangeStamp;
use super::{file, read_only};

/// Maximum number of threads.
const MAX_THREADS: usize = 4;

/// A read to run on a thread of the pool.
type ReadJob = Box<dyn FnOnce(&mut ReaderState) + Send>;

/// The state of a reader thread.
struct ReaderState {
    path: PathBuf,
    /// Opened at the first read.
    db: Option<Connection>,
    health: Arc<FileHealth>,
    /// Whether the store was opened read-only.
    is_read_only: bool,
}

impl ReaderState {
    fn read<T>(&mut self, read: impl FnOnce(&Connection) -> DbResult<T>) -> Result<T, StoreError> {
        let result = if self.is_read_only {
            self.read_unlocked(read)
        } else {
            connection(&mut self.db, &self.path).and_then(|db| in_transaction(db, read))
        };
        result.map_err(|failure| self.health.explain(failure, &self.path))
    }

    /// Reads without locks. Fails if another process has written to the file in the meantime.
    fn read_unlocked<T>(&self, read: impl FnOnce(&Connection) -> DbResult<T>) -> DbResult<T> {
        let before = ChangeStamp::read(&self.path);
        let result = in_transaction(&read_only::open(&self.path)?, read);
        if ChangeStamp::read(&self.path) == before {
            return result;
        }
        let file = self.path.display();
        let message = format!("{file} was modified while it was read; try again");
        Err(StoreError::Unavailable(message).into())
    }
}

/// Runs several queries on one snapshot.
fn in_transaction<T>(
    db: &Connection,
    read: impl FnOnce(&Connection) -> DbResult<T>,
) -> DbResult<T> {
    let transaction = db.unchecked_transaction()?;
    read(&transaction)
}

fn connection<'a>(db: &'a mut Option<Connection>, path: &Path) -> DbResult<&'a Connection> {
    if db.is_none() {
        *db = Some(file::open_reader(path)?);
    }
    db.as_ref()
        .ok_or(DbError::Sql(rusqlite::Error::InvalidQuery))
}

pub(super) struct ReadPool {
    path: PathBuf,
    jobs: Option<Sender<ReadJob>>,
    queue: Arc<Mutex<Receiver<ReadJob>>>,
    /// Number of waiting and running reads.
    pending: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    health: Arc<FileHealth>,
    is_read_only: bool,
}

impl ReadPool {
    /// The pool of a store that also writes.
    pub(super) fn new(path: &Path, health: Arc<FileHealth>) -> Self {
        Self::with(path, health, false)
    }

    /// The pool of a read-only store.
    pub(super) fn read_only(path: &Path) -> Self {
        Self::with(path, Arc::default(), true)
    }

    fn with(path: &Path, health: Arc<FileHealth>, is_read_only: bool) -> Self {
        let (jobs, queue) = mpsc::channel();
        Self {
            path: path.to_owned(),
            jobs: Some(jobs),
            queue: Arc::new(Mutex::new(queue)),
            pending: Arc::default(),
            threads: Mutex::default(),
            health,
            is_read_only,
        }
    }

    /// Runs a read on a thread of the pool.
    pub(super) fn read<'a, T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> DbResult<T> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let (reply, answer) = oneshot::channel();
        let pending = Arc::clone(&self.pending);
        self.start_thread_if_needed(pending.fetch_add(1, Ordering::SeqCst) + 1);
        if let Some(jobs) = &self.jobs {
            // The caller may have dropped the future.
            let _ = jobs.send(Box::new(move |state| {
                let result = state.read(read);
                pending.fetch_sub(1, Ordering::SeqCst);
                drop(reply.send(result));
            }));
        }
        Box::pin(async move {
            let closed = || StoreError::Unavailable("the store is closed".to_owned());
            answer.await.unwrap_or_else(|_| Err(closed()))
        })
    }

    /// Starts another thread if there are more reads than threads. Most processes read little
    /// and need only one; opening a connection takes time.
    fn start_thread_if_needed(&self, pending: usize) {
        let mut threads = self.threads.lock();
        if threads.len() >= pending.min(MAX_THREADS) {
            return;
        }
        let queue = Arc::clone(&self.queue);
        let state = ReaderState {
            path: self.path.clone(),
            db: None,
            health: Arc::clone(&self.health),
            is_read_only: self.is_read_only,
        };
        let thread = thread::Builder::new().name("rye-store-read".to_owned());
        // If no thread can be started, the existing ones do the work.
        threads.extend(thread.spawn(move || run_thread(state, &queue)));
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        self.jobs = None;
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run_thread(mut state: ReaderState, queue: &Mutex<Receiver<ReadJob>>) {
    loop {
        // One thread waits for a job, the others for the mutex.
        let next = queue.lock().recv();
        match next {
            Ok(read) => read(&mut state),
            Err(_) => return,
        }
    }
}
