//! Lookup of prompts by id.

use rye_engine::store::{InboxMessage, Lease, PostOutcome, SessionStore, StoreError};
use rye_protocol::{Millis, Op, PromptEnd, PromptStatus, QueuedPrompt, TurnEnd};

use super::Subject;
use super::sample::{
    append, create_session, entry, id, prompt, prompt_id, put_prompt, put_thread, sid,
    status_event, thread, write,
};

/// Posts a prompt.
async fn post(store: &dyn SessionStore, prompt: &QueuedPrompt) -> Result<PostOutcome, StoreError> {
    let post = InboxMessage::prompt(prompt.clone());
    store.post(&sid("s"), post).await
}

/// A prompt with a thread and a status.
fn prompt_in(thread: &str, name: &str, status: PromptStatus) -> QueuedPrompt {
    let mut prompt = prompt("s", name, 1);
    prompt.thread = id(thread);
    prompt.status = status;
    prompt
}

/// Checks the prompts of the snapshot and the archive, through both handles.
async fn check_prompts(subject: &Subject, all: &[QueuedPrompt]) {
    let open = all.iter().filter(|prompt| !prompt.status.is_finished());
    let open: Vec<_> = open.cloned().collect();
    for store in [&subject.store, &subject.other] {
        let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(snapshot.prompts, open);
        let archive = store.archive(&sid("s")).await.unwrap().unwrap();
        assert_eq!(archive.prompts, all);
    }
}

/// A session with two threads.
async fn two_threads(store: &dyn SessionStore) -> Lease {
    let lease = create_session(store, "s").await;
    let side = vec![put_thread(thread("s", "side"))];
    write(store, &lease, side).await.unwrap();
    lease
}

/// Prompts come from the holder and from posts, with ids in any order.
pub async fn prompts_are_found_regardless_of_the_order_of_their_ids(subject: Subject) {
    let lease = two_threads(&*subject.store).await;
    let names = ["c", "f", "g", "k", "b", "l", "d", "z", "a"];
    let mut all: Vec<QueuedPrompt> = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let thread = if at % 3 == 1 { "side" } else { "main" };
        let new = prompt_in(thread, name, PromptStatus::Waiting);
        if at % 2 == 0 {
            let ops = vec![put_prompt(new.clone()), status_event(), status_event()];
            write(&*subject.store, &lease, ops).await.unwrap();
        } else {
            let posted = post(&*subject.other, &new).await;
            assert_eq!(posted, Ok(PostOutcome::Written));
        }
        all.push(new);
        check_prompts(&subject, &all).await;
        for store in [&subject.store, &subject.other] {
            for known in &all {
                let mut again = known.clone();
                again.status = PromptStatus::Waiting;
                assert_eq!(post(&**store, &again).await, Ok(PostOutcome::Duplicate));
                again.content.push('!');
                let refused = post(&**store, &again).await;
                assert!(matches!(refused, Err(StoreError::Conflict { .. })));
            }
        }
        // Finishes the prompts in another order than they came.
        let finished = at * 5 % (at + 1);
        all[finished].status = PromptStatus::Done;
        let ops = vec![status_event(), put_prompt(all[finished].clone())];
        write(&*subject.store, &lease, ops).await.unwrap();
        check_prompts(&subject, &all).await;
    }
}

/// A reopened prompt is part of the snapshot again.
pub async fn finished_prompt_can_be_reopened(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut all = ["q1", "q2", "q3"].map(|name| prompt_in("main", name, PromptStatus::Done));
    write(store, &lease, all.clone().map(put_prompt).to_vec())
        .await
        .unwrap();
    check_prompts(&subject, &all).await;
    for at in [1, 0, 2] {
        for status in [
            PromptStatus::Waiting,
            PromptStatus::Running,
            PromptStatus::Done,
        ] {
            all[at].status = status;
            write(store, &lease, vec![put_prompt(all[at].clone())])
                .await
                .unwrap();
            check_prompts(&subject, &all).await;
        }
    }
}

/// Other prompts are still found.
pub async fn removed_prompt_can_be_posted_again(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let names = ["a", "c", "e", "g", "f", "b"];
    for removed in names {
        let mut all = Vec::new();
        for name in names {
            let new = prompt_in("main", name, PromptStatus::Waiting);
            let ops = vec![put_prompt(new.clone()), status_event()];
            write(store, &lease, ops).await.unwrap();
            all.push(new);
        }
        let remove = vec![Op::RemovePrompt(id(removed)), Op::RemovePrompt(id("never"))];
        write(store, &lease, remove).await.unwrap();
        all.retain(|prompt| prompt.id.as_str() != removed);
        check_prompts(&subject, &all).await;
        for known in &all {
            assert_eq!(post(store, known).await, Ok(PostOutcome::Duplicate));
        }
        let mut other = prompt_in("main", removed, PromptStatus::Waiting);
        other.content.push_str(", or something else");
        let posted = post(&*subject.other, &other).await;
        assert_eq!(posted, Ok(PostOutcome::Written));
        all.push(other);
        check_prompts(&subject, &all).await;
        let ops = names.map(|name| Op::RemovePrompt(id(name))).to_vec();
        write(store, &lease, ops).await.unwrap();
        check_prompts(&subject, &[]).await;
    }
}

/// The batch may write all, some or none of the threads.
pub async fn one_batch_can_change_prompts_of_several_threads(subject: Subject) {
    let store = &*subject.store;
    let lease = two_threads(store).await;
    let mut all = [("main", "a"), ("side", "b"), ("main", "c"), ("side", "d")]
        .map(|(thread, name)| prompt_in(thread, name, PromptStatus::Waiting));
    write(store, &lease, all.clone().map(put_prompt).to_vec())
        .await
        .unwrap();
    check_prompts(&subject, &all).await;
    for prompt in &mut all[..2] {
        prompt.status = PromptStatus::Done;
    }
    let ops = vec![
        put_prompt(all[0].clone()),
        put_thread(thread("s", "side")),
        put_prompt(all[1].clone()),
        put_thread(thread("s", "main")),
        Op::RemovePrompt(all[2].id.clone()),
        put_prompt(all[3].clone()),
        put_thread(thread("s", "third")),
    ];
    write(store, &lease, ops).await.unwrap();
    let [first, second, _, last] = all;
    check_prompts(&subject, &[first, second, last.clone()]).await;
    // A prompt cannot change its thread.
    let mut moved = last;
    moved.thread = id("main");
    let refused = write(store, &lease, vec![put_prompt(moved)]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })));
}

/// Many entries may follow a prompt.
pub async fn prompt_is_found_after_a_long_turn(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let new = prompt_in("main", name, PromptStatus::Done);
        write(store, &lease, vec![put_prompt(new.clone())])
            .await
            .unwrap();
        all.push(new);
        let steps = (0..500).map(|n| append(entry("s", &format!("{name}{n:03}"), None)));
        write(store, &lease, steps.collect()).await.unwrap();
    }
    for (at, name) in ["a", "b", "c", "0", "aa", "bb", "d"]
        .into_iter()
        .enumerate()
    {
        let new = prompt_in("main", name, PromptStatus::Waiting);
        let posted = post(&*subject.other, &new).await;
        let known = at < 3;
        let expected = if known {
            PostOutcome::Duplicate
        } else {
            PostOutcome::Written
        };
        assert_eq!(posted, Ok(expected), "{name}");
        if !known {
            all.push(new);
        }
    }
    check_prompts(&subject, &all).await;
}

/// A prompt that does not exist, or belongs to another session, is not found.
pub async fn prompt_is_read_alone_also_after_its_end(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    create_session(store, "t").await;
    let mut ended = prompt("s", "q1", 1);
    ended.status = PromptStatus::Done;
    ended.end = Some(PromptEnd {
        reason: TurnEnd::EndTurn,
        answer: Some(id("e1")),
        error: None,
        at: Millis(7_000),
    });
    let waiting = prompt("s", "q2", 2);
    let ops = [ended.clone(), waiting.clone()].map(put_prompt).to_vec();
    write(store, &lease, ops).await.unwrap();
    for stored in [ended, waiting] {
        let read = subject.other.prompt(&sid("s"), &stored.id).await;
        assert_eq!(read, Ok(Some(stored)));
    }
    for (session, name) in [("s", "q3"), ("t", "q1"), ("nowhere", "q1")] {
        let read = store.prompt(&sid(session), &prompt_id(name)).await;
        assert_eq!(read, Ok(None));
    }
}
