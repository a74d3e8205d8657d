//! The client that the official conformance suite is run against: ours, told by the suite
//! which server to call.
//!
//! It lists the server's tools and calls them: those that the suite names, or else each with
//! arguments that fit its schema. `cargo xtask test --only conformance` runs it.

use std::collections::BTreeMap;
use std::error::Error;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_mcp::client::{Pool, RemoteTool, Server, ServerConfig, ToolCall};
use serde_json::{Map, Value, json};

/// A tool and its arguments.
type Call = (String, Map<String, Value>);

fn main() -> Result<(), Box<dyn Error>> {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    if scenario.starts_with("auth/") {
        return Err("OAuth is not spoken".into());
    }
    let url = std::env::args().next_back().unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let supervisor = Supervisor::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(&Pool::new(&supervisor), &url, &context))
}

async fn run(pool: &Pool, url: &str, context: &Value) -> Result<(), Box<dyn Error>> {
    let mut config = json!({ "url": url });
    // The suite says in which revision the conversation is to begin.
    if let Ok(revision) = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        config["protocol"] = json!(revision);
    }
    let server = Server {
        id: "mcp/servers/conformance".to_owned(),
        hash: Hash::of(url),
        config: ServerConfig::read(&config)?,
        project: std::env::temp_dir(),
        environment: BTreeMap::new(),
        vault: None,
    };
    let tools = pool.tools(&server).await?;
    let mut outcome = Ok(());
    for (tool, arguments) in calls(context, &tools) {
        let called = pool.call(&server, &ToolCall::new(tool, arguments)).await;
        // Each is called, whatever became of the one before it.
        outcome = outcome.and(called.map(drop));
    }
    pool.shutdown().await;
    Ok(outcome?)
}

/// What to call: what the suite says, or everything.
fn calls(context: &Value, tools: &[RemoteTool]) -> Vec<Call> {
    if let Some(calls) = context["toolCalls"].as_array() {
        let call = |call: &Value| {
            let arguments = call["arguments"].as_object().cloned();
            let name = call["name"].as_str().unwrap_or_default();
            (name.to_owned(), arguments.unwrap_or_default())
        };
        return calls.iter().map(call).collect();
    }
    let first = tools.first().map(RemoteTool::input_schema);
    let call = |tool: &RemoteTool| {
        let arguments = arguments(tool.input_schema(), first.unwrap_or(&Value::Null));
        (tool.name().to_owned(), arguments)
    };
    tools.iter().map(call).collect()
}

/// Arguments that fit a schema. Where a schema is asked for, it is that of the first tool,
/// so that the suite sees whether all of it arrived.
fn arguments(schema: &Value, first: &Value) -> Map<String, Value> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let values = properties.map(|(name, about)| {
        let value = match (name.as_str(), about["type"].as_str()) {
            ("schema", _) => first.clone(),
            (_, Some("number" | "integer")) => json!(3),
            (_, Some("boolean")) => json!(true),
            (_, Some("array")) => json!([]),
            (_, Some("object")) => json!({}),
            _ => json!("text"),
        };
        (name.clone(), value)
    });
    values.collect()
}
