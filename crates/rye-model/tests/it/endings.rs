//! Truncated, refused and invalid responses.

use std::time::Duration;

use crate::support::{ALL, ask, connected_model, hello_request, provider, target, text_of};
use rye_engine::model::ModelError;
use rye_model::{Api, HttpModel, Key, Price};
use rye_protocol::{IncompleteReason, Part};
use rye_testkit::provider::{Completion, MockProvider, Reply};

/// The provider's stop reasons for the output limit and for a refusal.
fn stops(api: Api) -> [&'static str; 2] {
    match api {
        Api::Anthropic => ["max_tokens", "refusal"],
        Api::OpenAiResponses => ["max_output_tokens", "content_filter"],
        Api::OpenAiChat => ["length", "content_filter"],
        Api::Gemini => ["MAX_TOKENS", "SAFETY"],
    }
}

#[tokio::test]
async fn stop_reason_is_stored_verbatim() {
    for (api, mock_api) in ALL {
        for (word, means) in stops(api)
            .into_iter()
            .zip([IncompleteReason::OutputLimit, IncompleteReason::Refused])
        {
            let completion = Completion::text("so far").with_stop_reason(word);
            let (_wire, model) = connected_model(api, Reply::stream(mock_api.stream(&completion)));
            let answer = ask(&model, hello_request()).await.1.unwrap();
            assert_eq!(answer.stop_reason.as_deref(), Some(word), "{api:?}");
            assert_eq!(answer.incomplete, Some(means), "{api:?}");
        }
    }
}

#[tokio::test]
async fn refusal_content_sets_the_stop_reason() {
    for (api, mock_api, from, to) in [
        (
            Api::OpenAiChat,
            rye_testkit::provider::Api::OpenAiChat,
            "\"content\":\"No.\"",
            "\"refusal\":\"No.\"",
        ),
        (
            Api::OpenAiResponses,
            rye_testkit::provider::Api::OpenAiResponses,
            "response.output_text.delta",
            "response.refusal.delta",
        ),
    ] {
        let events = mock_api.stream(&Completion::text("No."));
        assert!(events.contains(from), "{events}");
        let (_wire, model) = connected_model(api, Reply::stream(events.replace(from, to)));
        let answer = ask(&model, hello_request()).await.1.unwrap();
        assert_eq!(answer.stop_reason.as_deref(), Some("refusal"), "{api:?}");
    }
}

#[tokio::test]
async fn empty_answer_reports_the_stop_reason() {
    for (api, mock_api) in ALL {
        let [limit, refusal] = stops(api);
        for word in [limit, refusal] {
            let completion = Completion::default()
                .with_thinking("hm", "c2Vh")
                .with_stop_reason(word);
            let (_wire, model) = connected_model(api, Reply::stream(mock_api.stream(&completion)));
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            assert!(matches!(error, ModelError::Empty(_)), "{api:?}: {error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}

#[tokio::test]
async fn split_surrogate_pairs_are_joined() {
    for (api, mock_api) in ALL {
        // Chunks end at spaces.
        let events = mock_api.stream(&Completion::text("hi <1 2> end <1 alone"));
        // Only the deltas are affected, not the complete items in a stream.
        let cut = events
            .replace("<1 2>", "\\ud83d\\ude00")
            .replace("<1 ", "\\ud83d")
            .replace("2>", "\\ude00");
        let (_wire, model) = connected_model(api, Reply::stream(cut).in_chunks_of(50));
        let (deltas, answer) = ask(&model, hello_request()).await;
        let parts = answer.unwrap().parts;
        let expected = Part::Text {
            text: "hi 😀 end \u{fffd}alone".to_owned(),
        };
        assert_eq!(parts, vec![expected], "{api:?}");
        assert_eq!(text_of(&deltas), "hi 😀 end \u{fffd}alone", "{api:?}");
    }
}

#[tokio::test]
async fn surrogate_pair_split_over_two_blocks_is_joined() {
    let block = |at: usize, text: &str| {
        format!(
            r#"event: content_block_start
data: {{"type":"content_block_start","index":{at},"content_block":{{"type":"text","text":""}}}}

event: content_block_delta
data: {{"type":"content_block_delta","index":{at},"delta":{{"type":"text_delta","text":"{text}"}}}}

event: content_block_stop
data: {{"type":"content_block_stop","index":{at}}}

"#
        )
    };
    let events = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n".to_owned(),
        block(0, "hi \\ud83d"),
        block(1, "\\ude00 end"),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned(),
    ];
    let (_wire, model) = connected_model(ALL[0].0, Reply::stream(events.concat()));
    let (deltas, answer) = ask(&model, hello_request()).await;
    let parts = answer.unwrap().parts;
    let text = |text: &str| Part::Text {
        text: text.to_owned(),
    };
    assert_eq!(parts, vec![text("hi "), text("😀 end")]);
    assert_eq!(text_of(&deltas), "hi 😀 end");
}

#[tokio::test]
async fn non_stream_response_is_reported_and_not_retried() {
    for (api, mock_api) in ALL {
        for (reply, says, retriable) in [
            (
                Reply::page(
                    "text/html; charset=utf-8",
                    "\n<h1>Log in\u{1b}[2J</h1>\nmore",
                ),
                "<h1>Log in\\u{1b}[2J</h1>",
                false,
            ),
            (
                Reply::page(
                    "application/json",
                    r#"{"error":{"message":"no key sk-secret"}}"#,
                ),
                "no key [redacted]",
                false,
            ),
            (
                Reply::page(
                    "application/json",
                    r#"{"error":{"code":429,"message":"slowly"}}"#,
                ),
                "slowly",
                true,
            ),
            (
                Reply::page("application/json", ""),
                "application/json",
                false,
            ),
            (Reply::stream("<h1>Log in</h1>\n\n"), "<h1>", true),
            (Reply::stream(""), "(http://127", true),
        ] {
            let (server, model) = connected_model(api, reply);
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            assert_eq!(error.is_retriable(), retriable, "{api:?}: {error}");
            assert!(error.allows_failover(), "{api:?}: {error}");
            let error = error.to_string();
            assert!(error.contains(says), "{api:?}: {error}");
            assert!(error.contains(&server.url()), "{api:?}: {error}");
        }
        // The events decide, not the content type.
        let reply = Reply::page(
            "application/json",
            &mock_api.stream(&Completion::text("all well")),
        );
        let (_wire, model) = connected_model(api, reply.in_chunks_of(3));
        ask(&model, hello_request()).await.1.unwrap();
    }
}

#[tokio::test]
async fn endless_page_is_abandoned() {
    let page = "<p>word</p>\n".repeat(100_000);
    for (api, _) in ALL {
        let (_wire, model) =
            connected_model(api, Reply::page("text/html", &page).stall_after(200_000));
        let error = ask(&model, hello_request()).await.1.unwrap_err();
        assert!(
            matches!(error, ModelError::NotAStream(_)),
            "{api:?}: {error}"
        );
    }
}

/// Duration of the slow responses; the client must not wait that long.
const LONG: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn answer_ends_with_its_last_event_even_if_the_connection_stays_open() {
    for (api, mock_api) in ALL {
        let events = mock_api.stream(&Completion::text("all well"));
        let whole = events.len();
        let reply = Reply::stream(events).stall_after(whole);
        let server = MockProvider::with_replies([reply]);
        let mut provider = provider(api, &server.url());
        provider.idle_timeout = LONG;
        let model = HttpModel::new(provider, target(api), Price::default());
        let answered = tokio::time::timeout(LONG / 2, ask(&model, hello_request())).await;
        let answer = answered.unwrap().1.unwrap();
        assert_eq!(answer.usage.output_tokens, 5, "{api:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_after_the_answer_is_awaited_only_briefly() {
    let counts = "\"usageMetadata\"";
    let events = rye_testkit::provider::Api::Gemini.stream(&Completion::text("well"));
    let without = events.replace(counts, "\"other\"");
    let later = format!("{without}data: {{{}}}\n\n", {
        "\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":3}"
    });
    for (events, used) in [(without, 0), (later, 3)] {
        let whole = events.len();
        let reply = Reply::stream(events).in_chunks_of(whole / 2);
        let server = MockProvider::with_replies([reply.stall_after(whole)]);
        let mut provider = provider(Api::Gemini, &server.url());
        provider.idle_timeout = LONG;
        let model = HttpModel::new(provider, target(Api::Gemini), Price::default());
        let answered = tokio::time::timeout(LONG / 2, ask(&model, hello_request())).await;
        let answer = answered.unwrap().1.unwrap();
        assert_eq!(answer.usage.output_tokens, used);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_error_body_is_not_read_to_its_end() {
    let body = serde_json::json!({ "error": "word ".repeat(40_000) });
    let reply = Reply::json(500, &body).in_chunks_of(10);
    let server = MockProvider::with_replies([reply.with_pause(Duration::from_millis(100))]);
    let mut provider = provider(Api::OpenAiChat, &server.url());
    provider.idle_timeout = Duration::from_secs(2);
    let model = HttpModel::new(provider, target(Api::OpenAiChat), Price::default());
    let answered = tokio::time::timeout(LONG / 2, ask(&model, hello_request())).await;
    let error = answered.unwrap().1.unwrap_err().to_string();
    assert!(error.contains("{\"error\":\"word"), "{error}");
}

#[tokio::test]
async fn redirect_target_is_reported_without_secrets() {
    for (api, _) in ALL {
        let reply = Reply::json(307, &serde_json::json!({}));
        let reply = reply.header("location", "https://ada:pw@other.example:8443/x?key=sk-1");
        let (_wire, model) = connected_model(api, reply);
        let error = ask(&model, hello_request())
            .await
            .1
            .unwrap_err()
            .to_string();
        let says = "https://other.example:8443: ";
        assert!(error.contains(says), "{api:?}: {error}");
        assert!(!error.contains("ada") && !error.contains("sk-1"), "{error}");
    }
}

#[tokio::test]
async fn credentials_are_sent_and_never_displayed() {
    let in_header = [
        "Bearer hdr-S3cret/0001",
        "hdr-S3cret%2F0001",
        "hdr-S3cret%2f0001",
    ];
    let in_address = ["pa55word-1234", "Basic YWRhOnBhNTV3b3JkLTEyMzQ="];
    for (api, mock_api) in ALL {
        for (user, header, repeated, sent_in, fix) in [
            (
                "",
                Some(in_header[0]),
                &in_header[..],
                "x-key",
                "the credentials are from `headers` in models.yaml, `X-Key`",
            ),
            (
                "ada:pa55word-1234@",
                None,
                &in_address[..],
                "authorization",
                "the credentials are from `base_url` in models.yaml",
            ),
        ] {
            let message = format!("no: {}", repeated.join(", "));
            let server =
                MockProvider::with_replies([Reply::json(401, &mock_api.error_body(401, &message))]);
            let closed_url = MockProvider::with_replies([]).url();
            for url in [server.url(), closed_url] {
                let with_user = url.replace("http://", &format!("http://{user}"));
                let mut provider = provider(api, &with_user);
                provider.key = Key::None;
                let header = header.map(|value| ("X-Key".to_owned(), value.to_owned()));
                provider.headers = header.into_iter().collect();
                let model = HttpModel::new(provider, target(api), Price::default());
                let error = ask(&model, hello_request()).await.1.unwrap_err();
                let text = error.to_string();
                assert!(text.contains(&url), "{api:?}: {text}");
                assert!(error.is_retriable() || text.contains(fix), "{text}");
                for secret in ["S3cret", "pa55word", "YWRhOnBhNTV3"] {
                    assert!(!text.contains(secret), "{api:?}: {text}");
                }
            }
            assert!(repeated.contains(&&*server.requests()[0].headers[sent_in]));
        }
    }
}

#[tokio::test]
async fn truncated_message_contains_no_part_of_the_key() {
    for (api, mock_api) in ALL {
        // The message is truncated in the middle of the key.
        let message = format!("{} sk-secret", "x".repeat(594));
        let (_wire, model) =
            connected_model(api, Reply::json(500, &mock_api.error_body(500, &message)));
        let error = ask(&model, hello_request())
            .await
            .1
            .unwrap_err()
            .to_string();
        assert!(!error.contains("sk-"), "{api:?}: {error}");
    }
}
