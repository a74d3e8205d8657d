//! A store in one SQLite file, which several processes may use at once.

mod book;
mod changes;
mod commit;
mod damage;
mod document;
mod error;
mod examine;
mod file;
mod holder;
mod listing;
mod log;
mod news;
mod post;
mod prompts;
mod queue;
mod read;
mod readers;
mod reading;
mod rows;
mod seen;
mod threads;
mod wake;
mod wal;
mod writer;

use std::fmt;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::store::{
    Claim, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter, SessionSnapshot,
    SessionStore, StoreError, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use tokio::sync::broadcast;

use changes::Changes;
use damage::Health;
use error::Failure;
use holder::Holder;
use post::Letter;
use queue::Queue;
use readers::Readers;
use wake::Bell;
use writer::{Writer, Written};

pub use damage::Soundness;
pub use examine::{Condition, examine};

/// A connection to the file for what is no session.
pub(crate) struct Connection {
    pub(crate) db: rusqlite::Connection,
    queue: Queue,
    path: PathBuf,
}

impl Connection {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = file::writer(path).map_err(|failure| failure.explain(path));
        let (db, queue) = opened?;
        let path = path.to_owned();
        Ok(Self { db, queue, path })
    }

    /// Writes, when it is this connection's turn.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let turn = self.queue.turn();
        let written = turn.and_then(|_turn| Ok(work(&self.db)?));
        written.map_err(|failure| failure.explain(&self.path))
    }
}

/// A store in a file.
///
/// What a commit acknowledges is on the disk, also after a power cut. All writing is done
/// by one thread, which writes at once whatever waits; reading never waits for it. Another
/// process may open the same file: who holds a session is written there too, and a holder
/// that has died is known to have.
///
/// Beside `NAME` lie `NAME-wal` and `NAME-shm`, which are SQLite's and belong to it, and
/// `NAME-wake`, `NAME-seen`, `NAME-queue` and `NAME-lock`, which may go.
///
/// Writers of all processes take turns. One that waits fails only after a minute in which no
/// other has made progress.
///
/// A file that a crash left, or that somebody else has written to, is checked before anything
/// is added to it. Once it is found damaged nothing more is.
///
/// Dropping it waits until all that was asked for is written, and gives back every session
/// that was claimed through it.
///
/// ```
/// use rye_engine::store::{Claim, SessionStore};
/// use rye_store::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = Sqlite::open(folder.path().join("sessions.db"))?;
/// let lease = store.claim(&"my-session".parse()?, Claim::IfFree).await?;
/// assert_eq!(store.snapshot(&lease.session).await?, None);
/// # Ok(())
/// # }
/// ```
pub struct Sqlite {
    // In this order they are closed: the writer last, since only it may tidy up.
    readers: Readers,
    way: Way,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// After all of that: its end says that the file is closed.
    open: Option<mpsc::Sender<()>>,
}

/// Tells when a store is closed, whoever had it last.
#[derive(Debug)]
pub struct Closing(mpsc::Receiver<()>);

impl Closing {
    /// Waits until it is, and at most so long.
    pub fn wait(self, longest: Duration) {
        // Nothing is ever sent: it ends with the store.
        let _ = self.0.recv_timeout(longest);
    }
}

/// What can be done with the file.
enum Way {
    /// All.
    Writes(Writing),
    /// It is only read, and nobody posts.
    Reads {
        why: StoreError,
        posts: broadcast::Sender<SessionId>,
    },
}

struct Writing {
    writer: Writer,
    bell: Arc<Bell>,
    holder: Arc<Holder>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = f.debug_struct("Sqlite");
        this.field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, or makes it. Its folder must be there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, Arc::new(SystemClock::default()))
    }

    /// The same, with a clock that dates the events.
    pub fn open_with(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let path = absolute(&path).map_err(|error| unavailable(path.as_ref(), &error))?;
        let failed = |error: io::Error| unavailable(&path, &error);
        let (db, queue) = file::writer(&path).map_err(|failure| failure.explain(&path))?;
        let holder = Arc::new(Holder::new(&path)?);
        let bell = Arc::new(Bell::new(&path, holder.source())?);
        let health: Arc<Health> = Arc::default();
        let (own, its) = (Arc::clone(&holder), Arc::clone(&health));
        let writer = Writer::start((db, queue), path.clone(), own, Arc::clone(&bell), its);
        Ok(Self {
            readers: Readers::new(&path, health),
            way: Way::Writes(Writing {
                writer: writer.map_err(failed)?,
                bell,
                holder,
            }),
            clock,
            path,
            open: None,
        })
    }

    /// Opens a file; one that cannot be written to, or should not be, is [only
    /// read](Self::only_read), as far as it can be.
    pub fn open_or_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = absolute(&path).map_err(|error| unavailable(path.as_ref(), &error))?;
        damage::is_missing(&path).map_err(|failure| failure.explain(&path))?;
        let why = match Self::open(&path) {
            Err(why) if path.exists() => why,
            opened => return opened,
        };
        match reading::try_to_read(&path) {
            Ok(()) => {}
            Err(Failure::Store(error)) => return Err(error),
            Err(_) => return Err(why),
        }
        let why = match reading::is_read_only(&path) {
            None => why,
            Some(error) => StoreError::Unavailable(format!(
                "{} can only be read here: {error}",
                path.display()
            )),
        };
        Ok(Self {
            readers: Readers::alone(&path),
            way: Way::Reads {
                why,
                posts: broadcast::channel(1).0,
            },
            clock: Arc::new(SystemClock::default()),
            path,
            open: None,
        })
    }

    /// Why nothing can be written, where the file is only read.
    pub fn only_read(&self) -> Option<&StoreError> {
        match &self.way {
            Way::Writes(_) => None,
            Way::Reads { why, .. } => Some(why),
        }
    }

    /// To wait for the end of the store, which may be shared by then. A process that ends
    /// before leaves its log behind, as if it had been killed.
    pub fn closing(&mut self) -> Closing {
        let (open, closing) = mpsc::channel();
        self.open = Some(open);
        Closing(closing)
    }

    /// The ids of all gates, open or closed, oldest first.
    pub async fn gate_ids(&self) -> Result<Vec<GateId>, StoreError> {
        self.readers.read(read::gate_ids).await
    }

    /// Gates whose id has a part in it, ended or not, the oldest first.
    pub async fn gates_with(&self, part: &str) -> Result<Vec<Gate>, StoreError> {
        let part = part.to_owned();
        let read = self.readers.read(move |db| read::gates_with(db, &part));
        read.await
    }

    /// Who writes, if anybody does.
    fn writing(&self) -> Result<&Writing, StoreError> {
        match &self.way {
            Way::Writes(writing) => Ok(writing),
            Way::Reads { why, .. } => Err(why.clone()),
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The listener reads, and so it goes before the writer, who tidies up.
        if let Way::Writes(Writing { bell, .. }) = &self.way {
            bell.hush();
        }
    }
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn refused<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(ready(Err(error)))
}

/// Who writes, or that nobody does.
macro_rules! writing {
    ($store:ident) => {
        match $store.writing() {
            Ok(writing) => writing,
            Err(why) => return refused(why),
        }
    };
}

impl SessionStore for Sqlite {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        let Writing { writer, holder, .. } = writing!(self);
        let (holder, id) = (Arc::clone(holder), session.clone());
        writer.write(session, move |db| Ok(holder.claim(db, &id, claim)?.into()))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let mine = lease.clone();
        let writer = &writing!(self).writer;
        writer.write(&lease.session, move |db| {
            Ok(holder::release(db, &mine)?.into())
        })
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        let mine = lease.clone();
        let writer = &writing!(self).writer;
        match Changes::of(batch, self.clock.now()) {
            Ok(changes) => writer.write(&lease.session, move |db| {
                Ok(commit::commit(db, &mine, changes)?.into())
            }),
            Err(error) => refused(error),
        }
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        let Writing { writer, bell, .. } = writing!(self);
        let (id, bell) = (session.clone(), Arc::clone(bell));
        let letter = match Letter::of(post) {
            Ok(letter) => letter,
            Err(error) => return refused(error),
        };
        writer.write(session, move |db| {
            let (answer, changed) = post::post(db, &id, &letter)?;
            if changed {
                bell.note(db, &id)?;
            }
            Ok(Written {
                answer,
                wakes: changed.then_some(id),
            })
        })
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        match &self.way {
            Way::Writes(Writing { writer, bell, .. }) => bell.listen(|| writer.look(wake::last)),
            Way::Reads { posts, .. } => posts.subscribe(),
        }
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        let mine = lease.clone();
        self.readers
            .read(move |db| post::pending_commands(db, &mine))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        let session = session.clone();
        self.readers.read(move |db| read::record(db, &session))
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        let session = session.clone();
        self.readers.read(move |db| read::archive(db, &session))
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.readers.read(move |db| listing::sessions(db, &filter))
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, leaf) = (session.clone(), leaf.clone());
        self.readers.read(move |db| read::path(db, &session, &leaf))
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, thread, after) = (session.clone(), thread.clone(), after.cloned());
        self.readers
            .read(move |db| read::entries(db, &session, &thread, after.as_ref(), limit))
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        let gate = gate.clone();
        self.readers.read(move |db| read::gate(db, &gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        let gate = gate.clone();
        self.readers.read(move |db| read::gate_refs(db, &gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        let session = session.cloned();
        self.readers
            .read(move |db| read::pending_gates(db, session.as_ref()))
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        let session = session.clone();
        self.readers
            .read(move |db| read::events(db, &session, after, limit))
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        let Some(first) = leases.first() else {
            return Box::pin(ready(Ok(())));
        };
        let mine = leases.to_vec();
        let writer = &writing!(self).writer;
        writer.write(&first.session, move |db| {
            mine.iter().try_for_each(|lease| post::remove(db, lease))?;
            Ok(().into())
        })
    }
}
