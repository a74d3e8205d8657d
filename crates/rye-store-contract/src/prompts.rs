//! How prompts are found again, by whomever they were given their ids.

use rye_engine::store::{InboxMessage, Lease, PostOutcome, SessionStore, StoreError};
use rye_protocol::{Op, PromptStatus, QueuedPrompt};

use crate::Subject;
use crate::sample::{
    append, begin, entry, id, prompt, put_prompt, put_thread, sid, thread, told, write,
};

/// Sends a prompt from outside.
async fn post(store: &dyn SessionStore, prompt: &QueuedPrompt) -> Result<PostOutcome, StoreError> {
    let post = InboxMessage::Prompt(Box::new(prompt.clone()));
    store.post(&sid("s"), post).await
}

/// A prompt of a thread.
fn of(thread: &str, name: &str, status: PromptStatus) -> QueuedPrompt {
    let mut prompt = prompt("s", name, 1);
    prompt.thread = id(thread);
    prompt.status = status;
    prompt
}

/// What is in the record and in the archive, in both ways to it.
async fn holds(subject: &Subject, all: &[QueuedPrompt]) {
    let open = all.iter().filter(|prompt| !prompt.status.is_finished());
    let open: Vec<_> = open.cloned().collect();
    for store in [&subject.store, &subject.other] {
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.prompts, open);
        let archive = store.archive(&sid("s")).await.unwrap().unwrap();
        assert_eq!(archive.prompts, all);
    }
}

/// A session with two threads.
async fn two_threads(store: &dyn SessionStore) -> Lease {
    let lease = begin(store, "s").await;
    let side = vec![put_thread(thread("s", "side"))];
    write(store, &lease, side).await.unwrap();
    lease
}

/// Whoever sends them: each is known as long as the session is there, and no other is.
pub async fn prompts_are_found_whatever_the_order_of_their_ids(subject: Subject) {
    let lease = two_threads(&*subject.store).await;
    let names = ["c", "f", "g", "k", "b", "l", "d", "z", "a"];
    let mut all: Vec<QueuedPrompt> = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let thread = if at % 3 == 1 { "side" } else { "main" };
        let new = of(thread, name, PromptStatus::Waiting);
        if at % 2 == 0 {
            let ops = vec![put_prompt(new.clone()), told(), told()];
            write(&*subject.store, &lease, ops).await.unwrap();
        } else {
            let posted = post(&*subject.other, &new).await;
            assert_eq!(posted, Ok(PostOutcome::Written));
        }
        all.push(new);
        holds(&subject, &all).await;
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
        // Those before are over one by one, and never in the order in which they came.
        let over = at * 5 % (at + 1);
        all[over].status = PromptStatus::Done;
        let ops = vec![told(), put_prompt(all[over].clone())];
        write(&*subject.store, &lease, ops).await.unwrap();
        holds(&subject, &all).await;
    }
}

/// One that was over and waits once more is in the record again.
pub async fn a_prompt_may_open_again(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let mut all = ["q1", "q2", "q3"].map(|name| of("main", name, PromptStatus::Done));
    write(store, &lease, all.clone().map(put_prompt).to_vec())
        .await
        .unwrap();
    holds(&subject, &all).await;
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
            holds(&subject, &all).await;
        }
    }
}

/// And those around it are found as before.
pub async fn a_prompt_that_was_taken_away_is_a_new_one_when_it_comes_again(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let names = ["a", "c", "e", "g", "f", "b"];
    for gone in names {
        let mut all = Vec::new();
        for name in names {
            let new = of("main", name, PromptStatus::Waiting);
            let ops = vec![put_prompt(new.clone()), told()];
            write(store, &lease, ops).await.unwrap();
            all.push(new);
        }
        let remove = vec![Op::RemovePrompt(id(gone)), Op::RemovePrompt(id("never"))];
        write(store, &lease, remove).await.unwrap();
        all.retain(|prompt| prompt.id.as_str() != gone);
        holds(&subject, &all).await;
        for known in &all {
            assert_eq!(post(store, known).await, Ok(PostOutcome::Duplicate));
        }
        let mut other = of("main", gone, PromptStatus::Waiting);
        other.content.push_str(", or something else");
        let posted = post(&*subject.other, &other).await;
        assert_eq!(posted, Ok(PostOutcome::Written));
        all.push(other);
        holds(&subject, &all).await;
        let ops = names.map(|name| Op::RemovePrompt(id(name))).to_vec();
        write(store, &lease, ops).await.unwrap();
        holds(&subject, &[]).await;
    }
}

/// Also where no thread is put with them, or only one of the two.
pub async fn prompts_of_several_threads_change_in_one_batch(subject: Subject) {
    let store = &*subject.store;
    let lease = two_threads(store).await;
    let mut all = [("main", "a"), ("side", "b"), ("main", "c"), ("side", "d")]
        .map(|(thread, name)| of(thread, name, PromptStatus::Waiting));
    write(store, &lease, all.clone().map(put_prompt).to_vec())
        .await
        .unwrap();
    holds(&subject, &all).await;
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
    holds(&subject, &[first, second, last.clone()]).await;
    // A prompt is of one thread.
    let mut moved = last;
    moved.thread = id("main");
    let refused = write(store, &lease, vec![put_prompt(moved)]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })));
}

/// However much lies between it and the next.
pub async fn a_prompt_is_found_behind_a_long_turn(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let new = of("main", name, PromptStatus::Done);
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
        let new = of("main", name, PromptStatus::Waiting);
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
    holds(&subject, &all).await;
}
