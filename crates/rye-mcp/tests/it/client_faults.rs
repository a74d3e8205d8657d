//! Servers over stdio that hang, die, flood and speak rubbish: each costs a bounded
//! time, says what it was, and holds up no other.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{World, until};
use rye_executor::OutputListener;
use rye_mcp::client::{ClientErrorKind, ToolCall};
use serde_json::{Map, json};

#[tokio::test]
async fn a_call_is_answered_and_the_next_uses_the_same_process() {
    let world = World::new();
    let server = world.server("well");
    assert_eq!(
        world.text(&server, "echo", json!({"text": "hä?"})).await,
        "hä?"
    );
    let first = world.processes();
    assert_eq!(world.text(&server, "echo", json!({"text": "x"})).await, "x");
    assert_eq!(world.processes(), first);
    assert_eq!(first.len(), 1);
}

#[tokio::test]
async fn a_hundred_calls_at_once_share_one_connection() {
    let world = World::new();
    let server = world.server("well");
    // The server answers none before it has all of them.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (pool, server) = (world.pool.clone(), server.clone());
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
    assert_eq!(world.processes().len(), 1);
}

#[tokio::test]
async fn a_server_that_hangs_at_its_start_costs_its_limit_once_and_holds_up_no_other() {
    let world = World::new();
    let hangs = world.server_with("hangs", &json!({"start_timeout": 4}));
    let well = world.server("well");
    world.text(&well, "echo", json!({"text": "warm"})).await;
    let start = Instant::now();
    let both = async { tokio::join!(world.fails(&hangs, "echo"), world.fails(&hangs, "echo")) };
    let other = async {
        world.text(&well, "echo", json!({"text": "x"})).await;
        start.elapsed()
    };
    let ((first, second), other) = tokio::join!(both, other);
    assert!(other < Duration::from_secs(4), "it was held up: {other:?}");
    assert!(
        start.elapsed() < Duration::from_millis(7900),
        "{:?}",
        start.elapsed()
    );
    for error in [first, second] {
        assert_eq!(error.code(), "mcp_start");
        let text = error.to_string();
        assert!(
            text.contains("did not answer `initialize` within 4.0 s"),
            "{text}"
        );
        assert!(text.contains("thinking about it"), "{text}");
    }
    world.until_processes(1).await;
}

#[tokio::test]
async fn how_a_server_fails_to_start_is_told() {
    let world = World::new();
    let missing = world.configured("missing", &json!({"command": "no-such-program"}));
    for (server, code, words) in [
        (missing, "cannot_start", &["no-such-program"][..]),
        (
            world.server("dies"),
            "mcp_start",
            &["ended with exit code 7", "no configuration found"],
        ),
        (world.server("refuses"), "mcp_start", &["not today"]),
        (world.server("wrong_id"), "mcp_protocol", &["4711"]),
        (
            world.server_with("floods", &json!({"start_timeout": 1})),
            "mcp_start",
            &["noise"],
        ),
    ] {
        let error = world.fails(&server, "echo").await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(text.len() < 10_000, "{} bytes", text.len());
    }
    world.until_processes(0).await;
}

#[tokio::test]
async fn a_server_that_greets_on_its_output_is_understood_all_the_same() {
    let world = World::new();
    let server = world.server("greets");
    assert_eq!(world.text(&server, "echo", json!({"text": "x"})).await, "x");
    assert_eq!(world.text(&server, "rubbish", json!({})).await, "after all");
}

#[tokio::test]
async fn how_a_server_fails_during_a_call_is_told_at_once() {
    let world = World::new();
    let start = Instant::now();
    for (tool, code, words) in [
        (
            "die",
            "mcp_lost",
            &["exit code 3", "out of cheese", "not sent again"][..],
        ),
        ("broken", "mcp_protocol", &["cannot be read", "jsonrpc"]),
        ("wrong_id", "mcp_protocol", &["987654", "never made"]),
        ("close", "mcp_lost", &["closed its standard output"]),
        ("error", "mcp_error", &["-32042", "no such city"]),
        ("nothing", "mcp_error", &["-32602", "no tool nothing"]),
    ] {
        let server = world.server("well");
        let error = world.fails(&server, tool).await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{tool}: {text}");
        for word in words {
            assert!(text.contains(word), "{tool}: {word}: {text}");
        }
        // And the next call finds a server that is well.
        assert_eq!(world.text(&server, "echo", json!({"text": "x"})).await, "x");
    }
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    world.until_processes(1).await;
}

#[tokio::test]
async fn a_server_that_died_meanwhile_is_started_again() {
    let world = World::new();
    for start in ["well", "dies_after"] {
        let server = world.server(start);
        if start == "well" {
            assert_eq!(world.text(&server, "die_after", json!({})).await, "bye");
            world.until_processes(0).await;
            assert_eq!(world.text(&server, "echo", json!({"text": "x"})).await, "x");
        } else {
            // Once more, and then no more.
            let error = world.fails(&server, "echo").await;
            assert!(["mcp_lost", "mcp_start"].contains(&error.code()), "{error}");
        }
    }
}

#[tokio::test]
async fn a_lost_call_is_repeated_only_where_that_changes_nothing() {
    let world = World::new();
    let server = world.server("well");
    let tools = world.pool.tools(&server).await.unwrap();
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
    let answer = world.pool.call(&server, &call).await.unwrap();
    assert_eq!(answer["content"][0]["text"], "again");
    let mut call = ToolCall::new("die", Map::new());
    call.pin = Some(pin("die"));
    let error = world.fails_with(&server, &call).await;
    assert!(
        matches!(
            error.kind,
            ClientErrorKind::ConnectionLost { sent: true, .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_flood_on_standard_error_holds_up_nothing() {
    let world = World::new();
    let server = world.server("well");
    let start = Instant::now();
    assert_eq!(
        world
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
async fn a_long_answer_works_below_the_limit_and_is_refused_above_it() {
    let world = World::new();
    let server = world.server("well");
    assert_eq!(
        world
            .text(&server, "long", json!({"mebibytes": 15}))
            .await
            .len(),
        15 << 20
    );
    let other = tokio::join!(
        world.call(&server, "long", json!({"mebibytes": 100})),
        world.call(&server, "echo", json!({"text": "x"})),
    );
    let error = other.0.unwrap_err();
    assert_eq!(error.code(), "mcp_too_long", "{error}");
    assert!(error.to_string().contains("16777216 bytes"), "{error}");
    assert!(error.hint().unwrap().contains("max_message"));
    // The connection and whoever else used it are none the worse for it.
    assert_eq!(other.1.unwrap()["content"][0]["text"], "x");
    assert_eq!(world.text(&server, "echo", json!({"text": "y"})).await, "y");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_and_the_server_is_told() {
    let world = World::new();
    let server = world.server_with("well", &json!({"call_timeout": 0.5}));
    let error = world.fails(&server, "hang").await;
    assert_eq!(error.code(), "timeout", "{error}");
    assert!(error.to_string().contains("hanging"), "{error}");
    let told = || fs::read_to_string(world.mark()).unwrap_or_default();
    until(
        || told().contains("cancelled "),
        || "it was not told".to_owned(),
    )
    .await;
    // The connection goes on.
    let before = world.processes();
    assert_eq!(world.text(&server, "echo", json!({"text": "x"})).await, "x");
    assert_eq!(world.processes(), before);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let world = World::new();
    let server = world.server("well");
    world.text(&server, "echo", json!({"text": "warm"})).await;
    let call = world.call(&server, "hang", json!({}));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), call)
            .await
            .is_err()
    );
    let told = || fs::read_to_string(world.mark()).unwrap_or_default();
    until(
        || told().contains("cancelled "),
        || "it was not told".to_owned(),
    )
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_read_is_given_up() {
    let world = World::new();
    let server = world.server_with("deaf", &json!({"call_timeout": 1.5}));
    let long = "x".repeat(1 << 20);
    let call = world.call(&server, "echo", json!({"text": long})).await;
    assert_eq!(call.unwrap_err().code(), "timeout");
    world.until_processes(0).await;
}

#[tokio::test]
async fn progress_is_heard_in_order() {
    let world = World::new();
    let server = world.server("well");
    let heard = Arc::new(Mutex::new(String::new()));
    let mut call = ToolCall::new("progress", Map::new());
    call.listener = Some(OutputListener::new({
        let heard = Arc::clone(&heard);
        move |_, bytes| *heard.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    world.pool.call(&server, &call).await.unwrap();
    assert_eq!(
        *heard.lock().unwrap(),
        "1/3 step 1\n2/3 step 2\n3/3 step 3\n"
    );
}

#[tokio::test]
async fn a_tool_that_changed_is_refused() {
    let world = World::new();
    let server = world.server("well");
    let tools = world.pool.tools(&server).await.unwrap();
    assert_eq!(tools.len(), 19, "all pages were read");
    let echo = tools.iter().find(|tool| tool.name() == "echo").unwrap();
    let mut call = ToolCall::new("echo", Map::new());
    call.pin = Some(echo.pin.clone());
    world.pool.call(&server, &call).await.unwrap();
    world.text(&server, "drift", json!({})).await;
    let error = world.fails_with(&server, &call).await;
    assert_eq!(error.code(), "mcp_drift", "{error}");
    assert_eq!(error.hint().unwrap(), "rye mcp discover well --accept");
    call.tool = "gone".to_owned();
    let error = world.fails_with(&server, &call).await;
    assert_eq!(error.code(), "mcp_no_tool", "{error}");
    assert!(error.to_string().contains("echo"), "{error}");
}

#[tokio::test]
async fn secrets_of_the_configuration_are_not_shown() {
    let world = World::new();
    let env = json!({"env": {"API_TOKEN": "open-sesame"}});
    let server = world.server_with("well", &env);
    let text = world.fails(&server, "secret").await.to_string();
    assert!(text.contains("the token is [redacted]"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
}

#[tokio::test]
async fn nothing_of_a_server_outlives_the_pool() {
    let world = World::new();
    let server = world.server("tree");
    world.text(&server, "echo", json!({"text": "x"})).await;
    world.until_processes(2).await;
    world.pool.shutdown().await;
    world.until_processes(0).await;
    let error = world.fails(&server, "echo").await;
    assert_eq!(error.code(), "mcp_shut_down", "{error}");
}

#[tokio::test]
async fn a_server_that_nobody_calls_is_shut_down_and_comes_back() {
    let world = World::new();
    let server = world.server_with("well", &json!({"idle_timeout": 0.3}));
    world.text(&server, "echo", json!({"text": "x"})).await;
    assert_eq!(world.processes().len(), 1);
    world.until_processes(0).await;
    world.text(&server, "echo", json!({"text": "x"})).await;
    // One that is busy is not idle.
    let call = world.call(&server, "hang", json!({}));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), call)
            .await
            .is_err()
    );
    assert_eq!(world.processes().len(), 1);
}
