//! What those may write who do not hold the session.

use std::collections::BTreeSet;
use std::time::Duration;

use rye_engine::store::{
    Claim, CommandKind, InboxMessage, PostOutcome, SessionCommand, StoreError,
};
use rye_protocol::{Millis, Op, PromptStatus, SessionId};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::Subject;
use crate::sample::{
    begin, entry, id, prompt, put_prompt, put_session, put_thread, replace, session, sid, thread,
    write,
};

fn post_prompt(session: &str, name: &str) -> InboxMessage {
    InboxMessage::Prompt(Box::new(prompt(session, name, 1)))
}

fn control(order: CommandKind) -> SessionCommand {
    SessionCommand::new(None, order)
}

/// How long one waits for news that must come. Nothing takes so long; without it a store
/// that tells nothing would hang the test.
const NEWS: Duration = Duration::from_secs(20);

async fn news(posts: &mut broadcast::Receiver<SessionId>) -> SessionId {
    timeout(NEWS, posts.recv()).await.unwrap().unwrap()
}

/// Whoever holds the session.
pub async fn anybody_may_post_a_prompt(subject: Subject) {
    begin(&*subject.store, "s").await;
    let posted = subject.other.post(&sid("s"), post_prompt("s", "q1")).await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let record = subject.store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.prompts, [prompt("s", "q1", 1)]);
}

/// Whenever and in which place it comes.
pub async fn the_same_prompt_again_is_the_same(subject: Subject) {
    let store = &*subject.store;
    begin(store, "s").await;
    let mut first = prompt("s", "q1", 1);
    first.metadata = json!({ "a": 1, "b": 2 }).as_object().cloned().unwrap();
    let posted = store
        .post(&sid("s"), InboxMessage::Prompt(Box::new(first.clone())))
        .await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    let mut again = first.clone();
    again.order = 7;
    again.created_at = Millis(9_000);
    again.metadata = json!({ "b": 2, "a": 1 }).as_object().cloned().unwrap();
    let posted = store
        .post(&sid("s"), InboxMessage::Prompt(Box::new(again)))
        .await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.prompts, [first]);
}

/// Answered, or joined with others.
pub async fn a_prompt_is_the_same_whatever_became_of_it(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    let mut done = prompt("s", "q1", 1);
    done.content = "q1 and others".into();
    done.status = PromptStatus::Done;
    write(store, &lease, vec![put_prompt(done)]).await.unwrap();
    let posted = store.post(&sid("s"), post_prompt("s", "q1")).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.prompts, []);
    // One that the holder wrote is known as well.
    write(store, &lease, vec![put_prompt(prompt("s", "q2", 2))])
        .await
        .unwrap();
    let posted = store.post(&sid("s"), post_prompt("s", "q2")).await;
    assert_eq!(posted, Ok(PostOutcome::Duplicate));
}

/// And changes nothing.
pub async fn another_prompt_of_the_same_id_is_a_conflict(subject: Subject) {
    let store = &*subject.store;
    begin(store, "s").await;
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    let mut other = prompt("s", "q1", 1);
    other.content = "something else".into();
    let posted = store
        .post(&sid("s"), InboxMessage::Prompt(Box::new(other)))
        .await;
    let expected = StoreError::Conflict {
        kind: "prompt",
        id: "q1".to_owned(),
    };
    assert_eq!(posted, Err(expected));
    let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
    assert_eq!(record.prompts, [prompt("s", "q1", 1)]);
}

/// So does an order.
pub async fn a_prompt_needs_a_session_and_a_thread(subject: Subject) {
    let store = &*subject.store;
    let nowhere = store.post(&sid("s"), post_prompt("s", "q1")).await;
    let no_session = StoreError::NotFound {
        kind: "session",
        id: "s".to_owned(),
    };
    assert_eq!(nowhere, Err(no_session.clone()));
    let order = InboxMessage::Command(control(CommandKind::Abort));
    assert_eq!(store.post(&sid("s"), order).await, Err(no_session));
    begin(store, "s").await;
    let no_thread = StoreError::NotFound {
        kind: "thread",
        id: "side".to_owned(),
    };
    let mut lost = prompt("s", "q1", 1);
    lost.thread = id("side");
    let nowhere = store
        .post(&sid("s"), InboxMessage::Prompt(Box::new(lost)))
        .await;
    assert_eq!(nowhere, Err(no_thread.clone()));
    let order = InboxMessage::Command(SessionCommand::new(Some(id("side")), CommandKind::Pause));
    assert_eq!(store.post(&sid("s"), order).await, Err(no_thread));
    // One session's prompt is not put into another.
    begin(store, "t").await;
    let astray = store.post(&sid("t"), post_prompt("s", "q1")).await;
    assert!(matches!(astray, Err(StoreError::Conflict { .. })));
}

/// The oldest first. Reading one does not carry it out: a host that dies then has not.
pub async fn controls_stay_until_a_commit_ends_them(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    let to_main = SessionCommand::new(Some(id("main")), CommandKind::Abort);
    let orders = [
        control(CommandKind::Pause),
        to_main,
        control(CommandKind::Resume),
    ];
    for order in &orders {
        let post = InboxMessage::Command(order.clone());
        let posted = subject.other.post(&sid("s"), post).await;
        assert_eq!(posted, Ok(PostOutcome::Written));
    }
    let first = InboxMessage::Command(orders[0].clone());
    let again = subject.other.post(&sid("s"), first).await;
    assert_eq!(again, Ok(PostOutcome::Duplicate));
    assert_eq!(store.pending_commands(&lease).await.unwrap(), orders);
    let lease = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    assert_eq!(
        subject.other.pending_commands(&lease).await.unwrap(),
        orders
    );
    let end = |order: &SessionCommand| Op::CompleteCommand(order.id.clone());
    write(&*subject.other, &lease, vec![end(&orders[1])])
        .await
        .unwrap();
    let left = [orders[0].clone(), orders[2].clone()];
    assert_eq!(subject.other.pending_commands(&lease).await.unwrap(), left);
    // One that is not there any more is no error, and a commit that fails ends none.
    let ops = vec![end(&orders[0]), end(&orders[1]), end(&orders[1])];
    write(&*subject.other, &lease, ops).await.unwrap();
    let ops = vec![end(&orders[2]), replace(entry("s", "nowhere", None))];
    assert!(write(&*subject.other, &lease, ops).await.is_err());
    let left = [orders[2].clone()];
    assert_eq!(subject.other.pending_commands(&lease).await.unwrap(), left);
}

/// Who lost it leaves them to the new one.
pub async fn controls_are_for_the_holder(subject: Subject) {
    let store = &*subject.store;
    let old = begin(store, "s").await;
    let order = control(CommandKind::Abort);
    store
        .post(&sid("s"), InboxMessage::Command(order.clone()))
        .await
        .unwrap();
    let new = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    let refused = store.pending_commands(&old).await;
    assert_eq!(refused, Err(StoreError::Fenced(sid("s"))));
    assert_eq!(subject.other.pending_commands(&new).await.unwrap(), [order]);
}

/// Wherever it was posted.
pub async fn whoever_listens_is_told(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    begin(&**store, "s").await;
    let mut here = store.subscribe_posts();
    let mut there = other.subscribe_posts();
    store.post(&sid("s"), post_prompt("s", "q1")).await.unwrap();
    assert_eq!(news(&mut here).await, sid("s"));
    assert_eq!(news(&mut there).await, sid("s"));
    let order = InboxMessage::Command(control(CommandKind::Pause));
    other.post(&sid("s"), order).await.unwrap();
    assert_eq!(news(&mut here).await, sid("s"));
    assert_eq!(news(&mut there).await, sid("s"));
}

/// Not only of the last.
pub async fn whoever_listens_hears_of_each_of_many(subject: Subject) {
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
    let mut silent: BTreeSet<_> = names.iter().map(|name| sid(name)).collect();
    while !silent.is_empty() {
        silent.remove(&news(&mut posts).await);
    }
}
