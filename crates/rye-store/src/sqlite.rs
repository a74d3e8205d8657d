//! A session store in a SQLite file that several processes can use at once. `schema.sql` defines
//! its tables.

mod commit;
mod commit_cache;
mod commit_watch;
mod diagnose;
mod due;
mod error;
mod file;
mod file_stamp;
mod inbox;
mod integrity;
mod lease;
mod listing;
mod log;
mod notifier;
mod prompts;
mod queries;
mod read_only;
mod read_pool;
mod rows;
mod threads;
mod wal;
mod writer;
mod writer_queue;

use std::fmt;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, mpsc};

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreError, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, PromptId, QueuedPrompt,
    Session, SessionId, ThreadId,
};
use tokio::sync::{broadcast, watch};

use crate::close::CloseHandle;
use crate::prepared_batch::PreparedBatch;
use commit_watch::CommitWatch;
use error::DbError;
use inbox::PreparedPost;
use integrity::FileHealth;
use lease::LeaseHolder;
use notifier::Notifier;
use read_pool::ReadPool;
use writer::{JobOutput, Writer};
use writer_queue::WriterQueue;

pub use diagnose::{FileReport, diagnose};
pub use integrity::Integrity;

/// A connection to the database for data other than sessions.
pub(crate) struct Connection {
    pub(crate) db: rusqlite::Connection,
    queue: WriterQueue,
    path: PathBuf,
}

impl Connection {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = file::open_writer(path).map_err(|failure| failure.explain(path));
        let (db, queue) = opened?;
        let path = path.to_owned();
        Ok(Self { db, queue, path })
    }

    /// Runs a read.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.db).map_err(|error| DbError::from(error).explain(&self.path))
    }

    /// Runs a write when the queue of writers permits it.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let permit = self.queue.acquire();
        let result = permit.and_then(|_permit| Ok(work(&self.db)?));
        result.map_err(|failure| failure.explain(&self.path))
    }
}

/// A session store in a SQLite file.
///
/// An acknowledged commit survives a power failure. One thread writes, and groups waiting
/// commits; reads never wait for it. Several processes can open the same file: leases are stored
/// in it, and the lease of a process that has died counts as free. Writers of all processes are
/// served in order; a writer fails if none of them makes progress for a minute.
///
/// SQLite creates `NAME-wal` and `NAME-shm` next to the file; they are part of the database.
/// `NAME-wake`, `NAME-stamp`, `NAME-queue` and `NAME-lock` can be deleted when no process has the
/// file open.
///
/// If a process crashed or another program has modified the file, the store checks the file
/// before it writes. It never writes to a file that it knows to be damaged.
///
/// Dropping the store waits until all commits are written, and releases all its leases.
///
/// ```
/// use rye_engine::store::{Claim, SessionStore};
/// use rye_store::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let store = SqliteStore::open(dir.path().join("sessions.db"))?;
/// let lease = store.claim(&"my-session".parse()?, Claim::IfFree).await?;
/// assert_eq!(store.snapshot(&lease.session).await?, None);
/// # Ok(())
/// # }
/// ```
pub struct SqliteStore {
    // Dropped in this order: the last connection, the writer, copies the log into the file.
    reads: ReadPool,
    commits: CommitWatch,
    access: Access,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Dropped last; signals `CloseHandle`.
    open: Option<mpsc::Sender<()>>,
}

/// How the file was opened.
enum Access {
    ReadWrite(WriteHandle),
    ReadOnly {
        reason: StoreError,
        /// Never used; `posts` must return a receiver.
        posts: broadcast::Sender<SessionId>,
    },
}

struct WriteHandle {
    writer: Writer,
    notifier: Arc<Notifier>,
    holder: Arc<LeaseHolder>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = f.debug_struct("SqliteStore");
        this.field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens a file, and creates it if it does not exist. The directory must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_clock(path, Arc::new(SystemClock::default()))
    }

    /// Opens a file like [`open`](Self::open), and takes the time of events from a clock.
    pub fn open_with_clock(
        path: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let path = absolute(&path).map_err(|error| unavailable(path.as_ref(), &error))?;
        let failed = |error: io::Error| unavailable(&path, &error);
        let (db, queue) = file::open_writer(&path).map_err(|failure| failure.explain(&path))?;
        let holder = Arc::new(LeaseHolder::new(&path)?);
        let notifier = Arc::new(Notifier::new(&path, holder.source())?);
        let health: Arc<FileHealth> = Arc::default();
        let writer = Writer::start(
            (db, queue),
            path.clone(),
            Arc::clone(&holder),
            Arc::clone(&notifier),
            Arc::clone(&health),
        );
        Ok(Self {
            reads: ReadPool::new(&path, health),
            commits: CommitWatch::new(&path),
            access: Access::ReadWrite(WriteHandle {
                writer: writer.map_err(failed)?,
                notifier,
                holder,
            }),
            clock,
            path,
            open: None,
        })
    }

    /// Opens a file. If it cannot be written or is damaged, opens it
    /// [read-only](Self::read_only_reason).
    pub fn open_or_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = absolute(&path).map_err(|error| unavailable(path.as_ref(), &error))?;
        integrity::check_not_missing(&path).map_err(|failure| failure.explain(&path))?;
        let reason = match Self::open(&path) {
            Err(reason) if path.exists() => reason,
            opened => return opened,
        };
        match read_only::check_readable(&path) {
            Ok(()) => {}
            Err(DbError::Store(error)) => return Err(error),
            Err(_) => return Err(reason),
        }
        let reason = match read_only::read_only_reason(&path) {
            None => reason,
            Some(error) => {
                StoreError::Unavailable(format!("{} is read-only: {error}", path.display()))
            }
        };
        Ok(Self {
            reads: ReadPool::read_only(&path),
            commits: CommitWatch::new(&path),
            access: Access::ReadOnly {
                reason,
                posts: broadcast::channel(1).0,
            },
            clock: Arc::new(SystemClock::default()),
            path,
            open: None,
        })
    }

    /// Why the store is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<&StoreError> {
        match &self.access {
            Access::ReadWrite(_) => None,
            Access::ReadOnly { reason, .. } => Some(reason),
        }
    }

    /// A handle to wait until the store, which may be shared by then, is closed. A process that
    /// ends earlier leaves a write-ahead log like a killed one.
    pub fn close_handle(&mut self) -> CloseHandle {
        let (open, handle) = CloseHandle::new();
        self.open = Some(open);
        handle
    }

    /// The ids of all gates, open or closed, oldest first.
    pub async fn gate_ids(&self) -> Result<Vec<GateId>, StoreError> {
        self.reads.read(queries::gate_ids).await
    }

    /// Gates whose id contains a text, open or closed, oldest first.
    pub async fn gates_matching(&self, text: &str) -> Result<Vec<Gate>, StoreError> {
        let text = text.to_owned();
        let read = self
            .reads
            .read(move |db| queries::gates_matching(db, &text));
        read.await
    }

    /// Looks up which holders of leases are alive.
    fn lease_holder(&self) -> Result<Arc<LeaseHolder>, StoreError> {
        match &self.access {
            Access::ReadWrite(handle) => Ok(Arc::clone(&handle.holder)),
            Access::ReadOnly { .. } => LeaseHolder::new(&self.path).map(Arc::new),
        }
    }

    fn write_handle(&self) -> Result<&WriteHandle, StoreError> {
        match &self.access {
            Access::ReadWrite(handle) => Ok(handle),
            Access::ReadOnly { reason, .. } => Err(reason.clone()),
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The listeners close their connections before the writer.
        self.commits.stop();
        if let Access::ReadWrite(WriteHandle { notifier, .. }) = &self.access {
            notifier.stop();
        }
    }
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn refused<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(ready(Err(error)))
}

/// Returns early if the store is read-only.
macro_rules! write_handle {
    ($store:ident) => {
        match $store.write_handle() {
            Ok(handle) => handle,
            Err(reason) => return refused(reason),
        }
    };
}

impl SessionStore for SqliteStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        let WriteHandle {
            writer,
            holder,
            notifier,
        } = write_handle!(self);
        let (holder, notifier, id) = (Arc::clone(holder), Arc::clone(notifier), session.clone());
        writer.write(session, move |db| {
            let value = holder.claim(db, &id, claim)?;
            // A session that is about to be created has no subscribers.
            let exists = rows::session(db, &id)?.is_some();
            if exists {
                notifier.record_post(db, &id)?;
            }
            let notify = exists.then_some(id);
            Ok(JobOutput { value, notify })
        })
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        // Of no session: an empty transaction, which checks the file and its format.
        let (writer, none) = (&write_handle!(self).writer, SessionId::new());
        writer.write(&none, |_| Ok(().into()))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let own = lease.clone();
        let WriteHandle {
            writer, notifier, ..
        } = write_handle!(self);
        let notifier = Arc::clone(notifier);
        writer.write(&lease.session, move |db| {
            lease::release(db, &own)?;
            notifier.record_post(db, &own.session)?;
            let notify = Some(own.session);
            Ok(JobOutput { value: (), notify })
        })
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        let holder = match self.lease_holder() {
            Ok(holder) => holder,
            Err(error) => return refused(error),
        };
        let session = session.cloned();
        self.reads
            .read(move |db| holder.live_holders(db, session.as_ref()))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        let own = lease.clone();
        let writer = &write_handle!(self).writer;
        match PreparedBatch::new(batch, self.clock.now()) {
            Ok(batch) => writer.write(&lease.session, move |db| {
                Ok(commit::commit(db, &own, batch)?.into())
            }),
            Err(error) => refused(error),
        }
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        let WriteHandle {
            writer, notifier, ..
        } = write_handle!(self);
        let (id, notifier, now) = (session.clone(), Arc::clone(notifier), self.clock.now());
        let post = match PreparedPost::new(post) {
            Ok(post) => post,
            Err(error) => return refused(error),
        };
        writer.write(session, move |db| {
            let (value, changed) = inbox::post(db, &id, &post, now)?;
            if changed {
                notifier.record_post(db, &id)?;
            }
            Ok(JobOutput {
                value,
                notify: changed.then_some(id),
            })
        })
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        match &self.access {
            Access::ReadWrite(WriteHandle {
                writer, notifier, ..
            }) => notifier.subscribe(|| writer.query(notifier::last_post)),
            Access::ReadOnly { posts, .. } => posts.subscribe(),
        }
    }

    fn subscribe_commits(&self) -> watch::Receiver<()> {
        self.commits.subscribe()
    }

    fn prompt<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> StoreFuture<'a, Option<QueuedPrompt>> {
        let (session, prompt) = (session.clone(), prompt.clone());
        self.reads
            .read(move |db| queries::prompt(db, &session, &prompt))
    }

    fn due(&self, before: Millis) -> StoreFuture<'_, Vec<SessionId>> {
        let holder = match self.lease_holder() {
            Ok(holder) => holder,
            Err(error) => return refused(error),
        };
        self.reads.read(move |db| due::due(db, &holder, before))
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        let own = lease.clone();
        self.reads.read(move |db| inbox::pending_commands(db, &own))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        let session = session.clone();
        self.reads.read(move |db| queries::snapshot(db, &session))
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        let session = session.clone();
        self.reads.read(move |db| {
            let row = queries::session(db, &session)?;
            Ok(row.map(|(_, session)| session))
        })
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        let session = session.clone();
        self.reads.read(move |db| queries::archive(db, &session))
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.reads.read(move |db| listing::sessions(db, &filter))
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, leaf) = (session.clone(), leaf.clone());
        self.reads
            .read(move |db| queries::path(db, &session, &leaf))
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, thread, after) = (session.clone(), thread.clone(), after.cloned());
        self.reads
            .read(move |db| queries::entries(db, &session, &thread, after.as_ref(), limit))
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        let (session, entry) = (session.clone(), entry.clone());
        self.reads
            .read(move |db| queries::entry(db, &session, &entry))
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        let gate = gate.clone();
        self.reads.read(move |db| queries::gate(db, &gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        let gate = gate.clone();
        self.reads.read(move |db| queries::gate_refs(db, &gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        let session = session.cloned();
        self.reads
            .read(move |db| queries::pending_gates(db, session.as_ref()))
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        let root = root.clone();
        self.reads
            .read(move |db| queries::pending_gates_in_tree(db, &root))
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        let session = session.clone();
        self.reads.read(move |db| queries::gates(db, &session))
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        let session = session.clone();
        self.reads
            .read(move |db| queries::events(db, &session, after, limit))
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        let Some(first) = leases.first() else {
            return Box::pin(ready(Ok(())));
        };
        let leases = leases.to_vec();
        let writer = &write_handle!(self).writer;
        writer.write(&first.session, move |db| {
            leases
                .iter()
                .try_for_each(|lease| inbox::remove_session(db, lease))?;
            Ok(().into())
        })
    }
}
