//! Whatever goes wrong between us and a provider.

mod support;

use std::sync::Arc;
use std::time::Duration;

use rye_engine::model::{Deltas, Model as _, ModelError};
use rye_model::{Api, HttpModel, Key, Price};
use rye_model_wire::{Completion, MockProvider, Reply};
use rye_protocol::{Message, Role};
use serde_json::json;
use support::{ALL, ask, asked, hello, model, provider, request, rich, target};

#[tokio::test]
async fn what_is_refused_before_the_stream_says_what_to_do() {
    for (api, wire_api) in ALL {
        for (status, message, fits, retriable) in [
            (
                401,
                "the key sk-secret is wrong",
                "the key is from SOME_KEY",
                false,
            ),
            (404, "no such model", "has no `some-model`", false),
            (
                400,
                "prompt is too long: 9 tokens > 8 maximum",
                "too long",
                false,
            ),
            (429, "slow down", "asked too often: slow down", true),
            (500, "oh", "overloaded: oh", true),
            (503, "come back", "overloaded: come back", true),
            (529, "Overloaded", "overloaded: Overloaded", true),
        ] {
            let reply = Reply::json(status, &wire_api.error_body(status, message));
            let (_wire, model) = asked(api, reply.header("retry-after", "7"));
            let error = ask(&model, hello()).await.1.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(fits), "{api:?}: {text}");
            assert!(!text.contains("sk-secret"), "{text}");
            assert_eq!(error.is_retriable(), retriable, "{text}");
            let wait = retriable.then_some(Duration::from_secs(7));
            assert_eq!(error.retry_after(), wait, "{text}");
        }
    }
}

#[tokio::test]
async fn a_request_that_no_provider_would_take_is_refused_as_they_do() {
    // The server is strict: this is what makes the other tests worth something.
    for (api, wire_api) in ALL {
        let (wire, _) = asked(api, Reply::stream(wire_api.stream(&rich())));
        let mut target = target(api);
        target.info.max_output = 0;
        let model = HttpModel::new(provider(api, &wire.url()), target, Price::default());
        let outcome = ask(&model, hello()).await.1;
        if api == Api::Anthropic {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("`max_tokens` is needed"), "{error}");
        } else {
            outcome.unwrap();
        }
    }
}

#[tokio::test]
async fn what_breaks_amid_the_stream_is_no_answer() {
    for (api, wire_api, event, means) in [
        (
            Api::Anthropic,
            rye_model_wire::Api::Anthropic,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "overloaded",
        ),
        (
            Api::OpenAiResponses,
            rye_model_wire::Api::OpenAiResponses,
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"later\"}}}\n\n",
            "asked too often",
        ),
        (
            Api::OpenAiResponses,
            rye_model_wire::Api::OpenAiResponses,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"oh\",\"param\":null}\n\n",
            "overloaded",
        ),
        (
            Api::OpenAiChat,
            rye_model_wire::Api::OpenAiChat,
            "data: {\"id\":\"x\",\"error\":{\"code\":502,\"message\":\"upstream\"},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n",
            "overloaded",
        ),
        (
            Api::Gemini,
            rye_model_wire::Api::Gemini,
            "data: {\"error\":{\"code\":503,\"message\":\"busy\",\"status\":\"UNAVAILABLE\"}}\n\n",
            "overloaded",
        ),
        (
            Api::Gemini,
            rye_model_wire::Api::Gemini,
            "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n",
            "blocked (SAFETY)",
        ),
    ] {
        let events = wire_api.stream(&rich());
        let cut = events.match_indices("\n\n").nth(2).unwrap().0 + 2;
        let (_wire, model) = asked(api, Reply::stream(format!("{}{event}", &events[..cut])));
        let error = ask(&model, hello()).await.1.unwrap_err().to_string();
        assert!(error.contains(means), "{api:?}: {error}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_anywhere_is_a_broken_connection_or_whole() {
    for (api, wire_api) in ALL {
        let events = wire_api.stream(&rich());
        let (_wire, model) = asked(api, Reply::stream(events.clone()));
        let whole = ask(&model, hello()).await.1.unwrap();
        let cuts: Vec<_> = (0..events.len())
            .step_by(97)
            .chain([events.len() - 1])
            .collect();
        let mut broken = 0;
        for cut in cuts.iter().copied() {
            let reply = Reply::stream(events.clone()).disconnect_after(cut);
            let (_wire, model) = asked(api, reply);
            match ask(&model, hello()).await.1 {
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
async fn a_slow_answer_is_waited_for_and_silence_is_not() {
    let tries = ALL.map(|(api, wire_api)| {
        tokio::spawn(async move {
            let events = wire_api.stream(&Completion::text("one two three four five six seven"));
            let (half, piece) = (events.len() / 2, events.len().div_ceil(9));
            // All of it takes longer than the silence that is borne.
            let slow = Reply::stream(events.clone()).in_chunks_of(piece);
            let wire = MockProvider::with_replies([
                slow.with_pause(Duration::from_millis(300)),
                Reply::stream(events).stall_after(half),
            ]);
            let mut provider = provider(api, &wire.url());
            provider.silence = Duration::from_secs(2);
            let model = HttpModel::new(provider, target(api), Price::default());
            ask(&model, hello()).await.1.unwrap();
            let error = ask(&model, hello()).await.1.unwrap_err();
            assert!(error.is_retriable());
            let error = error.to_string();
            assert!(
                error.contains("nothing came for 2 s from http://127"),
                "{error}"
            );
        })
    });
    for outcome in tries {
        outcome.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_call_ends_it_at_once() {
    for (api, wire_api) in ALL {
        let events = wire_api.stream(&rich());
        let half = events.len() / 2;
        let (wire, model) = asked(api, Reply::stream(events).stall_after(half));
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let deltas: Deltas = Arc::new(move |delta| drop(told.send(delta)));
        let call = tokio::spawn(async move { model.call(hello(), deltas).await });
        assert!(heard.recv().await.is_some(), "{api:?}");
        call.abort();
        let left =
            tokio::task::spawn_blocking(move || wire.wait_for_disconnect(Duration::from_secs(5)));
        assert!(left.await.unwrap(), "{api:?}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_ended() {
    let text = "blah ".repeat((10 << 20) / 5);
    for (api, wire_api) in ALL {
        // In few events, so that the test is about the answer and not about framing.
        let said = Completion::text(text.replace(' ', "_"));
        let (_wire, model) = asked(api, Reply::stream(wire_api.stream(&said)));
        let error = ask(&model, hello()).await.1.unwrap_err();
        assert!(matches!(error, ModelError::TooLong(_)), "{api:?}: {error}");
        assert!(!error.is_retriable());
    }
}

#[tokio::test]
async fn an_empty_answer_says_so() {
    for (api, wire_api) in ALL {
        let said = Completion::default().with_thinking("hm", "c2Vh");
        let (_wire, model) = asked(api, Reply::stream(wire_api.stream(&said)));
        let error = ask(&model, hello()).await.1.unwrap_err();
        assert!(matches!(error, ModelError::Empty(_)), "{api:?}: {error}");
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_kept_as_they_came() {
    for (api, wire_api) in &ALL[..3] {
        let said = Completion::call("call_1", "weather", json!({ "place": "Bern" }));
        let events = wire_api.stream(&said).replace("Bern\\\"}", "Be");
        let (_wire, model) = asked(*api, Reply::stream(events));
        let answer = ask(&model, hello()).await.1.unwrap();
        let expected = support::call("call_1", json!("{\"place\":\"Be"));
        assert_eq!(answer.parts, vec![expected.clone()], "{api:?}");
        // And any provider takes them back.
        for (other, wire_api) in ALL {
            let history = vec![
                Message::text(Role::User, "Weather?"),
                support::said_by("x/y", vec![expected.clone()]),
            ];
            let body = other.body(&request(history), &target(other));
            wire_api
                .check(&serde_json::from_slice(&body).unwrap())
                .unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_no_stream_at_all_is_a_broken_connection() {
    for (api, _) in ALL {
        for body in ["data: <html>\n\n", "<html>welcome</html>", ""] {
            let (_wire, model) = asked(api, Reply::stream(body));
            let error = ask(&model, hello()).await.1.unwrap_err();
            assert!(
                matches!(error, ModelError::Connection(_)),
                "{api:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn without_a_key_nobody_is_asked() {
    for (api, wire_api) in ALL {
        let wire = MockProvider::with_replies([Reply::stream(wire_api.stream(&rich()))]);
        let mut provider = provider(api, &wire.url());
        provider.key = Key::Missing("export SOME_KEY=…, or: rye vault set SOME_KEY".to_owned());
        let model = HttpModel::new(provider, target(api), Price::default());
        let error = ask(&model, hello()).await.1.unwrap_err().to_string();
        assert!(error.contains("rye vault set SOME_KEY"), "{error}");
        assert!(wire.requests().is_empty());
    }
}

#[tokio::test]
async fn where_nobody_listens_the_address_is_told() {
    let gone = MockProvider::with_replies([Reply::stream("")]).url();
    let error = ask(&model(Api::OpenAiChat, &gone), hello())
        .await
        .1
        .unwrap_err();
    assert!(error.is_retriable());
    assert!(error.to_string().contains(&gone), "{error}");
}
