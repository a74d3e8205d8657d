//! Network and provider errors.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    ALL, ask, connected_model, full_completion, hello_request, model, provider, request, target,
};
use rye_engine::model::{Deltas, Model as _, ModelError};
use rye_model::{Api, HttpModel, Key, Price};
use rye_protocol::{Message, Role};
use rye_testkit::provider::{Completion, MockProvider, Reply};
use serde_json::json;

fn kind(error: &ModelError) -> &'static str {
    match error {
        ModelError::Overloaded { .. } => "overloaded",
        ModelError::RateLimited { .. } => "rate limited",
        ModelError::ContextOverflow(_) => "overflow",
        ModelError::Unauthorized(_) => "unauthorized",
        ModelError::Refused(_) => "refused",
        _ => "other",
    }
}

#[tokio::test]
async fn rejected_requests_say_what_to_do() {
    for (api, mock_api) in ALL {
        for (status, message, detail, expected) in [
            (
                401,
                "the key sk-secret is wrong",
                "SOME_KEY",
                "unauthorized",
            ),
            (404, "no such model", "`some-model`", "refused"),
            (
                400,
                "prompt is too long: 9 tokens > 8 maximum",
                "9 tokens",
                "overflow",
            ),
            (429, "slow down", "slow down", "rate limited"),
            (500, "oh", "oh", "overloaded"),
            (503, "come back", "come back", "overloaded"),
            (529, "Overloaded", "Overloaded", "overloaded"),
        ] {
            let reply = Reply::json(status, &mock_api.error_body(status, message));
            let (_wire, model) = connected_model(api, reply.header("retry-after", "7"));
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            let text = error.to_string();
            assert_eq!(kind(&error), expected, "{api:?}: {text}");
            assert!(text.contains(detail), "{api:?}: {text}");
            assert!(!text.contains("sk-secret"), "{text}");
            let wait = error.is_retriable().then_some(Duration::from_secs(7));
            assert_eq!(error.retry_after(), wait, "{text}");
        }
    }
}

#[tokio::test]
async fn mock_server_rejects_invalid_requests() {
    // The other tests rely on the server being strict.
    for (api, mock_api) in ALL {
        let (server, _) = connected_model(api, Reply::stream(mock_api.stream(&full_completion())));
        let mut target = target(api);
        target.info.max_output = 0;
        let model = HttpModel::new(provider(api, &server.url()), target, Price::default());
        let outcome = ask(&model, hello_request()).await.1;
        if api == Api::Anthropic {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("`max_tokens`"), "{error}");
        } else {
            outcome.unwrap();
        }
    }
}

#[tokio::test]
async fn errors_within_a_stream_are_reported() {
    for (api, mock_api, event, means) in [
        (
            Api::Anthropic,
            rye_testkit::provider::Api::Anthropic,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "overloaded",
        ),
        (
            Api::OpenAiResponses,
            rye_testkit::provider::Api::OpenAiResponses,
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"later\"}}}\n\n",
            "rate limited",
        ),
        (
            Api::OpenAiResponses,
            rye_testkit::provider::Api::OpenAiResponses,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"oh\",\"param\":null}\n\n",
            "overloaded",
        ),
        (
            Api::OpenAiChat,
            rye_testkit::provider::Api::OpenAiChat,
            "data: {\"id\":\"x\",\"error\":{\"code\":502,\"message\":\"upstream\"},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n",
            "overloaded",
        ),
        (
            Api::Gemini,
            rye_testkit::provider::Api::Gemini,
            "data: {\"error\":{\"code\":503,\"message\":\"busy\",\"status\":\"UNAVAILABLE\"}}\n\n",
            "overloaded",
        ),
        (
            Api::Gemini,
            rye_testkit::provider::Api::Gemini,
            "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n",
            "refused",
        ),
    ] {
        let events = mock_api.stream(&full_completion());
        let cut = events.match_indices("\n\n").nth(2).unwrap().0 + 2;
        let (_wire, model) =
            connected_model(api, Reply::stream(format!("{}{event}", &events[..cut])));
        let error = ask(&model, hello_request()).await.1.unwrap_err();
        assert_eq!(kind(&error), means, "{api:?}: {error}");
    }
}

#[tokio::test]
async fn truncated_stream_is_a_connection_error_or_complete() {
    for (api, mock_api) in ALL {
        let events = mock_api.stream(&full_completion());
        let (_wire, model) = connected_model(api, Reply::stream(events.clone()));
        let whole = ask(&model, hello_request()).await.1.unwrap();
        let cuts: Vec<_> = (0..events.len())
            .step_by(97)
            .chain([events.len() - 1])
            .collect();
        let mut broken = 0;
        for cut in cuts.iter().copied() {
            let reply = Reply::stream(events.clone()).disconnect_after(cut);
            let (_wire, model) = connected_model(api, reply);
            match ask(&model, hello_request()).await.1 {
                Err(ModelError::Connection(_)) => broken += 1,
                other => assert_eq!(other.unwrap().parts, whole.parts, "{api:?} at {cut}"),
            }
        }
        assert!(
            broken >= cuts.len() / 2,
            "{api:?}: {broken} of {}",
            cuts.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_answer_is_accepted_and_idle_stream_times_out() {
    let tries = ALL.map(|(api, mock_api)| {
        tokio::spawn(async move {
            let events = mock_api.stream(&Completion::text("one two three four five six seven"));
            let (half, piece) = (events.len() / 2, events.len().div_ceil(9));
            // The whole answer takes longer than the idle timeout.
            let slow = Reply::stream(events.clone()).in_chunks_of(piece);
            let server = MockProvider::with_replies([
                slow.with_pause(Duration::from_millis(300)),
                Reply::stream(events).stall_after(half),
            ]);
            let mut provider = provider(api, &server.url());
            provider.idle_timeout = Duration::from_secs(2);
            let model = HttpModel::new(provider, target(api), Price::default());
            ask(&model, hello_request()).await.1.unwrap();
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            assert!(error.is_retriable());
            assert!(matches!(error, ModelError::Connection(_)), "{error}");
        })
    });
    for outcome in tries {
        outcome.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alives_do_not_reset_the_idle_timeout() {
    let keep_alives = [
        ": keep-alive\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "data: {\"type\":\"ping\"}\n\n",
        "data:\n\n",
        "\n",
    ];
    let tries = ALL.map(|(api, mock_api)| {
        tokio::spawn(async move {
            let events = mock_api.stream(&Completion::text("one two three"));
            let first = events.find("\n\n").map_or(0, |at| at + 2);
            // For thirty seconds.
            let body = events[..first].to_owned() + &keep_alives.concat().repeat(40);
            let piece = body.len().div_ceil(300);
            let reply = Reply::stream(body).in_chunks_of(piece);
            let server = MockProvider::with_replies([reply.with_pause(Duration::from_millis(100))]);
            let mut provider = provider(api, &server.url());
            provider.idle_timeout = Duration::from_secs(1);
            let model = HttpModel::new(provider, target(api), Price::default());
            let begun = std::time::Instant::now();
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            assert!(error.is_retriable(), "{error}");
            assert!(
                begun.elapsed() < Duration::from_secs(15),
                "{api:?}: {error}"
            );
        })
    });
    for outcome in tries {
        outcome.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_call_closes_the_connection() {
    for (api, mock_api) in ALL {
        let events = mock_api.stream(&full_completion());
        let half = events.len() / 2;
        let (server, model) = connected_model(api, Reply::stream(events).stall_after(half));
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let deltas: Deltas = Arc::new(move |delta| drop(sender.send(delta)));
        let call = tokio::spawn(async move { model.call(hello_request(), deltas).await });
        assert!(received.recv().await.is_some(), "{api:?}");
        call.abort();
        let left =
            tokio::task::spawn_blocking(move || server.wait_for_disconnect(Duration::from_secs(5)));
        assert!(left.await.unwrap(), "{api:?}");
    }
}

#[tokio::test]
async fn endless_answer_is_stopped() {
    let text = "blah ".repeat((10 << 20) / 5);
    for (api, mock_api) in ALL {
        // Few large events, so that the test exercises the answer limit.
        let completion = Completion::text(text.replace(' ', "_"));
        let (_wire, model) = connected_model(api, Reply::stream(mock_api.stream(&completion)));
        let error = ask(&model, hello_request()).await.1.unwrap_err();
        assert!(matches!(error, ModelError::TooLong(_)), "{api:?}: {error}");
        assert!(!error.is_retriable());
    }
}

#[tokio::test]
async fn empty_answer_is_an_error() {
    for (api, mock_api) in ALL {
        let completion = Completion::default().with_thinking("hm", "c2Vh");
        let (_wire, model) = connected_model(api, Reply::stream(mock_api.stream(&completion)));
        let error = ask(&model, hello_request()).await.1.unwrap_err();
        assert!(matches!(error, ModelError::Empty(_)), "{api:?}: {error}");
    }
}

#[tokio::test]
async fn invalid_arguments_are_kept_verbatim() {
    for (api, mock_api) in &ALL[..3] {
        let completion = Completion::call("call_1", "weather", json!({ "place": "Bern" }));
        let events = mock_api.stream(&completion).replace("Bern\\\"}", "Be");
        let (_wire, model) = connected_model(*api, Reply::stream(events));
        let answer = ask(&model, hello_request()).await.1.unwrap();
        let expected = crate::support::call("call_1", json!("{\"place\":\"Be"));
        assert_eq!(answer.parts, vec![expected.clone()], "{api:?}");
        // Every provider accepts them in a history.
        for (other, mock_api) in ALL {
            let history = vec![
                Message::text(Role::User, "Weather?"),
                crate::support::assistant_message("x/y", vec![expected.clone()]),
            ];
            let body = other.body(&request(history), &target(other));
            mock_api
                .check(&serde_json::from_slice(&body).unwrap())
                .unwrap();
        }
    }
}

#[tokio::test]
async fn response_without_events_is_a_connection_error() {
    for (api, _) in ALL {
        for body in ["data: <html>\n\n", "<html>welcome</html>", ""] {
            let (_wire, model) = connected_model(api, Reply::stream(body));
            let error = ask(&model, hello_request()).await.1.unwrap_err();
            assert!(
                matches!(error, ModelError::Connection(_)),
                "{api:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn no_request_is_sent_without_a_key() {
    for (api, mock_api) in ALL {
        let server =
            MockProvider::with_replies([Reply::stream(mock_api.stream(&full_completion()))]);
        let mut provider = provider(api, &server.url());
        provider.key = Key::Missing {
            secret: "SOME_KEY".to_owned(),
            hint: "run `rye vault set SOME_KEY`".to_owned(),
        };
        let model = HttpModel::new(provider, target(api), Price::default());
        let error = ask(&model, hello_request())
            .await
            .1
            .unwrap_err()
            .to_string();
        assert!(error.contains("rye vault set SOME_KEY"), "{error}");
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn refused_connection_reports_the_address() {
    let closed_url = MockProvider::with_replies([Reply::stream("")]).url();
    let error = ask(&model(Api::OpenAiChat, &closed_url), hello_request())
        .await
        .1
        .unwrap_err();
    assert!(error.is_retriable());
    assert!(error.to_string().contains(&closed_url), "{error}");
}
