//! What cannot be gone on from: the session stands still until it is opened again, and says
//! so.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{ErrorCode, EventKind, SessionStatus, TurnEnd};
use rye_engine::store::{Claim, SessionStore as _, StoreError};
use rye_engine::{Engine, NewSession, Session};
use rye_sandbox::Virtual;
use rye_store::MemoryStore;

use super::store::Harm;
use super::world::{World, said, until_ended};

/// Waits for the error that ends it all.
async fn fatal(session: &Session) -> rye_engine::protocol::ErrorInfo {
    let mut events = session.subscribe(0);
    loop {
        let notice = events.next().await.unwrap().expect("it was not told");
        if let EventKind::Error { error } = notice.event.kind {
            return error;
        }
    }
}

async fn status(world: &World) -> SessionStatus {
    let record = world.store().snapshot(&"s".parse().unwrap()).await.unwrap();
    record.unwrap().session.status
}

#[tokio::test]
async fn a_session_that_broke_down_takes_no_prompts_until_it_is_opened_again() {
    for (harm, code) in [
        (Harm::Unreadable, ErrorCode::Store),
        (Harm::Panics, ErrorCode::Internal),
    ] {
        let world = World::new("steps: [{ text: one }, { text: two }]");
        let session = world.session(&world.engine()).await;
        let prompt = session.prompt("first").await.unwrap();
        until_ended(&session, &prompt).await;
        session.close().await.unwrap();

        let engine = world.engine();
        let session = world.session(&engine).await;
        world.trouble.harm(Some(harm));
        // It is written before anything goes wrong.
        let asked = session.prompt("second").await;
        assert!(asked.is_ok() || harm == Harm::Panics, "{asked:?}");
        let error = fatal(&session).await;
        assert_eq!((error.code, error.recoverable), (code, false), "{error:?}");
        assert_eq!(error.ids.session.as_ref(), Some(session.id()));
        assert!(error.ids.thread.is_some());
        let record = world.store().snapshot(session.id()).await.unwrap().unwrap();
        assert_eq!(record.session.status, SessionStatus::Error);
        let prompt = record.prompts[0].id.clone();
        let refused = session.prompt("third").await;
        assert!(
            matches!(
                refused,
                Err(StoreError::Unreadable(_) | StoreError::SessionFailed(_))
            ),
            "{refused:?}"
        );

        // Whoever opens it goes on with what was asked, and nobody asked a third time.
        world.trouble.harm(None);
        let session = engine.open_session(session.id(), Claim::IfFree).await;
        let session = session.unwrap();
        until_ended(&session, &prompt).await;
        assert_eq!(said(&session).await, "two");
        assert_eq!(status(&world).await, SessionStatus::Running);
    }
}

#[tokio::test]
async fn a_session_that_was_paused_when_it_broke_down_is_paused_when_it_is_opened() {
    let world = World::new("steps: [{ text: one }, { text: two }]");
    let engine = world.engine();
    let session = world.session(&engine).await;
    let prompt = session.prompt("first").await.unwrap();
    until_ended(&session, &prompt).await;
    session.close().await.unwrap();
    let session = world.session(&engine).await;
    world.trouble.harm(Some(Harm::Unreadable));
    session.prompt("second").await.unwrap();
    fatal(&session).await;
    // As if it had been paused before.
    let store = world.store();
    let lease = store.claim(session.id(), Claim::IfFree).await.unwrap();
    let record = store.snapshot(session.id()).await.unwrap().unwrap();
    let mut data = record.session;
    data.metadata
        .insert("status_before_error".to_owned(), "paused".into());
    let op = rye_engine::protocol::Op::PutSession(Arc::new(data));
    let batch = rye_engine::protocol::Batch { ops: vec![op] };
    store.commit(&lease, batch).await.unwrap();
    store.release(&lease).await.unwrap();

    let opened = engine.open_session(session.id(), Claim::IfFree).await;
    assert_eq!(opened.unwrap().status(), SessionStatus::Paused);
    assert_eq!(status(&world).await, SessionStatus::Paused);
}

/// A model that somebody else wrote.
struct Buggy;

impl Model for Buggy {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            context_window: 8000,
            max_output: 1000,
            images: false,
        }
    }

    fn call(&self, _: ModelRequest, _: Deltas) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async { panic!("index out of bounds") })
    }
}

impl Models for Buggy {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::new(Buggy))
    }

    fn default_name(&self) -> String {
        "buggy".to_owned()
    }
}

#[tokio::test]
async fn a_model_that_panics_ends_its_prompt_and_not_the_thread() {
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Buggy)
        .sandbox(Arc::new(Virtual::new()))
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    for _ in 0..2 {
        let prompt = session.prompt("hello").await.unwrap();
        let answer = session.wait_for_answer(&prompt).await.unwrap();
        assert_eq!(answer.reason, TurnEnd::Error);
        let error = answer.error.unwrap();
        assert_eq!(
            error,
            "the model implementation panicked: index out of bounds"
        );
    }
}
