//! Gates and decisions.

use std::sync::Arc;

use rye_engine::store::{Claim, InboxMessage, PostOutcome, SessionStore, StoreError};
use rye_protocol::{EventKind, Gate, GateRef, GateStatus, Millis, Op, Parent, Resolution};

use super::Subject;
use super::sample::{
    create_session, decision, gate, prompt, put_gate, put_prompt, put_session, put_thread, session,
    sid, status_event, thread, tid, write,
};

fn decide(gate: &Gate, resolution: Resolution) -> InboxMessage {
    InboxMessage::Resolve {
        gate: gate.id.clone(),
        resolution,
    }
}

async fn open_gate(store: &dyn SessionStore, gate: &Gate) -> rye_engine::store::Lease {
    let lease = create_session(store, "s").await;
    let ops = vec![
        put_prompt(prompt("s", "q1", 1)),
        put_gate(gate.clone()),
        status_event(),
    ];
    write(store, &lease, ops).await.unwrap();
    lease
}

/// The second decision gets the first one as a conflict.
pub async fn first_decision_wins(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    open_gate(store, &open).await;
    let first = decision("approve");
    let posted = subject
        .other
        .post(&sid("s"), decide(&open, first.clone()))
        .await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let posted = store.post(&sid("s"), decide(&open, decision("deny"))).await;
    assert_eq!(posted, Ok(PostOutcome::Conflict(first.clone())));
    let now = store.gate(&open.id).await.unwrap().unwrap();
    let status = GateStatus::Resolved { resolution: first };
    assert_eq!(now, Gate { status, ..open });
    assert_eq!(store.pending_gates(None).await.unwrap(), []);
}

/// Decisions come through both handles.
pub async fn concurrent_decisions_have_one_winner(subject: Subject) {
    let open = gate("s", "q1", "deploy");
    open_gate(&*subject.store, &open).await;
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let store = if n % 2 == 0 {
                &subject.store
            } else {
                &subject.other
            };
            let store = Arc::clone(store);
            let post = decide(&open, decision(&format!("choice-{n}")));
            tokio::spawn(async move { store.post(&sid("s"), post).await })
        })
        .collect();
    let mut won = 0;
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.unwrap().unwrap() {
            PostOutcome::Written => won += 1,
            PostOutcome::Conflict(first) => winners.push(first),
            other => unreachable!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
    winners.dedup();
    assert_eq!(winners.len(), 1);
}

/// The person and the time of the decision do not matter.
pub async fn repeated_decision_is_idempotent(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    open_gate(store, &open).await;
    store
        .post(&sid("s"), decide(&open, decision("approve")))
        .await
        .unwrap();
    let mut again = decision("approve");
    again.by = "bob".into();
    again.at = Millis(6_000);
    let posted = store.post(&sid("s"), decide(&open, again)).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 2);
}

/// The gate was withdrawn or has expired.
pub async fn decision_on_a_closed_gate_returns_its_status(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let statuses = [
        GateStatus::Withdrawn {
            reason: "steer".to_owned(),
            at: Millis(4_500),
        },
        GateStatus::Expired { at: Millis(4_500) },
    ];
    for (key, status) in ["one", "two"].iter().zip(statuses) {
        let mut closed = gate("s", "q1", key);
        write(store, &lease, vec![put_gate(closed.clone())])
            .await
            .unwrap();
        closed.status = status.clone();
        write(store, &lease, vec![put_gate(closed.clone())])
            .await
            .unwrap();
        let posted = store
            .post(&sid("s"), decide(&closed, decision("approve")))
            .await;
        assert_eq!(posted, Ok(PostOutcome::GateClosed(status)));
        assert_eq!(store.gate(&closed.id).await.unwrap(), Some(closed));
    }
}

/// No host needs to be running at the deadline.
pub async fn late_decision_expires_the_gate(subject: Subject) {
    let store = &*subject.store;
    let mut open = gate("s", "q1", "deploy");
    open.expires_at = Some(Millis(5_000));
    open_gate(store, &open).await;
    let mut late = decision("approve");
    late.at = Millis(5_000);
    let status = GateStatus::Expired { at: Millis(5_000) };
    let posted = store.post(&sid("s"), decide(&open, late)).await;
    assert_eq!(posted, Ok(PostOutcome::GateClosed(status.clone())));
    let now = store.gate(&open.id).await.unwrap().unwrap();
    assert_eq!(now.status, status);
    let events = store.events(&sid("s"), 1, 9).await.unwrap();
    let expired = EventKind::DecisionGateExpired { gate: open.id };
    assert_eq!(events[0].kind, expired);
}

/// The whole batch fails, so that a withdrawal never overwrites a decision.
pub async fn closed_gate_cannot_be_changed(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = open_gate(store, &open).await;
    store
        .post(&sid("s"), decide(&open, decision("approve")))
        .await
        .unwrap();
    let before = store.snapshot(&sid("s")).await.unwrap();
    let mut withdrawn = open.clone();
    withdrawn.status = GateStatus::Withdrawn {
        reason: "abort".to_owned(),
        at: Millis(6_000),
    };
    for again in [withdrawn, open.clone()] {
        let ops = vec![
            Op::RemovePrompt(super::sample::prompt_id("q1")),
            put_gate(again),
        ];
        let refused = write(store, &lease, ops).await;
        assert_eq!(refused, Err(StoreError::GateClosed(open.id.clone())));
    }
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), before);
}

/// The event has the next sequence number and the time of the decision.
pub async fn decision_is_published_as_an_event(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = open_gate(store, &open).await;
    let resolution = decision("approve");
    subject
        .other
        .post(&sid("s"), decide(&open, resolution.clone()))
        .await
        .unwrap();
    assert_eq!(write(store, &lease, vec![status_event()]).await, Ok(3));
    let events = store.events(&sid("s"), 1, 9).await.unwrap();
    assert_eq!(events[0].sequence, Some(2));
    assert_eq!(events[0].at, resolution.at);
    assert_eq!(events[0].thread, Some(open.origin.thread));
    let resolved = EventKind::DecisionGateResolved {
        gate: open.id,
        resolution,
    };
    assert_eq!(events[0].kind, resolved);
}

/// A gate of another session is unknown.
pub async fn decision_on_an_unknown_gate_fails(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    open_gate(store, &open).await;
    create_session(store, "t").await;
    let unknown = gate("s", "q1", "other");
    for (session, gate) in [("s", &unknown), ("t", &open)] {
        let posted = store
            .post(&sid(session), decide(gate, decision("approve")))
            .await;
        let expected = StoreError::NotFound {
            kind: "gate",
            id: gate.id.to_string(),
        };
        assert_eq!(posted, Err(expected));
    }
    assert_eq!(store.pending_gates(None).await.unwrap(), [open]);
}

/// Closed gates and gates of other trees are not listed.
pub async fn pending_gates_of_a_tree_include_descendants(subject: Subject) {
    let store = &*subject.store;
    let tree = [
        ("root", None),
        ("child", Some("root")),
        ("grandchild", Some("child")),
        ("other", None),
    ];
    let mut gates = Vec::new();
    for (name, parent) in tree {
        let lease = store.claim(&sid(name), Claim::IfFree).await.unwrap();
        let mut data = session(name);
        data.parent = parent.map(|parent| Parent {
            session: sid(parent),
            thread: tid("main"),
        });
        let open = gate(name, "q1", "open");
        let mut closed = gate(name, "q1", "closed");
        closed.status = GateStatus::Expired { at: Millis(1) };
        let ops = vec![
            put_session(data),
            put_thread(thread(name, "main")),
            put_gate(open.clone()),
            put_gate(closed),
        ];
        write(store, &lease, ops).await.unwrap();
        gates.push(open);
    }
    for (root, found) in [
        ("root", &gates[..3]),
        ("child", &gates[1..3]),
        ("other", &gates[3..]),
    ] {
        assert_eq!(
            store.pending_gates_in_tree(&sid(root)).await.unwrap(),
            found,
            "{root}"
        );
    }
    assert_eq!(store.pending_gates_in_tree(&sid("none")).await.unwrap(), []);
}

/// Gates of finished prompts and of other sessions are told apart.
pub async fn gates_of_a_session_include_closed_ones(subject: Subject) {
    let store = &*subject.store;
    let (s, t) = (
        create_session(store, "s").await,
        create_session(store, "t").await,
    );
    let mut closed = gate("s", "q1", "closed");
    closed.status = GateStatus::Expired { at: Millis(1) };
    let own = [closed, gate("s", "q2", "open")];
    let ops = own.iter().cloned().map(put_gate).collect();
    write(store, &s, ops).await.unwrap();
    write(store, &t, vec![put_gate(gate("t", "q1", "other"))])
        .await
        .unwrap();
    assert_eq!(store.gates(&sid("s")).await.unwrap(), own);
    assert_eq!(store.gates(&sid("none")).await.unwrap(), []);
}

/// Lists the gates of one session or of all sessions.
pub async fn pending_gates_are_listed_oldest_first(subject: Subject) {
    let store = &*subject.store;
    let (s, t) = (
        create_session(store, "s").await,
        create_session(store, "t").await,
    );
    let gates = [
        gate("s", "q1", "zebra"),
        gate("t", "q1", "middle"),
        gate("s", "q1", "aardvark"),
    ];
    for (lease, gate) in [&s, &t, &s].into_iter().zip(&gates) {
        write(store, lease, vec![put_gate(gate.clone())])
            .await
            .unwrap();
    }
    assert_eq!(store.pending_gates(None).await.unwrap(), gates);
    let own = store.pending_gates(Some(&sid("s"))).await.unwrap();
    assert_eq!(own, [gates[0].clone(), gates[2].clone()]);
    let none = store.pending_gates(Some(&sid("missing"))).await;
    assert_eq!(none.unwrap(), []);
}

/// Recording the same place twice has no effect.
pub async fn gate_refs_are_stored_once_per_channel(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = open_gate(store, &open).await;
    let gate_ref = |channel: &str| GateRef {
        gate: open.id.clone(),
        channel: channel.to_owned(),
        message: "17".to_owned(),
    };
    for channel in ["web", "slack", "web"] {
        write(store, &lease, vec![Op::PutGateRef(gate_ref(channel))])
            .await
            .unwrap();
    }
    let refs = store.gate_refs(&open.id).await.unwrap();
    assert_eq!(refs, [gate_ref("web"), gate_ref("slack")]);
    let mut unknown = gate_ref("web");
    unknown.gate = gate("s", "q1", "other").id;
    let expected = StoreError::NotFound {
        kind: "gate",
        id: unknown.gate.to_string(),
    };
    assert_eq!(store.gate_refs(&unknown.gate).await.unwrap(), []);
    let refused = write(store, &lease, vec![Op::PutGateRef(unknown)]).await;
    assert_eq!(refused, Err(expected));
}
