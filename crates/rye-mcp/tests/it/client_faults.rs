//! Faulty stdio servers that hang, exit, flood their output or violate the protocol: each costs
//! a bounded time, gives a useful error, and does not delay other servers.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Fixture, until};
use rye_executor::OutputListener;
use rye_mcp::client::{ClientErrorKind, ToolCall};
use serde_json::{Map, json};

#[tokio::test]
async fn calls_share_one_server_process() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    assert_eq!(
        fixture.text(&server, "echo", json!({"text": "hä?"})).await,
        "hä?"
    );
    let first = fixture.processes();
    assert_eq!(
        fixture.text(&server, "echo", json!({"text": "x"})).await,
        "x"
    );
    assert_eq!(fixture.processes(), first);
    assert_eq!(first.len(), 1);
}

#[tokio::test]
async fn hundred_concurrent_calls_share_one_connection() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    // The server answers only after it has received all of them.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (pool, server) = (fixture.pool.clone(), server.clone());
        calls.spawn(async move {
            let call = ToolCall::new("barrier", Map::new());
            pool.call(&server, &call).await.unwrap()
        });
    }
    let mut texts: Vec<_> = calls
        .join_all()
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 100, "each got its own answer");
    assert_eq!(fixture.processes().len(), 1);
}

#[tokio::test]
async fn hanging_start_times_out_once_and_delays_no_other_server() {
    let fixture = Fixture::new();
    let hangs = fixture.server_with("hangs", &json!({"start_timeout": 4}));
    let well = fixture.server("healthy");
    fixture.text(&well, "echo", json!({"text": "warm"})).await;
    let start = Instant::now();
    let failures = async {
        tokio::join!(
            fixture.call_error(&hangs, "echo"),
            fixture.call_error(&hangs, "echo")
        )
    };
    let other = async {
        fixture.text(&well, "echo", json!({"text": "x"})).await;
        start.elapsed()
    };
    let ((first, second), other) = tokio::join!(failures, other);
    assert!(other < Duration::from_secs(4), "delayed: {other:?}");
    assert!(
        start.elapsed() < Duration::from_millis(7900),
        "{:?}",
        start.elapsed()
    );
    for error in [first, second] {
        assert_eq!(error.code(), "mcp_start");
        let text = error.to_string();
        assert!(
            matches!(error.kind, ClientErrorKind::StartTimeout(_)),
            "{text}"
        );
        assert!(text.contains("thinking about it"), "{text}");
    }
    fixture.until_processes(1).await;
}

#[tokio::test]
async fn start_failure_is_reported_with_its_cause() {
    let fixture = Fixture::new();
    let missing = fixture.configured("missing", &json!({"command": "no-such-program"}));
    for (server, code, expected_words) in [
        (missing, "cannot_start", &["no-such-program"][..]),
        (
            fixture.server("dies"),
            "mcp_start",
            &["code 7", "no configuration found"],
        ),
        (fixture.server("refuses"), "mcp_start", &["not today"]),
        (fixture.server("wrong_id"), "mcp_protocol", &["4711"]),
        (
            fixture.server_with("floods", &json!({"start_timeout": 1})),
            "mcp_start",
            &["noise"],
        ),
    ] {
        let error = fixture.call_error(&server, "echo").await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        for expected in expected_words {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.len() < 10_000, "{} bytes", text.len());
    }
    fixture.until_processes(0).await;
}

#[tokio::test]
async fn non_protocol_lines_on_stdout_are_ignored() {
    let fixture = Fixture::new();
    let server = fixture.server("greets");
    assert_eq!(
        fixture.text(&server, "echo", json!({"text": "x"})).await,
        "x"
    );
    assert_eq!(
        fixture.text(&server, "rubbish", json!({})).await,
        "after all"
    );
}

#[tokio::test]
async fn failure_during_a_call_is_reported_with_its_cause() {
    let fixture = Fixture::new();
    let start = Instant::now();
    for (tool, code, expected_words) in [
        ("die", "mcp_lost", &["code 3", "out of cheese"][..]),
        ("broken", "mcp_protocol", &["jsonrpc"]),
        ("wrong_id", "mcp_protocol", &["987654"]),
        ("close", "mcp_lost", &["standard output"]),
        ("error", "mcp_error", &["-32042", "no such city"]),
        ("nothing", "mcp_error", &["-32602", "no tool nothing"]),
    ] {
        let server = fixture.server("healthy");
        let error = fixture.call_error(&server, tool).await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{tool}: {text}");
        for expected in expected_words {
            assert!(text.contains(expected), "{tool}: {expected}: {text}");
        }
        // The next call starts the server again.
        assert_eq!(
            fixture.text(&server, "echo", json!({"text": "x"})).await,
            "x"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    fixture.until_processes(1).await;
}

#[tokio::test]
async fn server_that_exited_between_calls_is_restarted() {
    let fixture = Fixture::new();
    for mode in ["healthy", "dies_after"] {
        let server = fixture.server(mode);
        if mode == "healthy" {
            assert_eq!(fixture.text(&server, "die_after", json!({})).await, "bye");
            fixture.until_processes(0).await;
            assert_eq!(
                fixture.text(&server, "echo", json!({"text": "x"})).await,
                "x"
            );
        } else {
            // It is restarted once.
            let error = fixture.call_error(&server, "echo").await;
            assert!(["mcp_lost", "mcp_start"].contains(&error.code()), "{error}");
        }
    }
}

#[tokio::test]
async fn lost_call_is_retried_only_if_the_tool_is_repeatable() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    let tools = fixture.pool.tools(&server).await.unwrap();
    let pin = |name: &str| {
        tools
            .iter()
            .find(|tool| tool.name() == name)
            .unwrap()
            .pin
            .clone()
    };
    let mut call = ToolCall::new("die_once", Map::new());
    call.pin = Some(pin("die_once"));
    let answer = fixture.pool.call(&server, &call).await.unwrap();
    assert_eq!(answer["content"][0]["text"], "again");
    let mut call = ToolCall::new("die", Map::new());
    call.pin = Some(pin("die"));
    let error = fixture.call_error_with(&server, &call).await;
    assert!(
        matches!(
            error.kind,
            ClientErrorKind::ConnectionLost { was_sent: true, .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn flood_on_standard_error_does_not_block_a_call() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    let start = Instant::now();
    assert_eq!(
        fixture
            .text(&server, "flood", json!({"lines": 200_000}))
            .await,
        "done"
    );
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn oversized_response_is_rejected() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    assert_eq!(
        fixture
            .text(&server, "long", json!({"mebibytes": 15}))
            .await
            .len(),
        15 << 20
    );
    let other = tokio::join!(
        fixture.call(&server, "long", json!({"mebibytes": 100})),
        fixture.call(&server, "echo", json!({"text": "x"})),
    );
    let error = other.0.unwrap_err();
    assert_eq!(error.code(), "mcp_too_long", "{error}");
    assert!(error.to_string().contains("16777216 bytes"), "{error}");
    assert!(error.hint().unwrap().contains("max_message"));
    // The connection and concurrent calls are not affected.
    assert_eq!(other.1.unwrap()["content"][0]["text"], "x");
    assert_eq!(
        fixture.text(&server, "echo", json!({"text": "y"})).await,
        "y"
    );
}

#[tokio::test]
async fn timed_out_call_is_cancelled_at_the_server() {
    let fixture = Fixture::new();
    let server = fixture.server_with("healthy", &json!({"call_timeout": 0.5}));
    let error = fixture.call_error(&server, "hang").await;
    assert_eq!(error.code(), "timeout", "{error}");
    assert!(error.to_string().contains("hanging"), "{error}");
    let notified = || fs::read_to_string(fixture.event_log()).unwrap_or_default();
    until(
        || notified().contains("cancelled "),
        || "the server was not notified".to_owned(),
    )
    .await;
    // The connection stays usable.
    let before = fixture.processes();
    assert_eq!(
        fixture.text(&server, "echo", json!({"text": "x"})).await,
        "x"
    );
    assert_eq!(fixture.processes(), before);
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    fixture.text(&server, "echo", json!({"text": "warm"})).await;
    let call = fixture.call(&server, "hang", json!({}));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), call)
            .await
            .is_err()
    );
    let notified = || fs::read_to_string(fixture.event_log()).unwrap_or_default();
    until(
        || notified().contains("cancelled "),
        || "the server was not notified".to_owned(),
    )
    .await;
}

#[tokio::test]
async fn server_that_does_not_read_is_abandoned() {
    let fixture = Fixture::new();
    let server = fixture.server_with("never_reads", &json!({"call_timeout": 1.5}));
    let long = "x".repeat(1 << 20);
    let call = fixture.call(&server, "echo", json!({"text": long})).await;
    assert_eq!(call.unwrap_err().code(), "timeout");
    fixture.until_processes(0).await;
}

#[tokio::test]
async fn progress_arrives_in_order() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    let output = Arc::new(Mutex::new(String::new()));
    let mut call = ToolCall::new("progress", Map::new());
    call.listener = Some(OutputListener::new({
        let output = Arc::clone(&output);
        move |_, bytes| *output.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    fixture.pool.call(&server, &call).await.unwrap();
    assert_eq!(
        *output.lock().unwrap(),
        "1/3 step 1\n2/3 step 2\n3/3 step 3\n"
    );
}

#[tokio::test]
async fn changed_tool_is_rejected() {
    let fixture = Fixture::new();
    let server = fixture.server("healthy");
    let tools = fixture.pool.tools(&server).await.unwrap();
    assert_eq!(tools.len(), 19, "all pages were read");
    let echo = tools.iter().find(|tool| tool.name() == "echo").unwrap();
    let mut call = ToolCall::new("echo", Map::new());
    call.pin = Some(echo.pin.clone());
    fixture.pool.call(&server, &call).await.unwrap();
    fixture.text(&server, "drift", json!({})).await;
    let error = fixture.call_error_with(&server, &call).await;
    assert_eq!(error.code(), "mcp_drift", "{error}");
    assert_eq!(error.hint().unwrap(), "rye mcp discover healthy");
    call.tool = "gone".to_owned();
    let error = fixture.call_error_with(&server, &call).await;
    assert_eq!(error.code(), "mcp_no_tool", "{error}");
    assert!(error.to_string().contains("echo"), "{error}");
}

#[tokio::test]
async fn secrets_of_the_configuration_are_redacted() {
    let fixture = Fixture::new();
    let env = json!({"env": {"API_TOKEN": "open-sesame"}});
    let server = fixture.server_with("healthy", &env);
    let text = fixture.call_error(&server, "secret").await.to_string();
    assert!(text.contains("the token is [redacted]"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
}

#[tokio::test]
async fn no_server_process_outlives_the_pool() {
    let fixture = Fixture::new();
    let server = fixture.server("tree");
    fixture.text(&server, "echo", json!({"text": "x"})).await;
    fixture.until_processes(2).await;
    fixture.pool.shutdown().await;
    fixture.until_processes(0).await;
    let error = fixture.call_error(&server, "echo").await;
    assert_eq!(error.code(), "mcp_shut_down", "{error}");
}

#[tokio::test]
async fn idle_server_is_shut_down_and_restarted_on_demand() {
    let fixture = Fixture::new();
    let server = fixture.server_with("healthy", &json!({"idle_timeout": 0.3}));
    fixture.text(&server, "echo", json!({"text": "x"})).await;
    assert_eq!(fixture.processes().len(), 1);
    fixture.until_processes(0).await;
    fixture.text(&server, "echo", json!({"text": "x"})).await;
    // A call in progress keeps the server.
    let call = fixture.call(&server, "hang", json!({}));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), call)
            .await
            .is_err()
    );
    assert_eq!(fixture.processes().len(), 1);
}
