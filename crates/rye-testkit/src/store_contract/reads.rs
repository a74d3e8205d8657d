//! Read operations.

use std::sync::Arc;

use rye_engine::store::{Claim, SessionFilter, StoreError};
use rye_protocol::{Entry, GateStatus, Millis, Op, Parent, PromptStatus, Usage};

use super::Subject;
use super::sample::{
    append, chain, create_session, eid, entry, gate, id, ids, prompt, prompt_id, put_gate,
    put_prompt, put_session, put_thread, session, sid, status_event, thread, tid, write,
};

fn not_found(kind: &'static str, id: &str) -> StoreError {
    let id = id.to_owned();
    StoreError::NotFound { kind, id }
}

/// Finished and removed prompts are not part of a snapshot.
pub async fn snapshot_contains_open_prompts_only(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let all = [
        PromptStatus::Waiting,
        PromptStatus::Running,
        PromptStatus::Done,
        PromptStatus::Failed,
        PromptStatus::Aborted,
    ];
    let mut ops = vec![put_thread(thread("s", "a-second"))];
    for (n, status) in (0..).zip(all) {
        let mut prompt = prompt("s", &format!("q{n}"), n);
        prompt.status = status;
        ops.push(put_prompt(prompt));
    }
    ops.push(put_prompt(prompt("s", "removed", 9)));
    ops.push(Op::RemovePrompt(prompt_id("removed")));
    ops.push(Op::RemovePrompt(prompt_id("never-there")));
    write(store, &lease, ops).await.unwrap();
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    let names: Vec<_> = snapshot
        .prompts
        .iter()
        .map(|prompt| prompt.id.as_str())
        .collect();
    assert_eq!(names, ["q0", "q1"]);
    // In order of creation, not of the ids.
    assert_eq!(
        snapshot.threads,
        [thread("s", "main"), thread("s", "a-second")]
    );
}

/// Prompts with the same order are sorted by time of creation.
pub async fn prompts_are_sorted_by_order(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let orders = [("c", 5), ("b", 5), ("a", 9), ("d", 1), ("e", u64::MAX)];
    let prompts = orders.map(|(name, order)| put_prompt(prompt("s", name, order)));
    write(store, &lease, prompts.to_vec()).await.unwrap();
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    let names: Vec<_> = snapshot
        .prompts
        .iter()
        .map(|prompt| prompt.id.as_str())
        .collect();
    assert_eq!(names, ["d", "c", "b", "a", "e"]);
}

/// Closed gates are included, so that a repeated tool call finds its decisions.
pub async fn snapshot_contains_all_gates_of_open_prompts(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut ended = gate("s", "running", "one");
    ended.status = GateStatus::Expired { at: Millis(1) };
    let open = gate("s", "running", "two");
    let mut running = prompt("s", "running", 1);
    running.status = PromptStatus::Running;
    let mut done = prompt("s", "done", 2);
    done.status = PromptStatus::Done;
    let ops = vec![
        put_prompt(running),
        put_prompt(done),
        put_gate(ended.clone()),
        put_gate(gate("s", "done", "three")),
        put_gate(open.clone()),
    ];
    write(store, &lease, ops).await.unwrap();
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.gates, [ended, open]);
}

/// Lists pages of the sessions of one user or of all users.
pub async fn sessions_are_listed_newest_first(subject: Subject) {
    let store = &*subject.store;
    for name in ["c", "a", "b"] {
        create_session(store, name).await;
    }
    let list = async |user: Option<&str>, before: Option<&str>, limit: usize| {
        let filter = SessionFilter {
            user: user.map(str::to_owned),
            before: before.map(sid),
            limit,
            ..SessionFilter::default()
        };
        let listed = store.sessions(filter).await?;
        Ok::<_, StoreError>(listed.iter().map(|s| s.id.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(list(None, None, 9).await.unwrap(), ["b", "a", "c"]);
    assert_eq!(list(Some("ada"), None, 2).await.unwrap(), ["b", "a"]);
    assert_eq!(list(None, Some("a"), 9).await.unwrap(), ["c"]);
    assert!(list(Some("eve"), None, 9).await.unwrap().is_empty());
    assert!(list(None, None, 0).await.unwrap().is_empty());
    let unknown = list(None, Some("z"), 9).await;
    assert_eq!(unknown, Err(not_found("session", "z")));
}

/// The part is the beginning or the end of the id, and an empty part finds nothing.
pub async fn sessions_are_found_by_a_part_of_their_id(subject: Subject) {
    let store = &*subject.store;
    for name in ["ab-12", "ab-13", "cd-12", "%"] {
        create_session(store, name).await;
    }
    for (part, found) in [
        ("ab", &["ab-13", "ab-12"][..]),
        ("12", &["cd-12", "ab-12"]),
        ("ab-12", &["ab-12"]),
        ("b-1", &[]),
        ("%", &["%"]),
        ("ab-12-", &[]),
        ("", &[]),
    ] {
        let filter = SessionFilter {
            id_part: Some(part.to_owned()),
            limit: 9,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(filter).await.unwrap();
        let names: Vec<_> = sessions.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(names, found, "{part}");
    }
}

/// They equal those of the archive.
pub async fn session_and_entry_are_read_alone(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let usage = Usage {
        turns: 2,
        ..Usage::default()
    };
    let ops = vec![append(entry("s", "e0", None)), Op::AddUsage(usage)];
    write(store, &lease, ops).await.unwrap();
    let archive = store.archive(&sid("s")).await.unwrap().unwrap();
    assert_eq!(archive.session.usage, usage);
    let session = store.session(&sid("s")).await.unwrap();
    assert_eq!(session, Some(archive.session));
    let found = store.entry(&sid("s"), &eid("e0")).await.unwrap();
    assert_eq!(found, archive.entries.into_iter().next());
    assert_eq!(store.session(&sid("none")).await.unwrap(), None);
    let missing = [("s", "none"), ("none", "e0")];
    for (session, entry) in missing {
        let found = store.entry(&sid(session), &eid(entry)).await.unwrap();
        assert_eq!(found, None);
    }
}

/// Child sessions of other parents are not listed.
pub async fn child_sessions_are_listed_by_parent(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    write(store, &lease, vec![put_thread(thread("s", "main"))])
        .await
        .unwrap();
    for (name, parent) in [("a", "s"), ("b", "other"), ("c", "s")] {
        let mut child = session(name);
        child.parent = Some(Parent {
            session: sid(parent),
            thread: tid("main"),
        });
        let lease = store.claim(&sid(name), Claim::IfFree).await.unwrap();
        write(store, &lease, vec![put_session(child)])
            .await
            .unwrap();
    }
    let filter = SessionFilter {
        parent: Some(sid("s")),
        limit: 9,
        ..SessionFilter::default()
    };
    let listed = store.sessions(filter).await.unwrap();
    let names: Vec<_> = listed.iter().map(|child| child.id.as_str()).collect();
    assert_eq!(names, ["c", "a"]);
}

/// Writing an archive to a store restores the session.
pub async fn archive_contains_the_complete_session(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    create_session(store, "other").await;
    let mut ops: Vec<_> = chain("s", 3).into_iter().map(append).collect();
    let mut done = prompt("s", "q1", 1);
    done.status = PromptStatus::Done;
    ops.extend([
        put_prompt(done),
        put_prompt(prompt("s", "q2", 2)),
        status_event(),
    ]);
    let open = gate("s", "q2", "open");
    ops.extend([put_gate(open.clone()), status_event()]);
    write(store, &lease, ops).await.unwrap();
    let archive = store.archive(&sid("s")).await.unwrap().unwrap();
    assert_eq!(archive.entries, chain("s", 3));
    assert_eq!((archive.prompts.len(), archive.gates.len()), (2, 1));
    assert_eq!(archive.events.len(), 2);
    assert_eq!(store.archive(&sid("none")).await.unwrap(), None);

    store.remove(&[lease]).await.unwrap();
    let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    let again = archive.clone();
    let mut ops = vec![put_session(again.session)];
    ops.extend(again.threads.into_iter().map(put_thread));
    ops.extend(again.entries.into_iter().map(append));
    ops.extend(again.prompts.into_iter().map(put_prompt));
    ops.extend(again.gates.into_iter().map(put_gate));
    let events = again.events.into_iter();
    ops.extend(events.map(|event| Op::ImportedEvent(Arc::new(event))));
    write(store, &lease, ops).await.unwrap();
    assert_eq!(store.archive(&sid("s")).await.unwrap(), Some(archive));
}

/// Every entry can be the leaf.
pub async fn path_leads_from_the_first_entry_to_the_leaf(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let entries = chain("s", 5);
    let ops = entries.iter().cloned().map(append).collect();
    write(store, &lease, ops).await.unwrap();
    for leaf in 0..5 {
        let path = store.path(&sid("s"), &eid(&format!("e{leaf}"))).await;
        assert_eq!(path.unwrap(), entries[..=leaf]);
    }
}

/// The branch may be in another thread.
pub async fn branch_has_its_own_path(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut ops: Vec<_> = chain("s", 3).into_iter().map(append).collect();
    ops.push(put_thread(thread("s", "side")));
    ops.push(append(entry("s", "left", Some("e1"))));
    let mut right = entry("s", "right", Some("e0"));
    right.thread = tid("side");
    ops.push(append(right));
    write(store, &lease, ops).await.unwrap();
    let path = store.path(&sid("s"), &eid("left")).await.unwrap();
    assert_eq!(ids(&path), ["e0", "e1", "left"]);
    let path = store.path(&sid("s"), &eid("right")).await.unwrap();
    assert_eq!(ids(&path), ["e0", "right"]);
    let side = store.entries(&sid("s"), &tid("side"), None, 9).await;
    assert_eq!(ids(&side.unwrap()), ["right"]);
}

/// Entries are returned in the order of writing.
pub async fn entries_are_read_in_pages(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let ops = ["z", "a", "m", "b"].map(|name| append(entry("s", name, None)));
    write(store, &lease, ops.to_vec()).await.unwrap();
    let (s, main) = (sid("s"), tid("main"));
    let first = store.entries(&s, &main, None, 2).await.unwrap();
    assert_eq!(ids(&first), ["z", "a"]);
    let second = store.entries(&s, &main, Some(&eid("a")), 9).await.unwrap();
    assert_eq!(ids(&second), ["m", "b"]);
    let last = store.entries(&s, &main, Some(&eid("b")), 9).await.unwrap();
    assert_eq!(last, []);
}

/// Returns at most `limit` events.
pub async fn events_are_read_after_any_sequence_number(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    write(store, &lease, vec![status_event(); 5]).await.unwrap();
    let numbers = async |after: u64, limit: usize| {
        let events = store.events(&sid("s"), after, limit).await.unwrap();
        let numbers = events.iter().filter_map(|event| event.sequence);
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(numbers(0, usize::MAX).await, [1, 2, 3, 4, 5]);
    assert_eq!(numbers(2, 2).await, [3, 4]);
    assert!(numbers(5, 9).await.is_empty());
    assert!(numbers(u64::MAX, 9).await.is_empty());
}

/// A missing object that is named is an error; a list without objects is empty.
pub async fn missing_objects_are_not_found(subject: Subject) {
    let store = &*subject.store;
    let (s, main) = (sid("s"), tid("main"));
    assert_eq!(store.snapshot(&s).await, Ok(None));
    assert_eq!(store.events(&s, 0, 9).await, Ok(vec![]));
    assert_eq!(store.entries(&s, &main, None, 9).await, Ok(vec![]));
    create_session(store, "s").await;
    let missing = Err(not_found("entry", "e0"));
    assert_eq!(store.path(&s, &eid("e0")).await, missing);
    let after = store.entries(&s, &main, Some(&eid("e0")), 9).await;
    assert_eq!(after, missing);
    assert_eq!(store.gate(&gate("s", "q1", "x").id).await, Ok(None));
}

/// The path has ten thousand entries.
pub async fn long_path_is_read_completely(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let entries = chain("s", 10_000);
    let ops = entries.iter().cloned().map(append).collect();
    write(store, &lease, ops).await.unwrap();
    let path = store.path(&sid("s"), &eid("e9999")).await.unwrap();
    assert_eq!(path, entries);
}

/// Callers can choose ids, and clocks can be wrong.
pub async fn entries_are_found_regardless_of_the_order_of_their_ids(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let names = ["c", "f", "g", "k", "b", "l", "d", "z", "a"];
    let mut all: Vec<Entry> = Vec::new();
    for name in names {
        let parent = all.last().map(|entry| entry.id.to_string());
        let next = entry("s", name, parent.as_deref());
        let ops = vec![append(next.clone()), status_event(), status_event()];
        write(store, &lease, ops).await.unwrap();
        all.push(next);
        for store in [&subject.store, &subject.other] {
            for (at, entry) in all.iter().enumerate() {
                let path = store.path(&sid("s"), &entry.id).await.unwrap();
                assert_eq!(path, all[..=at]);
                let (session, thread) = (sid("s"), tid("main"));
                let rest = store.entries(&session, &thread, Some(&entry.id), 99);
                assert_eq!(rest.await.unwrap(), all[at + 1..]);
            }
            for other in ["", "0", "h", "kk", "zz"].map(|it| format!("{name}{it}x")) {
                let missing = store.path(&sid("s"), &id(&other)).await;
                assert!(
                    matches!(missing, Err(StoreError::NotFound { .. })),
                    "{missing:?}"
                );
            }
        }
        for entry in &all {
            let before = store.snapshot(&sid("s")).await.unwrap();
            write(store, &lease, vec![append(entry.clone())])
                .await
                .unwrap();
            assert_eq!(store.snapshot(&sid("s")).await.unwrap(), before);
            let mut other = entry.clone();
            other.created_at = Millis(9_999);
            let refused = write(store, &lease, vec![append(other)]).await;
            assert!(matches!(refused, Err(StoreError::Conflict { .. })));
        }
    }
    let found = store.entries(&sid("s"), &tid("main"), None, 99).await;
    assert_eq!(found.unwrap(), all);
}
