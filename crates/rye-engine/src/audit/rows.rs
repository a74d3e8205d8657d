//! The rows of a session, as seals cover them: everything that is not an entry.
//!
//! A seal names the hashes of the rows that its commit writes. The last seal that names a row
//! counts. Events are not rows: a thread's row has a rolling hash of those that its own host
//! wrote, and the others repeat what rows say.

use std::collections::BTreeMap;

use rye_protocol::{
    Archive, Call, CallState, Entry, EntryKind, EventKind, Gate, GateRef, GateStatus, Limits, Op,
    Part, Phase, QueuedPrompt, Session, SessionStatus, SuspendedTurn, Thread, ThreadId, Usage,
};
use serde::Serialize;

use super::hash;
use super::imported_decisions::DOUBTED;
use crate::engine::STATUS_BEFORE;

/// Hashes by the names of rows.
pub(super) type Rows = BTreeMap<String, String>;

/// The name of the session's own row.
pub(super) const SESSION: &str = "session";
/// The name of that part of it which never changes.
pub(super) const SESSION_FIXED: &str = "session.fixed";

fn row(thing: &impl Serialize) -> String {
    hash("rye row 1", thing).to_hex()
}

/// What a session used up is the sum of what its threads did.
pub(super) fn of_session(session: &Session) -> String {
    row(&Session {
        usage: Usage::default(),
        ..session.clone()
    })
}

/// Without what changes in the life of a session.
pub(super) fn of_fixed_session(session: &Session) -> String {
    let mut fixed = Session {
        status: SessionStatus::default(),
        snapshot_id: None,
        limits: Limits::default(),
        usage: Usage::default(),
        updated_at: session.created_at,
        ..session.clone()
    };
    for changing in [STATUS_BEFORE, DOUBTED, super::UNVERIFIED] {
        fixed.metadata.remove(changing);
    }
    row(&fixed)
}

/// Without the hash of the seal that covers it.
pub(super) fn of_thread(thread: &Thread) -> String {
    row(&Thread {
        seal: String::new(),
        ..thread.clone()
    })
}

pub(super) fn of_prompt(prompt: &QueuedPrompt) -> String {
    row(prompt)
}

pub(super) fn of_gate(gate: &Gate) -> String {
    row(gate)
}

pub(super) fn of_suspended(turn: &SuspendedTurn) -> String {
    row(turn)
}

pub(super) fn of_ref(shown: &GateRef) -> String {
    row(shown)
}

/// With what a model is shown of it, which the hash of an entry leaves out.
pub(super) fn of_entry(entry: &Entry) -> String {
    row(&entry.kind)
}

/// Whether a model is not shown all of an entry.
pub(super) fn is_elided(entry: &Entry) -> bool {
    let EntryKind::Message(message) = &entry.kind else {
        return false;
    };
    let mut parts = message.parts.iter();
    parts.any(|part| matches!(part, Part::ToolResult { elided: true, .. }))
}

/// An error that the host wrote when the session broke down.
pub(super) fn of_breakdown(thread: Option<&ThreadId>, kind: &EventKind) -> Option<String> {
    let is_one = matches!(kind, EventKind::Error { error } if !error.recoverable);
    is_one.then(|| row(&(thread, kind)))
}

/// Adds the rows that a change writes.
pub(super) fn add(rows: &mut Rows, op: &Op) {
    let (name, hash) = match op {
        Op::PutSession(session) => {
            rows.insert(SESSION_FIXED.to_owned(), of_fixed_session(session));
            (SESSION.to_owned(), of_session(session))
        }
        Op::PutThread(thread) => (format!("thread:{}", thread.id), of_thread(thread)),
        Op::PutPrompt(prompt) => (format!("prompt:{}", prompt.id), of_prompt(prompt)),
        Op::PutGate(gate) => (format!("gate:{}", gate.id), of_gate(gate)),
        Op::PutSuspendedTurn(turn) => (format!("suspended:{}", turn.gate), of_suspended(turn)),
        Op::PutGateRef(shown) => {
            let hash = of_ref(shown);
            (format!("ref:{hash}"), hash)
        }
        Op::ReplaceEntry(entry) => (format!("entry:{}", entry.id), of_entry(entry)),
        Op::AppendEntry(entry) if is_elided(entry) => {
            (format!("entry:{}", entry.id), of_entry(entry))
        }
        Op::Event(thread, kind) => match of_breakdown(thread.as_ref(), kind) {
            Some(hash) => (format!("error:{hash}"), hash),
            None => return,
        },
        _ => return,
    };
    rows.insert(name, hash);
}

/// All rows of a session.
pub(super) fn of_archive(archive: &Archive) -> Rows {
    let mut rows = Rows::new();
    let mut put = |name: String, hash: String| rows.insert(name, hash);
    put(SESSION.to_owned(), of_session(&archive.session));
    put(SESSION_FIXED.to_owned(), of_fixed_session(&archive.session));
    for thread in &archive.threads {
        put(format!("thread:{}", thread.id), of_thread(thread));
    }
    for prompt in &archive.prompts {
        put(format!("prompt:{}", prompt.id), of_prompt(prompt));
    }
    for gate in &archive.gates {
        put(format!("gate:{}", gate.id), of_gate(gate));
    }
    for turn in &archive.suspended_turns {
        put(format!("suspended:{}", turn.gate), of_suspended(turn));
    }
    for shown in &archive.gate_refs {
        let hash = of_ref(shown);
        put(format!("ref:{hash}"), hash);
    }
    for entry in archive.entries.iter().filter(|it| is_elided(it)) {
        put(format!("entry:{}", entry.id), of_entry(entry));
    }
    for event in &archive.events {
        if let Some(hash) = of_breakdown(event.thread.as_ref(), &event.kind) {
            put(format!("error:{hash}"), hash);
        }
    }
    rows
}

/// The rolling hash of a thread's events, with one more. Events that another process may write
/// are left out: they repeat what gates and threads say.
pub(super) fn fold(before: &str, kind: &EventKind) -> Option<String> {
    let is_left_out = match kind {
        EventKind::ThreadStart { .. }
        | EventKind::Sealed { .. }
        | EventKind::DecisionGateResolved { .. }
        | EventKind::DecisionGateExpired { .. } => true,
        EventKind::Error { error } => !error.recoverable,
        _ => false,
    };
    (!is_left_out).then(|| hash("rye event 1", &(before, kind)).to_hex())
}

/// Whether a commit of a thread's host is to be sealed: it leaves the thread at rest or waiting
/// for a person, or writes a row that nothing changes any more.
pub(super) fn needs_seal(thread: &Thread, ops: &[Op]) -> bool {
    let waits = match thread.turn.as_ref().map(|turn| &turn.phase) {
        None => thread.compaction.is_none(),
        Some(Phase::Model) => false,
        Some(Phase::Tools { calls, .. }) => {
            let mut open = calls.iter().filter(|it| it.state != CallState::Ended);
            calls.iter().any(is_blocked) && open.all(is_blocked)
        }
    };
    let mut ops = ops.iter();
    waits
        || ops.any(|op| match op {
            Op::PutPrompt(prompt) => prompt.status.is_finished(),
            Op::PutGate(gate) => !matches!(gate.status, GateStatus::Pending),
            Op::PutSuspendedTurn(_) | Op::ReplaceEntry(_) => true,
            _ => false,
        })
}

fn is_blocked(call: &Call) -> bool {
    matches!(call.state, CallState::Blocked { .. })
}
