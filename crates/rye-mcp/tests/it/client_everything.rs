//! The protocol's own server for trying clients, over both transports.
//!
//! `cargo xtask test` installs it and says where it is. Alone:
//! `RYE_TEST_MCP_EVERYTHING=…/bin/mcp-server-everything cargo test -p rye-mcp --test client_everything`

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{World, until};
use rye_executor::OutputListener;
use rye_mcp::client::{ServerSpec, ToolCall};
use serde_json::{Map, Value, json};

/// Where the server is.
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

/// What every client has to be able to do, over whatever transport.
async fn everything(world: &World, server: &ServerSpec) {
    let tools = world.pool.tools(server).await.unwrap();
    assert!(tools.len() > 10, "{}", tools.len());
    let echo = world.text(server, "echo", json!({"message": "hä?"})).await;
    assert_eq!(echo, "Echo: hä?");
    let sum = world.text(server, "get-sum", json!({"a": 2, "b": 3})).await;
    assert!(sum.contains('5'), "{sum}");

    let image = world
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

    let place = json!({"location": "Chicago"});
    let structured = world
        .call(server, "get-structured-content", place)
        .await
        .unwrap();
    let done = rye_mcp::tool_result(structured);
    assert!(done.data["temperature"].is_number(), "{}", done.data);

    // Wrong arguments are the tool's failure or the protocol's, as the server likes.
    match world.call(server, "get-sum", json!({"a": "x"})).await {
        Ok(answer) => {
            let failed = rye_mcp::tool_result(answer).failure.unwrap();
            assert_eq!(failed.code, "tool_failed");
        }
        Err(error) => assert_eq!(error.code(), "mcp_error", "{error}"),
    }

    let heard = Arc::new(Mutex::new(String::new()));
    let long = arguments(json!({"duration": 0.3, "steps": 3}));
    let mut call = ToolCall::new("trigger-long-running-operation", long);
    call.listener = Some(OutputListener::new({
        let heard = Arc::clone(&heard);
        move |_, bytes| *heard.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    let answer = world.pool.call(server, &call).await.unwrap();
    assert!(answer.to_string().contains("completed"), "{answer}");
    let lines = heard.lock().unwrap().clone();
    assert!(lines.starts_with("1/3") && lines.contains("2/3"), "{lines}");

    // One that is cancelled costs no more than its limit, and the connection goes on.
    let long = arguments(json!({"duration": 600, "steps": 1}));
    let mut call = ToolCall::new("trigger-long-running-operation", long);
    call.timeout = Some(Duration::from_millis(300));
    let error = world.fails_with(server, &call).await;
    assert_eq!(error.code(), "timeout", "{error}");
    let echo = world.text(server, "echo", json!({"message": "x"})).await;
    assert_eq!(echo, "Echo: x");
}

#[tokio::test]
async fn everything_works_over_stdio() {
    let world = World::new();
    let config = json!({"command": program(), "args": ["stdio"], "start_timeout": 60});
    let server = world.configured("everything", &config);
    everything(&world, &server).await;
    world.pool.shutdown().await;
    world.until_processes(0).await;
}

#[tokio::test]
async fn everything_works_over_http() {
    let world = World::new();
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let process = Command::new(program())
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .current_dir(world.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _ended = Ended(process.unwrap());
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    until(listens, || "it does not listen".to_owned()).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let server = world.configured("everything", &json!({"url": url, "start_timeout": 60}));
    everything(&world, &server).await;
    world.pool.shutdown().await;
}

/// A process that ends with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
