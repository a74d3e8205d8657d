//! Export, import and fork of sessions.

use std::sync::Arc;

use lillux::keys::PublicKey;
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, EventKind, ForkPoint, Op, Purpose, Run, RunStatus,
    SandboxId, SandboxRef, Session as SessionData, SessionId, SessionStatus, Thread, ThreadId,
    Usage,
};

use super::session::DEFAULT;
use super::{Engine, lifecycle};
use crate::audit::{self, UntrustedDecision};
use crate::store::{Claim, StoreError};

impl Engine {
    /// Exports a session and its descendants, ancestors first.
    pub async fn export(&self, id: &SessionId) -> Result<Vec<Archive>, StoreError> {
        let store = &self.inner.store;
        let archive = store.archive(id).await?;
        let archive = archive.ok_or_else(|| no_session(id))?;
        let mut all = vec![archive];
        let mut children = store.sessions(lifecycle::children_of(id)).await?;
        children.reverse();
        for child in children {
            all.extend(Box::pin(self.export(&child.id)).await?);
        }
        Ok(all)
    }

    /// Imports an exported session. Fails if a session with its id exists.
    ///
    /// Decisions that would still be acted on need a receipt by a trusted key; `key` returns the
    /// public key of a fingerprint if it is trusted. The others are reopened and returned.
    pub async fn import(
        &self,
        archive: Archive,
        key: impl Fn(&str) -> Option<PublicKey>,
    ) -> Result<Vec<UntrustedDecision>, StoreError> {
        self.commit_archive(archive, None, key).await
    }

    /// Imports a session that could not be verified. The session keeps the reason in its metadata,
    /// and no decision in it is trusted.
    pub async fn import_unverified(
        &self,
        archive: Archive,
        reason: &str,
    ) -> Result<Vec<UntrustedDecision>, StoreError> {
        self.commit_archive(archive, Some(reason), |_| None).await
    }

    async fn commit_archive(
        &self,
        mut archive: Archive,
        unverified: Option<&str>,
        key: impl Fn(&str) -> Option<PublicKey>,
    ) -> Result<Vec<UntrustedDecision>, StoreError> {
        let store = &self.inner.store;
        let id = archive.session.id.clone();
        if store.snapshot(&id).await?.is_some() {
            let (kind, id) = ("session", id.to_string());
            return Err(StoreError::Conflict { kind, id });
        }
        let (before, now) = (archive.clone(), self.inner.clock.now());
        if let Some(reason) = unverified {
            archive.session.unverified_import = Some(reason.to_owned());
        }
        archive.session.imported_at = Some(now);
        let untrusted = audit::reject_untrusted(&mut archive, key, now);
        if let Some(key) = &self.inner.key {
            audit::seal_changes(&mut archive, &before, now, key);
        }
        let lease = store.claim(&id, Claim::IfFree).await?;
        let written = store.commit(&lease, archive_batch(archive)).await;
        store.release(&lease).await?;
        written.map(|_| untrusted)
    }

    /// Changes the title of a session that no host holds.
    pub async fn set_title(&self, id: &SessionId, title: &str) -> Result<(), StoreError> {
        let change = |data: &mut SessionData| data.title = Some(title.to_owned());
        self.change_stored(id, None, change).await
    }

    /// Changes the data of a session that no host holds, together with an event.
    pub(super) async fn change_stored(
        &self,
        id: &SessionId,
        event: Option<Op>,
        change: impl FnOnce(&mut SessionData),
    ) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let lease = store.claim(id, Claim::IfFree).await?;
        let written = async {
            let archive = store.archive(id).await?;
            let mut archive = archive.ok_or_else(|| no_session(id))?;
            let now = self.inner.clock.now();
            change(&mut archive.session);
            archive.session.updated_at = now;
            let mut batch = Batch::default();
            batch.push(Op::PutSession(Arc::new(archive.session.clone())));
            batch.ops.extend(event);
            if let Some(key) = &self.inner.key {
                let is_seal = |event: &Event| matches!(event.kind, EventKind::Sealed { .. });
                let seal = if archive.events.iter().any(is_seal) {
                    audit::seal_rows(id, &batch.ops, now, key)
                } else {
                    audit::seal_archive(&archive, now, key)
                };
                batch.push(Op::Event(None, Arc::new(seal)));
            }
            store.commit(&lease, batch).await
        };
        let written = written.await;
        store.release(&lease).await?;
        written.map(drop)
    }

    /// Creates a session with the history of another one up to an entry; by default, up to the
    /// last entry of its thread `default`.
    pub async fn fork(
        &self,
        id: &SessionId,
        at: Option<&EntryId>,
    ) -> Result<SessionId, StoreError> {
        let store = &self.inner.store;
        let record = store.snapshot(id).await?.ok_or_else(|| no_session(id))?;
        let main = record.threads.iter().find(|thread| thread.key == DEFAULT);
        let leaf = at.or_else(|| main.or(record.threads.first())?.leaf.as_ref());
        let leaf = leaf.ok_or_else(|| StoreError::NotFound {
            kind: "entry",
            id: format!("of session {id}"),
        })?;
        let path = store.path(id, leaf).await?;
        let now = self.inner.clock.now();
        let fork = SessionId::new();
        // A fork of a run continues like the run.
        let (purpose, status) = match record.session.run {
            Some(_) => (record.session.purpose, SessionStatus::Paused),
            None => (Purpose::Interactive, SessionStatus::Running),
        };
        let run = record.session.run.clone().map(|run| Run {
            status: RunStatus::Paused,
            ended_at: Some(now),
            ..run
        });
        // The changes that wait for a review stay with the original.
        let sandbox = record.session.sandbox.clone().map(|sandbox| SandboxRef {
            id: if sandbox.review {
                SandboxId::new()
            } else {
                sandbox.id
            },
            ..sandbox
        });
        let data = SessionData {
            id: fork.clone(),
            sandbox,
            parent: None,
            depth: 0,
            purpose,
            status,
            run,
            usage: Usage::default(),
            forked_from: Some(ForkPoint {
                session: id.clone(),
                entry: leaf.clone(),
            }),
            created_at: now,
            updated_at: now,
            ..record.session
        };
        let lease = store.claim(&fork, Claim::IfFree).await?;
        let thread = Thread::new(fork.clone(), DEFAULT, now);
        let written = store
            .commit(&lease, self.fork_batch(data, thread, path))
            .await;
        store.release(&lease).await?;
        written.map(|_| fork)
    }

    /// The batch that creates a fork, sealed.
    fn fork_batch(&self, data: SessionData, mut thread: Thread, path: Vec<Entry>) -> Batch {
        let mut batch = Batch::default();
        let (session, id): (SessionId, ThreadId) = (data.id.clone(), thread.id.clone());
        batch.push(Op::PutSession(Arc::new(data)));
        let key = thread.key.clone();
        if let Some(last) = path.last() {
            thread.leaf = Some(last.id.clone());
            thread.leaf_hash.clone_from(&last.hash);
        }
        let mut history = Batch::default();
        history.push_event(&id, EventKind::ThreadStart { key });
        for entry in path {
            let entry = Entry {
                session: session.clone(),
                thread: id.clone(),
                ..entry
            };
            history.push(Op::AppendEntry(Arc::new(entry)));
        }
        if let Some(key) = &self.inner.key {
            let ops = [&batch.ops[..], &history.ops].concat();
            let at = thread.created_at;
            if let Some(seal) = audit::thread_seal(&thread, &ops, [].into_iter(), None, None, at) {
                let (seal, hash) = audit::sign_seal(seal, key);
                thread.seal = hash;
                let seal = Box::new(seal);
                history.push_event(&id, EventKind::Sealed { seal });
            }
        }
        batch.push(Op::PutThread(Arc::new(thread)));
        batch.ops.append(&mut history.ops);
        batch
    }
}

fn no_session(id: &SessionId) -> StoreError {
    let (kind, id) = ("session", id.to_string());
    StoreError::NotFound { kind, id }
}

/// The whole session in one batch.
fn archive_batch(archive: Archive) -> Batch {
    let mut batch = Batch::default();
    batch.push(Op::PutSession(Arc::new(archive.session)));
    let threads = archive.threads.into_iter();
    batch
        .ops
        .extend(threads.map(|it| Op::PutThread(Arc::new(it))));
    let entries = archive.entries.into_iter();
    batch
        .ops
        .extend(entries.map(|it| Op::AppendEntry(Arc::new(it))));
    let prompts = archive.prompts.into_iter();
    batch
        .ops
        .extend(prompts.map(|it| Op::PutPrompt(Arc::new(it))));
    let gates = archive.gates.into_iter();
    batch.ops.extend(gates.map(|it| Op::PutGate(Arc::new(it))));
    batch
        .ops
        .extend(archive.gate_refs.into_iter().map(Op::PutGateRef));
    let events = archive.events.into_iter();
    batch
        .ops
        .extend(events.map(|it| Op::ImportedEvent(Arc::new(it))));
    batch
}
