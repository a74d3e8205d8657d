//! A session store in a PostgreSQL database that many hosts share. `schema.sql` defines its tables
//! and the functions that write them.
//!
//! Each write is one call of a function of the database, and therefore one round trip and one
//! transaction. The first statement of a commit updates the row of the session's lease: it checks
//! the epoch, numbers the events, and orders the commit with the posts.

mod blobs;
mod config;
mod credentials;
mod db;
mod documents;
mod error;
mod host;
mod leases;
mod liveness;
mod migrate;
mod ops;
mod posts;
mod queries;
mod tasks;
mod tls;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rye_engine::clock::Clock;
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreError, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, PromptId, QueuedPrompt,
    Session, SessionId, ThreadId,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{broadcast, oneshot, watch};

use crate::close::CloseHandle;
use crate::credentials::KeyProvider;
use db::Db;
use error::{DbError, DbResult};
use host::Host;
use leases::Leases;
use tasks::{Tasks, closed};

pub use blobs::PostgresBlobs;
pub use config::{PostgresUrl, PostgresUrlError};
pub use credentials::PostgresCredentials;
pub use documents::PostgresDocuments;

/// How long closing the store may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A session store in a PostgreSQL database.
///
/// Any number of processes on any number of machines can open the same database. Each of them is a
/// host with a row in `rye.hosts`, which it updates every second, and an advisory lock. The leases of
/// a host that is dead count as free: its lock is free and it was not seen for 3 seconds, or it was
/// not seen for 15 seconds. Only the clock of the database decides.
///
/// Dropping the store waits until all commits are written, and releases all its leases.
///
/// ```no_run
/// use rye_engine::store::{Claim, SessionStore};
/// use rye_store::PostgresStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::open("postgres://rye@localhost/rye".parse()?)?;
/// let lease = store.claim(&"my-session".parse()?, Claim::IfFree).await?;
/// assert_eq!(store.snapshot(&lease.session).await?, None);
/// # Ok(())
/// # }
/// ```
pub struct PostgresStore {
    db: Arc<Db>,
    host: Arc<Host>,
    leases: Arc<Leases>,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    /// Runs everything that uses a connection. `None` while the store is dropped.
    runtime: Option<Runtime>,
    /// Dropped last; signals `CloseHandle`.
    open: Option<mpsc::Sender<()>>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = f.debug_struct("PostgresStore");
        this.field("database", &self.db.url).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects to a database, and creates or upgrades its tables if necessary. Blocks until the
    /// database has answered.
    pub fn open(url: PostgresUrl) -> Result<Self, StoreError> {
        Self::connect(url, None)
    }

    /// Opens a database like [`open`](Self::open), and takes the time of events from a clock instead
    /// of the database's.
    pub fn open_with_clock(url: PostgresUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::connect(url, Some(clock))
    }

    fn connect(url: PostgresUrl, clock: Option<Arc<dyn Clock>>) -> Result<Self, StoreError> {
        let failed = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rye-postgres")
            .enable_all()
            .build()
            .map_err(failed)?;
        let db = Arc::new(Db::new(url)?);
        let (host, queue) = Host::new()?;
        let host = Arc::new(host);
        // The caller may be inside of a runtime, where blocking on another one is not allowed.
        let (connected, is_connected) = mpsc::channel();
        let (first, done) = oneshot::channel();
        runtime.spawn(host::run(Arc::clone(&db), Arc::clone(&host), queue, first));
        runtime.spawn(async move { connected.send(done.await) });
        let stopped = || DbError::NoConnection("the connection was not started".to_owned());
        let outcome = is_connected.recv().map_err(|_| stopped());
        let outcome = outcome.and_then(|outcome| outcome.map_err(|_| stopped())?);
        outcome.map_err(|error| db.explain(error))?;
        let clock = clock.unwrap_or_else(|| Arc::clone(&host.liveness) as Arc<dyn Clock>);
        let leases = Leases::new(
            Arc::clone(&db),
            Arc::clone(&host),
            Arc::clone(&clock),
            runtime.handle().clone(),
        );
        let tasks = Tasks::new(Arc::clone(&db), runtime.handle().clone());
        Ok(Self {
            db,
            tasks,
            host,
            leases: Arc::new(leases),
            clock,
            runtime: Some(runtime),
            open: None,
        })
    }

    /// A handle to wait until the store, which may be shared by then, is closed.
    pub fn close_handle(&mut self) -> CloseHandle {
        let (open, handle) = CloseHandle::new();
        self.open = Some(open);
        handle
    }

    /// The clock of the database, which all hosts share.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// How long this host has not heard from the database. After 15 seconds, other hosts may have
    /// taken its sessions over.
    pub fn silence(&self) -> Duration {
        self.host.liveness.silence()
    }

    /// Becomes true when somebody asks this host to finish its work.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.host.draining()
    }

    /// The ids of all gates, open or closed, oldest first.
    pub async fn gate_ids(&self) -> Result<Vec<GateId>, StoreError> {
        let db = Arc::clone(&self.db);
        self.run(async move { queries::gate_ids(&db).await }).await
    }

    /// Schedules, webhooks and budgets in the database.
    pub fn documents(&self) -> PostgresDocuments {
        PostgresDocuments(self.tasks.clone())
    }

    /// The blobs in the database.
    pub fn blobs(&self) -> PostgresBlobs {
        PostgresBlobs(self.tasks.clone())
    }

    /// The credentials in the database, sealed with the provided key.
    pub fn credentials(&self, key: KeyProvider) -> PostgresCredentials {
        let tasks = self.tasks.clone();
        PostgresCredentials { tasks, key }
    }

    /// Starts an operation on the store's own runtime. It completes even if the caller goes away.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = DbResult<T>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.tasks.run(work)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        self.leases.forget_all();
        let (db, host, leases) = (
            Arc::clone(&self.db),
            Arc::clone(&self.host),
            Arc::clone(&self.leases),
        );
        let (closed, is_closed) = mpsc::channel();
        runtime.spawn(async move {
            leases.wait_written().await;
            // What fails here, other hosts do in a few seconds.
            let _ = release_all(&db, &host).await;
            host.flush().await;
            let _ = db
                .query(
                    "DELETE FROM rye.hosts WHERE instance = $1",
                    &[&host.instance],
                )
                .await;
            db.close();
            let _ = closed.send(());
        });
        let _ = is_closed.recv_timeout(CLOSE_TIMEOUT);
        runtime.shutdown_background();
    }
}

/// Releases all leases of a host.
async fn release_all(db: &Db, host: &Host) -> DbResult<()> {
    let released = release(db, host, None).await?;
    for session in released {
        host.touched(session);
    }
    Ok(())
}

/// Releases one lease of a host, or all, and returns the sessions.
async fn release(db: &Db, host: &Host, lease: Option<&Lease>) -> DbResult<Vec<SessionId>> {
    let session = lease.map(|lease| lease.session.as_str());
    let epoch = lease.map(|lease| lease.epoch.cast_signed());
    let rows = db
        .query(
            "SELECT rye.release($1, $2, $3)",
            &[&host.instance, &session, &epoch],
        )
        .await?;
    let mut sessions = Vec::new();
    for row in rows {
        sessions.extend(row.try_get::<_, String>(0)?.parse::<SessionId>());
    }
    Ok(sessions)
}

/// A read with the given arguments, which are cloned into a task.
macro_rules! read {
    ($store:ident, $query:ident($($argument:expr),*)) => {{
        let db = Arc::clone(&$store.db);
        $store.run(async move { queries::$query(&db, $($argument),*).await })
    }};
}

impl SessionStore for PostgresStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        let (leases, session) = (Arc::clone(&self.leases), session.clone());
        self.run(async move { leases.claim(&session, claim).await })
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        read!(self, check())
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let (db, host, leases) = (
            Arc::clone(&self.db),
            Arc::clone(&self.host),
            Arc::clone(&self.leases),
        );
        let lease = lease.clone();
        self.run(async move {
            for session in release(&db, &host, Some(&lease)).await? {
                host.touched(session);
            }
            leases.forget(&lease);
            Ok(())
        })
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        let (session, judges) = (session.cloned(), self.host.liveness.judges());
        read!(self, holders(session.as_ref(), judges))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        let done = self.leases.commit(lease, batch);
        Box::pin(async move { done.await.map_err(|_| closed())? })
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        let (db, session) = (Arc::clone(&self.db), session.clone());
        let now = self.clock.now();
        self.run(async move { posts::post(&db, &session, post, now).await })
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.host.subscribe_posts()
    }

    fn subscribe_commits(&self) -> watch::Receiver<()> {
        self.host.subscribe_commits()
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        let (db, instance) = (Arc::clone(&self.db), self.host.instance);
        let lease = lease.clone();
        self.run(async move { posts::pending_commands(&db, instance, &lease).await })
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        let session = session.clone();
        read!(self, snapshot(&session))
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        let session = session.clone();
        read!(self, session(&session))
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        let session = session.clone();
        read!(self, archive(&session))
    }

    fn prompt<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> StoreFuture<'a, Option<QueuedPrompt>> {
        let (session, prompt) = (session.clone(), prompt.clone());
        read!(self, prompt(&session, &prompt))
    }

    fn due(&self, before: Millis) -> StoreFuture<'_, Vec<SessionId>> {
        let judges = self.host.liveness.judges();
        read!(self, due(before, judges))
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        read!(self, sessions(&filter))
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, leaf) = (session.clone(), leaf.clone());
        read!(self, path(&session, &leaf))
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let (session, thread, after) = (session.clone(), thread.clone(), after.cloned());
        read!(self, entries(&session, &thread, after.as_ref(), limit))
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        let (session, entry) = (session.clone(), entry.clone());
        read!(self, entry(&session, &entry))
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        let gate = gate.clone();
        read!(self, gate(&gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        let gate = gate.clone();
        read!(self, gate_refs(&gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        let session = session.cloned();
        read!(self, pending_gates(session.as_ref()))
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        let root = root.clone();
        read!(self, pending_gates_in_tree(&root))
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        let session = session.clone();
        read!(self, gates(&session))
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        let session = session.clone();
        read!(self, events(&session, after, limit))
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        if leases.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        let (db, held, leases) = (
            Arc::clone(&self.db),
            Arc::clone(&self.leases),
            leases.to_vec(),
        );
        self.run(async move {
            let sessions: Vec<_> = leases.iter().map(|it| it.session.as_str()).collect();
            let epochs: Vec<_> = leases.iter().map(|it| it.epoch.cast_signed()).collect();
            let sql = "SELECT rye.remove($1, $2)";
            db.query_once(sql, &[&sessions, &epochs]).await?;
            for lease in &leases {
                held.forget(lease);
            }
            Ok(())
        })
    }
}
