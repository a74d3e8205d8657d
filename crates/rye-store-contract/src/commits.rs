//! What a commit does, and what it refuses.

use std::sync::Arc;

use rye_engine::store::{Claim, StoreError};
use rye_protocol::{Batch, EntryKind, EventKind, Message, Millis, Op, Part, Role, Usage};
use serde_json::{Value, json};

use crate::Subject;
use crate::sample::{
    append, begin, chain, eid, entry, gate, id, ids, prompt, put_gate, put_prompt, put_session,
    put_thread, replace, session, sid, suspended, thread, tid, told, told_of, write,
};

fn not_found(kind: &'static str, id: &str) -> StoreError {
    let id = id.to_owned();
    StoreError::NotFound { kind, id }
}

fn conflict(kind: &'static str, id: &str) -> StoreError {
    let id = id.to_owned();
    StoreError::Conflict { kind, id }
}

/// All of it is there, in each way to the record.
pub async fn a_batch_is_written_whole(subject: Subject) {
    let lease = begin(&*subject.store, "s").await;
    let mut main = thread("s", "main");
    main.leaf = Some(eid("e0"));
    let first = entry("s", "e0", None);
    let ask = gate("s", "q1", "deploy");
    let turn = suspended(&ask);
    let ops = vec![
        append(first.clone()),
        put_thread(main.clone()),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(ask.clone()),
        Op::PutSuspendedTurn(Arc::new(turn.clone())),
        told(),
        told_of(&first),
    ];
    let sequence = write(&*subject.store, &lease, ops).await.unwrap();
    assert_eq!(sequence, 2);
    for store in [&subject.store, &subject.other] {
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.session, session("s"));
        assert_eq!(record.threads, std::slice::from_ref(&main));
        assert_eq!(record.prompts, [prompt("s", "q1", 1)]);
        assert_eq!(record.gates, std::slice::from_ref(&ask));
        assert_eq!(record.suspended, std::slice::from_ref(&turn));
        assert_eq!(record.sequence, 2);
        let path = store.path(&sid("s"), &eid("e0")).await.unwrap();
        assert_eq!(path, std::slice::from_ref(&first));
    }
}

/// Whatever stands in front of the bad one.
pub async fn a_batch_with_one_bad_change_writes_nothing(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    write(store, &lease, vec![append(entry("s", "e0", None)), told()])
        .await
        .unwrap();
    let before = store.snapshot(&sid("s")).await.unwrap();
    let mut changed = session("s");
    changed.updated_at = Millis(9_000);
    let mut elided = entry("s", "e0", None);
    elided.created_at = Millis(9_000);
    let ask = gate("s", "q1", "deploy");
    let good = vec![
        put_session(changed),
        put_thread(thread("s", "second")),
        append(entry("s", "e1", Some("e0"))),
        replace(elided),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(ask.clone()),
        Op::PutSuspendedTurn(Arc::new(suspended(&ask))),
        Op::AddUsage(Usage {
            turns: 1,
            ..Usage::default()
        }),
        Op::RemovePrompt(id("q1")),
        told(),
    ];
    let mut ops = good.clone();
    ops.push(replace(entry("s", "nowhere", None)));
    let refused = write(store, &lease, ops).await;
    assert_eq!(refused, Err(not_found("entry", "nowhere")));
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), before);
    assert_eq!(store.gate(&ask.id).await.unwrap(), None);
    let all = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(all.unwrap(), [entry("s", "e0", None)]);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 1);
    // And nothing of it is in the way of the same without the bad one.
    assert_eq!(write(store, &lease, good).await, Ok(2));
}

/// From one, also across batches that were refused.
pub async fn events_are_numbered_without_gaps(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    for round in 0..5 {
        write(store, &lease, vec![told(), told(), told()])
            .await
            .unwrap();
        let bad = vec![told(), replace(entry("s", "nowhere", None))];
        write(store, &lease, bad).await.unwrap_err();
        let events = store.events(&sid("s"), 0, 99).await.unwrap();
        let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=3 * (round + 1)).collect::<Vec<_>>());
    }
}

/// And still needs the lease.
pub async fn an_empty_batch_tells_the_last_number(subject: Subject) {
    let store = &*subject.store;
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert_eq!(store.commit(&lease, Batch::default()).await, Ok(0));
    write(
        store,
        &lease,
        vec![put_session(session("s")), told(), told()],
    )
    .await
    .unwrap();
    assert_eq!(store.commit(&lease, Batch::default()).await, Ok(2));
    store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    let refused = store.commit(&lease, Batch::default()).await;
    assert_eq!(refused, Err(StoreError::Fenced(sid("s"))));
}

/// Putting it again changes what may change.
pub async fn a_session_is_made_once(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let mut moved = session("s");
    moved.workspace = Some("/elsewhere".to_owned());
    moved.updated_at = Millis(2_000);
    write(store, &lease, vec![put_session(moved.clone())])
        .await
        .unwrap();
    let mut stolen = moved.clone();
    stolen.user_id = Some("eve".to_owned());
    let mut again = moved.clone();
    again.created_at = Millis(7_000);
    for other in [stolen, again] {
        let refused = write(store, &lease, vec![put_session(other)]).await;
        assert_eq!(refused, Err(conflict("session", "s")));
    }
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.session, moved);
}

/// So two threads of a session cannot forget what the other has used up.
pub async fn usage_is_only_added_to(subject: Subject) {
    let store = &*subject.store;
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    let some = Usage {
        turns: 1,
        input_tokens: 10,
        cached_tokens: 5,
        cache_write_tokens: 2,
        output_tokens: 7,
        micro_dollars: u64::MAX / 2,
    };
    let mut new = session("s");
    new.usage = some;
    write(store, &lease, vec![put_session(new)]).await.unwrap();
    let ops = vec![
        Op::AddUsage(some),
        put_session(session("s")),
        Op::AddUsage(some),
    ];
    write(store, &lease, ops).await.unwrap();
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.session.usage, some.plus(some).plus(some));
    let listed = store
        .sessions(rye_engine::store::SessionFilter {
            limit: 1,
            ..Default::default()
        })
        .await;
    assert_eq!(listed.unwrap(), [record.session]);
}

/// And its time of making.
pub async fn a_thread_keeps_its_key(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let mut other = thread("s", "main");
    other.key = "slack:C1".into();
    let refused = write(store, &lease, vec![put_thread(other)]).await;
    assert_eq!(refused, Err(conflict("thread", "main")));
    let mut same = thread("s", "main");
    same.summary = Some("about something".to_owned());
    write(store, &lease, vec![put_thread(same.clone())])
        .await
        .unwrap();
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.threads, [same]);
}

/// A retry after an unknown outcome is safe.
pub async fn the_same_entry_again_is_no_change_and_another_is_a_conflict(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let mut first = entry("s", "e0", None);
    let (one, two) = (json!({ "a": 1, "b": 2 }), json!({ "b": 2, "a": 1 }));
    let metadata = |value: &Value| value.as_object().cloned().unwrap();
    let with = |value: &Value| {
        let mut message = Message::text(Role::User, "hello");
        message.metadata = metadata(value);
        EntryKind::Message(message)
    };
    first.kind = with(&one);
    write(store, &lease, vec![append(first.clone())])
        .await
        .unwrap();
    let mut same = first.clone();
    same.kind = with(&two);
    write(store, &lease, vec![append(same)]).await.unwrap();
    let mut other = first.clone();
    other.created_at = Millis(9_999);
    let refused = write(store, &lease, vec![append(other)]).await;
    assert_eq!(refused, Err(conflict("entry", "e0")));
    let all = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(all.unwrap(), [first]);
}

/// In front of it, in the same batch or before.
pub async fn an_entry_needs_its_thread_and_its_parent(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let orphan = append(entry("s", "e1", Some("e0")));
    let refused = write(store, &lease, vec![orphan.clone()]).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
    let late = vec![orphan.clone(), append(entry("s", "e0", None))];
    let refused = write(store, &lease, late).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
    let mut lost = entry("s", "e0", None);
    lost.thread = id("nowhere");
    let refused = write(store, &lease, vec![append(lost)]).await;
    assert_eq!(refused, Err(not_found("thread", "nowhere")));
    let good = vec![append(entry("s", "e0", None)), orphan];
    write(store, &lease, good).await.unwrap();
}

/// Not even appended.
pub async fn an_unknown_entry_is_not_replaced(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let refused = write(store, &lease, vec![replace(entry("s", "e0", None))]).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
}

/// In the graph and in the order.
pub async fn a_replaced_entry_keeps_its_place(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let entries = chain("s", 3);
    let ops = entries.iter().cloned().map(append).collect();
    write(store, &lease, ops).await.unwrap();
    let mut elided = entries[1].clone();
    elided.kind = EntryKind::Message(Message::text(Role::Tool, ""));
    write(store, &lease, vec![replace(elided.clone())])
        .await
        .unwrap();
    let path = store.path(&sid("s"), &eid("e2")).await.unwrap();
    assert_eq!(
        path,
        [entries[0].clone(), elided.clone(), entries[2].clone()]
    );
    let all = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(all.unwrap(), path);
    elided.parent = None;
    let refused = write(store, &lease, vec![replace(elided)]).await;
    assert_eq!(refused, Err(conflict("entry", "e1")));
}

/// Also of one that is not there, or was changed since: an event is what was told.
pub async fn an_event_names_its_entry_whatever_becomes_of_it(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let first = entry("s", "e0", None);
    let mut second = first.clone();
    second.kind = EntryKind::Message(Message::text(Role::User, "changed"));
    let update = EventKind::MessageUpdate { entry: eid("e0") };
    let updated = Op::Event(None, Arc::new(update.clone()));
    let stranger = entry("s", "never-written", None);
    // Twice, as one who is not sure might.
    let twice = [append(first.clone()), append(first.clone())];
    let ops = [twice.to_vec(), vec![told_of(&first), told_of(&stranger)]].concat();
    write(store, &lease, ops).await.unwrap();
    let ops = vec![updated, replace(second.clone()), told_of(&second)];
    write(store, &lease, ops).await.unwrap();
    let events = store.events(&sid("s"), 0, 9).await.unwrap();
    let kinds: Vec<_> = events.into_iter().map(|event| event.kind).collect();
    let end = |name| EventKind::MessageEnd { entry: eid(name) };
    assert_eq!(kinds, [end("e0"), end("never-written"), update, end("e0")]);
}

/// The lease is for one.
pub async fn what_belongs_to_another_session_is_refused(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    begin(store, "t").await;
    let foreign = [
        put_session(session("t")),
        put_thread(thread("t", "main")),
        append(entry("t", "e0", None)),
        replace(entry("t", "e0", None)),
        put_prompt(prompt("t", "q1", 1)),
        put_gate(gate("t", "q1", "deploy")),
        Op::PutSuspendedTurn(Arc::new(suspended(&gate("t", "q1", "deploy")))),
    ];
    for op in foreign {
        let refused = write(store, &lease, vec![told(), op.clone()]).await;
        assert_eq!(refused, Err(StoreError::Fenced(sid("t"))), "{op:?}");
    }
    assert_eq!(
        store.snapshot(&sid("s")).await.unwrap().unwrap().sequence,
        0
    );
}

/// A lease does not make it.
pub async fn nothing_is_written_to_a_session_that_is_not_there(subject: Subject) {
    let store = &*subject.store;
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    let homeless = [
        put_thread(thread("s", "main")),
        append(entry("s", "e0", None)),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(gate("s", "q1", "deploy")),
        Op::AddUsage(Usage::default()),
        told(),
    ];
    for op in homeless {
        let refused = write(store, &lease, vec![op.clone(), put_session(session("s"))]).await;
        assert_eq!(refused, Err(not_found("session", "s")), "{op:?}");
    }
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), None);
}

/// Two sessions may use the same ones.
pub async fn ids_are_those_of_one_session(subject: Subject) {
    let store = &*subject.store;
    for name in ["s", "t"] {
        let lease = begin(store, name).await;
        let ops = vec![
            append(entry(name, "e0", None)),
            put_prompt(prompt(name, "q1", 1)),
        ];
        write(store, &lease, ops).await.unwrap();
    }
    for name in ["s", "t"] {
        let path = store.path(&sid(name), &eid("e0")).await.unwrap();
        assert_eq!(path, [entry(name, "e0", None)]);
        let record = store.snapshot(&sid(name)).await.unwrap().unwrap();
        assert_eq!(record.prompts, [prompt(name, "q1", 1)]);
    }
}

/// Not in that of the waiting.
pub async fn commits_are_made_in_the_order_of_the_calls(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let entries = chain("s", 50);
    let mut waiting: Vec<_> = entries
        .iter()
        .map(|entry| {
            let ops = vec![append(entry.clone()), told()];
            store.commit(&lease, Batch { ops })
        })
        .collect();
    waiting.reverse();
    for commit in waiting {
        commit.await.unwrap();
    }
    let path = store.path(&sid("s"), &eid("e49")).await.unwrap();
    assert_eq!(ids(&path), ids(&entries));
}

/// Whatever they are written together with.
pub async fn of_many_commits_at_once_the_bad_ones_fail_alone(subject: Subject) {
    let store = &*subject.store;
    let mut leases = Vec::new();
    for n in 0..4 {
        leases.push(begin(store, &format!("s{n}")).await);
    }
    let waiting: Vec<_> = (0..80)
        .map(|n| {
            let mut ops = vec![told(), told()];
            if n % 3 == 0 {
                ops.push(replace(entry(&format!("s{}", n % 4), "nowhere", None)));
            }
            store.commit(&leases[n % 4], Batch { ops })
        })
        .collect();
    let mut good = [0; 4];
    for (n, commit) in waiting.into_iter().enumerate() {
        let expected = if n % 3 == 0 {
            Err(not_found("entry", "nowhere"))
        } else {
            good[n % 4] += 2;
            Ok(good[n % 4])
        };
        assert_eq!(commit.await, expected);
    }
    for (n, lease) in leases.iter().enumerate() {
        let events = store.events(&lease.session, 0, 99).await.unwrap();
        assert_eq!(events.len() as u64, good[n]);
    }
}

/// As deep as a parser of JSON lets anything be.
pub async fn deep_arguments_come_back_as_they_were(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let args = (0..126).fold(json!("deep"), |inner, _| json!([inner]));
    let mut first = entry("s", "e0", None);
    let call = Part::ToolCall {
        call_id: id("call-1"),
        tool: "dig".to_owned(),
        args,
    };
    first.kind = EntryKind::Message(Message::new(Role::Assistant, vec![call]));
    let ops = vec![append(first.clone()), told_of(&first)];
    write(store, &lease, ops).await.unwrap();
    let path = store.path(&sid("s"), &eid("e0")).await.unwrap();
    assert_eq!(path, [first]);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 1);
}

/// To the last bit, and the largest.
pub async fn numbers_come_back_as_they_were(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let numbers = json!([
        0.1,
        1e-300,
        122.416_294_033_786_58,
        5e-324,
        u64::MAX,
        i64::MIN,
        -0.0
    ]);
    let mut first = entry("s", "e0", None);
    first.created_at = Millis(u64::MAX);
    let call = Part::ToolCall {
        call_id: id("call-1"),
        tool: "count".to_owned(),
        args: numbers,
    };
    first.kind = EntryKind::Message(Message::new(Role::Assistant, vec![call]));
    let mut last = prompt("s", "q1", u64::MAX);
    last.collect_until = Some(Millis(u64::MAX));
    let ops = vec![append(first.clone()), put_prompt(last.clone())];
    write(store, &lease, ops).await.unwrap();
    let path = store.path(&sid("s"), &eid("e0")).await.unwrap();
    assert_eq!(path, [first]);
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.prompts, [last]);
}

/// Nor does the lease outlive it; its neighbour stays.
pub async fn a_session_that_is_removed_leaves_nothing(subject: Subject) {
    let store = &*subject.store;
    let mut kept = None;
    for name in ["s", "t"] {
        let lease = begin(store, name).await;
        let ask = gate(name, "q1", "deploy");
        let ops = vec![
            append(entry(name, "e0", None)),
            put_prompt(prompt(name, "q1", 1)),
            put_gate(ask.clone()),
            Op::PutSuspendedTurn(Arc::new(suspended(&ask))),
            told(),
        ];
        write(store, &lease, ops).await.unwrap();
        kept = store.snapshot(&sid("t")).await.unwrap();
        if name == "t" {
            let old = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
            store.remove(std::slice::from_ref(&old)).await.unwrap();
            let refused = write(store, &old, vec![put_session(session("s"))]).await;
            assert_eq!(refused, Err(StoreError::Fenced(sid("s"))));
        }
    }
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), None);
    let gone = gate("s", "q1", "deploy").id;
    assert_eq!(store.gate(&gone).await.unwrap(), None);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap(), []);
    let entries = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(entries.unwrap(), []);
    assert_eq!(store.snapshot(&sid("t")).await.unwrap(), kept);
    assert_eq!(store.pending_gates(None).await.unwrap().len(), 1);
    // The same id may be used again, and begins anew.
    let again = begin(store, "s").await;
    assert_eq!(write(store, &again, vec![told()]).await, Ok(1));
}
