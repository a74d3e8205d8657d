//! Tests of the fixtures. The suite accepts any text and any failure; these tests check them.

use std::sync::Arc;

use lillux::process::Supervisor;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rye_mcp::server::Server;
use serde_json::{Value, json};

use super::fixtures::Fixtures;
use super::gateway::SystemGateway;

/// Calls a tool of the conformance server.
async fn call(name: &'static str, arguments: Value) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = Arc::new(Supervisor::start().unwrap());
    let server = Server::new(Arc::new(SystemGateway::new(dir.path(), supervisor)));
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let running = Fixtures::new(server).serve(ours).await.unwrap();
        running.waiting().await.unwrap();
    });
    let client = ().serve(theirs).await.unwrap();
    let mut request = CallToolRequestParams::new(name);
    request.arguments = arguments.as_object().cloned();
    let result = client.call_tool(request).await.unwrap();
    client.cancel().await.unwrap();
    serving.await.unwrap();
    json!(result)
}

#[tokio::test]
async fn simple_text_is_the_expected_one() {
    let result = call("test_simple_text", json!({})).await;
    let text = &result["content"][0]["text"];
    assert_eq!(*text, "This is a simple text response for testing.");
    assert!(result["isError"] != true, "{result}");
}

#[tokio::test]
async fn error_text_is_the_expected_one() {
    let result = call("test_error_handling", json!({})).await;
    let text = &result["content"][0]["text"];
    assert_eq!(
        *text,
        "This tool intentionally returns an error for testing"
    );
    assert_eq!(result["isError"], true);
}

#[tokio::test]
async fn other_tools_are_handled_by_the_server() {
    let request = json!({ "item_type": "tool", "item_id": "nope" });
    let result = call("execute", request).await;
    let code = &result["structuredContent"]["error"]["code"];
    assert_eq!(*code, "not_found", "{result}");
    let result = call("search", json!({ "query": "file-system/read" })).await;
    assert_eq!(result["structuredContent"]["total"], 1, "{result}");
}
