//! Prompts that leave the queue without a turn of their own.

use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{EventKind, PromptId, QueueMode, TurnEnd};
use rye_engine::{Engine, NewSession, Prompt, Session};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;

/// Longer than any test.
const ENDLESS: Duration = Duration::from_hours(1);

/// A session whose model doesn't answer.
async fn session() -> Session {
    let script = format!(
        "steps: [{{ text: hello, delay_ms: {} }}]",
        ENDLESS.as_millis()
    );
    let script: Script = script.parse().unwrap();
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .collect_window(ENDLESS)
        .build()
        .unwrap();
    engine.create_session(NewSession::default()).await.unwrap()
}

/// How prompts ended: the reason, or the prompt that they were merged into.
async fn ends(session: &Session) -> Vec<(PromptId, String)> {
    let last = session.last_event().await.unwrap();
    let mut events = session.subscribe(0);
    let mut found = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        match event.kind {
            EventKind::TurnEnd {
                prompt,
                merged_into: Some(into),
                ..
            } => found.push((prompt, into.to_string())),
            EventKind::TurnEnd { prompt, reason, .. } => {
                found.push((prompt, <&str>::from(reason).to_owned()));
            }
            _ => {}
        }
        if event.sequence >= Some(last) {
            return found;
        }
    }
}

#[tokio::test]
async fn abort_ends_the_wait_for_queued_prompts() {
    let session = session().await;
    let running = session.prompt("one").await.unwrap();
    let waiting = session.prompt("two").await.unwrap();
    session.abort(None).await.unwrap();
    for prompt in [&running, &waiting] {
        let answer = session.wait_for_answer(prompt).await.unwrap();
        assert_eq!(answer.reason, TurnEnd::Abort);
    }
    let expected = [running, waiting].map(|prompt| (prompt, "abort".to_owned()));
    assert_eq!(ends(&session).await, expected);
}

#[tokio::test]
async fn withdrawn_prompt_ends_its_wait_while_another_runs() {
    let session = session().await;
    session.prompt("one").await.unwrap();
    let waiting = session.prompt("two").await.unwrap();
    let thread = session.threads()[0].id.clone();
    let (answer, withdrawn) = tokio::join!(
        session.wait_for_answer(&waiting),
        session.withdraw_prompt(&thread, &waiting)
    );
    assert_eq!(answer.unwrap().reason, TurnEnd::Withdrawn);
    assert!(withdrawn.unwrap().is_some());
    let expected = [(waiting, "withdrawn".to_owned())];
    assert_eq!(ends(&session).await, expected);
}

#[tokio::test]
async fn merged_prompt_ends_with_the_prompt_it_was_merged_into() {
    let session = session().await;
    let mut ids = Vec::new();
    for id in ["a", "b"] {
        let prompt = Prompt {
            id: Some(id.parse().unwrap()),
            mode: Some(QueueMode::Collect),
            ..Prompt::from(id)
        };
        ids.push(session.prompt(prompt).await.unwrap());
    }
    let (answer, aborted) = tokio::join!(session.wait_for_answer(&ids[1]), session.abort(None));
    aborted.unwrap();
    assert_eq!(answer.unwrap().reason, TurnEnd::Abort);
    let expected = [
        (ids[1].clone(), ids[0].to_string()),
        (ids[0].clone(), "abort".to_owned()),
    ];
    assert_eq!(ends(&session).await, expected);
}
