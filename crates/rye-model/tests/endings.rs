//! Answers that end otherwise than they should, and what is no answer at all.

mod support;

use std::time::Duration;

use rye_engine::model::ModelError;
use rye_model::{Api, HttpModel, Key, Price};
use rye_model_wire::{Completion, MockProvider, Reply};
use rye_protocol::{Incomplete, Part};
use support::{ALL, ask, asked, hello, provider, target, words};

/// A provider's word for an answer that is too long, and for one that is refused.
fn stops(api: Api) -> [&'static str; 2] {
    match api {
        Api::Anthropic => ["max_tokens", "refusal"],
        Api::OpenAiResponses => ["max_output_tokens", "content_filter"],
        Api::OpenAiChat => ["length", "content_filter"],
        Api::Gemini => ["MAX_TOKENS", "SAFETY"],
    }
}

#[tokio::test]
async fn why_an_answer_stops_is_kept_in_the_providers_word() {
    for (api, wire_api) in ALL {
        for (word, means) in stops(api)
            .into_iter()
            .zip([Incomplete::OutputLimit, Incomplete::Refused])
        {
            let said = Completion::text("so far").with_stop_reason(word);
            let (_wire, model) = asked(api, Reply::stream(wire_api.stream(&said)));
            let answer = ask(&model, hello()).await.1.unwrap();
            assert_eq!(answer.stop_reason.as_deref(), Some(word), "{api:?}");
            assert_eq!(Incomplete::of(word), Some(means), "{api:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_in_words_is_one_whatever_else_is_said_of_it() {
    for (api, wire_api, from, to) in [
        (
            Api::OpenAiChat,
            rye_model_wire::Api::OpenAiChat,
            "\"content\":\"No.\"",
            "\"refusal\":\"No.\"",
        ),
        (
            Api::OpenAiResponses,
            rye_model_wire::Api::OpenAiResponses,
            "response.output_text.delta",
            "response.refusal.delta",
        ),
    ] {
        let events = wire_api.stream(&Completion::text("No."));
        assert!(events.contains(from), "{events}");
        let (_wire, model) = asked(api, Reply::stream(events.replace(from, to)));
        let answer = ask(&model, hello()).await.1.unwrap();
        assert_eq!(answer.stop_reason.as_deref(), Some("refusal"), "{api:?}");
    }
}

#[tokio::test]
async fn an_empty_answer_at_the_limit_says_which_limit_to_raise() {
    for (api, wire_api) in ALL {
        let [limit, refusal] = stops(api);
        for (word, advice) in [
            (limit, "a larger `max_output` in models.yaml"),
            (refusal, "it would not answer that"),
        ] {
            let said = Completion::default()
                .with_thinking("hm", "c2Vh")
                .with_stop_reason(word);
            let (_wire, model) = asked(api, Reply::stream(wire_api.stream(&said)));
            let error = ask(&model, hello()).await.1.unwrap_err();
            assert!(matches!(error, ModelError::Empty(_)), "{api:?}: {error}");
            let error = error.to_string();
            assert!(error.contains(advice) && error.contains(word), "{error}");
        }
    }
}

#[tokio::test]
async fn a_character_that_is_cut_in_two_is_joined() {
    for (api, wire_api) in ALL {
        // Pieces end at spaces.
        let events = wire_api.stream(&Completion::text("hi <1 2> end <1 alone"));
        // What is whole somewhere in a stream says nothing of its pieces.
        let cut = events
            .replace("<1 2>", "\\ud83d\\ude00")
            .replace("<1 ", "\\ud83d")
            .replace("2>", "\\ude00");
        let (_wire, model) = asked(api, Reply::stream(cut).in_chunks_of(50));
        let (deltas, answer) = ask(&model, hello()).await;
        let parts = answer.unwrap().parts;
        let expected = Part::Text {
            text: "hi 😀 end \u{fffd}alone".to_owned(),
        };
        assert_eq!(parts, vec![expected], "{api:?}");
        assert_eq!(words(&deltas), "hi 😀 end \u{fffd}alone", "{api:?}");
    }
}

#[tokio::test]
async fn what_is_no_stream_is_told_and_not_asked_again() {
    for (api, wire_api) in ALL {
        for (reply, says, retriable) in [
            (
                Reply::page(
                    "text/html; charset=utf-8",
                    "\n<h1>Log in\u{1b}[2J</h1>\nmore",
                ),
                "gave no stream but text/html; charset=utf-8: <h1>Log in\\u{1b}[2J</h1>",
                false,
            ),
            (
                Reply::page(
                    "application/json",
                    r#"{"error":{"message":"no key sk-secret"}}"#,
                ),
                "gave no stream but application/json: no key [masked]",
                false,
            ),
            (
                Reply::page(
                    "application/json",
                    r#"{"error":{"code":429,"message":"slowly"}}"#,
                ),
                "asked too often: http://127",
                true,
            ),
            (
                Reply::page("application/json", ""),
                "application/json: nothing",
                false,
            ),
            (
                Reply::stream("<h1>Log in</h1>\n\n"),
                "event-stream; charset=utf-8: <h1>",
                true,
            ),
            (
                Reply::stream(""),
                "the stream ended before the answer did (http://127",
                true,
            ),
        ] {
            let (wire, model) = asked(api, reply);
            let error = ask(&model, hello()).await.1.unwrap_err();
            assert_eq!(error.is_retriable(), retriable, "{api:?}: {error}");
            let error = error.to_string();
            assert!(error.contains(says), "{api:?}: {error}");
            assert!(error.contains(&wire.url()), "{api:?}: {error}");
        }
        // Whatever a server calls its stream, it is one.
        let reply = Reply::page(
            "application/json",
            &wire_api.stream(&Completion::text("all well")),
        );
        let (_wire, model) = asked(api, reply.in_chunks_of(3));
        ask(&model, hello()).await.1.unwrap();
    }
}

#[tokio::test]
async fn a_page_without_end_is_left() {
    let page = "<p>word</p>\n".repeat(100_000);
    for (api, _) in ALL {
        let (_wire, model) = asked(api, Reply::page("text/html", &page).stall_after(200_000));
        let error = ask(&model, hello()).await.1.unwrap_err();
        assert!(matches!(error, ModelError::Refused(_)), "{api:?}: {error}");
    }
}

/// How long the slow servers of these tests would take; those who ask wait for less.
const LONG: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_over_when_it_says_so_though_the_connection_stays() {
    for (api, wire_api) in ALL {
        let events = wire_api.stream(&Completion::text("all well"));
        let whole = events.len();
        let reply = Reply::stream(events).stall_after(whole);
        let wire = MockProvider::with_replies([reply]);
        let mut provider = provider(api, &wire.url());
        provider.silence = LONG;
        let model = HttpModel::new(provider, target(api), Price::default());
        let answered = tokio::time::timeout(LONG / 2, ask(&model, hello())).await;
        let answer = answered.unwrap().1.unwrap();
        assert_eq!(answer.usage.output_tokens, 5, "{api:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_up_is_waited_for_but_not_long() {
    let counts = "\"usageMetadata\"";
    let events = rye_model_wire::Api::Gemini.stream(&Completion::text("well"));
    let without = events.replace(counts, "\"other\"");
    let later = format!("{without}data: {{{}}}\n\n", {
        "\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":3}"
    });
    for (events, used) in [(without, 0), (later, 3)] {
        let whole = events.len();
        let reply = Reply::stream(events).in_chunks_of(whole / 2);
        let wire = MockProvider::with_replies([reply.stall_after(whole)]);
        let mut provider = provider(Api::Gemini, &wire.url());
        provider.silence = LONG;
        let model = HttpModel::new(provider, target(Api::Gemini), Price::default());
        let answered = tokio::time::timeout(LONG / 2, ask(&model, hello())).await;
        let answer = answered.unwrap().1.unwrap();
        assert_eq!(answer.usage.output_tokens, used);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_trickles_is_not_heard_to_its_end() {
    let body = serde_json::json!({ "error": "word ".repeat(40_000) });
    let reply = Reply::json(500, &body).in_chunks_of(10);
    let wire = MockProvider::with_replies([reply.with_pause(Duration::from_millis(100))]);
    let mut provider = provider(Api::OpenAiChat, &wire.url());
    provider.silence = Duration::from_secs(2);
    let model = HttpModel::new(provider, target(Api::OpenAiChat), Price::default());
    let answered = tokio::time::timeout(LONG / 2, ask(&model, hello())).await;
    let error = answered.unwrap().1.unwrap_err().to_string();
    assert!(error.contains("overloaded: {\"error\":\"word"), "{error}");
}

#[tokio::test]
async fn where_a_server_sends_to_is_told_without_its_secrets() {
    for (api, _) in ALL {
        let reply = Reply::json(307, &serde_json::json!({}));
        let reply = reply.header("location", "https://ada:pw@other.example:8443/x?key=sk-1");
        let (_wire, model) = asked(api, reply);
        let error = ask(&model, hello()).await.1.unwrap_err().to_string();
        let says = "sends elsewhere, to https://other.example:8443: ";
        assert!(error.contains(says), "{api:?}: {error}");
        assert!(!error.contains("ada") && !error.contains("sk-1"), "{error}");
    }
}

#[tokio::test]
async fn whatever_lets_us_in_is_sent_and_never_told() {
    let in_header = [
        "Bearer hdr-S3cret/0001",
        "hdr-S3cret%2F0001",
        "hdr-S3cret%2f0001",
    ];
    let in_address = ["pa55word-1234", "Basic YWRhOnBhNTV3b3JkLTEyMzQ="];
    for (api, wire_api) in ALL {
        for (user, header, repeated, sent_in, fix) in [
            (
                "",
                Some(in_header[0]),
                &in_header[..],
                "x-key",
                "what was sent is from `headers` in models.yaml, `X-Key`",
            ),
            (
                "ada:pa55word-1234@",
                None,
                &in_address[..],
                "authorization",
                "what was sent is from `base_url` in models.yaml",
            ),
        ] {
            let message = format!("no: {}", repeated.join(", "));
            let wire =
                MockProvider::with_replies([Reply::json(401, &wire_api.error_body(401, &message))]);
            let gone = MockProvider::with_replies([]).url();
            for url in [wire.url(), gone] {
                let with_user = url.replace("http://", &format!("http://{user}"));
                let mut provider = provider(api, &with_user);
                provider.key = Key::None;
                let header = header.map(|value| ("X-Key".to_owned(), value.to_owned()));
                provider.headers = header.into_iter().collect();
                let model = HttpModel::new(provider, target(api), Price::default());
                let error = ask(&model, hello()).await.1.unwrap_err();
                let text = error.to_string();
                assert!(text.contains(&url), "{api:?}: {text}");
                assert!(error.is_retriable() || text.contains(fix), "{text}");
                for secret in ["S3cret", "pa55word", "YWRhOnBhNTV3"] {
                    assert!(!text.contains(secret), "{api:?}: {text}");
                }
            }
            assert!(repeated.contains(&&*wire.requests()[0].headers[sent_in]));
        }
    }
}

#[tokio::test]
async fn a_key_at_the_end_of_what_is_repeated_is_not_told_in_part() {
    for (api, wire_api) in ALL {
        // Such that the message is cut in the middle of the key.
        let message = format!("{} sk-secret", "x".repeat(594));
        let (_wire, model) = asked(api, Reply::json(500, &wire_api.error_body(500, &message)));
        let error = ask(&model, hello()).await.1.unwrap_err().to_string();
        assert!(!error.contains("sk-"), "{api:?}: {error}");
    }
}
