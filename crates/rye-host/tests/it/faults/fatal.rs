//! Fatal errors: the session stops until it is opened again.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{ErrorCode, EventKind, SessionStatus, TurnEnd};
use rye_engine::store::{Claim, SessionStore as _, StoreError};
use rye_engine::{Engine, NewSession, Session};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;

use super::store::PermanentFault;
use super::test_env::{TestEnv, last_text, wait_for_turn_end};

/// Waits for a fatal error.
async fn fatal(session: &Session) -> rye_engine::protocol::ErrorInfo {
    let mut events = session.subscribe(0);
    loop {
        let notice = events.next().await.unwrap().expect("no fatal error");
        if let EventKind::Error { error } = notice.event.kind {
            return error;
        }
    }
}

async fn status(env: &TestEnv) -> SessionStatus {
    let record = env.store().snapshot(&"s".parse().unwrap()).await.unwrap();
    record.unwrap().session.status
}

#[tokio::test]
async fn failed_session_rejects_prompts_until_it_is_reopened() {
    for (permanent, code) in [
        (PermanentFault::Unreadable, ErrorCode::Store),
        (PermanentFault::Panics, ErrorCode::Internal),
    ] {
        let env = TestEnv::new("steps: [{ text: one }, { text: two }]");
        let session = env.session(&env.engine()).await;
        let prompt = session.prompt("first").await.unwrap();
        wait_for_turn_end(&session, &prompt).await;
        session.close().await.unwrap();

        let engine = env.engine();
        let session = env.session(&engine).await;
        env.faults.set_permanent(Some(permanent));
        // The prompt is stored before the failure.
        let asked = session.prompt("second").await;
        assert!(
            asked.is_ok() || permanent == PermanentFault::Panics,
            "{asked:?}"
        );
        let error = fatal(&session).await;
        assert_eq!((error.code, error.recoverable), (code, false), "{error:?}");
        assert_eq!(error.ids.session.as_ref(), Some(session.id()));
        assert!(error.ids.thread.is_some());
        let record = env.store().snapshot(session.id()).await.unwrap().unwrap();
        assert_eq!(record.session.status, SessionStatus::Error);
        let prompt = record.prompts[0].id.clone();
        let refused = session.prompt("third").await;
        assert!(
            matches!(
                refused,
                Err(StoreError::Unreadable(_) | StoreError::SessionFailed { .. })
            ),
            "{refused:?}"
        );

        // The reopened session continues with the stored prompt.
        env.faults.set_permanent(None);
        let session = engine.open_session(session.id(), Claim::IfFree).await;
        let session = session.unwrap();
        wait_for_turn_end(&session, &prompt).await;
        assert_eq!(last_text(&session).await, "two");
        assert_eq!(status(&env).await, SessionStatus::Running);
    }
}

#[tokio::test]
async fn paused_session_is_still_paused_after_a_failure() {
    let env = TestEnv::new("steps: [{ text: one }, { text: two }]");
    let engine = env.engine();
    let session = env.session(&engine).await;
    let prompt = session.prompt("first").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    session.close().await.unwrap();
    let session = env.session(&engine).await;
    env.faults.set_permanent(Some(PermanentFault::Unreadable));
    session.prompt("second").await.unwrap();
    fatal(&session).await;
    // Sets the state of a paused session.
    let store = env.store();
    let lease = store.claim(session.id(), Claim::IfFree).await.unwrap();
    let record = store.snapshot(session.id()).await.unwrap().unwrap();
    let mut data = record.session;
    data.status_before_error = Some(SessionStatus::Paused);
    let op = rye_engine::protocol::Op::PutSession(Arc::new(data));
    let batch = rye_engine::protocol::Batch { ops: vec![op] };
    store.commit(&lease, batch).await.unwrap();
    store.release(&lease).await.unwrap();

    let opened = engine.open_session(session.id(), Claim::IfFree).await;
    assert_eq!(opened.unwrap().status(), SessionStatus::Paused);
    assert_eq!(status(&env).await, SessionStatus::Paused);
}

/// A model that panics.
struct PanickingModel;

impl Model for PanickingModel {
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

impl Models for PanickingModel {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::new(PanickingModel))
    }

    fn default_name(&self) -> String {
        "buggy".to_owned()
    }
}

#[tokio::test]
async fn panicking_model_fails_its_prompt_only() {
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(PanickingModel)
        .sandbox(Arc::new(VirtualSandbox::new()))
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    for _ in 0..2 {
        let prompt = session.prompt("hello").await.unwrap();
        let answer = session.wait_for_answer(&prompt).await.unwrap();
        assert_eq!(answer.reason, TurnEnd::Error);
        let error = answer.error.unwrap();
        assert_eq!(
            error.message,
            "the model implementation panicked: index out of bounds"
        );
    }
}
