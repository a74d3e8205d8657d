//! Row hashes: how seals cover everything that is not an entry.
//!
//! A seal contains the hashes of the rows that its commit writes; the last seal that names a row
//! counts. Events are not rows: a thread's row has a rolling hash of the events that its host
//! wrote, and all others repeat what rows say.

use std::collections::BTreeMap;

use rye_protocol::{
    Archive, Call, CallState, Entry, EntryKind, EventKind, Gate, GateRef, Limits, Op, Part, Phase,
    QueuedPrompt, Session, SessionStatus, Thread, ThreadId, Usage,
};
use serde::Serialize;

use super::hash;

/// Hashes by row name.
pub(super) type Rows = BTreeMap<String, String>;

/// Name of the session's row.
pub(super) const SESSION: &str = "session";
/// Name of the immutable part of the session's row.
pub(super) const SESSION_FIXED: &str = "session.fixed";

fn row(value: &impl Serialize) -> String {
    hash("rye row 1", value).to_hex()
}

/// Hash of a session without its usage, which is the sum over its threads, and without the time of
/// its import, which is not part of what was exported.
pub(super) fn of_session(session: &Session) -> String {
    row(&Session {
        usage: Usage::default(),
        imported_at: None,
        ..session.clone()
    })
}

/// Hash of the fields that never change during a session.
pub(super) fn of_fixed_session(session: &Session) -> String {
    // The review mode can change, and with it the sandbox, but not where the session works.
    let place = session.sandbox.as_ref();
    let place = place.map(|it| (it.kind, &it.workspace, &it.target));
    let fixed = Session {
        sandbox: None,
        title: None,
        status: SessionStatus::default(),
        limits: Limits::default(),
        usage: Usage::default(),
        run: None,
        status_before_error: None,
        untrusted_decisions: Vec::new(),
        imported_at: None,
        unverified_import: None,
        updated_at: session.created_at,
        ..session.clone()
    };
    row(&(fixed, place))
}

/// Hash of a thread without the hash of the seal that covers it.
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

pub(super) fn of_ref(gate_ref: &GateRef) -> String {
    row(gate_ref)
}

/// Hash of an entry including `elided`, which the entry hash omits.
pub(super) fn of_entry(entry: &Entry) -> String {
    row(&entry.kind)
}

/// Whether output of an entry is elided.
pub(super) fn is_elided(entry: &Entry) -> bool {
    let EntryKind::Message(message) = &entry.kind else {
        return false;
    };
    let mut parts = message.parts.iter();
    parts.any(|part| matches!(part, Part::ToolResult { elided: true, .. }))
}

/// Hash of a fatal error event.
pub(super) fn of_fatal_error(thread: Option<&ThreadId>, kind: &EventKind) -> Option<String> {
    let is_fatal = matches!(kind, EventKind::Error { error } if !error.recoverable);
    is_fatal.then(|| row(&(thread, kind)))
}

/// Adds the rows that an operation writes.
pub(super) fn add(rows: &mut Rows, op: &Op) {
    let (name, hash) = match op {
        Op::PutSession(session) => {
            rows.insert(SESSION_FIXED.to_owned(), of_fixed_session(session));
            (SESSION.to_owned(), of_session(session))
        }
        Op::PutThread(thread) => (format!("thread:{}", thread.id), of_thread(thread)),
        Op::PutPrompt(prompt) => (format!("prompt:{}", prompt.id), of_prompt(prompt)),
        Op::PutGate(gate) => (format!("gate:{}", gate.id), of_gate(gate)),
        Op::PutGateRef(gate_ref) => {
            let hash = of_ref(gate_ref);
            (format!("ref:{hash}"), hash)
        }
        Op::ReplaceEntry(entry) => (format!("entry:{}", entry.id), of_entry(entry)),
        Op::AppendEntry(entry) if is_elided(entry) => {
            (format!("entry:{}", entry.id), of_entry(entry))
        }
        Op::Event(thread, kind) => match of_fatal_error(thread.as_ref(), kind) {
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
    for gate_ref in &archive.gate_refs {
        let hash = of_ref(gate_ref);
        put(format!("ref:{hash}"), hash);
    }
    for entry in archive.entries.iter().filter(|it| is_elided(it)) {
        put(format!("entry:{}", entry.id), of_entry(entry));
    }
    for event in &archive.events {
        if let Some(hash) = of_fatal_error(event.thread.as_ref(), &event.kind) {
            put(format!("error:{hash}"), hash);
        }
    }
    rows
}

/// Adds an event to a thread's rolling hash. `None` for events that another process may write;
/// they repeat what gates and threads say.
pub(super) fn fold(before: &str, kind: &EventKind) -> Option<String> {
    let is_excluded = match kind {
        EventKind::ThreadStart { .. }
        | EventKind::Sealed { .. }
        | EventKind::DecisionGateResolved { .. }
        | EventKind::DecisionGateExpired { .. } => true,
        EventKind::Error { error } => !error.recoverable,
        _ => false,
    };
    (!is_excluded).then(|| hash("rye event 1", &(before, kind)).to_hex())
}

/// Whether a commit needs a seal: it leaves the thread idle or waiting for a person, or writes a
/// row in its final state.
pub(super) fn needs_seal(thread: &Thread, ops: &[Op]) -> bool {
    let is_waiting = match thread.turn.as_ref().map(|turn| &turn.phase) {
        None => thread.compaction.is_none(),
        Some(Phase::Model) => false,
        Some(Phase::Tools { calls, .. }) => {
            let mut open = calls.iter().filter(|it| it.state != CallState::Ended);
            calls.iter().any(is_blocked) && open.all(is_blocked)
        }
    };
    let mut ops = ops.iter();
    is_waiting
        || ops.any(|op| match op {
            Op::PutPrompt(prompt) => prompt.status.is_finished(),
            Op::PutGate(_) | Op::ReplaceEntry(_) => true,
            _ => false,
        })
}

fn is_blocked(call: &Call) -> bool {
    matches!(call.state, CallState::Blocked { .. })
}
