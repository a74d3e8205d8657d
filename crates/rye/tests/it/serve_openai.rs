//! The OpenAI-compatible endpoints and `/ag-ui`: what their client libraries do not show.

use lillux::keys::SigningKey;
use reqwest::Method;
use rye_engine::audit;
use rye_engine::protocol::{Gate, Millis, Resolution};
use serde_json::{Value, json};

use crate::acp_support;
use crate::serve::env_with;
use crate::serve_support::{Server, answer, create_token};
use crate::support::TestEnv;

const ANSWERS: &str = "steps: [{ text: first, usage: { input: 10, output: 5 } }, { text: second }, { text: third }]\n";

async fn respond(server: &Server, key: Option<&str>, body: &Value) -> (u16, Value) {
    let mut request = server.request(Method::POST, "/v1/responses").json(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let (status, response) = answer(request).await;
    (status.as_u16(), response)
}

fn text(response: &Value) -> &str {
    let text = response["output"][0]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{response}"))
}

async fn session_count(server: &Server) -> usize {
    let (_, listed) = server.get("/api/sessions").await;
    listed["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn response_with_a_key_is_created_once() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let body = json!({ "model": "rye", "input": "hi" });
    let (status, first) = respond(&server, Some("k1"), &body).await;
    assert_eq!((status, text(&first)), (200, "first"), "{first}");
    let (_, again) = respond(&server, Some("k1"), &body).await;
    assert_eq!((&again["id"], text(&again)), (&first["id"], "first"));
    assert_eq!(session_count(&server).await, 1);
    // In a conversation too.
    let body = json!({ "model": "rye", "input": "more", "conversation": first["conversation"] });
    let (_, second) = respond(&server, Some("k2"), &body).await;
    let (_, again) = respond(&server, Some("k2"), &body).await;
    assert_eq!((text(&second), text(&again)), ("second", "second"));
    assert_eq!(second["id"], again["id"]);
    // The same key for something else is a conflict; another key is another response.
    let other = json!({ "model": "rye", "input": "less", "conversation": first["conversation"] });
    let (status, refused) = respond(&server, Some("k2"), &other).await;
    assert_eq!(status, 409, "{refused}");
    let (_, third) = respond(&server, Some("k3"), &other).await;
    assert_eq!(text(&third), "third");
    assert_eq!(session_count(&server).await, 1);
}

#[tokio::test]
async fn images_and_files_are_attached_to_the_prompt() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    // The first bytes of an image and of a document.
    let image = "data:image/png;base64,iVBORw0KGgo=";
    let pdf = "data:application/pdf;base64,JVBERi0xLjcK";
    let body = json!({ "model": "rye", "input": [{ "role": "user", "content": [
        { "type": "input_text", "text": "look" },
        { "type": "input_image", "image_url": image },
        { "type": "input_file", "filename": "a.pdf", "file_data": pdf },
    ]}]});
    let (status, response) = respond(&server, None, &body).await;
    assert_eq!((status, text(&response)), (200, "first"), "{response}");
    let conversation = response["conversation"]["id"].as_str().unwrap();
    let session = conversation.strip_prefix("conv_").unwrap();
    let path = format!("/api/sessions/{session}/threads/default/entries");
    let (_, entries) = server.get(&path).await;
    let parts = entries["entries"][0]["kind"]["parts"].as_array().unwrap();
    let attached = parts.iter().filter(|part| part["type"] == "attachment");
    let attached: Vec<_> = attached.map(|it| (&it["name"], &it["mime_type"])).collect();
    let expected = [("image", "image/png"), ("a.pdf", "application/pdf")];
    let expected = expected.map(|(name, mime)| (json!(name), json!(mime)));
    assert_eq!(
        attached,
        expected.each_ref().map(|(name, mime)| (name, mime))
    );
    for (part, code) in [
        (
            json!({ "type": "input_image", "image_url": "http://x/a.png" }),
            400,
        ),
        (
            json!({ "type": "input_file", "filename": "a", "file_data": "no data URL" }),
            400,
        ),
    ] {
        let body = json!({ "model": "rye", "input": [{ "role": "user", "content": [part] }] });
        let (status, refused) = respond(&server, None, &body).await;
        assert_eq!(status, code, "{refused}");
        assert_eq!(
            refused["error"]["type"], "invalid_request_error",
            "{refused}"
        );
    }
}

#[tokio::test]
async fn chat_completion_continues_its_session_after_a_restart() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let mut messages = vec![json!({ "role": "user", "content": "hi" })];
    let complete = async |server: &Server, messages: &[Value]| {
        let body = json!({ "model": "rye", "messages": messages });
        let (status, completion) = server.post("/v1/chat/completions", &body).await;
        assert_eq!(status, 200, "{completion}");
        completion["choices"][0]["message"].clone()
    };
    let first = complete(&server, &messages).await;
    assert_eq!(first["content"], "first");
    drop(server);
    let server = Server::start(&env);
    messages.push(first);
    messages.push(json!({ "role": "user", "content": "more" }));
    assert_eq!(complete(&server, &messages).await["content"], "second");
    assert_eq!(session_count(&server).await, 1);
}

/// Type and data of the events of a stream.
fn events(stream: &str) -> Vec<Value> {
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

#[tokio::test]
async fn stream_is_resumed_inside_of_a_delta() {
    const TEXT: &str = "hello wörld, this is one delta";
    let env = env_with(&format!("steps: [{{ text: '{TEXT}' }}]\n"));
    let server = Server::start(&env);
    let (_, response) = respond(&server, None, &json!({ "model": "rye", "input": "hi" })).await;
    let id = response["id"].as_str().unwrap();
    let resume = async |after: u64| {
        let path = format!("/v1/responses/{id}?stream=true&starting_after={after}");
        let stream = server.request(Method::GET, &path).send().await.unwrap();
        events(&stream.text().await.unwrap())
    };
    let delta = "response.output_text.delta";
    let all = resume(0).await;
    let whole = all.iter().find(|event| event["type"] == delta).unwrap();
    assert_eq!(whole["delta"], TEXT);
    let last = whole["sequence_number"].as_u64().unwrap();
    // The numbers count characters, so each number is a place in the text.
    for missing in 1..TEXT.chars().count() {
        let after = last - u64::try_from(missing).unwrap();
        let rest = resume(after).await;
        let skipped = TEXT.chars().count() - missing;
        let expected: String = TEXT.chars().skip(skipped).collect();
        let found = rest.iter().find(|event| event["type"] == delta).unwrap();
        assert_eq!(found["delta"], json!(expected), "{after}");
        assert_eq!(found["sequence_number"], json!(last));
    }
    let rest = resume(last).await;
    assert!(rest.iter().all(|event| event["type"] != delta), "{rest:?}");
}

const CAREFUL: &str = "steps:
  - tool_calls:
      - { name: call_tool, args: { tool_id: 'rye:careful', params: {}, summary: be careful } }
  - text: called
";

async fn run_agent(server: &Server, token: &str, body: &Value) -> Vec<Value> {
    let request = server.client.post(format!("{}/ag-ui", server.url));
    let response = request.bearer_auth(token).json(body).send().await.unwrap();
    events(&response.text().await.unwrap())
}

/// The decision of a person who signs it, as an AG-UI client sends it.
fn signed(gate: &Gate, key: &SigningKey) -> Value {
    let resolution = Resolution {
        action: "approve".into(),
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(gate.created_at.0 + 1),
        source: "web".to_owned(),
        receipt: None,
    };
    let receipt = audit::receipt(gate, &resolution, key);
    json!([{
        "interruptId": gate.id, "status": "resolved", "payload": { "action": "approve" },
        "metadata": { "receipt": receipt },
    }])
}

#[tokio::test]
async fn receipt_of_an_ag_ui_client_is_the_one_that_is_stored() {
    let env: TestEnv = acp_support::env(CAREFUL);
    let server = Server::start(&env);
    let all = ["--scope", "read", "--scope", "prompt", "--scope", "decide"];
    let ada = create_token(&env, &[&all[..], &["--user", "ada"]].concat());
    let messages = json!([{ "id": "m", "role": "user", "content": "call it" }]);
    let run = json!({ "threadId": "page", "runId": "r1", "messages": messages });
    let waiting = run_agent(&server, &ada, &run).await;
    let interrupt = &waiting.last().unwrap()["outcome"]["interrupts"][0];
    let gate = interrupt["metadata"]["gate"].clone();
    let gate: Gate = serde_json::from_value(gate).unwrap();
    let resume = |resume: Value| json!({ "threadId": "page", "runId": "r2", "messages": messages, "resume": resume });
    // A signature of nobody is refused, and the gate stays open.
    let foreign = SigningKey::generate().unwrap();
    let refused = run_agent(&server, &ada, &resume(signed(&gate, &foreign))).await;
    assert!(!env.path("project/careful.txt").exists(), "{refused:?}");
    let own = env.path("user/.ai/config/keys/signing/private_key.pem");
    let own = SigningKey::read(&own).unwrap();
    let decision = signed(&gate, &own);
    let ended = run_agent(&server, &ada, &resume(decision.clone())).await;
    assert_eq!(
        ended.last().unwrap()["outcome"]["type"],
        "success",
        "{ended:?}"
    );
    assert_eq!(env.read("project/careful.txt"), "careful\n");
    let (_, stored) = server.get(&format!("/api/gates/{}", gate.id)).await;
    let receipt = &stored["status"]["resolution"]["receipt"];
    assert_eq!(*receipt, decision[0]["metadata"]["receipt"], "{stored}");
    let verified = env.run(&["session", "verify", "page"]);
    assert!(verified.status.success(), "{verified:?}");
}
