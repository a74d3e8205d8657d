//! Decisions.

use std::sync::Arc;

use rye_engine::store::{InboxMessage, PostOutcome, SessionStore, StoreError};
use rye_protocol::{EventKind, Gate, GateRef, GateStatus, Millis, Op, Resolution};

use crate::Subject;
use crate::sample::{
    begin, decision, gate, prompt, put_gate, put_prompt, sid, suspended, told, write,
};

fn answer(gate: &Gate, resolution: Resolution) -> InboxMessage {
    InboxMessage::Resolve {
        gate: gate.id.clone(),
        resolution,
    }
}

async fn ask(store: &dyn SessionStore, gate: &Gate) -> rye_engine::store::Lease {
    let lease = begin(store, "s").await;
    let ops = vec![
        put_prompt(prompt("s", "q1", 1)),
        put_gate(gate.clone()),
        told(),
    ];
    write(store, &lease, ops).await.unwrap();
    lease
}

/// And the second is told what it was.
pub async fn the_first_answer_wins(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    ask(store, &open).await;
    let first = decision("approve");
    let posted = subject
        .other
        .post(&sid("s"), answer(&open, first.clone()))
        .await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let posted = store.post(&sid("s"), answer(&open, decision("deny"))).await;
    assert_eq!(posted, Ok(PostOutcome::Conflict(first.clone())));
    let now = store.gate(&open.id).await.unwrap().unwrap();
    let status = GateStatus::Resolved { resolution: first };
    assert_eq!(now, Gate { status, ..open });
    assert_eq!(store.pending_gates(None).await.unwrap(), []);
}

/// From every side.
pub async fn of_many_answers_at_once_one_wins(subject: Subject) {
    let open = gate("s", "q1", "deploy");
    ask(&*subject.store, &open).await;
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let way = if n % 2 == 0 {
                &subject.store
            } else {
                &subject.other
            };
            let way = Arc::clone(way);
            let post = answer(&open, decision(&format!("choice-{n}")));
            tokio::spawn(async move { way.post(&sid("s"), post).await })
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

/// Whoever gives it, and whenever.
pub async fn the_same_answer_again_is_the_same(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    ask(store, &open).await;
    store
        .post(&sid("s"), answer(&open, decision("approve")))
        .await
        .unwrap();
    let mut again = decision("approve");
    again.by = "bob".into();
    again.at = Millis(6_000);
    let posted = store.post(&sid("s"), answer(&open, again)).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 2);
}

/// It is told how the gate ended.
pub async fn an_answer_after_the_end_is_too_late(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let ends = [
        GateStatus::Withdrawn {
            reason: "steer".to_owned(),
            at: Millis(4_500),
        },
        GateStatus::Expired { at: Millis(4_500) },
    ];
    for (key, status) in ["one", "two"].iter().zip(ends) {
        let mut ended = gate("s", "q1", key);
        write(store, &lease, vec![put_gate(ended.clone())])
            .await
            .unwrap();
        ended.status = status.clone();
        write(store, &lease, vec![put_gate(ended.clone())])
            .await
            .unwrap();
        let posted = store
            .post(&sid("s"), answer(&ended, decision("approve")))
            .await;
        assert_eq!(posted, Ok(PostOutcome::GateClosed(status)));
        assert_eq!(store.gate(&ended.id).await.unwrap(), Some(ended));
    }
}

/// Also when nobody was there to see it expire.
pub async fn an_answer_after_the_deadline_finds_the_gate_expired(subject: Subject) {
    let store = &*subject.store;
    let mut open = gate("s", "q1", "deploy");
    open.expires_at = Some(Millis(5_000));
    ask(store, &open).await;
    let mut late = decision("approve");
    late.at = Millis(5_000);
    let status = GateStatus::Expired { at: Millis(5_000) };
    let posted = store.post(&sid("s"), answer(&open, late)).await;
    assert_eq!(posted, Ok(PostOutcome::GateClosed(status.clone())));
    let now = store.gate(&open.id).await.unwrap().unwrap();
    assert_eq!(now.status, status);
    let told = store.events(&sid("s"), 1, 9).await.unwrap();
    let expired = EventKind::DecisionGateExpired { gate: open.id };
    assert_eq!(told[0].kind, expired);
}

/// The whole batch is refused, so that an answer is never overwritten by a withdrawal.
pub async fn a_gate_that_has_ended_is_not_put_again(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = ask(store, &open).await;
    store
        .post(&sid("s"), answer(&open, decision("approve")))
        .await
        .unwrap();
    let before = store.snapshot(&sid("s")).await.unwrap();
    let mut withdrawn = open.clone();
    withdrawn.status = GateStatus::Withdrawn {
        reason: "abort".to_owned(),
        at: Millis(6_000),
    };
    for again in [withdrawn, open.clone()] {
        let ops = vec![Op::RemovePrompt(crate::sample::qid("q1")), put_gate(again)];
        let refused = write(store, &lease, ops).await;
        assert_eq!(refused, Err(StoreError::GateClosed(open.id.clone())));
    }
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), before);
}

/// With the next number, and the time of the answer.
pub async fn an_answer_is_told_as_an_event(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = ask(store, &open).await;
    let resolution = decision("approve");
    subject
        .other
        .post(&sid("s"), answer(&open, resolution.clone()))
        .await
        .unwrap();
    assert_eq!(write(store, &lease, vec![told()]).await, Ok(3));
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

/// Nor is a gate of another session answered here.
pub async fn an_answer_at_no_gate_is_refused(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    ask(store, &open).await;
    begin(store, "t").await;
    let unknown = gate("s", "q1", "other");
    for (session, gate) in [("s", &unknown), ("t", &open)] {
        let posted = store
            .post(&sid(session), answer(gate, decision("approve")))
            .await;
        let expected = StoreError::NotFound {
            kind: "gate",
            id: gate.id.to_string(),
        };
        assert_eq!(posted, Err(expected));
    }
    assert_eq!(store.pending_gates(None).await.unwrap(), [open]);
}

/// Of one session, or of all.
pub async fn pending_gates_are_listed_the_oldest_first(subject: Subject) {
    let store = &*subject.store;
    let (s, t) = (begin(store, "s").await, begin(store, "t").await);
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
    let nobody = store.pending_gates(Some(&sid("nobody"))).await;
    assert_eq!(nobody.unwrap(), []);
}

/// In each once.
pub async fn a_gate_is_shown_in_several_places(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = ask(store, &open).await;
    let shown = |channel: &str| GateRef {
        gate: open.id.clone(),
        channel: channel.to_owned(),
        message: "17".to_owned(),
    };
    for channel in ["web", "slack", "web"] {
        write(store, &lease, vec![Op::PutGateRef(shown(channel))])
            .await
            .unwrap();
    }
    let refs = store.gate_refs(&open.id).await.unwrap();
    assert_eq!(refs, [shown("web"), shown("slack")]);
    let mut lost = shown("web");
    lost.gate = gate("s", "q1", "other").id;
    let expected = StoreError::NotFound {
        kind: "gate",
        id: lost.gate.to_string(),
    };
    assert_eq!(store.gate_refs(&lost.gate).await.unwrap(), []);
    let refused = write(store, &lease, vec![Op::PutGateRef(lost)]).await;
    assert_eq!(refused, Err(expected));
}

/// Clearing what does not wait is no error.
pub async fn a_turn_that_waits_is_in_the_record_until_it_is_cleared(subject: Subject) {
    let store = &*subject.store;
    let open = gate("s", "q1", "deploy");
    let lease = ask(store, &open).await;
    let mut turn = suspended(&open);
    for attempt in 1..3 {
        turn.attempt = attempt;
        let put = Op::PutSuspendedTurn(Arc::new(turn.clone()));
        write(store, &lease, vec![put]).await.unwrap();
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.suspended, std::slice::from_ref(&turn));
    }
    for _ in 0..2 {
        let clear = Op::RemoveSuspendedTurn(open.id.clone());
        write(store, &lease, vec![clear]).await.unwrap();
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.suspended, []);
    }
}
