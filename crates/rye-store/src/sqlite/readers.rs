//! Threads that read. Each has a connection of its own, so that none waits for the writer.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use rye_engine::store::{StoreError, Stored};
use tokio::sync::oneshot;

use super::error::{Failure, Outcome};
use super::file;

/// How many read at once.
const READERS: usize = 4;

/// A read, with a way to the database.
type Read = Box<dyn FnOnce(&mut Desk) + Send>;

/// What a reading thread works with.
struct Desk {
    path: PathBuf,
    /// Opened when it is first needed.
    db: Option<Connection>,
}

impl Desk {
    fn read<T>(&mut self, read: impl FnOnce(&Connection) -> Outcome<T>) -> Result<T, StoreError> {
        let result = connection(&mut self.db, &self.path).and_then(|db| {
            // One look, however many questions.
            let look = db.unchecked_transaction()?;
            read(&look)
        });
        result.map_err(|failure: Failure| failure.explain(&self.path))
    }
}

fn connection<'a>(db: &'a mut Option<Connection>, path: &Path) -> Outcome<&'a Connection> {
    if db.is_none() {
        *db = Some(file::reader(path)?);
    }
    db.as_ref()
        .ok_or(Failure::Sql(rusqlite::Error::InvalidQuery))
}

pub(super) struct Readers {
    reads: Option<Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> std::io::Result<Self> {
        let (reads, waiting) = mpsc::channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..READERS).map(|_| {
            let waiting = Arc::clone(&waiting);
            let desk = Desk {
                path: path.to_owned(),
                db: None,
            };
            let thread = thread::Builder::new().name("rye-store-read".to_owned());
            thread.spawn(move || serve(desk, &waiting))
        });
        Ok(Self {
            threads: threads.collect::<Result<_, _>>()?,
            reads: Some(reads),
        })
    }

    /// Has something read.
    pub(super) fn read<'a, T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Stored<'a, T> {
        let (reply, answer) = oneshot::channel();
        if let Some(reads) = &self.reads {
            // Whoever asked may not want to know any more.
            let _ = reads.send(Box::new(|desk| drop(reply.send(desk.read(read)))));
        }
        Box::pin(async move {
            let closed = || StoreError::Unavailable("the store is closed".to_owned());
            answer.await.unwrap_or_else(|_| Err(closed()))
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
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
