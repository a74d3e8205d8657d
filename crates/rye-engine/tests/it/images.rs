//! Images that a provider rejects: the thread continues without them.

use std::sync::{Arc, Mutex};

use rye_engine::BoxFuture;
use rye_engine::attachment;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{Part, TurnEnd};
use rye_engine::{Engine, NewSession, Prompt};
use rye_model::{Script, ScriptedModel};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and nothing more";

/// A model that fails requests with images, and records its requests.
#[derive(Clone)]
struct RejectingModel {
    model: Arc<ScriptedModel>,
    error: ModelError,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

fn parts(request: &ModelRequest) -> impl Iterator<Item = &Part> {
    request.messages.iter().flat_map(|message| &message.parts)
}

fn has_image(request: &ModelRequest) -> bool {
    parts(request).any(|part| matches!(part, Part::Attachment { .. }))
}

impl Model for RejectingModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            images: true,
            ..self.model.info()
        }
    }

    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        self.asked.lock().unwrap().push(request.clone());
        if has_image(&request) {
            return Box::pin(async { Err(self.error.clone()) });
        }
        self.model.call(request, deltas)
    }
}

impl Models for RejectingModel {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::new(self.clone()))
    }

    fn default_name(&self) -> String {
        "test".to_owned()
    }
}

/// Sends two prompts, the first with an image. Returns their ends and the model requests.
async fn run_with_image(error: ModelError) -> (Vec<TurnEnd>, Vec<ModelRequest>) {
    let script: Script = "steps: []\nafter_last: { text: fine }".parse().unwrap();
    let model = RejectingModel {
        model: Arc::new(ScriptedModel::from(script)),
        error,
        asked: Arc::default(),
    };
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(model.clone())
        .sandbox(Arc::new(VirtualSandbox::new()))
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut all = Vec::new();
    for attachments in [vec![attachment::image("a.png", PNG).unwrap()], Vec::new()] {
        let prompt = Prompt {
            attachments,
            ..Prompt::from("look".to_owned())
        };
        let prompt = session.prompt(prompt).await.unwrap();
        all.push(session.wait_for_answer(&prompt).await.unwrap().reason);
    }
    let asked = model.asked.lock().unwrap().clone();
    (all, asked)
}

#[tokio::test]
async fn thread_continues_without_a_rejected_image() {
    let (ends, asked) = run_with_image(ModelError::ImageRejected(String::new())).await;
    assert_eq!(ends, [TurnEnd::EndTurn, TurnEnd::EndTurn]);
    let had: Vec<_> = asked.iter().map(has_image).collect();
    assert_eq!(had, [true, false, true, false]);
    let has_notice = parts(&asked[1]).any(|part| match part {
        Part::Text { text } => text.contains("a.png"),
        _ => false,
    });
    assert!(has_notice, "{:?}", asked[1]);
}

#[tokio::test]
async fn request_rejected_for_another_reason_is_not_retried() {
    let (ends, asked) = run_with_image(ModelError::Refused(String::new())).await;
    assert_eq!(ends, [TurnEnd::Error, TurnEnd::Error]);
    assert_eq!(asked.len(), 2);
}
