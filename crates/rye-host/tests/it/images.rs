//! Images that a provider refuses: the thread goes on without them.

use std::sync::{Arc, Mutex};

use rye_engine::BoxFuture;
use rye_engine::attachment;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{Part, TurnEnd};
use rye_engine::{Engine, NewSession, Prompt};
use rye_model::{Script, Scripted};
use rye_sandbox::Virtual;
use rye_store::MemoryStore;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and nothing more";

/// A model that refuses what it is told to, and tells what it was asked.
#[derive(Clone)]
struct Picky {
    model: Arc<Scripted>,
    why: &'static str,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

fn parts(request: &ModelRequest) -> impl Iterator<Item = &Part> {
    request.messages.iter().flat_map(|message| &message.parts)
}

fn has_image(request: &ModelRequest) -> bool {
    parts(request).any(|part| matches!(part, Part::Attachment { .. }))
}

impl Model for Picky {
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
            return Box::pin(async { Err(ModelError::Refused(self.why.to_owned())) });
        }
        self.model.call(request, deltas)
    }
}

impl Models for Picky {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::new(self.clone()))
    }

    fn default_name(&self) -> String {
        "test".to_owned()
    }
}

/// How two prompts end of which the first has an image, and what was asked for them.
async fn ends(why: &'static str) -> (Vec<TurnEnd>, Vec<ModelRequest>) {
    let script: Script = "steps: []\nafter_last: { text: fine }".parse().unwrap();
    let model = Picky {
        model: Arc::new(Scripted::from(script)),
        why,
        asked: Arc::default(),
    };
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(model.clone())
        .sandbox(Arc::new(Virtual::new()))
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
async fn a_thread_goes_on_without_an_image_that_is_refused() {
    let (ends, asked) = ends("Could not process image").await;
    assert_eq!(ends, [TurnEnd::EndTurn, TurnEnd::EndTurn]);
    let had: Vec<_> = asked.iter().map(has_image).collect();
    assert_eq!(had, [true, false, true, false]);
    let told = parts(&asked[1]).any(|part| match part {
        Part::Text { text } => text.contains("a.png, which cannot be shown"),
        _ => false,
    });
    assert!(told, "{:?}", asked[1]);
}

#[tokio::test]
async fn what_is_refused_for_another_reason_is_not_asked_again() {
    let (ends, asked) = ends("no credit is left").await;
    assert_eq!(ends, [TurnEnd::Error, TurnEnd::Error]);
    assert_eq!(asked.len(), 2);
}
