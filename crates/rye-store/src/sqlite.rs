//! A store in one SQLite file, which several processes may use at once.

mod book;
mod changes;
mod commit;
mod document;
mod error;
mod file;
mod holder;
mod listing;
mod post;
mod read;
mod readers;
mod rows;
mod wake;
mod writer;

use std::fmt;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::store::{
    Claim, Control, Lease, Post, Posted, Record, SessionFilter, SessionStore, StoreError, Stored,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use tokio::sync::broadcast;

use changes::Changes;
use holder::Holder;
use post::Letter;
use readers::Readers;
use wake::Bell;
use writer::{Writer, Written};

/// A connection to the file for what is no session.
pub(crate) fn connection(path: &Path) -> Result<rusqlite::Connection, StoreError> {
    file::writer(path).map_err(|failure| failure.explain(path))
}

/// A store in a file.
///
/// What a commit acknowledges is on the disk, also after a power cut. All writing is done
/// by one thread, which writes at once whatever waits; reading never waits for it. Another
/// process may open the same file: who holds a session is written there too, and a holder
/// that has died is known to have.
///
/// Beside `NAME` lie `NAME-wal` and `NAME-shm`, which are SQLite's and belong to it, and
/// `NAME-wake`, which may go.
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
/// assert_eq!(store.record(&lease.session).await?, None);
/// # Ok(())
/// # }
/// ```
pub struct Sqlite {
    // In this order they are closed: the writer last, since only it may tidy up.
    readers: Readers,
    writer: Writer,
    bell: Arc<Bell>,
    holder: Arc<Holder>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
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
        let db = file::writer(&path).map_err(|failure| failure.explain(&path))?;
        let holder = Arc::new(Holder::new()?);
        let bell = Arc::new(Bell::new(&path, holder.source())?);
        let writer = Writer::start(db, path.clone(), Arc::clone(&holder), Arc::clone(&bell));
        Ok(Self {
            readers: Readers::new(&path),
            writer: writer.map_err(failed)?,
            bell,
            holder,
            clock,
            path,
        })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The listener reads, and so it goes before the writer, who tidies up.
        self.bell.hush();
    }
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn refused<'a, T: Send + 'a>(error: StoreError) -> Stored<'a, T> {
    Box::pin(ready(Err(error)))
}

impl SessionStore for Sqlite {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> Stored<'a, Lease> {
        let (holder, id) = (Arc::clone(&self.holder), session.clone());
        self.writer
            .write(session, move |db| Ok(holder.claim(db, &id, claim)?.into()))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Stored<'a, ()> {
        let mine = lease.clone();
        self.writer.write(&lease.session, move |db| {
            Ok(holder::release(db, &mine)?.into())
        })
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> Stored<'a, u64> {
        let mine = lease.clone();
        match Changes::of(batch, self.clock.now()) {
            Ok(changes) => self.writer.write(&lease.session, move |db| {
                Ok(commit::commit(db, &mine, changes)?.into())
            }),
            Err(error) => refused(error),
        }
    }

    fn post<'a>(&'a self, session: &'a SessionId, post: Post) -> Stored<'a, Posted> {
        let (id, bell) = (session.clone(), Arc::clone(&self.bell));
        let letter = match Letter::of(post) {
            Ok(letter) => letter,
            Err(error) => return refused(error),
        };
        self.writer.write(session, move |db| {
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

    fn posts(&self) -> broadcast::Receiver<SessionId> {
        self.bell.listen(|| self.writer.look(wake::last))
    }

    fn controls<'a>(&'a self, lease: &'a Lease) -> Stored<'a, Vec<Control>> {
        let mine = lease.clone();
        self.readers.read(move |db| post::controls(db, &mine))
    }

    fn record<'a>(&'a self, session: &'a SessionId) -> Stored<'a, Option<Record>> {
        let session = session.clone();
        self.readers.read(move |db| read::record(db, &session))
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> Stored<'a, Option<Archive>> {
        let session = session.clone();
        self.readers.read(move |db| read::archive(db, &session))
    }

    fn sessions(&self, filter: SessionFilter) -> Stored<'_, Vec<Session>> {
        self.readers.read(move |db| listing::sessions(db, &filter))
    }

    fn path<'a>(&'a self, session: &'a SessionId, leaf: &'a EntryId) -> Stored<'a, Vec<Entry>> {
        let (session, leaf) = (session.clone(), leaf.clone());
        self.readers.read(move |db| read::path(db, &session, &leaf))
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> Stored<'a, Vec<Entry>> {
        let (session, thread, after) = (session.clone(), thread.clone(), after.cloned());
        self.readers
            .read(move |db| read::entries(db, &session, &thread, after.as_ref(), limit))
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> Stored<'a, Option<Gate>> {
        let gate = gate.clone();
        self.readers.read(move |db| read::gate(db, &gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> Stored<'a, Vec<GateRef>> {
        let gate = gate.clone();
        self.readers.read(move |db| read::gate_refs(db, &gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> Stored<'a, Vec<Gate>> {
        let session = session.cloned();
        self.readers
            .read(move |db| read::pending_gates(db, session.as_ref()))
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<Event>> {
        let session = session.clone();
        self.readers
            .read(move |db| read::events(db, &session, after, limit))
    }

    fn remove<'a>(&'a self, lease: &'a Lease) -> Stored<'a, ()> {
        let mine = lease.clone();
        self.writer.write(
            &lease.session,
            move |db| Ok(post::remove(db, &mine)?.into()),
        )
    }
}
