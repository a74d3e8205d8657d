//! The leases of this process, and the commits under them.
//!
//! A task per lease writes its commits one after the other, in the order of the calls. Commits under
//! a lease are numbered. If a connection breaks during a commit, its outcome is unknown; the task
//! then sends the same commit with the same number again, and the database applies it unless it did
//! so before. A statement that is still on its way from a broken connection cannot be applied later,
//! because its number is taken by then.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rye_engine::clock::Clock;
use rye_engine::store::{Claim, Lease, StoreError};
use rye_protocol::{Batch, Entry, SessionId};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::ToSql;
use tokio_util::task::TaskTracker;

use super::db::Db;
use super::error::{DbError, DbResult};
use super::host::{Host, random_id};
use super::ops::Ops;
use crate::json_text;

const COMMIT: &str = "SELECT rye.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
                      $14, $15, $16, $17, $18)";

/// How many answers a lease keeps for commits that may be repeated.
const MAX_RESOLVED: usize = 64;

/// The leases of this process.
pub(super) struct Leases {
    db: Arc<Db>,
    host: Arc<Host>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    held: Mutex<HashMap<SessionId, HeldLease>>,
    writers: TaskTracker,
}

/// A lease and the queue of its task.
struct HeldLease {
    epoch: u64,
    commits: mpsc::UnboundedSender<QueuedCommit>,
}

struct QueuedCommit {
    batch: Batch,
    reply: oneshot::Sender<Result<u64, StoreError>>,
}

impl Leases {
    pub(super) fn new(
        db: Arc<Db>,
        host: Arc<Host>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        Self {
            db,
            host,
            clock,
            runtime,
            held: Mutex::default(),
            writers: TaskTracker::new(),
        }
    }

    /// Claims a session.
    pub(super) async fn claim(&self, session: &SessionId, claim: Claim) -> DbResult<Lease> {
        let sql = "SELECT c.epoch, c.is_stored, h.name, h.process
                   FROM rye.claim($1, $2, $3, $4, $5) AS c
                   LEFT JOIN rye.hosts AS h ON h.instance = c.holder";
        let take_over = claim == Claim::TakeOver;
        let (request, judges) = (random_id(), self.host.liveness.judges());
        let id = session.as_str();
        let params: [&(dyn ToSql + Sync); 5] =
            [&id, &self.host.instance, &request, &take_over, &judges];
        let row = self.db.query_one(sql, &params).await?;
        let Some(epoch) = row.try_get::<_, Option<i64>>(0)? else {
            let (name, process): (Option<String>, Option<String>) =
                (row.try_get(2)?, row.try_get(3)?);
            let pid = process.as_deref().and_then(|it| it.split(':').next());
            let holder = match (pid, name) {
                (Some(pid), Some(name)) => format!("process {pid} on {name}"),
                _ => "another host".to_owned(),
            };
            let session = session.clone();
            return Err(StoreError::InUse { session, holder }.into());
        };
        let lease = Lease {
            session: session.clone(),
            epoch: epoch.cast_unsigned(),
        };
        self.hold(&lease);
        // A session that is about to be created has no subscribers.
        if row.try_get(1)? {
            self.host.touched(session.clone());
        }
        Ok(lease)
    }

    /// Starts the task of a lease.
    fn hold(&self, lease: &Lease) {
        let (commits, queue) = mpsc::unbounded_channel();
        let writer = LeaseWriter {
            db: Arc::clone(&self.db),
            host: Arc::clone(&self.host),
            clock: Arc::clone(&self.clock),
            lease: lease.clone(),
            commits: 0,
            unknown: None,
            resolved: Vec::new(),
        };
        self.writers.spawn_on(writer.run(queue), &self.runtime);
        let epoch = lease.epoch;
        self.held
            .lock()
            .insert(lease.session.clone(), HeldLease { epoch, commits });
    }

    /// Ends the task of a lease when it has written all its commits.
    pub(super) fn forget(&self, lease: &Lease) {
        let mut held = self.held.lock();
        if held
            .get(&lease.session)
            .is_some_and(|it| it.epoch == lease.epoch)
        {
            held.remove(&lease.session);
        }
    }

    /// Queues a commit. The receiver gets the sequence number of the session's last event.
    pub(super) fn commit(
        &self,
        lease: &Lease,
        batch: Batch,
    ) -> oneshot::Receiver<Result<u64, StoreError>> {
        let (reply, done) = oneshot::channel();
        let held = self.held.lock();
        let own = held
            .get(&lease.session)
            .filter(|it| it.epoch == lease.epoch);
        let queued = QueuedCommit { batch, reply };
        let refused = match own {
            Some(own) => own.commits.send(queued).map_err(|error| error.0).err(),
            None => Some(queued),
        };
        if let Some(refused) = refused {
            let error = StoreError::Fenced(lease.session.clone());
            // The caller may have gone away.
            let _ = refused.reply.send(Err(error));
        }
        done
    }

    /// Ends all tasks when they have written their commits.
    pub(super) fn forget_all(&self) {
        self.held.lock().clear();
    }

    /// Waits until all tasks have ended.
    pub(super) async fn wait_written(&self) {
        self.writers.close();
        self.writers.wait().await;
    }
}

/// Writes the commits of a lease.
struct LeaseWriter {
    db: Arc<Db>,
    host: Arc<Host>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    /// Number of commits that were applied.
    commits: i64,
    /// A commit that may have been applied, and its batch.
    unknown: Option<(Batch, Ops)>,
    /// Commits that were applied although their callers got an error, and their answers for when
    /// they are repeated.
    resolved: Vec<(Batch, u64)>,
}

impl LeaseWriter {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<QueuedCommit>) {
        while let Some(QueuedCommit { batch, reply }) = queue.recv().await {
            let written = self.write(batch).await;
            // The caller may have gone away.
            let _ = reply.send(written.map_err(|error| self.db.explain(error)));
        }
    }

    async fn write(&mut self, batch: Batch) -> DbResult<u64> {
        let repeated = self.resolved.iter().position(|(it, _)| *it == batch);
        if let Some(repeated) = repeated {
            return Ok(self.resolved.remove(repeated).1);
        }
        match self.unknown.take() {
            Some((earlier, ops)) if earlier == batch => return self.send(batch, ops, true).await,
            Some(earlier) => self.resolve(earlier).await?,
            None => {}
        }
        let now = self.clock.now();
        let ops = Ops::new(&self.lease.session, batch.clone(), now)?;
        self.send(batch, ops, false).await
    }

    /// Finds out whether a commit was applied that its caller has not repeated yet. If not, the next
    /// commit takes its number.
    async fn resolve(&mut self, (batch, ops): (Batch, Ops)) -> DbResult<()> {
        // Waits for a statement that is still running.
        let sql = "SELECT commit, commit_sequence FROM rye.leases
                   WHERE session = $1 AND epoch = $2 AND instance = $3 FOR UPDATE";
        let (session, epoch) = (self.lease.session.as_str(), self.lease.epoch.cast_signed());
        let params: [&(dyn ToSql + Sync); 3] = [&session, &epoch, &self.host.instance];
        let row = match self.db.query_opt(sql, &params).await {
            Ok(row) => row,
            Err(error) => {
                self.unknown = Some((batch, ops));
                return Err(error);
            }
        };
        let row = row.ok_or_else(|| StoreError::Fenced(self.lease.session.clone()))?;
        if row.try_get::<_, i64>(0)? > self.commits {
            self.commits += 1;
            self.host.committed();
            let sequence = row.try_get::<_, i64>(1)?.cast_unsigned();
            if self.resolved.len() < MAX_RESOLVED {
                self.resolved.push((batch, sequence));
            }
        }
        Ok(())
    }

    /// Sends a commit, again if its outcome is unknown. `was_sent` says whether it may have been
    /// applied before.
    async fn send(&mut self, batch: Batch, mut ops: Ops, mut was_sent: bool) -> DbResult<u64> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.send_once(&ops).await {
                Ok(sequence) => {
                    self.commits += 1;
                    self.host.committed();
                    return Ok(sequence);
                }
                Err(DbError::EntryExists(id)) => {
                    if !self.has_same_entry(&id, &ops).await? {
                        return Err(DbError::EntryExists(id));
                    }
                    ops.skip_append(&id);
                }
                Err(error) => {
                    was_sent |= error.is_unknown();
                    if error.is_unknown() && attempts == 1 {
                        continue;
                    }
                    let has_answer =
                        !matches!(error, DbError::Broken(_) | DbError::NoConnection(_));
                    if was_sent && !has_answer {
                        self.unknown = Some((batch, ops));
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn send_once(&self, ops: &Ops) -> DbResult<u64> {
        let session = self.lease.session.as_str();
        let (epoch, number) = (self.lease.epoch.cast_signed(), self.commits + 1);
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&session, &epoch, &self.host.instance, &number];
        params.extend(ops.params());
        let rows = self.db.query_once(COMMIT, &params).await?;
        let row = rows.first();
        let row = row.ok_or_else(|| DbError::Unreadable("a commit returned nothing".to_owned()))?;
        Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
    }

    /// Whether the stored entry equals those to append. The order of JSON keys may differ.
    async fn has_same_entry(&self, id: &str, ops: &Ops) -> DbResult<bool> {
        let sql = "SELECT e.doc FROM rye.entries e JOIN rye.sessions s ON s.number = e.session
                   WHERE s.id = $1 AND e.id = $2";
        let session = self.lease.session.as_str();
        let Some(row) = self.db.query_opt(sql, &[&session, &id]).await? else {
            return Ok(false);
        };
        let stored: Entry = json_text::decode(row.try_get(0)?)?;
        for doc in ops.appended(id) {
            if json_text::decode::<Entry>(doc)? != stored {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
