//! Slots for turns that run at once.
//!
//! A subject with a limit of three turns has the slots 0 to 2. A slot is a document whose due time
//! is the end of its lease: the process that runs the turn renews it, and everyone may take it
//! afterwards. The slots of a user and of an organisation are taken in one write.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rye_protocol::{Millis, Session, SessionId};
use serde_json::json;

use super::{MAX_ATTEMPTS, QuotaError, QuotaExceeded, QuotaLimit, Subject};
use crate::clock::Clock;
use crate::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use crate::store::StoreError;

/// How long a slot is taken without being renewed.
const LEASE: Duration = Duration::from_secs(20);

/// Interval at which a process renews its slots.
const RENEW: Duration = Duration::from_secs(5);

/// When it is worth trying again if all slots are taken.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The slots that this process has taken.
#[derive(Debug)]
pub(super) struct Slots {
    documents: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    /// Distinguishes this process from one that ran the same turn before.
    holder: String,
    /// The slots by session.
    held: Mutex<HashMap<SessionId, Held>>,
    /// Locked while a slot is taken, so that the turns of a session share one.
    taking: tokio::sync::Mutex<()>,
    /// Whether a task renews the slots.
    renewing: Mutex<bool>,
}

/// The slots of a session.
#[derive(Debug, Clone)]
struct Held {
    ids: Vec<String>,
    /// How many turns of the session run in them.
    turns: usize,
}

/// The right to run a turn; released when it is dropped.
#[derive(Debug)]
pub struct TurnSlot {
    session: SessionId,
    slots: Arc<Slots>,
}

impl Drop for TurnSlot {
    fn drop(&mut self) {
        let slots = Arc::clone(&self.slots);
        let session = self.session.clone();
        let ids = {
            let mut held = slots.held.lock();
            let Some(own) = held.get_mut(&session) else {
                return;
            };
            own.turns -= 1;
            if own.turns > 0 {
                return;
            }
            held.remove(&session).map(|own| own.ids).unwrap_or_default()
        };
        // Without a runtime the lease of the slot ends by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = slots.release(&session, &ids).await {
                    tracing::debug!(%error, "cannot release the slot of a turn");
                }
            });
        }
    }
}

impl Slots {
    pub(super) fn new(documents: Arc<dyn DocumentStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            documents,
            clock,
            holder: SessionId::new().to_string(),
            held: Mutex::default(),
            taking: tokio::sync::Mutex::default(),
            renewing: Mutex::default(),
        }
    }

    /// The number of slots of a subject that are taken.
    pub(super) async fn taken(&self, subject: &Subject, now: Millis) -> Result<usize, StoreError> {
        let all = self.all(subject).await?;
        Ok(all.iter().filter(|slot| is_taken(slot, now)).count())
    }

    /// Fails if a turn of a session would find no slot.
    pub(super) async fn check(
        &self,
        limits: &[(Subject, u32)],
        session: &Session,
    ) -> Result<(), QuotaError> {
        let now = self.clock.now();
        for (subject, limit) in limits {
            let all = self.all(subject).await?;
            free_slot(subject, *limit, &all, &session.id, now)?;
        }
        Ok(())
    }

    /// Takes a slot of each subject for a turn. Turns of one session share a slot: one may wait for
    /// another.
    pub(super) async fn take(
        self: &Arc<Self>,
        limits: &[(Subject, u32)],
        session: &Session,
    ) -> Result<TurnSlot, QuotaError> {
        let _guard = self.taking.lock().await;
        let slot = || TurnSlot {
            session: session.id.clone(),
            slots: Arc::clone(self),
        };
        if let Some(own) = self.held.lock().get_mut(&session.id) {
            own.turns += 1;
            return Ok(slot());
        }
        let body = json!({ "session": session.id, "holder": self.holder });
        for _ in 0..MAX_ATTEMPTS {
            let now = self.clock.now();
            let mut writes = Vec::new();
            for (subject, limit) in limits {
                let all = self.all(subject).await?;
                writes.push(free_slot(subject, *limit, &all, &session.id, now)?);
            }
            for write in &mut writes {
                write.content = Some((Some(now.after(LEASE)), body.clone()));
            }
            let ids = writes.iter().map(|write| write.id.clone()).collect();
            // Before the write, so that it is released also if the caller is dropped meanwhile.
            let held = Held { ids, turns: 1 };
            self.held.lock().insert(session.id.clone(), held);
            let slot = slot();
            if self.documents.write(writes).await? {
                self.renew();
                return Ok(slot);
            }
            self.held.lock().remove(&session.id);
        }
        let reason = "the slots of turns change all the time".to_owned();
        Err(StoreError::Unavailable(reason).into())
    }

    /// Starts to renew the slots of this process, until it has none.
    fn renew(self: &Arc<Self>) {
        let mut renewing = self.renewing.lock();
        if *renewing {
            return;
        }
        *renewing = true;
        let slots = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW).await;
                let Some(slots) = Weak::upgrade(&slots) else {
                    return;
                };
                let held: Vec<_> = {
                    let held = slots.held.lock();
                    if held.is_empty() {
                        *slots.renewing.lock() = false;
                        return;
                    }
                    let ids =
                        |(session, own): (&SessionId, &Held)| (session.clone(), own.ids.clone());
                    held.iter().map(ids).collect()
                };
                let until = slots.clock.now().after(LEASE);
                for (session, ids) in held {
                    let renewed = slots.write_own(&session, &ids, |slot| {
                        DocumentWrite::replace(slot, Some(until), slot.body.clone())
                    });
                    if let Err(error) = renewed.await {
                        tracing::debug!(%error, "cannot renew the slot of a turn");
                    }
                }
            }
        });
    }

    async fn release(&self, session: &SessionId, ids: &[String]) -> Result<(), StoreError> {
        self.write_own(session, ids, DocumentWrite::remove).await
    }

    /// Releases all slots of this process.
    pub(super) async fn release_all(&self) -> Result<(), StoreError> {
        let held = std::mem::take(&mut *self.held.lock());
        for (session, own) in held {
            self.release(&session, &own.ids).await?;
        }
        Ok(())
    }

    /// Writes the slots of a session, except those that another process has taken since.
    async fn write_own(
        &self,
        session: &SessionId,
        ids: &[String],
        write: impl Fn(&Document) -> DocumentWrite,
    ) -> Result<(), StoreError> {
        for id in ids {
            // Renewing and releasing may meet.
            for _ in 0..MAX_ATTEMPTS {
                let slot = self.documents.get(DocumentKind::TurnSlot, id).await?;
                let is_own = |slot: &Document| {
                    slot.body["session"] == session.as_str()
                        && slot.body["holder"] == self.holder.as_str()
                };
                let Some(slot) = slot.filter(is_own) else {
                    break;
                };
                if self.documents.write(vec![write(&slot)]).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn all(&self, subject: &Subject) -> Result<Vec<Document>, StoreError> {
        let query = DocumentQuery {
            prefix: prefix(subject),
            ..DocumentQuery::all(DocumentKind::TurnSlot)
        };
        self.documents.list(query).await
    }
}

/// What the ids of the slots of a subject begin with, and no other ids.
fn prefix(subject: &Subject) -> String {
    format!("{}/", subject.id().replace('%', "%25").replace('/', "%2f"))
}

fn is_taken(slot: &Document, now: Millis) -> bool {
    slot.due_at.is_some_and(|until| now < until)
}

/// A write that takes a slot: the one that the session has already, or else a free one.
fn free_slot(
    subject: &Subject,
    limit: u32,
    all: &[Document],
    session: &SessionId,
    now: Millis,
) -> Result<DocumentWrite, QuotaError> {
    let write = |id: String, expected: Option<&Document>| DocumentWrite {
        kind: DocumentKind::TurnSlot,
        id,
        expected: expected.map(|slot| slot.version),
        content: None,
    };
    if let Some(own) = all
        .iter()
        .find(|slot| slot.body["session"] == session.as_str())
    {
        return Ok(write(own.id.clone(), Some(own)));
    }
    for number in 0..limit {
        let id = format!("{}{number:06}", prefix(subject));
        let known = all.iter().find(|slot| slot.id == id);
        if known.is_none_or(|slot| !is_taken(slot, now)) {
            return Ok(write(id, known));
        }
    }
    let used = all.iter().filter(|slot| is_taken(slot, now)).count();
    Err(QuotaError::Exceeded(Box::new(QuotaExceeded {
        subject: subject.clone(),
        limit: QuotaLimit::Turns,
        allowed: limit.into(),
        used: u64::try_from(used).unwrap_or(u64::MAX),
        renews_at: now.after(RETRY_AFTER),
    })))
}
