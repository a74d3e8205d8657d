//! The one desk at which all is written.
//!
//! A thread sits at it. What waits when it wakes up is written in one transaction, so that
//! one wait for the disk serves all. Each piece of work has a savepoint of its own, so that
//! one that fails takes nothing with it, and each is answered when all of them are on the
//! disk.
//!
//! Where one session alone writes, and the disk is quick, going to the thread and back would
//! take longer than to write. So whoever finds the desk free then writes there and then.

use std::future::ready;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::fs::{Mode, OFlags};
use rye_engine::store::{StoreError, StoreFuture};
use rye_protocol::SessionId;
use tokio::sync::oneshot;

use super::book::Book;
use super::damage::{self, Health};
use super::error::{Failure, Outcome};
use super::file;
use super::holder::Holder;
use super::queue::{Queue, Turn};
use super::seen::Note;
use super::wake::Bell;

/// How much is written at once, at most: the first must not wait for too many others.
const GROUP: usize = 256;

/// How long a thread that has other things to do may be kept by a disk. One that took longer
/// the last time is waited for elsewhere.
const QUICK: Duration = Duration::from_millis(1);

/// Something to write.
trait Job: Send {
    fn run(&mut self, db: &Book) -> Outcome<()>;

    /// For whom it is.
    fn session(&self) -> &SessionId;

    /// Whom to wake once it is written.
    fn wakes(&self) -> Option<&SessionId>;

    /// Tells the caller how it ended.
    fn answer(self: Box<Self>, end: Result<(), StoreError>);
}

/// What a piece of work gives: an answer, and the session to wake for it.
pub(super) struct Written<T> {
    pub(super) answer: T,
    pub(super) wakes: Option<SessionId>,
}

impl<T> From<T> for Written<T> {
    fn from(answer: T) -> Self {
        Self {
            answer,
            wakes: None,
        }
    }
}

struct Call<T, F> {
    session: SessionId,
    work: Option<F>,
    done: Option<Written<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&Book) -> Outcome<Written<T>> + Send,
{
    fn run(&mut self, db: &Book) -> Outcome<()> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(db)?);
        }
        Ok(())
    }

    fn session(&self) -> &SessionId {
        &self.session
    }

    fn wakes(&self) -> Option<&SessionId> {
        self.done.as_ref()?.wakes.as_ref()
    }

    fn answer(self: Box<Self>, end: Result<(), StoreError>) {
        let Self { done, reply, .. } = *self;
        let written = end.and_then(|()| done.ok_or_else(closed));
        // Whoever asked may not want to know any more; it is written all the same.
        let _ = reply.send(written.map(|written| written.answer));
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

pub(super) struct Writer {
    jobs: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    desk: Arc<Mutex<Desk>>,
    /// How many jobs were sent to the thread and are not written yet.
    sent: Arc<AtomicUsize>,
}

impl Writer {
    pub(super) fn start(
        (db, queue): (Connection, Queue),
        path: PathBuf,
        holder: Arc<Holder>,
        bell: Arc<Bell>,
        health: Arc<Health>,
    ) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let file = Place::of(&path)?;
        let note = Note::new(&path, Arc::clone(&health));
        let desk = Arc::new(Mutex::new(Desk {
            db: Book::new(db),
            leaving: None,
            queue,
            path,
            file,
            bell,
            health,
            last: None,
            _note: note,
        }));
        let sent = Arc::new(AtomicUsize::new(0));
        let (its, done) = (Arc::clone(&desk), Arc::clone(&sent));
        let thread = thread::Builder::new()
            .name("rye-store-write".to_owned())
            .spawn(move || serve(&its, &waiting, &done, &holder))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            desk,
            sent,
        })
    }

    /// Has something written for a session. Its place in the order is that of this call, and
    /// it is written whether or not anybody waits for the answer.
    pub(super) fn write<'a, T, F>(&self, session: &SessionId, work: F) -> StoreFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Book) -> Outcome<Written<T>> + Send + 'static,
    {
        let work = match self.free_for(session) {
            None => work,
            Some(mut desk) => match desk.write_now(session, work) {
                Ok(end) => return Box::pin(ready(end)),
                Err(work) => work,
            },
        };
        let (reply, answer) = oneshot::channel();
        let call = Call {
            session: session.clone(),
            work: Some(work),
            done: None,
            reply,
        };
        if let Some(jobs) = &self.jobs {
            self.sent.fetch_add(1, Ordering::SeqCst);
            // If there is nobody to take it, the answer says so.
            let _ = jobs.send(Box::new(call));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Looks at what is written, from the desk.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        look(&desk.db).ok()
    }

    /// The desk, if nobody is at it or on the way to it, and its last work was quick and for
    /// this session. If it was for another, several are at work, and one wait for the disk
    /// is to serve all.
    fn free_for(&self, session: &SessionId) -> Option<MutexGuard<'_, Desk>> {
        let desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let last = desk.last.as_ref();
        let fits = last.is_some_and(|(of, took)| of == session && *took < QUICK);
        let nobody = self.sent.load(Ordering::SeqCst) == 0;
        (fits && nobody).then_some(desk)
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

/// A file, by itself: to look whether it still has a name.
struct Place(OwnedFd);

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        // It is not opened, but for its name: closing what is open takes away the locks that
        // SQLite has on it in this process.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    fn has_a_name(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|it| it.st_nlink > 0)
    }
}

/// What is worked with.
struct Desk {
    db: Book,
    /// After the database: that is closed in this turn.
    leaving: Option<Turn>,
    queue: Queue,
    path: PathBuf,
    /// Which file that was.
    file: Place,
    bell: Arc<Bell>,
    health: Arc<Health>,
    /// For which session the last work was, and how long it took.
    last: Option<(SessionId, Duration)>,
    /// After the database: made when that is closed.
    _note: Note,
}

fn serve(desk: &Mutex<Desk>, jobs: &Receiver<Box<dyn Job>>, sent: &AtomicUsize, holder: &Holder) {
    let sit_down = || desk.lock().unwrap_or_else(PoisonError::into_inner);
    while let Ok(first) = jobs.recv() {
        let mut desk = sit_down();
        let mut group = vec![first];
        group.extend(jobs.try_iter().take(GROUP - 1));
        let start = Instant::now();
        let ends = desk.write(&mut group);
        let last = group.last().map(|job| job.session().clone());
        desk.last = last.map(|session| (session, start.elapsed()));
        let written = group.iter().zip(&ends).filter(|(_, end)| end.is_ok());
        let woken: Vec<_> = written.filter_map(|(job, _)| job.wakes()).collect();
        // Before the answer: with that, whoever posted may end, and their process with it.
        desk.bell.ring(&woken);
        drop(desk);
        sent.fetch_sub(group.len(), Ordering::SeqCst);
        for (job, end) in group.into_iter().zip(ends) {
            job.answer(end);
        }
    }
    sit_down().leave(holder);
}

impl Desk {
    /// Writes a group, and tells how each ended.
    fn write(&self, group: &mut [Box<dyn Job>]) -> Vec<Result<(), StoreError>> {
        if let Some(damage) = self.health.damage() {
            return vec![Err(damage.clone()); group.len()];
        }
        let _turn = match self.queue.turn() {
            Ok(turn) => turn,
            Err(failure) => return vec![Err(self.explain(failure)); group.len()],
        };
        let written = begin(&self.db).and_then(|()| self.is_there());
        match written.and_then(|()| transact(&self.db, &self.path, group)) {
            Ok(ends) => {
                if ends.iter().any(Result::is_ok) {
                    self.health.wrote();
                }
                let ends = ends.into_iter();
                ends.map(|end| end.map_err(|failure| self.explain(failure)))
                    .collect()
            }
            Err(failure) => {
                if !self.db.is_autocommit() {
                    // It is about to be told that nothing was written; that this fails too
                    // only means that it was rolled back already.
                    let _ = self.db.execute_batch("ROLLBACK");
                }
                let error = self.explain(failure);
                vec![Err(error); group.len()]
            }
        }
    }

    /// Writes one thing now, or gives it back where that would mean to wait for another
    /// process.
    fn write_now<T, F>(&mut self, session: &SessionId, work: F) -> Result<Result<T, StoreError>, F>
    where
        F: FnOnce(&Book) -> Outcome<Written<T>>,
    {
        if let Some(damage) = self.health.damage() {
            return Ok(Err(damage.clone()));
        }
        let start = Instant::now();
        let Some(turn) = self.queue.try_turn() else {
            return Err(work);
        };
        if file::without_waiting(&self.db, || begin(&self.db)).is_err() {
            return Err(work);
        }
        let end = self.write_one(work);
        if !self.db.is_autocommit() {
            // As in `write`.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        drop(turn);
        self.last = Some((session.clone(), start.elapsed()));
        let end = match end {
            Ok(written) => {
                self.health.wrote();
                self.bell.ring(&Vec::from_iter(&written.wakes));
                Ok(written.answer)
            }
            Err(failure) => {
                self.bell.ring(&[]);
                Err(self.explain(failure))
            }
        };
        Ok(end)
    }

    fn write_one<T>(&self, work: impl FnOnce(&Book) -> Outcome<Written<T>>) -> Outcome<Written<T>> {
        self.is_there()?;
        self.db.still_ours(&self.path)?;
        let written = work(&self.db)?;
        run(&self.db, "COMMIT")?;
        Ok(written)
    }

    /// What is written to a file that has no name any more is lost when it is closed.
    fn is_there(&self) -> Outcome<()> {
        if self.file.has_a_name() {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced while it was in use. Nothing more is written: put it \
             back from a copy, with the files beside it, and begin again",
            self.path.display()
        );
        Err(StoreError::Unreadable(message).into())
    }

    fn explain(&self, failure: Failure) -> StoreError {
        self.db.forget();
        self.health.explain(failure, &self.path)
    }

    /// Whoever closes the store has done with its sessions. Should it fail, the end of the
    /// process says the same.
    fn leave(&mut self, holder: &Holder) {
        // Whoever cannot wait for the turn leaves the log as it is.
        self.leaving = self.queue.turn().ok();
        if self.health.damage().is_none() {
            let _ = holder.release_all(&self.db);
        } else if damage::has_log(&self.path) {
            let _ = file::keep_log(&self.db, true);
        }
    }
}

fn begin(db: &Connection) -> Outcome<()> {
    Ok(run(db, "BEGIN IMMEDIATE")?)
}

/// All in one transaction, which has begun. An error is that of all.
fn transact(db: &Book, path: &Path, group: &mut [Box<dyn Job>]) -> Outcome<Vec<Outcome<()>>> {
    db.still_ours(path)?;
    let alone = group.len() == 1;
    let mut ends = Vec::with_capacity(group.len());
    for job in group {
        ends.push(if alone { job.run(db) } else { apart(db, job)? });
    }
    if ends.iter().any(Result::is_ok) {
        run(db, "COMMIT")?;
    } else if !db.is_autocommit() {
        run(db, "ROLLBACK")?;
    }
    Ok(ends)
}

/// One of several: what it did is undone if it fails, and only that.
fn apart(db: &Book, job: &mut Box<dyn Job>) -> Outcome<Outcome<()>> {
    run(db, "SAVEPOINT job")?;
    let end = job.run(db);
    if let Err(failure) = end {
        if db.is_autocommit() {
            // SQLite has given up the whole transaction, as it does when the disk is full.
            return Err(failure);
        }
        run(db, "ROLLBACK TO job")?;
        run(db, "RELEASE job")?;
        return Ok(Err(failure));
    }
    run(db, "RELEASE job")?;
    Ok(Ok(()))
}

fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}
