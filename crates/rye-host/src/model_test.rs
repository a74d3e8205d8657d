//! Tests a model with a short request.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rye_engine::model::{Deltas, ModelAnswer, ModelRequest, Models as _};
use rye_engine::protocol::{Message, Role};
use rye_model::Catalogue;

use crate::engine::start_failure;
use crate::failure::Failure;

/// Maximum output of a test; enough for a model that thinks first.
const MAX_OUTPUT: u64 = 1024;

/// The answer of a model.
pub struct TestedModel {
    /// Name of the model.
    pub name: String,
    /// Time to the first token.
    pub first: Duration,
    /// Time to the end of the answer.
    pub took: Duration,
    /// The answer.
    pub answer: ModelAnswer,
}

impl TestedModel {
    /// The text of the answer.
    pub fn text(&self) -> String {
        Message::new(Role::Assistant, self.answer.parts.clone()).content()
    }
}

/// Sends a short request to a model, by default to the default model.
pub fn test(models: &Catalogue, name: Option<String>) -> Result<TestedModel, Failure> {
    let name = name.unwrap_or_else(|| models.default_name());
    let wrong = |why: String| Failure::failed("model", why);
    let model = models
        .get(&name)
        .map_err(|why| Failure::usage(why).hint("rye models list"))?;
    models.usable(&name).map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(start_failure)?;
    let request = ModelRequest {
        system: String::new(),
        messages: Arc::new(vec![Arc::new(Message::text(
            Role::User,
            "Answer with the word: ready",
        ))]),
        tools: Arc::default(),
        max_output: Some(MAX_OUTPUT),
        for_summary: false,
        previous_compactions: 0,
        compacted_answers: 0,
    };
    let (began, first) = (Instant::now(), Arc::new(OnceLock::new()));
    let first_delta = Arc::clone(&first);
    let deltas: Deltas = Arc::new(move |_| {
        first_delta.get_or_init(|| began.elapsed());
    });
    let outcome = runtime.block_on(model.call(request, deltas));
    let took = began.elapsed();
    let answer = outcome.map_err(|error| Failure::failed("model", format!("{name}: {error}")))?;
    Ok(TestedModel {
        name,
        first: first.get().copied().unwrap_or(took),
        took,
        answer,
    })
}
