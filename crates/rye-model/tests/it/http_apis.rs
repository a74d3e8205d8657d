//! The wire format of each provider, independent of chunking.

use crate::support::{
    ALL, ask, connected_model, full_completion, hello_request, request, target, text_of,
};
use rye_engine::model::Delta;
use rye_model::Api;
use rye_protocol::{Message, Part, ResultStatus, Role, Usage};
use rye_testkit::provider::{Completion, Reply, ToolCall};
use serde_json::{Value, json};

/// The parts of an answer, grouped by kind.
#[derive(Default)]
struct AnswerParts {
    thought: String,
    seal: String,
    text: String,
    calls: Vec<ToolCall>,
}

impl AnswerParts {
    fn from_parts(parts: &[Part]) -> Self {
        let mut received = Self::default();
        for part in parts {
            match part {
                Part::Thinking { text, signature } => {
                    received.thought += text;
                    received.seal += signature.as_deref().unwrap_or_default();
                }
                Part::Text { text } => received.text += text,
                Part::ToolCall {
                    call_id,
                    tool,
                    args,
                } => received.calls.push(ToolCall {
                    id: call_id.to_string(),
                    tool: tool.clone(),
                    args: args.clone(),
                }),
                other => panic!("{other:?}"),
            }
        }
        received
    }
}

#[tokio::test]
async fn answer_does_not_depend_on_the_chunking() {
    for (api, mock_api) in ALL {
        let events = mock_api.stream(&full_completion());
        let whole = Reply::stream(events.clone());
        for (number, reply) in [
            whole.clone(),
            whole.clone().in_chunks_of(1),
            whole.clone().in_chunks_of(7),
            whole.clone().with_line_ending("\r\n").in_chunks_of(5),
            whole.clone().with_line_ending("\r").in_chunks_of(3),
            whole.clone().with_keep_alives().in_chunks_of(64),
            whole
                .with_keep_alives()
                .with_line_ending("\r\n")
                .in_chunks_of(1),
        ]
        .into_iter()
        .enumerate()
        {
            let (_wire, model) = connected_model(api, reply);
            let (deltas, outcome) = ask(&model, hello_request()).await;
            let answer = outcome.unwrap();
            let completion = full_completion();
            let received = AnswerParts::from_parts(&answer.parts);
            assert_eq!(
                received.thought,
                completion.thinking.as_ref().unwrap().text,
                "{api:?}"
            );
            let is_sealed = received.seal.contains("EqQBCg");
            assert_eq!(
                is_sealed,
                api != Api::OpenAiChat,
                "{api:?} in the way {number}"
            );
            assert_eq!(
                received.text, completion.text,
                "{api:?} in the way {number}"
            );
            assert_eq!(text_of(&deltas), completion.text, "{api:?}");
            assert_eq!(
                received.calls, completion.calls,
                "{api:?} in the way {number}"
            );
            let arguments = deltas.iter().filter_map(|delta| match delta {
                Delta::ToolCall { call, args, .. } if call.as_str() == completion.calls[0].id => {
                    Some(args.as_str())
                }
                _ => None,
            });
            let arguments: String = arguments.collect();
            assert_eq!(arguments, completion.calls[0].args.to_string(), "{api:?}");
            let expected = Usage {
                turns: 1,
                input_tokens: 1_000,
                cached_tokens: 600,
                cache_write_tokens: 0,
                output_tokens: 40,
                micro_dollars: 400 * 3 + 180 + 40 * 15,
            };
            assert_eq!(answer.usage, expected, "{api:?}");
            let reason = answer.stop_reason.unwrap();
            let expected = match api {
                Api::Anthropic => "tool_use",
                Api::OpenAiResponses => "completed",
                Api::OpenAiChat => "tool_calls",
                Api::Gemini => "STOP",
            };
            assert_eq!(reason, expected);
        }
    }
}

/// A history that continues a provider's answer: results, one with an image, one
/// interrupted, and a user message.
fn after(api: Api, parts: Vec<Part>) -> Vec<Message> {
    let calls = parts.iter().filter_map(|part| match part {
        Part::ToolCall { call_id, .. } => Some(call_id.to_string()),
        _ => None,
    });
    let calls: Vec<_> = calls.collect();
    let sunny = crate::support::result(&calls[0], ResultStatus::Success, "sunny");
    let unknown = crate::support::result(&calls[1], ResultStatus::Interrupted, "it is not known");
    vec![
        Message::new(
            Role::User,
            vec![
                Part::Text {
                    text: "Weather?".into(),
                },
                crate::support::image(),
            ],
        ),
        crate::support::assistant_message(&crate::support::name(api), parts),
        // The results are not in the order of the calls.
        Message::new(Role::Tool, vec![unknown]),
        Message::new(Role::Tool, vec![sunny, crate::support::image()]),
        Message::text(Role::User, "Go on, please."),
    ]
}

#[tokio::test]
async fn history_is_sent_back_in_the_providers_format() {
    for (api, mock_api) in ALL {
        let reply = Reply::stream(mock_api.stream(&full_completion()));
        let (server, model) = connected_model(api, reply);
        let (_, first) = ask(&model, hello_request()).await;
        let (_, second) = ask(&model, request(after(api, first.unwrap().parts))).await;
        second.unwrap();
        let sent = server.requests().pop().unwrap();
        let path = sent.path;
        let name = format!("{}_history", api.as_str());
        insta::assert_json_snapshot!(name, json!({ "path": path, "body": sent.body }));
    }
}

#[tokio::test]
async fn reasoning_of_another_provider_becomes_text() {
    for (api, _) in ALL {
        let (from, from_wire) = if api == Api::Anthropic {
            ALL[3]
        } else {
            ALL[0]
        };
        let (_wire, model) =
            connected_model(from, Reply::stream(from_wire.stream(&full_completion())));
        let (_, first) = ask(&model, hello_request()).await;
        let body = api.body(&request(after(from, first.unwrap().parts)), &target(api));
        let body: Value = serde_json::from_slice(&body).unwrap();
        let name = format!("{}_foreign_reasoning", api.as_str());
        insta::assert_json_snapshot!(name, body);
    }
}

#[tokio::test]
async fn redacted_thinking_is_sent_back_redacted() {
    let completion = Completion::text("Well.").with_thinking("", "EmwKAhgBEgy3va3pzix");
    let mock_api = rye_testkit::provider::Api::Anthropic;
    let (server, model) =
        connected_model(Api::Anthropic, Reply::stream(mock_api.stream(&completion)));
    let (_, first) = ask(&model, hello_request()).await;
    let history = vec![
        Message::text(Role::User, "Hello!"),
        crate::support::assistant_message(
            &crate::support::name(Api::Anthropic),
            first.unwrap().parts,
        ),
        Message::text(Role::User, "And?"),
    ];
    ask(&model, request(history)).await.1.unwrap();
    let sent = server.requests().pop().unwrap().body;
    let expected = json!({ "type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix" });
    assert_eq!(sent["messages"][1]["content"][0], expected);
}

#[tokio::test]
async fn key_is_sent_in_the_providers_header() {
    for (api, mock_api) in ALL {
        let (server, model) = connected_model(
            api,
            Reply::stream(mock_api.stream(&Completion::text("Hi."))),
        );
        ask(&model, hello_request()).await.1.unwrap();
        let headers = server.requests().pop().unwrap().headers;
        let (name, value) = match api {
            Api::Anthropic => ("x-api-key", "sk-secret"),
            Api::Gemini => ("x-goog-api-key", "sk-secret"),
            _ => ("authorization", "Bearer sk-secret"),
        };
        assert_eq!(
            headers.get(name).map(String::as_str),
            Some(value),
            "{api:?}"
        );
        let version = headers.get("anthropic-version").map(String::as_str);
        assert_eq!(version, (api == Api::Anthropic).then_some("2023-06-01"));
    }
}

#[tokio::test]
async fn image_is_replaced_by_text_for_models_without_vision() {
    for (api, mock_api) in ALL {
        let mut target = target(api);
        target.info.images = false;
        let history = vec![Message::new(Role::User, vec![crate::support::image()])];
        let body = api.body(&request(history), &target);
        let body: Value = serde_json::from_slice(&body).unwrap();
        mock_api.check(&body).unwrap();
        let text = body.to_string();
        assert!(text.contains("sky.png (image/png)"));
        assert!(!text.contains("aVZCT1I"), "{text}");
    }
}
