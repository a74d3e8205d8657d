//! The primitive `rye/core/primitives/mcp`: calls a tool of an MCP server.

mod result;

pub use result::tool_result;

use std::path::PathBuf;

use lillux::process::OutputCapture;
use rye_executor::primitive::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use rye_items::vault::Vault;
use serde_json::{Map, Value, json};

use crate::client::elicitation;
use crate::client::{ClientError, ClientErrorKind, Pin, Pool, ServerConfig, ServerSpec, ToolCall};

/// Configuration key that names the item of the server.
const SERVER: &str = "server";
/// Default limit for a result in memory, in bytes.
const DEFAULT_MAX_OUTPUT: usize = 1 << 20;

/// Calls tools of MCP servers over pooled connections.
#[derive(Debug, Clone)]
pub struct McpPrimitive {
    pool: Pool,
    project: PathBuf,
    vault: Option<Vault>,
}

impl McpPrimitive {
    /// Id under which the primitive is registered.
    pub const ID: &str = "rye/core/primitives/mcp";

    /// Creates the primitive for a project. `user` is the directory of the user space, whose
    /// vault holds the secrets of the servers.
    pub fn new(pool: Pool, project: impl Into<PathBuf>, user: Option<PathBuf>) -> Self {
        let project = project.into();
        let vault = user.map(|user| Vault::new(&user, Some(&project)));
        Self {
            pool,
            project,
            vault,
        }
    }

    async fn call_tool(
        &self,
        call: Call,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let server = self.server_spec(&call)?;
        metadata.insert("server".into(), json!(server.id));
        metadata.insert("server_hash".into(), json!(server.hash));
        let string = |key: &str| call.config.get(key).and_then(Value::as_str);
        // Only a direct call of the runtime or the primitive has `arguments`.
        let arguments = call.config.get("arguments").unwrap_or(&call.parameters);
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let mut tool_call = ToolCall::new(string("tool_name").unwrap_or_default(), arguments);
        tool_call.pin = Pin::from_config(&call.config);
        tool_call.timeout = call.timeout;
        tool_call.listener = call.listener;
        tool_call.elicitation_handler = elicitation::current_handler();
        let answer = self.pool.call(&server, &tool_call).await;
        let answer = answer.map_err(|error| to_failure(&error, metadata))?;
        let mut done = tool_result(answer);
        let limit = call.config.get("max_output").and_then(Value::as_u64);
        let limit = limit.map_or(DEFAULT_MAX_OUTPUT, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        if let Some(whole) = result::oversized(&done.data, limit) {
            let mut capture = OutputCapture::new(limit, call.spill.open());
            capture.push(&whole).await;
            let captured = capture.finish().await;
            rye_executor::primitive::record_overflow(metadata, "result", &captured);
            done.data = result::truncate(&done.data, limit);
        }
        Ok(done)
    }

    /// The server that the verified configuration describes.
    fn server_spec(&self, call: &Call) -> Result<ServerSpec, CallFailure> {
        let config_error = |why: String| CallFailure::new("mcp_config", why);
        let link = call.items.get(SERVER).ok_or_else(|| {
            config_error(
                "`config.server` is missing; it names a server such as mcp/servers/context7"
                    .to_owned(),
            )
        })?;
        let id = link.id().to_string();
        let config = link.metadata.value("config").unwrap_or(&Value::Null);
        let config = ServerConfig::parse(config).map_err(|why| {
            let path = link.item.path.display();
            config_error(format!("{path}: {why}")).with_hint(format!("rye load {id}"))
        })?;
        let transport = call.config.get("transport").and_then(Value::as_str);
        let transport_name = config.transport.name();
        if transport.is_some_and(|transport| transport != transport_name) {
            return Err(config_error(format!(
                "server {id} uses {transport_name}, but the tool uses the runtime rye/core/runtimes/mcp/{}",
                transport.unwrap_or_default()
            )));
        }
        Ok(ServerSpec {
            id,
            hash: link.item.hash,
            config,
            project: self.project.clone(),
            environment: (*call.environment).clone(),
            vault: self.vault.clone(),
        })
    }
}

impl Primitive for McpPrimitive {
    fn runs_programs(&self) -> bool {
        // Server processes do not run the tool's file.
        false
    }

    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let result = self.call_tool(call, &mut metadata).await;
            CallOutcome::new(result, metadata)
        })
    }

    fn check(&self, call: Call) -> Result<(), CallFailure> {
        self.server_spec(&call).map(drop)
    }

    fn item_keys(&self) -> &'static [&'static str] {
        &[SERVER]
    }
}

/// Converts an error and adds its details to the metadata.
fn to_failure(error: &ClientError, metadata: &mut Map<String, Value>) -> CallFailure {
    match &error.kind {
        ClientErrorKind::Rpc { code, data, .. } => {
            metadata.insert("rpc_code".into(), json!(code));
            if let Some(data) = data {
                metadata.insert("rpc_data".into(), Value::clone(data));
            }
        }
        ClientErrorKind::Drift(drift) => {
            metadata.insert("accepted".into(), json!(drift.accepted.hash));
            metadata.insert("current".into(), json!(drift.current.hash));
        }
        _ => {}
    }
    if !error.diagnostics.stderr.is_empty() {
        metadata.insert("stderr".into(), json!(error.diagnostics.stderr));
    }
    let failed = CallFailure::new(error.code(), error.to_string());
    match error.hint() {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}
