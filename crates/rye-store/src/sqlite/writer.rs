//! The one thread that writes.
//!
//! What waits when it wakes up is written in one transaction, so that one wait for the disk
//! serves all. Each piece of work has a savepoint of its own, so that one that fails takes
//! nothing with it, and each is answered when all of them are on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use rye_engine::store::{StoreError, Stored};
use rye_protocol::SessionId;
use tokio::sync::oneshot;

use super::error::{Failure, Outcome};
use super::file;
use super::holder::Holder;
use super::wake::Bell;

/// How much is written at once, at most: the first must not wait for too many others.
const GROUP: usize = 256;

/// Something to write.
trait Job: Send {
    fn run(&mut self, db: &Connection) -> Outcome<()>;

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
    work: Option<F>,
    done: Option<Written<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Outcome<Written<T>> + Send,
{
    fn run(&mut self, db: &Connection) -> Outcome<()> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(db)?);
        }
        Ok(())
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
}

impl Writer {
    pub(super) fn start(
        db: Connection,
        path: PathBuf,
        holder: Arc<Holder>,
        bell: Arc<Bell>,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let desk = Desk {
            db,
            path,
            damage: None,
        };
        let thread = thread::Builder::new()
            .name("rye-store-write".to_owned())
            .spawn(move || serve(desk, &waiting, &holder, &bell))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Has something written. Its place in the order is that of this call, and it is
    /// written whether or not anybody waits for the answer.
    pub(super) fn write<'a, T, F>(&self, work: F) -> Stored<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Outcome<Written<T>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Call {
            work: Some(work),
            done: None,
            reply,
        };
        if let Some(jobs) = &self.jobs {
            // If there is nobody to take it, the answer says so.
            let _ = jobs.send(Box::new(call));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
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

/// What the writing thread works with.
struct Desk {
    db: Connection,
    path: PathBuf,
    /// Once the file is found damaged nothing more is written to it.
    damage: Option<StoreError>,
}

fn serve(mut desk: Desk, jobs: &Receiver<Box<dyn Job>>, holder: &Holder, bell: &Bell) {
    while let Ok(first) = jobs.recv() {
        let mut group = vec![first];
        group.extend(jobs.try_iter().take(GROUP - 1));
        let ends = desk.write(&mut group);
        let written = group.iter().zip(&ends).filter(|(_, end)| end.is_ok());
        let woken: Vec<_> = written.filter_map(|(job, _)| job.wakes()).collect();
        // Before the answer: with that, whoever posted may end, and their process with it.
        bell.ring(&woken);
        for (job, end) in group.into_iter().zip(ends) {
            job.answer(end);
        }
    }
    // Whoever closes the store has done with its sessions. Should it fail, the end of the
    // process says the same.
    let _ = holder.release_all(&desk.db);
}

impl Desk {
    /// Writes a group, and tells how each ended.
    fn write(&mut self, group: &mut [Box<dyn Job>]) -> Vec<Result<(), StoreError>> {
        if let Some(damage) = &self.damage {
            return vec![Err(damage.clone()); group.len()];
        }
        match transact(&self.db, &self.path, group) {
            Ok(ends) => ends
                .into_iter()
                .map(|end| end.map_err(|failure| self.explain(failure)))
                .collect(),
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

    fn explain(&mut self, failure: Failure) -> StoreError {
        let damaged = failure.is_damage();
        let error = failure.explain(&self.path);
        if damaged {
            self.damage = Some(error.clone());
        }
        error
    }
}

/// All in one transaction. An error is that of all.
fn transact(db: &Connection, path: &Path, group: &mut [Box<dyn Job>]) -> Outcome<Vec<Outcome<()>>> {
    run(db, "BEGIN IMMEDIATE")?;
    if file::version(db)? != file::VERSION {
        file::check(db, path)?;
    }
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
fn apart(db: &Connection, job: &mut Box<dyn Job>) -> Outcome<Outcome<()>> {
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
