//! Commits: atomicity, order of events, and preconditions of each operation.

use std::sync::Arc;

use rye_engine::store::{Claim, StoreError};
use rye_protocol::{Batch, EntryKind, EventKind, Message, Millis, Op, Part, Role, Usage};
use serde_json::{Value, json};

use super::Subject;
use super::sample::{
    append, chain, create_session, eid, entry, gate, id, ids, message_event, prompt, put_gate,
    put_prompt, put_session, put_thread, replace, session, sid, status_event, thread, tid, write,
};

fn not_found(kind: &'static str, id: &str) -> StoreError {
    let id = id.to_owned();
    StoreError::NotFound { kind, id }
}

fn conflict(kind: &'static str, id: &str) -> StoreError {
    let id = id.to_owned();
    StoreError::Conflict { kind, id }
}

/// Everything that a batch writes can be read through both handles.
pub async fn batch_is_written_completely(subject: Subject) {
    let lease = create_session(&*subject.store, "s").await;
    let mut main = thread("s", "main");
    main.leaf = Some(eid("e0"));
    let first = entry("s", "e0", None);
    let open = gate("s", "q1", "deploy");
    let ops = vec![
        append(first.clone()),
        put_thread(main.clone()),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(open.clone()),
        status_event(),
        message_event(&first),
    ];
    let sequence = write(&*subject.store, &lease, ops).await.unwrap();
    assert_eq!(sequence, 2);
    for store in [&subject.store, &subject.other] {
        let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(snapshot.session, session("s"));
        assert_eq!(snapshot.threads, std::slice::from_ref(&main));
        assert_eq!(snapshot.prompts, [prompt("s", "q1", 1)]);
        assert_eq!(snapshot.gates, std::slice::from_ref(&open));
        assert_eq!(snapshot.sequence, 2);
        let path = store.path(&sid("s"), &eid("e0")).await.unwrap();
        assert_eq!(path, std::slice::from_ref(&first));
    }
}

/// An invalid operation at the end undoes all operations before it.
pub async fn batch_with_an_invalid_op_writes_nothing(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    write(
        store,
        &lease,
        vec![append(entry("s", "e0", None)), status_event()],
    )
    .await
    .unwrap();
    let before = store.snapshot(&sid("s")).await.unwrap();
    let mut changed = session("s");
    changed.updated_at = Millis(9_000);
    let mut elided = entry("s", "e0", None);
    elided.created_at = Millis(9_000);
    let open = gate("s", "q1", "deploy");
    let valid = vec![
        put_session(changed),
        put_thread(thread("s", "second")),
        append(entry("s", "e1", Some("e0"))),
        replace(elided),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(open.clone()),
        Op::AddUsage(Usage {
            turns: 1,
            ..Usage::default()
        }),
        Op::RemovePrompt(id("q1")),
        status_event(),
    ];
    let mut ops = valid.clone();
    ops.push(replace(entry("s", "nowhere", None)));
    let refused = write(store, &lease, ops).await;
    assert_eq!(refused, Err(not_found("entry", "nowhere")));
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), before);
    assert_eq!(store.gate(&open.id).await.unwrap(), None);
    let all = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(all.unwrap(), [entry("s", "e0", None)]);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 1);
    // The valid operations alone still succeed.
    assert_eq!(write(store, &lease, valid).await, Ok(2));
}

/// Sequence numbers start at 1 and have no gaps, even if batches fail.
pub async fn events_are_numbered_without_gaps(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    for round in 0..5 {
        write(
            store,
            &lease,
            vec![status_event(), status_event(), status_event()],
        )
        .await
        .unwrap();
        let bad = vec![status_event(), replace(entry("s", "nowhere", None))];
        write(store, &lease, bad).await.unwrap_err();
        let events = store.events(&sid("s"), 0, 99).await.unwrap();
        let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=3 * (round + 1)).collect::<Vec<_>>());
    }
}

/// An empty batch also requires a valid lease.
pub async fn empty_batch_returns_the_last_sequence_number(subject: Subject) {
    let store = &*subject.store;
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert_eq!(store.commit(&lease, Batch::default()).await, Ok(0));
    write(
        store,
        &lease,
        vec![put_session(session("s")), status_event(), status_event()],
    )
    .await
    .unwrap();
    assert_eq!(store.commit(&lease, Batch::default()).await, Ok(2));
    store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    let refused = store.commit(&lease, Batch::default()).await;
    assert_eq!(refused, Err(StoreError::Fenced(sid("s"))));
}

/// Other fields of a session can be updated.
pub async fn immutable_session_fields_cannot_change(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
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
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.session, moved);
}

/// Writing the session does not reset its usage, so threads cannot overwrite each other's.
pub async fn usage_is_added_up(subject: Subject) {
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
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.session.usage, some.plus(some).plus(some));
    let listed = store
        .sessions(rye_engine::store::SessionFilter {
            limit: 1,
            ..Default::default()
        })
        .await;
    assert_eq!(listed.unwrap(), [snapshot.session]);
}

/// The key and the creation time of a thread are immutable.
pub async fn immutable_thread_fields_cannot_change(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut other = thread("s", "main");
    other.key = "slack:C1".into();
    let refused = write(store, &lease, vec![put_thread(other)]).await;
    assert_eq!(refused, Err(conflict("thread", "main")));
    let mut same = thread("s", "main");
    same.summary = Some("about something".to_owned());
    write(store, &lease, vec![put_thread(same.clone())])
        .await
        .unwrap();
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.threads, [same]);
}

/// A retry after an unknown outcome is safe; a different entry with the same id is a conflict.
pub async fn appending_the_same_entry_twice_is_idempotent(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut first = entry("s", "e0", None);
    let (one, two) = (json!({ "a": 1, "b": 2 }), json!({ "b": 2, "a": 1 }));
    let with = |value: &Value| {
        let mut message = Message::text(Role::User, "hello");
        message.result = Some(value.clone());
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

/// They must exist before the entry, in the same batch or an earlier one.
pub async fn entry_requires_its_thread_and_its_parent(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let orphan = append(entry("s", "e1", Some("e0")));
    let refused = write(store, &lease, vec![orphan.clone()]).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
    let late = vec![orphan.clone(), append(entry("s", "e0", None))];
    let refused = write(store, &lease, late).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
    let mut misplaced = entry("s", "e0", None);
    misplaced.thread = id("nowhere");
    let refused = write(store, &lease, vec![append(misplaced)]).await;
    assert_eq!(refused, Err(not_found("thread", "nowhere")));
    let valid = vec![append(entry("s", "e0", None)), orphan];
    write(store, &lease, valid).await.unwrap();
}

/// An unknown entry is not appended either.
pub async fn replacing_an_unknown_entry_fails(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let refused = write(store, &lease, vec![replace(entry("s", "e0", None))]).await;
    assert_eq!(refused, Err(not_found("entry", "e0")));
}

/// The position in the tree and in the order of writing stays the same.
pub async fn replaced_entry_keeps_its_position(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
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

/// The store does not check that the entry of an event exists.
pub async fn event_keeps_the_id_of_a_missing_or_changed_entry(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let first = entry("s", "e0", None);
    let mut second = first.clone();
    second.kind = EntryKind::Message(Message::text(Role::User, "changed"));
    let update = EventKind::MessageUpdate { entry: eid("e0") };
    let updated = Op::Event(None, Arc::new(update.clone()));
    let unwritten = entry("s", "never-written", None);
    // Appended twice, like after an unknown outcome.
    let twice = [append(first.clone()), append(first.clone())];
    let ops = [
        twice.to_vec(),
        vec![message_event(&first), message_event(&unwritten)],
    ]
    .concat();
    write(store, &lease, ops).await.unwrap();
    let ops = vec![updated, replace(second.clone()), message_event(&second)];
    write(store, &lease, ops).await.unwrap();
    let events = store.events(&sid("s"), 0, 9).await.unwrap();
    let kinds: Vec<_> = events.into_iter().map(|event| event.kind).collect();
    let end = |name| EventKind::MessageEnd { entry: eid(name) };
    assert_eq!(kinds, [end("e0"), end("never-written"), update, end("e0")]);
}

/// A lease is valid for one session.
pub async fn objects_of_another_session_are_refused(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    create_session(store, "t").await;
    let foreign = [
        put_session(session("t")),
        put_thread(thread("t", "main")),
        append(entry("t", "e0", None)),
        replace(entry("t", "e0", None)),
        put_prompt(prompt("t", "q1", 1)),
        put_gate(gate("t", "q1", "deploy")),
    ];
    for op in foreign {
        let refused = write(store, &lease, vec![status_event(), op.clone()]).await;
        assert_eq!(refused, Err(StoreError::Fenced(sid("t"))), "{op:?}");
    }
    assert_eq!(
        store.snapshot(&sid("s")).await.unwrap().unwrap().sequence,
        0
    );
}

/// A lease does not create the session.
pub async fn writing_to_a_missing_session_fails(subject: Subject) {
    let store = &*subject.store;
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    let ops = [
        put_thread(thread("s", "main")),
        append(entry("s", "e0", None)),
        put_prompt(prompt("s", "q1", 1)),
        put_gate(gate("s", "q1", "deploy")),
        Op::AddUsage(Usage::default()),
        status_event(),
    ];
    for op in ops {
        let refused = write(store, &lease, vec![op.clone(), put_session(session("s"))]).await;
        assert_eq!(refused, Err(not_found("session", "s")), "{op:?}");
    }
    assert_eq!(store.snapshot(&sid("s")).await.unwrap(), None);
}

/// Two sessions can use the same ids of entries and prompts.
pub async fn ids_are_scoped_to_a_session(subject: Subject) {
    let store = &*subject.store;
    for name in ["s", "t"] {
        let lease = create_session(store, name).await;
        let ops = vec![
            append(entry(name, "e0", None)),
            put_prompt(prompt(name, "q1", 1)),
        ];
        write(store, &lease, ops).await.unwrap();
    }
    for name in ["s", "t"] {
        let path = store.path(&sid(name), &eid("e0")).await.unwrap();
        assert_eq!(path, [entry(name, "e0", None)]);
        let snapshot = store.snapshot(&sid(name)).await.unwrap().unwrap();
        assert_eq!(snapshot.prompts, [prompt(name, "q1", 1)]);
    }
}

/// The order in which the futures are awaited does not matter.
pub async fn commits_are_applied_in_the_order_of_the_calls(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let entries = chain("s", 50);
    let mut waiting: Vec<_> = entries
        .iter()
        .map(|entry| {
            let ops = vec![append(entry.clone()), status_event()];
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

/// An invalid batch does not affect batches that are written together with it.
pub async fn concurrent_commits_fail_independently(subject: Subject) {
    let store = &*subject.store;
    let mut leases = Vec::new();
    for n in 0..4 {
        leases.push(create_session(store, &format!("s{n}")).await);
    }
    let waiting: Vec<_> = (0..80)
        .map(|n| {
            let mut ops = vec![status_event(), status_event()];
            if n % 3 == 0 {
                ops.push(replace(entry(&format!("s{}", n % 4), "nowhere", None)));
            }
            store.commit(&leases[n % 4], Batch { ops })
        })
        .collect();
    let mut sequences = [0; 4];
    for (n, commit) in waiting.into_iter().enumerate() {
        let expected = if n % 3 == 0 {
            Err(not_found("entry", "nowhere"))
        } else {
            sequences[n % 4] += 2;
            Ok(sequences[n % 4])
        };
        assert_eq!(commit.await, expected);
    }
    for (n, lease) in leases.iter().enumerate() {
        let events = store.events(&lease.session, 0, 99).await.unwrap();
        assert_eq!(events.len() as u64, sequences[n]);
    }
}

/// Arguments can be nested as deep as a JSON parser accepts.
pub async fn deeply_nested_arguments_are_preserved(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let args = (0..126).fold(json!("deep"), |inner, _| json!([inner]));
    let mut first = entry("s", "e0", None);
    let call = Part::ToolCall {
        call_id: id("call-1"),
        tool: "dig".to_owned(),
        args,
    };
    first.kind = EntryKind::Message(Message::new(Role::Assistant, vec![call]));
    let ops = vec![append(first.clone()), message_event(&first)];
    write(store, &lease, ops).await.unwrap();
    let path = store.path(&sid("s"), &eid("e0")).await.unwrap();
    assert_eq!(path, [first]);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap().len(), 1);
}

/// Floats keep every bit, and the largest integers are preserved.
pub async fn numbers_are_preserved_exactly(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
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
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.prompts, [last]);
}

/// The lease is removed as well, and other sessions are not affected.
pub async fn removed_session_leaves_nothing_behind(subject: Subject) {
    let store = &*subject.store;
    let mut kept = None;
    for name in ["s", "t"] {
        let lease = create_session(store, name).await;
        let open = gate(name, "q1", "deploy");
        let ops = vec![
            append(entry(name, "e0", None)),
            put_prompt(prompt(name, "q1", 1)),
            put_gate(open.clone()),
            status_event(),
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
    let removed = gate("s", "q1", "deploy").id;
    assert_eq!(store.gate(&removed).await.unwrap(), None);
    assert_eq!(store.events(&sid("s"), 0, 9).await.unwrap(), []);
    let entries = store.entries(&sid("s"), &tid("main"), None, 9).await;
    assert_eq!(entries.unwrap(), []);
    assert_eq!(store.snapshot(&sid("t")).await.unwrap(), kept);
    assert_eq!(store.pending_gates(None).await.unwrap().len(), 1);
    // The id can be reused for a new session.
    let again = create_session(store, "s").await;
    assert_eq!(write(store, &again, vec![status_event()]).await, Ok(1));
}
