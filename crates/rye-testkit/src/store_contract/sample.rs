//! Sample objects and helpers for the tests.

use std::sync::Arc;

use rye_engine::store::{Claim, Lease, SessionStore, StoreError};
use rye_protocol::{
    Action, Batch, Entry, EntryId, EntryKind, EventKind, Gate, GateId, GateKind, GateOrigin,
    GateStatus, Message, Millis, Op, PromptId, Purpose, QueuedPrompt, Resolution, Role, Session,
    SessionId, StatusKind, Thread, ThreadId,
};
use serde_json::{Map, Value};

/// Parses an id of any kind.
pub fn id<T: TryFrom<String>>(text: &str) -> T {
    match T::try_from(text.to_owned()) {
        Ok(id) => id,
        Err(_) => unreachable!("sample ids are valid"),
    }
}

/// A session of the user `ada`.
pub fn session(name: &str) -> Session {
    Session {
        user_id: Some("ada".to_owned()),
        workspace: Some("/work".to_owned()),
        ..Session::new(id(name), Purpose::Interactive, Millis(1_000))
    }
}

/// A thread with the key `web:NAME`.
pub fn thread(session: &str, name: &str) -> Thread {
    Thread {
        id: id(name),
        ..Thread::new(id(session), format!("web:{name}"), Millis(1_000))
    }
}

/// An entry of the thread `main`.
pub fn entry(session: &str, name: &str, parent: Option<&str>) -> Entry {
    Entry {
        id: id(name),
        session: id(session),
        thread: id("main"),
        parent: parent.map(id),
        prompt: None,
        kind: EntryKind::Message(Message::text(Role::User, format!("this is {name}"))),
        created_at: Millis(2_000),
        hash: String::new(),
    }
}

/// A prompt for the thread `main`.
pub fn prompt(session: &str, name: &str, order: u64) -> QueuedPrompt {
    let content = format!("please do {name}");
    QueuedPrompt {
        id: id(name),
        order,
        ..QueuedPrompt::new(id(session), id("main"), content, Millis(3_000))
    }
}

/// A pending gate of a prompt in the thread `main`.
pub fn gate(session: &str, prompt: &str, key: &str) -> Gate {
    let origin = GateOrigin {
        session: id(session),
        thread: id("main"),
        prompt: id(prompt),
        call: id("call-1"),
        tool: "deploy".to_owned(),
        resume_key: key.to_owned(),
    };
    Gate {
        id: GateId::new(&origin.session, &origin.thread, &origin.prompt, key),
        kind: GateKind::Approval,
        title: format!("Approve {key}?"),
        body: "details".to_owned(),
        actions: vec![Action {
            id: "approve".into(),
            label: "Yes".to_owned(),
        }],
        status: GateStatus::Pending,
        origin,
        expires_at: None,
        context: Map::new(),
        created_at: Millis(4_000),
    }
}

/// A decision of `ada`.
pub fn decision(action: &str) -> Resolution {
    Resolution {
        action: action.into(),
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(5_000),
        source: "cli".to_owned(),
        receipt: None,
    }
}

/// Appends a status event of the thread `main`.
pub fn status_event() -> Op {
    Op::Event(
        Some(id("main")),
        Arc::new(EventKind::Status {
            status: StatusKind::Thinking,
        }),
    )
}

/// Appends the event that an entry was written.
pub fn message_event(entry: &Entry) -> Op {
    let thread = Some(entry.thread.clone());
    let entry = entry.id.clone();
    Op::Event(thread, Arc::new(EventKind::MessageEnd { entry }))
}

/// Appends an entry.
pub fn append(entry: Entry) -> Op {
    Op::AppendEntry(Arc::new(entry))
}

/// Replaces an entry.
pub fn replace(entry: Entry) -> Op {
    Op::ReplaceEntry(Arc::new(entry))
}

/// Writes a session.
pub fn put_session(session: Session) -> Op {
    Op::PutSession(Arc::new(session))
}

/// Writes a thread.
pub fn put_thread(thread: Thread) -> Op {
    Op::PutThread(Arc::new(thread))
}

/// Writes a prompt.
pub fn put_prompt(prompt: QueuedPrompt) -> Op {
    Op::PutPrompt(Arc::new(prompt))
}

/// Writes a gate.
pub fn put_gate(gate: Gate) -> Op {
    Op::PutGate(Arc::new(gate))
}

/// Creates a session with the thread `main`, and returns its lease.
pub async fn create_session(store: &dyn SessionStore, name: &str) -> Lease {
    let lease = store.claim(&id(name), Claim::IfFree).await.unwrap();
    let ops = vec![put_session(session(name)), put_thread(thread(name, "main"))];
    write(store, &lease, ops).await.unwrap();
    lease
}

/// Commits operations.
pub async fn write(
    store: &dyn SessionStore,
    lease: &Lease,
    ops: Vec<Op>,
) -> Result<u64, StoreError> {
    store.commit(lease, Batch { ops }).await
}

/// A chain of entries `e0`, `e1` and so on.
pub fn chain(session: &str, length: usize) -> Vec<Entry> {
    let link = |n: usize| {
        let parent = n.checked_sub(1).map(|before| format!("e{before}"));
        entry(session, &format!("e{n}"), parent.as_deref())
    };
    (0..length).map(link).collect()
}

/// The ids of entries.
pub fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

/// A session id.
pub fn sid(name: &str) -> SessionId {
    id(name)
}

/// A thread id.
pub fn tid(name: &str) -> ThreadId {
    id(name)
}

/// An entry id.
pub fn eid(name: &str) -> EntryId {
    id(name)
}

/// A prompt id.
pub fn prompt_id(name: &str) -> PromptId {
    id(name)
}
