//! Batches for the sessions of calls.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_engine::audit::seal_commit;
use rye_engine::protocol::{
    Batch, CallId, EventKind, Gate, GateOrigin, GateStatus, Limits, Op, PromptId, Purpose,
    QueueMode, Session, SessionId, SessionStatus, Thread, ThreadId, ThreadStatus, Usage,
};
use rye_engine::store::SessionSnapshot;
use rye_mcp::GatedCall;
use serde_json::{Map, json};

use super::{PROJECT, now};

/// The key of a call's thread.
const THREAD: &str = "mcp";

/// The origin of a gate: its session has one thread, one prompt and one call.
pub(super) fn origin(session: &SessionId, call: &GatedCall) -> GateOrigin {
    let prompt = PromptId::from(session.clone());
    // A session id is also valid as the other ids.
    let id = || session.as_str().to_owned();
    GateOrigin {
        session: session.clone(),
        thread: ThreadId::try_from(id()).unwrap_or_else(|_| ThreadId::new()),
        call: CallId::try_from(id()).unwrap_or_else(|_| CallId::new()),
        prompt,
        tool: call.tool.clone(),
        resume_key: String::from("call"),
    }
}

/// Creates a session with its gate. If the gate is already decided, the session is terminated.
pub(super) fn create(gate: &Gate, project: &Path, key: Option<&SigningKey>) -> Batch {
    let at = gate.created_at;
    let project = project.to_string_lossy();
    let session = Session {
        id: gate.origin.session.clone(),
        user_id: None,
        org_id: None,
        workspace: Some(project.clone().into_owned()),
        purpose: Purpose::Run,
        status: if gate.status.is_pending() {
            SessionStatus::Running
        } else {
            SessionStatus::Terminated
        },
        sandbox: None,
        snapshot_id: None,
        parent: None,
        depth: 0,
        model: None,
        limits: Limits::default(),
        usage: Usage::default(),
        metadata: Map::from_iter([(PROJECT.to_owned(), json!(project))]),
        created_at: at,
        updated_at: at,
    };
    let thread = Thread {
        id: gate.origin.thread.clone(),
        session: session.id.clone(),
        key: THREAD.to_owned(),
        status: ThreadStatus::Active,
        leaf: None,
        leaf_hash: String::new(),
        seal: String::new(),
        events_hash: String::new(),
        usage: Usage::default(),
        mode: QueueMode::default(),
        model: None,
        summary: None,
        tokens: 0,
        compaction: None,
        turn: None,
        last_command: None,
        metadata: Map::new(),
        created_at: at,
        updated_at: at,
    };
    let id = thread.id.clone();
    let mut batch = Batch::default();
    batch.push(Op::PutSession(Arc::new(session)));
    batch.push_event(
        &id,
        EventKind::ThreadStart {
            key: THREAD.to_owned(),
        },
    );
    batch.push(Op::PutGate(Arc::new(gate.clone())));
    let opened = Gate {
        status: GateStatus::Pending,
        ..gate.clone()
    };
    batch.push_event(
        &id,
        EventKind::DecisionGate {
            gate: Box::new(opened),
        },
    );
    if let GateStatus::Resolved { resolution } = &gate.status {
        let (gate, resolution) = (gate.id.clone(), resolution.clone());
        batch.push_event(&id, EventKind::DecisionGateResolved { gate, resolution });
    }
    seal_commit(&mut batch, thread, at, key);
    batch
}

/// Terminates a session, because the decision about its call is consumed.
pub(super) fn terminate(gate: &Gate, snapshot: SessionSnapshot, key: Option<&SigningKey>) -> Batch {
    let at = now();
    let mut batch = Batch::default();
    batch.push(Op::PutSession(Arc::new(Session {
        status: SessionStatus::Terminated,
        updated_at: at,
        ..snapshot.session
    })));
    let (call, tool) = (gate.origin.call.clone(), gate.origin.tool.clone());
    batch.push_event(&gate.origin.thread, EventKind::ToolStart { call, tool });
    if let Some(thread) = snapshot.threads.into_iter().next() {
        seal_commit(&mut batch, thread, at, key);
    }
    batch
}
