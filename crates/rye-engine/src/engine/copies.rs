//! Sessions taken elsewhere, and branches of their histories.

use std::sync::Arc;

use lillux::keys::PublicKey;
use rye_protocol::{
    Archive, Batch, Entry, EntryId, EventKind, Op, Session as SessionData, SessionId, Thread,
    ThreadId, Usage,
};
use serde_json::json;

use super::session::{DEFAULT, thread};
use super::{Engine, opening};
use crate::audit::{self, UntrustedDecision};
use crate::store::{Claim, StoreError};

impl Engine {
    /// A session with all that belongs to it, and those below it, the topmost first: to be
    /// kept, checked or taken elsewhere.
    pub async fn export(&self, id: &SessionId) -> Result<Vec<Archive>, StoreError> {
        let store = &self.inner.store;
        let archive = store.archive(id).await?;
        let archive = archive.ok_or_else(|| no_session(id))?;
        let mut all = vec![archive];
        let mut children = store.sessions(opening::children_of(id)).await?;
        children.reverse();
        for child in children {
            all.extend(Box::pin(self.export(&child.id)).await?);
        }
        Ok(all)
    }

    /// Writes a session down that comes from elsewhere. One of the same id must not be here.
    ///
    /// A decision by which something would still be done counts only with a receipt of a key
    /// that is trusted here: `key` gives the public key of a fingerprint, if it is. The others
    /// are asked again, and are given back.
    pub async fn import(
        &self,
        archive: Archive,
        key: impl Fn(&str) -> Option<PublicKey>,
    ) -> Result<Vec<UntrustedDecision>, StoreError> {
        self.write_archive(archive, None, key).await
    }

    /// The same for a session that could not be verified. It is marked with the reason for as
    /// long as it is there, and no decision in it counts.
    pub async fn import_unverified(
        &self,
        archive: Archive,
        why: &str,
    ) -> Result<Vec<UntrustedDecision>, StoreError> {
        self.write_archive(archive, Some(why), |_| None).await
    }

    async fn write_archive(
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
        if let Some(why) = unverified {
            let metadata = &mut archive.session.metadata;
            metadata.insert(audit::UNVERIFIED.to_owned(), why.into());
        }
        let doubts = audit::doubt(&mut archive, key, now);
        if let Some(key) = &self.inner.key {
            audit::seal_changes(&mut archive, &before, now, key);
        }
        let lease = store.claim(&id, Claim::IfFree).await?;
        let written = store.commit(&lease, batch(archive)).await;
        store.release(&lease).await?;
        written.map(|_| doubts)
    }

    /// A session of its own that shares the past of another up to an entry; up to the last
    /// one of its thread `default` if none is named.
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
        let mut data = SessionData {
            id: SessionId::new(),
            parent: None,
            depth: 0,
            purpose: rye_protocol::Purpose::Interactive,
            status: rye_protocol::SessionStatus::Running,
            usage: Usage::default(),
            created_at: now,
            updated_at: now,
            ..record.session
        };
        let from = json!({ "session": id, "entry": leaf });
        data.metadata.insert("forked_from".to_owned(), from);
        let fork = data.id.clone();
        let lease = store.claim(&fork, Claim::IfFree).await?;
        let thread = thread(&fork, DEFAULT, now);
        let written = store.commit(&lease, self.branch(data, thread, path)).await;
        store.release(&lease).await?;
        written.map(|_| fork)
    }

    /// The past of a branch, signed as such.
    fn branch(&self, data: SessionData, mut thread: Thread, path: Vec<Entry>) -> Batch {
        let mut batch = Batch::default();
        let (session, id): (SessionId, ThreadId) = (data.id.clone(), thread.id.clone());
        batch.push(Op::PutSession(Arc::new(data)));
        let key = thread.key.clone();
        if let Some(last) = path.last() {
            thread.leaf = Some(last.id.clone());
            thread.leaf_hash.clone_from(&last.hash);
        }
        let mut past = Batch::default();
        past.push_event(&id, EventKind::ThreadStart { key });
        for entry in path {
            let entry = Entry {
                session: session.clone(),
                thread: id.clone(),
                ..entry
            };
            past.push(Op::AppendEntry(Arc::new(entry)));
        }
        if let Some(key) = &self.inner.key {
            let ops = [&batch.ops[..], &past.ops].concat();
            let at = thread.created_at;
            if let Some(seal) = audit::thread_seal(&thread, &ops, [].into_iter(), None, None, at) {
                let (seal, hash) = audit::sign_seal(seal, key);
                thread.seal = hash;
                let seal = Box::new(seal);
                past.push_event(&id, EventKind::Sealed { seal });
            }
        }
        batch.push(Op::PutThread(Arc::new(thread)));
        batch.ops.append(&mut past.ops);
        batch
    }
}

fn no_session(id: &SessionId) -> StoreError {
    let (kind, id) = ("session", id.to_string());
    StoreError::NotFound { kind, id }
}

/// All of a session in one batch.
fn batch(archive: Archive) -> Batch {
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
    let suspended = archive.suspended_turns.into_iter();
    batch
        .ops
        .extend(suspended.map(|it| Op::PutSuspendedTurn(Arc::new(it))));
    let events = archive.events.into_iter();
    batch
        .ops
        .extend(events.map(|it| Op::ImportedEvent(Arc::new(it))));
    batch
}
