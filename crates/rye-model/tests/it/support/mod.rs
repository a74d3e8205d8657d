//! Models of all providers and histories for them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::model::{
    Delta, Deltas, Model as _, ModelAnswer, ModelError, ModelInfo, ModelRequest, ToolSpec,
};
use rye_model::{Api, HttpModel, Key, Price, Provider, Target, Thinking};
use rye_protocol::{Message, Part, ResultStatus, Role};
use rye_testkit::provider::{Completion, MockProvider, Reply};
use serde_json::{Value, json};

/// Each API with its counterpart in the mock server.
pub(crate) const ALL: [(Api, rye_testkit::provider::Api); 4] = [
    (Api::Anthropic, rye_testkit::provider::Api::Anthropic),
    (
        Api::OpenAiResponses,
        rye_testkit::provider::Api::OpenAiResponses,
    ),
    (Api::OpenAiChat, rye_testkit::provider::Api::OpenAiChat),
    (Api::Gemini, rye_testkit::provider::Api::Gemini),
];

/// The name of the test model for an API.
pub(crate) fn name(api: Api) -> String {
    format!("{}/some-model", api.as_str())
}

pub(crate) fn target(api: Api) -> Target {
    Target {
        name: name(api),
        id: "some-model".to_owned(),
        info: ModelInfo {
            context_window: 100_000,
            max_output: 4_000,
            images: true,
        },
        thinking: Some(Thinking::Effort),
        effort: None,
    }
}

pub(crate) fn provider(api: Api, url: &str) -> Provider {
    Provider {
        api,
        base_url: format!("{url}/v1"),
        key: Key::Given {
            secret: Arc::new("sk-secret".to_owned().into()),
            source: "SOME_KEY".to_owned(),
        },
        headers: Vec::new(),
        idle_timeout: Duration::from_secs(20),
    }
}

pub(crate) fn model(api: Api, url: &str) -> HttpModel {
    let price = Price {
        input: 3.0,
        output: 15.0,
        cache_read: Some(0.3),
        cache_write: Some(3.75),
    };
    HttpModel::new(provider(api, url), target(api), price)
}

/// The deltas and the result of a call.
pub(crate) type Outcome = (Vec<Delta>, Result<ModelAnswer, ModelError>);

pub(crate) fn listener() -> (Arc<Mutex<Vec<Delta>>>, Deltas) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let sender = Arc::clone(&received);
    let deltas: Deltas = Arc::new(move |delta| sender.lock().unwrap().push(delta));
    (received, deltas)
}

pub(crate) async fn ask(model: &HttpModel, request: ModelRequest) -> Outcome {
    let (received, deltas) = listener();
    let outcome = model.call(request, deltas).await;
    let received = received.lock().unwrap().clone();
    (received, outcome)
}

/// The concatenated text deltas.
pub(crate) fn text_of(deltas: &[Delta]) -> String {
    let text_of = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        _ => None,
    });
    text_of.collect()
}

pub(crate) fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        system: "Be brief.".to_owned(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::new([ToolSpec {
            name: "weather".to_owned(),
            description: "The weather of a place.".to_owned(),
            parameters: json!({
                "type": "object", "properties": { "place": { "type": "string" } },
            }),
        }]),
        max_output: None,
        for_summary: false,
        previous_compactions: 0,
        compacted_answers: 0,
    }
}

pub(crate) fn hello_request() -> ModelRequest {
    request(vec![Message::text(Role::User, "Hello!")])
}

pub(crate) fn call(id: &str, args: Value) -> Part {
    Part::ToolCall {
        call_id: id.parse().unwrap(),
        tool: "weather".to_owned(),
        args,
    }
}

pub(crate) fn result(id: &str, status: ResultStatus, text: &str) -> Part {
    Part::ToolResult {
        call_id: id.parse().unwrap(),
        tool: "weather".to_owned(),
        status,
        text: text.to_owned(),
        data: Value::Null,
        error: None,
        elided: false,
    }
}

pub(crate) fn image() -> Part {
    Part::Attachment {
        name: "sky.png".to_owned(),
        mime_type: "image/png".to_owned(),
        source: "data:image/png;base64,aVZCT1I=".to_owned(),
    }
}

pub(crate) fn assistant_message(model: &str, parts: Vec<Part>) -> Message {
    let mut message = Message::new(Role::Assistant, parts);
    message.model = Some(model.to_owned());
    message
}

/// A signature as the provider of an API generates it.
pub(crate) fn signature(api: Api, number: u32) -> String {
    match api {
        Api::OpenAiResponses => json!({
            "type": "reasoning", "id": format!("rs_{number}"), "summary": [],
            "encrypted_content": format!("seal{number}"),
        })
        .to_string(),
        Api::Anthropic if number % 2 == 1 => format!("redacted:seal{number}"),
        _ => format!("seal{number}"),
    }
}

/// Reasoning, text with multi-byte characters, and two parallel calls.
pub(crate) fn full_completion() -> Completion {
    let mut completion = Completion::text("Grüße 🎉 \"da\"!\nIch schaue nach.")
        .with_thinking(
            "The user wants weather. Let me look.",
            "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl",
        )
        .with_call(
            "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
            "weather",
            json!({ "place": "Zürich" }),
        )
        .with_call("toolu_01U2x1fJ34qAmk2tNTrN7Up7", "weather", json!({}));
    (
        completion.input_tokens,
        completion.cached_tokens,
        completion.output_tokens,
    ) = (1_000, 600, 40);
    completion
}

/// A server with one reply, and a model that is connected to it.
pub(crate) fn connected_model(api: Api, reply: Reply) -> (MockProvider, HttpModel) {
    let server = MockProvider::with_replies([reply]);
    let model = model(api, &server.url());
    (server, model)
}
