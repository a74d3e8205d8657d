//! The fixtures of the conformance suite's server. The suite is content with any text, and
//! with any failure: here they must say what they should.

use std::sync::Arc;

use lillux::process::Supervisor;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rye_mcp::server::Server;
use serde_json::{Value, json};

use super::fixtures::Fixtures;
use super::gateway::System;

/// Calls a tool of the fixture server and gives the result.
async fn call(name: &'static str, arguments: Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = Arc::new(Supervisor::start().unwrap());
    let server = Server::new(Arc::new(System::new(folder.path(), supervisor)));
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let running = Fixtures::new(server).serve(ours).await.unwrap();
        running.waiting().await.unwrap();
    });
    let client = ().serve(theirs).await.unwrap();
    let mut ask = CallToolRequestParams::new(name);
    ask.arguments = arguments.as_object().cloned();
    let result = client.call_tool(ask).await.unwrap();
    client.cancel().await.unwrap();
    serving.await.unwrap();
    json!(result)
}

#[tokio::test]
async fn the_simple_text_is_the_one_that_the_suite_wants() {
    let result = call("test_simple_text", json!({})).await;
    let text = &result["content"][0]["text"];
    assert_eq!(*text, "This is a simple text response for testing.");
    assert!(result["isError"] != true, "{result}");
}

#[tokio::test]
async fn the_error_is_the_one_that_the_suite_wants() {
    let result = call("test_error_handling", json!({})).await;
    let text = &result["content"][0]["text"];
    assert_eq!(
        *text,
        "This tool intentionally returns an error for testing"
    );
    assert_eq!(result["isError"], true);
}

#[tokio::test]
async fn what_is_no_fixture_is_one_of_the_five() {
    let ask = json!({ "item_type": "tool", "item_id": "nope" });
    let result = call("execute", ask).await;
    let code = &result["structuredContent"]["error"]["code"];
    assert_eq!(*code, "not_found", "{result}");
    let result = call("search", json!({ "query": "file-system/read" })).await;
    assert_eq!(result["structuredContent"]["total"], 1, "{result}");
}
