//! The client against the official reference server `mcp-server-everything`, over all
//! transports.
//!
//! `cargo xtask test` installs the server and sets `RYE_TEST_MCP_EVERYTHING` to its path.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Fixture, until};
use rye_executor::OutputListener;
use rye_mcp::client::{ServerSpec, ToolCall};
use serde_json::{Map, Value, json};

/// Path of the server.
fn program() -> String {
    std::env::var("RYE_TEST_MCP_EVERYTHING").unwrap_or_else(|_| {
        panic!("RYE_TEST_MCP_EVERYTHING is not set; run: cargo xtask test --only tests")
    })
}

fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(arguments) => arguments,
        other => panic!("{other}"),
    }
}

/// Calls tools of the server, independent of the transport.
async fn check_server(fixture: &Fixture, server: &ServerSpec) {
    let tools = fixture.pool.tools(server).await.unwrap();
    assert!(tools.len() > 10, "{}", tools.len());
    let echo = fixture
        .text(server, "echo", json!({"message": "hä?"}))
        .await;
    assert_eq!(echo, "Echo: hä?");
    let sum = fixture
        .text(server, "get-sum", json!({"a": 2, "b": 3}))
        .await;
    assert!(sum.contains('5'), "{sum}");

    let image = fixture
        .call(server, "get-tiny-image", json!({}))
        .await
        .unwrap();
    let image = image["content"].as_array().unwrap().iter();
    let image = image
        .filter(|content| content["type"] == "image")
        .collect::<Vec<_>>();
    assert_eq!(image.len(), 1);
    assert_eq!(image[0]["mimeType"], "image/png");
    assert!(image[0]["data"].as_str().unwrap().starts_with("iVBOR"));

    let location = json!({"location": "Chicago"});
    let structured = fixture
        .call(server, "get-structured-content", location)
        .await
        .unwrap();
    let done = rye_mcp::tool_result(structured);
    assert!(done.data["temperature"].is_number(), "{}", done.data);

    // Invalid arguments are a failure of the tool or a protocol error, depending on the server.
    match fixture.call(server, "get-sum", json!({"a": "x"})).await {
        Ok(answer) => {
            let failed = rye_mcp::tool_result(answer).failure.unwrap();
            assert_eq!(failed.code, "tool_failed");
        }
        Err(error) => assert_eq!(error.code(), "mcp_error", "{error}"),
    }

    let output = Arc::new(Mutex::new(String::new()));
    let long = arguments(json!({"duration": 0.3, "steps": 3}));
    let mut call = ToolCall::new("trigger-long-running-operation", long);
    call.listener = Some(OutputListener::new({
        let output = Arc::clone(&output);
        move |_, bytes| *output.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    let answer = fixture.pool.call(server, &call).await.unwrap();
    assert!(answer.to_string().contains("completed"), "{answer}");
    let lines = output.lock().unwrap().clone();
    assert!(lines.starts_with("1/3") && lines.contains("2/3"), "{lines}");

    // A call that times out leaves the connection usable.
    let long = arguments(json!({"duration": 600, "steps": 1}));
    let mut call = ToolCall::new("trigger-long-running-operation", long);
    call.timeout = Some(Duration::from_millis(300));
    let error = fixture.call_error_with(server, &call).await;
    assert_eq!(error.code(), "timeout", "{error}");
    let echo = fixture.text(server, "echo", json!({"message": "x"})).await;
    assert_eq!(echo, "Echo: x");
}

#[tokio::test]
async fn everything_works_over_stdio() {
    let fixture = Fixture::new();
    let config = json!({"command": program(), "args": ["stdio"], "start_timeout": 60});
    let server = fixture.configured("everything", &config);
    check_server(&fixture, &server).await;
    fixture.pool.shutdown().await;
    fixture.until_processes(0).await;
}

#[tokio::test]
async fn everything_works_over_http() {
    check_remote("streamableHttp", "mcp").await;
}

#[tokio::test]
async fn everything_works_over_sse() {
    check_remote("sse", "sse").await;
}

/// Whether a process listens on a port. Connecting to find out could take the port away from the
/// server: the system may choose it as the connection's own port.
fn is_listening(port: u16) -> bool {
    let address = format!(":{port:04X}");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    tables.into_iter().flatten().any(|table| {
        let mut sockets = table.lines().map(str::split_whitespace);
        // Number, local address, remote address, state; 0A is LISTEN.
        sockets.any(|mut fields| {
            fields.nth(1).is_some_and(|local| local.ends_with(&address))
                && fields.nth(1) == Some("0A")
        })
    })
}

/// Starts the server with this transport and calls its tools.
async fn check_remote(transport: &str, path: &str) {
    let fixture = Fixture::new();
    let port = rye_testkit::port::unassigned();
    let process = Command::new(program())
        .arg(transport)
        .env("PORT", port.to_string())
        .current_dir(fixture.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _process = KillOnDrop(process.unwrap());
    let listens = || is_listening(port);
    until(listens, || "the server does not listen".to_owned()).await;
    let url = format!("http://127.0.0.1:{port}/{path}");
    let server = fixture.configured("everything", &json!({"url": url, "start_timeout": 60}));
    check_server(&fixture, &server).await;
    fixture.pool.shutdown().await;
}

/// Kills a process when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
