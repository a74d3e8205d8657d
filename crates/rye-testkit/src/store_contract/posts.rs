//! Posts: writes without a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use rye_engine::store::{
    Claim, CommandKind, InboxMessage, PostOutcome, SessionCommand, StoreError,
};
use rye_protocol::{EventKind, Millis, Op, PromptStatus, SessionId, Thread};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::Subject;
use super::sample::{
    create_session, entry, id, prompt, put_prompt, put_session, put_thread, replace, session, sid,
    status_event, thread, write,
};

fn post_prompt(session: &str, name: &str) -> InboxMessage {
    InboxMessage::prompt(prompt(session, name, 1))
}

fn command(kind: CommandKind) -> SessionCommand {
    SessionCommand::new(None, kind)
}

/// Time limit for a notification, so that a silent store fails the test instead of blocking it.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(20);

async fn next_post(posts: &mut broadcast::Receiver<SessionId>) -> SessionId {
    timeout(NOTIFICATION_TIMEOUT, posts.recv())
        .await
        .unwrap()
        .unwrap()
}

/// The holder of the session reads the prompt.
pub async fn prompt_can_be_posted_without_a_lease(subject: Subject) {
    create_session(&*subject.store, "s").await;
    let posted = subject.other.post(&sid("s"), post_prompt("s", "q1")).await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let snapshot = subject.store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.prompts, [prompt("s", "q1", 1)]);
}

/// The order, the time and the order of JSON keys do not matter.
pub async fn posting_the_same_prompt_twice_is_idempotent(subject: Subject) {
    let store = &*subject.store;
    create_session(store, "s").await;
    let mut first = prompt("s", "q1", 1);
    first.result_schema = Some(json!({ "a": 1, "b": 2 }));
    let posted = store
        .post(&sid("s"), InboxMessage::prompt(first.clone()))
        .await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let mut again = first.clone();
    again.order = 7;
    again.created_at = Millis(9_000);
    again.result_schema = Some(json!({ "b": 2, "a": 1 }));
    let posted = store.post(&sid("s"), InboxMessage::prompt(again)).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.prompts, [first]);
}

/// The prompt may be finished or merged with others.
pub async fn duplicate_prompt_is_detected_after_its_status_changed(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    let mut done = prompt("s", "q1", 1);
    done.content = "q1 and others".into();
    done.status = PromptStatus::Done;
    write(store, &lease, vec![put_prompt(done)]).await.unwrap();
    let posted = store.post(&sid("s"), post_prompt("s", "q1")).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.prompts, []);
    // A prompt that the holder wrote is also detected.
    write(store, &lease, vec![put_prompt(prompt("s", "q2", 2))])
        .await
        .unwrap();
    let posted = store.post(&sid("s"), post_prompt("s", "q2")).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
}

/// The stored prompt does not change.
pub async fn different_prompt_with_the_same_id_is_a_conflict(subject: Subject) {
    let store = &*subject.store;
    create_session(store, "s").await;
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    let mut other = prompt("s", "q1", 1);
    other.content = "something else".into();
    let posted = store.post(&sid("s"), InboxMessage::prompt(other)).await;
    let expected = StoreError::Conflict {
        kind: "prompt",
        id: "q1".to_owned(),
    };
    assert_eq!(posted, Err(expected));
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.prompts, [prompt("s", "q1", 1)]);
}

/// This applies to prompts and to commands.
pub async fn post_requires_its_session_and_its_thread(subject: Subject) {
    let store = &*subject.store;
    let posted = store.post(&sid("s"), post_prompt("s", "q1")).await;
    let no_session = StoreError::NotFound {
        kind: "session",
        id: "s".to_owned(),
    };
    assert_eq!(posted, Err(no_session.clone()));
    let message = InboxMessage::Command(command(CommandKind::Abort));
    assert_eq!(store.post(&sid("s"), message).await, Err(no_session));
    create_session(store, "s").await;
    let no_thread = StoreError::NotFound {
        kind: "thread",
        id: "side".to_owned(),
    };
    let mut misplaced = prompt("s", "q1", 1);
    misplaced.thread = id("side");
    let posted = store.post(&sid("s"), InboxMessage::prompt(misplaced)).await;
    assert_eq!(posted, Err(no_thread.clone()));
    let message = InboxMessage::Command(SessionCommand::new(Some(id("side")), CommandKind::Pause));
    assert_eq!(store.post(&sid("s"), message).await, Err(no_thread));
    // A prompt cannot be posted to another session.
    create_session(store, "t").await;
    let posted = store.post(&sid("t"), post_prompt("s", "q1")).await;
    assert!(matches!(posted, Err(StoreError::Conflict { .. })));
}

/// Reading a command does not complete it, so a host that dies loses none.
pub async fn commands_stay_pending_until_a_commit_completes_them(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let to_main = SessionCommand::new(Some(id("main")), CommandKind::Abort);
    let commands = [
        command(CommandKind::Pause),
        to_main,
        command(CommandKind::Resume),
    ];
    for command in &commands {
        let post = InboxMessage::Command(command.clone());
        let posted = subject.other.post(&sid("s"), post).await;
        assert_eq!(posted, Ok(PostOutcome::Written));
    }
    let first = InboxMessage::Command(commands[0].clone());
    let again = subject.other.post(&sid("s"), first).await;
    assert_eq!(again, Ok(PostOutcome::Duplicate));
    assert_eq!(store.pending_commands(&lease).await.unwrap(), commands);
    let lease = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    assert_eq!(
        subject.other.pending_commands(&lease).await.unwrap(),
        commands
    );
    let complete = |command: &SessionCommand| Op::CompleteCommand(command.id.clone());
    write(&*subject.other, &lease, vec![complete(&commands[1])])
        .await
        .unwrap();
    let left = [commands[0].clone(), commands[2].clone()];
    assert_eq!(subject.other.pending_commands(&lease).await.unwrap(), left);
    // Completing a command twice is not an error, and a failed commit completes none.
    let ops = vec![
        complete(&commands[0]),
        complete(&commands[1]),
        complete(&commands[1]),
    ];
    write(&*subject.other, &lease, ops).await.unwrap();
    let ops = vec![complete(&commands[2]), replace(entry("s", "nowhere", None))];
    assert!(write(&*subject.other, &lease, ops).await.is_err());
    let left = [commands[2].clone()];
    assert_eq!(subject.other.pending_commands(&lease).await.unwrap(), left);
}

/// A previous holder is fenced.
pub async fn commands_are_returned_to_the_holder_only(subject: Subject) {
    let store = &*subject.store;
    let old = create_session(store, "s").await;
    let pending = command(CommandKind::Abort);
    store
        .post(&sid("s"), InboxMessage::Command(pending.clone()))
        .await
        .unwrap();
    let new = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    let refused = store.pending_commands(&old).await;
    assert_eq!(refused, Err(StoreError::Fenced(sid("s"))));
    assert_eq!(
        subject.other.pending_commands(&new).await.unwrap(),
        [pending]
    );
}

/// Posts of both handles are announced to both handles.
pub async fn subscribers_are_notified_of_posts(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    create_session(&**store, "s").await;
    let mut first = store.subscribe_posts();
    let mut second = other.subscribe_posts();
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    assert_eq!(next_post(&mut first).await, sid("s"));
    assert_eq!(next_post(&mut second).await, sid("s"));
    let message = InboxMessage::Command(command(CommandKind::Pause));
    other.post(&sid("s"), message).await.unwrap();
    assert_eq!(next_post(&mut first).await, sid("s"));
    assert_eq!(next_post(&mut second).await, sid("s"));
}

/// Posts to many sessions in quick succession are all announced.
pub async fn subscribers_are_notified_of_every_session(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let names: Vec<_> = (0..20).map(|n| format!("s{n}")).collect();
    for name in &names {
        let lease = store.claim(&sid(name), Claim::IfFree).await.unwrap();
        let ops = vec![put_session(session(name)), put_thread(thread(name, "main"))];
        write(&**store, &lease, ops).await.unwrap();
    }
    let mut posts = store.subscribe_posts();
    for name in &names {
        other
            .post(&sid(name), post_prompt(name, "q1"))
            .await
            .unwrap();
    }
    let mut missing: BTreeSet<_> = names.iter().map(|name| sid(name)).collect();
    while !missing.is_empty() {
        missing.remove(&next_post(&mut posts).await);
    }
}

fn prompt_to_thread(name: &str, thread: Thread) -> InboxMessage {
    let mut prompt = prompt("s", name, 0);
    prompt.thread = thread.id.clone();
    InboxMessage::Prompt {
        prompt: Box::new(prompt),
        new_thread: Some(Box::new(thread)),
    }
}

/// Two callers that name the same new thread get one thread, and so does a repeated post.
pub async fn prompt_to_a_new_thread_creates_it_once(subject: Subject) {
    let store = &*subject.store;
    create_session(store, "s").await;
    let first = thread("s", "side");
    let second = Thread {
        id: id("other-id"),
        ..first.clone()
    };
    for (name, thread) in [("q1", &first), ("q2", &second), ("q1", &second)] {
        let message = prompt_to_thread(name, thread.clone());
        subject.other.post(&sid("s"), message).await.unwrap();
    }
    let existing = Thread {
        id: id("third-id"),
        ..thread("s", "main")
    };
    let message = prompt_to_thread("q3", existing);
    store.post(&sid("s"), message).await.unwrap();
    let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(snapshot.threads, [thread("s", "main"), first]);
    let threads = snapshot.prompts.iter().map(|it| it.thread.as_str());
    assert_eq!(threads.collect::<Vec<_>>(), ["side", "side", "main"]);
    let events = store.events(&sid("s"), 0, 99).await.unwrap();
    let [event] = events.as_slice() else {
        panic!("one event, not {events:?}");
    };
    let key = "web:side".to_owned();
    assert_eq!(event.kind, EventKind::ThreadStart { key });
    assert_eq!(event.thread, Some(id("side")));
}

/// A thread that a post has created is not created again by the holder.
pub async fn thread_keys_are_unique_within_a_session(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    let message = prompt_to_thread("q1", thread("s", "side"));
    subject.other.post(&sid("s"), message).await.unwrap();
    let twin = Thread {
        id: id("twin"),
        ..thread("s", "side")
    };
    let written = write(store, &lease, vec![put_thread(twin)]).await;
    let expected = StoreError::Conflict {
        kind: "thread",
        id: "web:side".to_owned(),
    };
    assert_eq!(written, Err(expected));
    // Another session may have a thread with the same key.
    create_session(store, "t").await;
}

/// A session that is about to be created is not announced.
pub async fn subscribers_are_notified_of_claims_and_releases(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let mut posts = other.subscribe_posts();
    let lease = create_session(&**store, "s").await;
    store.release(&lease).await.unwrap();
    assert_eq!(next_post(&mut posts).await, sid("s"));
    store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert_eq!(next_post(&mut posts).await, sid("s"));
}

/// Commits through either handle are announced, and are visible then.
pub async fn subscribers_are_notified_of_commits(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let lease = create_session(&**store, "s").await;
    let mut commits = other.subscribe_commits();
    for number in 1..=20 {
        commits.borrow_and_update();
        let written = write(&**store, &lease, vec![status_event()]);
        assert_eq!(written.await, Ok(number));
        while other
            .events(&sid("s"), number - 1, 9)
            .await
            .unwrap()
            .is_empty()
        {
            let changed = timeout(NOTIFICATION_TIMEOUT, commits.changed());
            changed.await.unwrap().unwrap();
        }
    }
}
