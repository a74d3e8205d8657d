//! The client that the official conformance suite is run against: ours, told by the suite
//! which server to call.
//!
//! It lists the server's tools and calls them: those that the suite names, or else each with
//! arguments that fit its schema. `cargo xtask test --only conformance` runs it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_items::vault::Vault;
use rye_mcp::client::{
    ClientError, ClientErrorKind, Elicitation, ElicitationHandler, ElicitationReply, LoginRequest,
    Pool, RemoteTool, ServerConfig, ServerSpec, ToolCall,
};
use serde_json::{Map, Value, json};

/// Where the suite's own client says what it is.
const METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// How often is logged in for one call: first of all, and for what it needs beyond that.
const LOGINS: usize = 3;

/// A tool and its arguments.
type Call = (String, Map<String, Value>);

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().next_back().unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let supervisor = Supervisor::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let pool = Pool::with_elicitation(&supervisor, Some(Arc::new(Agreeable)));
    let home = Home::new()?;
    runtime.block_on(run(&pool, &url, &context, &home))
}

/// A person who takes what is offered.
#[derive(Debug)]
struct Agreeable;

impl ElicitationHandler for Agreeable {
    fn elicit(
        &self,
        _: Elicitation,
    ) -> Pin<Box<dyn Future<Output = ElicitationReply> + Send + '_>> {
        Box::pin(async { ElicitationReply::Accept(Map::new()) })
    }
}

/// A folder for the vault, gone when dropped.
struct Home(PathBuf);

impl Home {
    fn new() -> std::io::Result<Self> {
        let name = format!("rye-conformance-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn run(pool: &Pool, url: &str, context: &Value, home: &Home) -> Result<(), Box<dyn Error>> {
    let mut config = json!({ "url": url, "oauth": { "client_metadata_url": METADATA } });
    // The suite says in which revision the conversation is to begin, and who we are.
    if let Ok(revision) = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        config["protocol"] = json!(revision);
    }
    for key in ["client_id", "client_secret"] {
        if let Some(value) = context[key].as_str() {
            config["oauth"][key] = json!(value);
        }
    }
    let server = ServerSpec {
        id: "mcp/servers/conformance".to_owned(),
        hash: Hash::digest(url),
        config: ServerConfig::parse(&config)?,
        project: std::env::temp_dir(),
        environment: BTreeMap::new(),
        vault: Some(Vault::new(&home.0, None)),
    };
    let tools = logged_in(pool, &server, async || pool.tools(&server).await).await?;
    let mut outcome = Ok(());
    for (tool, arguments) in calls(context, &tools) {
        let call = ToolCall::new(tool, arguments);
        let called = logged_in(pool, &server, async || pool.call(&server, &call).await).await;
        // Each is called, whatever became of the one before it.
        outcome = outcome.and(called.map(drop));
    }
    pool.shutdown().await;
    Ok(outcome?)
}

/// Does something, logging in where the server wants it.
async fn logged_in<T>(
    pool: &Pool,
    server: &ServerSpec,
    work: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    for _ in 0..LOGINS {
        let error = match work().await {
            Err(error) => error,
            done => return done,
        };
        let ClientErrorKind::LoginNeeded { scope, challenge } = &error.kind else {
            return Err(error);
        };
        let scopes = scope.iter().flat_map(|scope| scope.split_whitespace());
        let ask = LoginRequest {
            scopes: scopes.map(str::to_owned).collect(),
            challenge: Some(challenge.clone()).filter(|it| !it.is_empty()),
        };
        pool.log_in(server, &ask, browse).await?;
    }
    work().await
}

/// A browser of somebody who is logged in already.
fn browse(url: &str) {
    let url = url.to_owned();
    tokio::spawn(async move { reqwest::get(url).await });
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
