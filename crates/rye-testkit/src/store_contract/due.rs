//! Sessions that have something to do although nobody holds them.

use rye_engine::store::{Claim, CommandKind, InboxMessage, SessionCommand, SessionStore};
use rye_protocol::{
    Gate, Millis, Op, PromptStatus, SessionId, SessionStatus, Thread, ThreadStatus,
};

use super::Subject;
use super::sample::{
    create_session, decision, gate, id, prompt, put_gate, put_prompt, put_session, put_thread,
    session, sid, thread, write,
};

/// Creates sessions with a running prompt, adds what `ops` returns, and releases them.
async fn create(store: &dyn SessionStore, name: &str, ops: Vec<Op>) {
    let lease = create_session(store, name).await;
    let mut running = prompt(name, "q1", 1);
    running.status = PromptStatus::Running;
    let mut all = vec![put_prompt(running)];
    all.extend(ops);
    write(store, &lease, all).await.unwrap();
    store.release(&lease).await.unwrap();
}

async fn due(subject: &Subject, before: u64) -> Vec<SessionId> {
    let found = subject.store.due(Millis(before)).await.unwrap();
    assert_eq!(subject.other.due(Millis(before)).await, Ok(found.clone()));
    found
}

fn gate_with_deadline(session: &str, deadline: Option<u64>) -> Gate {
    Gate {
        expires_at: deadline.map(Millis),
        ..gate(session, "q1", "key")
    }
}

/// In order of creation.
pub async fn sessions_with_unfinished_work_are_due_while_nobody_holds_them(subject: Subject) {
    for name in ["s", "t"] {
        create(&*subject.store, name, Vec::new()).await;
    }
    assert_eq!(due(&subject, 0).await, [sid("s"), sid("t")]);
    let lease = subject.other.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert_eq!(due(&subject, 0).await, [sid("t")]);
    subject.other.release(&lease).await.unwrap();
    assert_eq!(due(&subject, 0).await, [sid("s"), sid("t")]);
}

/// A thread that waits does not hide another one that does not.
pub async fn session_that_waits_for_a_decision_is_due_at_the_deadline(subject: Subject) {
    let store = &*subject.store;
    let gate = |name, deadline| vec![put_gate(gate_with_deadline(name, deadline))];
    create(store, "forever", gate("forever", None)).await;
    create(store, "soon", gate("soon", Some(5_000))).await;
    assert_eq!(due(&subject, 4_999).await, []);
    assert_eq!(due(&subject, 5_000).await, [sid("soon")]);
    // A decided gate no longer blocks the turn.
    let resolve = InboxMessage::Resolve {
        gate: gate_with_deadline("forever", None).id,
        resolution: decision("approve"),
    };
    store.post(&sid("forever"), resolve).await.unwrap();
    assert_eq!(due(&subject, 0).await, [sid("forever")]);
    let mut ops = gate("two", None);
    let mut waiting = prompt("two", "q2", 2);
    waiting.thread = id("side");
    ops.extend([put_thread(thread("two", "side")), put_prompt(waiting)]);
    create(store, "two", ops).await;
    assert_eq!(due(&subject, 0).await, [sid("forever"), sid("two")]);
}

/// Nothing would happen if they were opened.
pub async fn idle_paused_and_ended_sessions_are_not_due(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "idle").await;
    let mut done = prompt("idle", "q1", 1);
    write(store, &lease, vec![put_prompt(done.clone())])
        .await
        .unwrap();
    done.status = PromptStatus::Done;
    write(store, &lease, vec![put_prompt(done)]).await.unwrap();
    store.release(&lease).await.unwrap();
    for status in [
        SessionStatus::Paused,
        SessionStatus::Terminated,
        SessionStatus::Error,
    ] {
        let name = format!("{status:?}").to_lowercase();
        let mut changed = session(&name);
        changed.status = status;
        create(store, &name, vec![put_session(changed)]).await;
    }
    let paused = Thread {
        status: ThreadStatus::Paused,
        ..thread("held-back", "main")
    };
    create(store, "held-back", vec![put_thread(paused)]).await;
    assert_eq!(due(&subject, u64::MAX).await, []);
}

/// Until the holder has processed them.
pub async fn posted_messages_make_a_session_due(subject: Subject) {
    let store = &*subject.store;
    for name in ["command", "prompt"] {
        let lease = create_session(store, name).await;
        store.release(&lease).await.unwrap();
    }
    assert_eq!(due(&subject, 0).await, []);
    let command = SessionCommand::new(None, CommandKind::Pause);
    let completed = Op::CompleteCommand(command.id.clone());
    let command = InboxMessage::Command(command);
    store.post(&sid("command"), command).await.unwrap();
    let message = InboxMessage::prompt(prompt("prompt", "q1", 0));
    store.post(&sid("prompt"), message).await.unwrap();
    assert_eq!(due(&subject, 0).await, [sid("command"), sid("prompt")]);
    let lease = store.claim(&sid("command"), Claim::IfFree).await.unwrap();
    write(store, &lease, vec![completed]).await.unwrap();
    store.release(&lease).await.unwrap();
    assert_eq!(due(&subject, 0).await, [sid("prompt")]);
}
