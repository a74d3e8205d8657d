//! Threads that read. Each has a connection of its own, so that none waits for the writer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use rye_engine::store::{StoreError, StoreFuture};
use tokio::sync::oneshot;

use super::damage::Health;
use super::error::{Failure, Outcome};
use super::reading::Stamp;
use super::{file, reading};

/// How many read at once.
const READERS: usize = 4;

/// A read, with a way to the database.
type Read = Box<dyn FnOnce(&mut Desk) + Send>;

/// What a reading thread works with.
struct Desk {
    path: PathBuf,
    /// Opened when it is first needed.
    db: Option<Connection>,
    health: Arc<Health>,
    /// Whether nobody here writes.
    alone: bool,
}

impl Desk {
    fn read<T>(&mut self, read: impl FnOnce(&Connection) -> Outcome<T>) -> Result<T, StoreError> {
        let result = if self.alone {
            self.read_alone(read)
        } else {
            connection(&mut self.db, &self.path).and_then(|db| look(db, read))
        };
        result.map_err(|failure| self.health.explain(failure, &self.path))
    }

    /// Reads from what SQLite takes for a file that nobody writes to.
    fn read_alone<T>(&self, read: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
        let before = Stamp::of(&self.path);
        let found = look(&reading::connect(&self.path)?, read);
        if Stamp::of(&self.path) == before {
            return found;
        }
        let place = self.path.display();
        let message = format!("{place} was written to while it was read: try again");
        Err(StoreError::Unavailable(message).into())
    }
}

/// One look, however many questions.
fn look<T>(db: &Connection, read: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    let look = db.unchecked_transaction()?;
    read(&look)
}

fn connection<'a>(db: &'a mut Option<Connection>, path: &Path) -> Outcome<&'a Connection> {
    if db.is_none() {
        *db = Some(file::reader(path)?);
    }
    db.as_ref()
        .ok_or(Failure::Sql(rusqlite::Error::InvalidQuery))
}

pub(super) struct Readers {
    path: PathBuf,
    reads: Option<Sender<Read>>,
    waiting: Arc<Mutex<Receiver<Read>>>,
    /// How many reads wait or are under way.
    open: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    health: Arc<Health>,
    alone: bool,
}

impl Readers {
    /// Of a file that somebody here writes to as well.
    pub(super) fn new(path: &Path, health: Arc<Health>) -> Self {
        Self::of(path, health, false)
    }

    /// Of one to which nobody here does.
    pub(super) fn alone(path: &Path) -> Self {
        Self::of(path, Arc::default(), true)
    }

    fn of(path: &Path, health: Arc<Health>, alone: bool) -> Self {
        let (reads, waiting) = mpsc::channel();
        Self {
            path: path.to_owned(),
            reads: Some(reads),
            waiting: Arc::new(Mutex::new(waiting)),
            open: Arc::default(),
            threads: Mutex::default(),
            health,
            alone,
        }
    }

    /// Has something read.
    pub(super) fn read<'a, T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let (reply, answer) = oneshot::channel();
        let open = Arc::clone(&self.open);
        self.call_in(open.fetch_add(1, Ordering::SeqCst) + 1);
        if let Some(reads) = &self.reads {
            // Whoever asked may not want to know any more.
            let _ = reads.send(Box::new(move |desk| {
                let found = desk.read(read);
                open.fetch_sub(1, Ordering::SeqCst);
                drop(reply.send(found));
            }));
        }
        Box::pin(async move {
            let closed = || StoreError::Unavailable("the store is closed".to_owned());
            answer.await.unwrap_or_else(|_| Err(closed()))
        })
    }

    /// Starts another thread if there are more reads than threads: a process that asks one
    /// thing and ends needs one, and to open a file takes a while.
    fn call_in(&self, open: usize) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= open.min(READERS) {
            return;
        }
        let waiting = Arc::clone(&self.waiting);
        let desk = Desk {
            path: self.path.clone(),
            db: None,
            health: Arc::clone(&self.health),
            alone: self.alone,
        };
        let thread = thread::Builder::new().name("rye-store-read".to_owned());
        // Where no more can be had, those that are there do it, and the next read tries again.
        threads.extend(thread.spawn(move || serve(desk, &waiting)));
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(mut desk: Desk, waiting: &Mutex<Receiver<Read>>) {
    loop {
        // One waits for the next read, and the others for their turn to wait.
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match next {
            Ok(read) => read(&mut desk),
            Err(_) => return,
        }
    }
}
