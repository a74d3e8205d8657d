//! The single writer of a store.
//!
//! A thread collects the waiting jobs and runs them in one transaction, so that one disk sync
//! serves all of them. Each job has a savepoint, so that a failed job does not affect the others.
//! Callers get their reply when the transaction is on the disk.
//!
//! If only one session writes and the disk is fast, handing the job to the thread would take
//! longer than writing. Then the caller writes directly.

use std::future::ready;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use rustix::fs::{Mode, OFlags};
use rye_engine::store::{StoreError, StoreFuture};
use rye_protocol::SessionId;
use tokio::sync::oneshot;

use super::commit_cache::WriteConnection;
use super::error::{DbError, DbResult};
use super::file;
use super::file_stamp::StampOnDrop;
use super::integrity::{self, FileHealth};
use super::lease::LeaseHolder;
use super::notifier::Notifier;
use super::writer_queue::{WritePermit, WriterQueue};

/// Maximum number of jobs in a transaction, which limits the latency of the first one.
const MAX_GROUP: usize = 256;

/// If the last write was slower, callers do not write directly, to avoid blocking their thread.
const FAST_WRITE: Duration = Duration::from_millis(1);

/// A write.
trait Job: Send {
    fn run(&mut self, db: &WriteConnection) -> DbResult<()>;

    /// The session that the job writes.
    fn session(&self) -> &SessionId;

    /// The session whose holder must be notified after the commit.
    fn notify(&self) -> Option<&SessionId>;

    /// Completes the future of the caller.
    fn reply(self: Box<Self>, result: Result<(), StoreError>);
}

/// The output of a job, and the session whose holder must be notified.
pub(super) struct JobOutput<T> {
    pub(super) value: T,
    pub(super) notify: Option<SessionId>,
}

impl<T> From<T> for JobOutput<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            notify: None,
        }
    }
}

struct WriteJob<T, F> {
    session: SessionId,
    work: Option<F>,
    output: Option<JobOutput<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for WriteJob<T, F>
where
    T: Send,
    F: FnOnce(&WriteConnection) -> DbResult<JobOutput<T>> + Send,
{
    fn run(&mut self, db: &WriteConnection) -> DbResult<()> {
        if let Some(work) = self.work.take() {
            self.output = Some(work(db)?);
        }
        Ok(())
    }

    fn session(&self) -> &SessionId {
        &self.session
    }

    fn notify(&self) -> Option<&SessionId> {
        self.output.as_ref()?.notify.as_ref()
    }

    fn reply(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { output, reply, .. } = *self;
        let output = result.and_then(|()| output.ok_or_else(closed));
        // The caller may have dropped the future.
        let _ = reply.send(output.map(|output| output.value));
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

pub(super) struct Writer {
    jobs: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<WriterState>>,
    /// Number of jobs that the thread has not completed.
    pending: Arc<AtomicUsize>,
}

impl Writer {
    pub(super) fn start(
        (db, queue): (Connection, WriterQueue),
        path: PathBuf,
        holder: Arc<LeaseHolder>,
        notifier: Arc<Notifier>,
        health: Arc<FileHealth>,
    ) -> io::Result<Self> {
        let (jobs, queued) = mpsc::channel();
        let file = FileIdentity::open(&path)?;
        let stamp = StampOnDrop::new(&path, Arc::clone(&health));
        let state = Arc::new(Mutex::new(WriterState {
            db: WriteConnection::new(db),
            closing_permit: None,
            queue,
            path,
            file,
            notifier,
            health,
            last: None,
            _stamp: stamp,
        }));
        let pending = Arc::new(AtomicUsize::new(0));
        let (thread_state, completed) = (Arc::clone(&state), Arc::clone(&pending));
        let thread = thread::Builder::new()
            .name("rye-store-write".to_owned())
            .spawn(move || run_thread(&thread_state, &queued, &completed, &holder))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            state,
            pending,
        })
    }

    /// Writes to a session. Jobs run in the order of these calls, even if the future is never
    /// awaited.
    pub(super) fn write<'a, T, F>(&self, session: &SessionId, work: F) -> StoreFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&WriteConnection) -> DbResult<JobOutput<T>> + Send + 'static,
    {
        let work = match self.lock_if_idle(session) {
            None => work,
            Some(mut state) => match state.write_now(session, work) {
                Ok(result) => return Box::pin(ready(result)),
                Err(work) => work,
            },
        };
        let (reply, answer) = oneshot::channel();
        let job = WriteJob {
            session: session.clone(),
            work: Some(work),
            output: None,
            reply,
        };
        if let Some(jobs) = &self.jobs {
            self.pending.fetch_add(1, Ordering::SeqCst);
            // If the thread has ended, the reply channel is closed.
            let _ = jobs.send(Box::new(job));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Runs a query on the writing connection.
    pub(super) fn query<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let state = self.state.lock();
        query(&state.db).ok()
    }

    /// Locks the state if no job is pending and the last write was fast and to the same session.
    /// If several sessions write, grouping their jobs saves disk syncs.
    fn lock_if_idle(&self, session: &SessionId) -> Option<MutexGuard<'_, WriterState>> {
        let state = self.state.try_lock()?;
        let last = state.last.as_ref();
        let is_fast =
            last.is_some_and(|(last, duration)| last == session && *duration < FAST_WRITE);
        let is_idle = self.pending.load(Ordering::SeqCst) == 0;
        (is_fast && is_idle).then_some(state)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The inode of the database file, to detect that it was removed or replaced.
struct FileIdentity(OwnedFd);

impl FileIdentity {
    fn open(path: &Path) -> io::Result<Self> {
        // With `O_PATH`, because closing an ordinary descriptor would release SQLite's locks.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    fn is_linked(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

/// The connection and its files. The fields are dropped in this order.
struct WriterState {
    db: WriteConnection,
    /// Held while the database is closed.
    closing_permit: Option<WritePermit>,
    queue: WriterQueue,
    path: PathBuf,
    file: FileIdentity,
    notifier: Arc<Notifier>,
    health: Arc<FileHealth>,
    /// Session and duration of the last write.
    last: Option<(SessionId, Duration)>,
    /// Written after the database is closed.
    _stamp: StampOnDrop,
}

fn run_thread(
    state: &Mutex<WriterState>,
    jobs: &Receiver<Box<dyn Job>>,
    pending: &AtomicUsize,
    holder: &LeaseHolder,
) {
    let lock = || state.lock();
    while let Ok(first) = jobs.recv() {
        let mut state = lock();
        let mut group = vec![first];
        group.extend(jobs.try_iter().take(MAX_GROUP - 1));
        let start = Instant::now();
        let results = state.write(&mut group);
        let last = group.last().map(|job| job.session().clone());
        state.last = last.map(|session| (session, start.elapsed()));
        let written = group
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok());
        let sessions: Vec<_> = written.filter_map(|(job, _)| job.notify()).collect();
        // Before the reply, because the process that posted may end afterwards.
        state.notifier.notify(&sessions);
        drop(state);
        pending.fetch_sub(group.len(), Ordering::SeqCst);
        for (job, result) in group.into_iter().zip(results) {
            job.reply(result);
        }
    }
    lock().close(holder);
}

impl WriterState {
    /// Runs a group of jobs, and returns the result of each.
    fn write(&self, group: &mut [Box<dyn Job>]) -> Vec<Result<(), StoreError>> {
        if let Some(damage) = self.health.damage() {
            return vec![Err(damage.clone()); group.len()];
        }
        let _permit = match self.queue.acquire() {
            Ok(permit) => permit,
            Err(failure) => return vec![Err(self.explain(failure)); group.len()],
        };
        let started = begin(&self.db).and_then(|()| self.check_linked());
        match started.and_then(|()| run_group(&self.db, &self.path, group)) {
            Ok(results) => {
                if results.iter().any(Result::is_ok) {
                    self.health.set_written();
                }
                let results = results.into_iter();
                results
                    .map(|result| result.map_err(|failure| self.explain(failure)))
                    .collect()
            }
            Err(failure) => {
                if !self.db.is_autocommit() {
                    // An error means that SQLite has already rolled back.
                    let _ = self.db.execute_batch("ROLLBACK");
                }
                let error = self.explain(failure);
                vec![Err(error); group.len()]
            }
        }
    }

    /// Runs one job directly, or returns it if another process holds the lock.
    fn write_now<T, F>(&mut self, session: &SessionId, work: F) -> Result<Result<T, StoreError>, F>
    where
        F: FnOnce(&WriteConnection) -> DbResult<JobOutput<T>>,
    {
        if let Some(damage) = self.health.damage() {
            return Ok(Err(damage.clone()));
        }
        let start = Instant::now();
        let Some(permit) = self.queue.try_acquire() else {
            return Err(work);
        };
        if file::without_busy_timeout(&self.db, || begin(&self.db)).is_err() {
            return Err(work);
        }
        let result = self.write_one(work);
        if !self.db.is_autocommit() {
            // An error means that SQLite has already rolled back.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        drop(permit);
        self.last = Some((session.clone(), start.elapsed()));
        let result = match result {
            Ok(output) => {
                self.health.set_written();
                self.notifier.notify(&Vec::from_iter(&output.notify));
                Ok(output.value)
            }
            Err(failure) => {
                self.notifier.notify(&[]);
                Err(self.explain(failure))
            }
        };
        Ok(result)
    }

    fn write_one<T>(
        &self,
        work: impl FnOnce(&WriteConnection) -> DbResult<JobOutput<T>>,
    ) -> DbResult<JobOutput<T>> {
        self.check_linked()?;
        self.db.check_format(&self.path)?;
        let output = work(&self.db)?;
        execute(&self.db, "COMMIT")?;
        Ok(output)
    }

    /// Fails if the file was deleted: writes to it would be lost.
    fn check_linked(&self) -> DbResult<()> {
        if self.file.is_linked() {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced while it was in use. Rye no longer writes to it: restore \
             it from a backup, with the files next to it, and start again",
            self.path.display()
        );
        Err(StoreError::Damaged(message).into())
    }

    fn explain(&self, failure: DbError) -> StoreError {
        self.db.clear_cache();
        self.health.explain(failure, &self.path)
    }

    /// Releases all leases. If this fails, the leases end with the process.
    fn close(&mut self, holder: &LeaseHolder) {
        // Without the permit, SQLite does not copy the log into the file.
        self.closing_permit = self.queue.acquire().ok();
        if self.health.damage().is_none() {
            let _ = holder.release_all(&self.db);
        } else if integrity::has_wal(&self.path) {
            let _ = file::keep_wal(&self.db, true);
        }
    }
}

fn begin(db: &Connection) -> DbResult<()> {
    Ok(execute(db, "BEGIN IMMEDIATE")?)
}

/// Runs the jobs in the current transaction and commits. An error concerns all of them.
fn run_group(
    db: &WriteConnection,
    path: &Path,
    group: &mut [Box<dyn Job>],
) -> DbResult<Vec<DbResult<()>>> {
    db.check_format(path)?;
    let is_single = group.len() == 1;
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        results.push(if is_single {
            job.run(db)
        } else {
            run_in_savepoint(db, job)?
        });
    }
    if results.iter().any(Result::is_ok) {
        execute(db, "COMMIT")?;
    } else if !db.is_autocommit() {
        execute(db, "ROLLBACK")?;
    }
    Ok(results)
}

/// Runs a job so that it is undone alone if it fails.
fn run_in_savepoint(db: &WriteConnection, job: &mut Box<dyn Job>) -> DbResult<DbResult<()>> {
    execute(db, "SAVEPOINT job")?;
    let result = job.run(db);
    if let Err(failure) = result {
        if db.is_autocommit() {
            // SQLite has rolled back the whole transaction, for instance because the disk is full.
            return Err(failure);
        }
        execute(db, "ROLLBACK TO job")?;
        execute(db, "RELEASE job")?;
        return Ok(Err(failure));
    }
    execute(db, "RELEASE job")?;
    Ok(Ok(()))
}

fn execute(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}
