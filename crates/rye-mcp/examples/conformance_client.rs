//! Client for the official MCP conformance suite, which passes the URL of the server to call.
//!
//! Lists the server's tools and calls those that the suite names, or otherwise each tool with
//! arguments that match its schema. `cargo xtask test --only conformance` runs it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_items::vault::Vault;
use rye_mcp::client::{
    ClientError, ClientErrorKind, Elicitation, ElicitationFuture, ElicitationHandler,
    ElicitationReply, LoginRequest, Pool, RemoteTool, ServerConfig, ServerSpec, ToolCall,
};
use serde_json::{Map, Value, json};

/// Client metadata URL that the suite expects.
const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

/// Maximum number of logins for one call: the first one, and those for additional scopes.
const MAX_LOGINS: usize = 3;

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
    let pool = Pool::with_elicitation(&supervisor, Some(Arc::new(AcceptAll)));
    let vault_dir = VaultDir::new()?;
    runtime.block_on(run(&pool, &url, &context, &vault_dir))
}

/// Accepts every elicitation with the defaults.
#[derive(Debug)]
struct AcceptAll;

impl ElicitationHandler for AcceptAll {
    fn elicit(&self, _: Elicitation) -> ElicitationFuture<'_> {
        Box::pin(async { ElicitationReply::Accept(Map::new()) })
    }
}

/// Temporary directory for the vault.
struct VaultDir(PathBuf);

impl VaultDir {
    fn new() -> std::io::Result<Self> {
        let name = format!("rye-conformance-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for VaultDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn run(
    pool: &Pool,
    url: &str,
    context: &Value,
    vault_dir: &VaultDir,
) -> Result<(), Box<dyn Error>> {
    let mut config = json!({ "url": url, "oauth": { "client_metadata_url": CLIENT_METADATA_URL } });
    // The suite sets the protocol revision and the OAuth client.
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
        vault: Some(Vault::new(&vault_dir.0, None)),
    };
    let tools = with_login(pool, &server, async || pool.tools(&server).await).await?;
    let mut outcome = Ok(());
    for (tool, arguments) in calls(context, &tools) {
        let call = ToolCall::new(tool, arguments);
        let called = with_login(pool, &server, async || pool.call(&server, &call).await).await;
        // Call all tools, even if one fails.
        outcome = outcome.and(called.map(drop));
    }
    pool.shutdown().await;
    Ok(outcome?)
}

/// Runs `work` and logs in when the server requires it.
async fn with_login<T>(
    pool: &Pool,
    server: &ServerSpec,
    work: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    for _ in 0..MAX_LOGINS {
        let error = match work().await {
            Err(error) => error,
            outcome => return outcome,
        };
        let ClientErrorKind::LoginNeeded { scope, challenge } = &error.kind else {
            return Err(error);
        };
        let scopes = scope.iter().flat_map(|scope| scope.split_whitespace());
        let request = LoginRequest {
            scopes: scopes.map(str::to_owned).collect(),
            challenge: Some(challenge.clone()).filter(|challenge| !challenge.is_empty()),
        };
        pool.log_in(server, &request, browse).await?;
    }
    work().await
}

/// Simulates the browser of a user who is already logged in.
fn browse(url: &str) {
    let url = url.to_owned();
    tokio::spawn(async move { reqwest::get(url).await });
}

/// The calls that the suite names, or one call of each tool.
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

/// Arguments that match a schema. For a parameter named `schema`, passes the schema of the first
/// tool, so that the suite can check whether it arrived completely.
fn arguments(schema: &Value, first: &Value) -> Map<String, Value> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let values = properties.map(|(name, property)| {
        let value = match (name.as_str(), property["type"].as_str()) {
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
