//! Things to store.

use std::sync::Arc;

use rye_engine::store::{Claim, Lease, SessionStore, StoreError};
use rye_protocol::{
    Action, Batch, CallId, Entry, EntryId, EntryKind, EventKind, Gate, GateId, GateKind,
    GateOrigin, GateStatus, Limits, Message, Millis, Op, PromptId, PromptStatus, Purpose,
    QueueMode, QueuedPrompt, Resolution, Role, Session, SessionId, SessionStatus, StatusKind,
    SuspendedTurn, Thread, ThreadId, ThreadStatus, Usage,
};
use serde_json::{Map, Value, json};

/// An id of any kind.
pub fn id<T: TryFrom<String>>(text: &str) -> T {
    match T::try_from(text.to_owned()) {
        Ok(id) => id,
        Err(_) => unreachable!("samples have good ids"),
    }
}

/// A session.
pub fn session(name: &str) -> Session {
    Session {
        id: id(name),
        user_id: Some("ada".to_owned()),
        org_id: None,
        workspace: Some("/work".to_owned()),
        purpose: Purpose::Interactive,
        status: SessionStatus::Running,
        sandbox: None,
        snapshot_id: None,
        parent: None,
        depth: 0,
        model: None,
        limits: Limits::default(),
        usage: Usage::default(),
        metadata: Map::new(),
        created_at: Millis(1_000),
        updated_at: Millis(1_000),
    }
}

/// A thread.
pub fn thread(session: &str, name: &str) -> Thread {
    Thread {
        id: id(name),
        session: id(session),
        key: format!("web:{name}"),
        status: ThreadStatus::Active,
        leaf: None,
        leaf_hash: String::new(),
        events_hash: String::new(),
        usage: Usage::default(),
        seal: String::new(),
        mode: QueueMode::Followup,
        model: None,
        summary: None,
        tokens: 0,
        compaction: None,
        turn: None,
        last_command: None,
        metadata: Map::new(),
        created_at: Millis(1_000),
        updated_at: Millis(1_000),
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
    QueuedPrompt {
        id: id(name),
        session: id(session),
        thread: id("main"),
        order,
        content: format!("please do {name}"),
        attachments: Vec::new(),
        author: None,
        reply_to: None,
        model: None,
        role: None,
        limits: Limits::default(),
        mode: QueueMode::Followup,
        status: PromptStatus::Waiting,
        collect_until: None,
        metadata: Map::new(),
        created_at: Millis(3_000),
    }
}

/// A gate of the prompt `prompt` in the thread `main`.
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
        title: format!("may it {key}?"),
        body: "it would".to_owned(),
        actions: vec![Action {
            id: "approve".to_owned(),
            label: "Yes".to_owned(),
        }],
        status: GateStatus::Pending,
        origin,
        expires_at: None,
        context: Map::new(),
        created_at: Millis(4_000),
    }
}

/// A turn that waits at a gate.
pub fn suspended(gate: &Gate) -> SuspendedTurn {
    SuspendedTurn {
        gate: gate.id.clone(),
        session: gate.origin.session.clone(),
        thread: gate.origin.thread.clone(),
        prompt: gate.origin.prompt.clone(),
        model: "scripted/one".to_owned(),
        leaf: None,
        call: CallId::new(),
        tool: gate.origin.tool.clone(),
        args: json!({ "to": "production" }),
        resume_key: gate.origin.resume_key.clone(),
        attempt: 1,
        chain_hash: None,
    }
}

/// A decision.
pub fn decision(action: &str) -> Resolution {
    Resolution {
        action: action.to_owned(),
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(5_000),
        source: "cli".to_owned(),
        receipt: None,
    }
}

/// Something to tell.
pub fn told() -> Op {
    Op::Event(
        Some(id("main")),
        Arc::new(EventKind::Status {
            status: StatusKind::Thinking,
        }),
    )
}

/// That an entry was written.
pub fn told_of(entry: &Entry) -> Op {
    let thread = Some(entry.thread.clone());
    let entry = entry.id.clone();
    Op::Event(thread, Arc::new(EventKind::MessageEnd { entry }))
}

/// A change.
pub fn append(entry: Entry) -> Op {
    Op::AppendEntry(Arc::new(entry))
}

/// A change.
pub fn replace(entry: Entry) -> Op {
    Op::ReplaceEntry(Arc::new(entry))
}

/// A change.
pub fn put_session(session: Session) -> Op {
    Op::PutSession(Arc::new(session))
}

/// A change.
pub fn put_thread(thread: Thread) -> Op {
    Op::PutThread(Arc::new(thread))
}

/// A change.
pub fn put_prompt(prompt: QueuedPrompt) -> Op {
    Op::PutPrompt(Arc::new(prompt))
}

/// A change.
pub fn put_gate(gate: Gate) -> Op {
    Op::PutGate(Arc::new(gate))
}

/// Makes a session with the thread `main`, and keeps it.
pub async fn begin(store: &dyn SessionStore, name: &str) -> Lease {
    let lease = store.claim(&id(name), Claim::IfFree).await.unwrap();
    let ops = vec![put_session(session(name)), put_thread(thread(name, "main"))];
    write(store, &lease, ops).await.unwrap();
    lease
}

/// Writes changes.
pub async fn write(
    store: &dyn SessionStore,
    lease: &Lease,
    ops: Vec<Op>,
) -> Result<u64, StoreError> {
    store.commit(lease, Batch { ops }).await
}

/// A chain of entries, `e0` the first.
pub fn chain(session: &str, length: usize) -> Vec<Entry> {
    let link = |n: usize| {
        let parent = n.checked_sub(1).map(|before| format!("e{before}"));
        entry(session, &format!("e{n}"), parent.as_deref())
    };
    (0..length).map(link).collect()
}

/// Those of entries.
pub fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

/// A session's.
pub fn sid(name: &str) -> SessionId {
    id(name)
}

/// A thread's.
pub fn tid(name: &str) -> ThreadId {
    id(name)
}

/// An entry's.
pub fn eid(name: &str) -> EntryId {
    id(name)
}

/// A prompt's.
pub fn qid(name: &str) -> PromptId {
    id(name)
}
