//! `rye/core/primitives/mcp`: a call to a tool of an MCP server.

mod result;

pub use result::mapped as tool_result;

use std::path::PathBuf;

use lillux::process::OutputCapture;
use rye_executor::primitive::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use rye_items::vault::Vault;
use serde_json::{Map, Value, json};

use crate::client::ask;
use crate::client::{ClientError, ClientErrorKind, Pin, Pool, ServerConfig, ServerSpec, ToolCall};

/// The key of the configuration that names the server's own.
const SERVER: &str = "server";
/// How much of a result stays in memory.
const LIMIT: usize = 1 << 20;

/// Calls tools of MCP servers, over connections that are shared and kept.
#[derive(Debug, Clone)]
pub struct McpPrimitive {
    pool: Pool,
    project: PathBuf,
    vault: Option<Vault>,
}

impl McpPrimitive {
    /// The id under which it is registered.
    pub const ID: &str = "rye/core/primitives/mcp";

    /// For the servers of a project and of a user, whose folder holds the vault that
    /// opens their secrets.
    pub fn new(pool: Pool, project: impl Into<PathBuf>, user: Option<PathBuf>) -> Self {
        let project = project.into();
        let vault = user.map(|user| Vault::new(&user, Some(&project)));
        Self {
            pool,
            project,
            vault,
        }
    }

    async fn answer(
        &self,
        call: Call,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let server = self.server(&call)?;
        metadata.insert("server".into(), json!(server.id));
        metadata.insert("server_hash".into(), json!(server.hash));
        let text = |key: &str| call.config.get(key).and_then(Value::as_str);
        let arguments = match call.parameters {
            Value::Object(ref arguments) => arguments.clone(),
            _ => Map::new(),
        };
        let mut wanted = ToolCall::new(text("tool_name").unwrap_or_default(), arguments);
        wanted.pin = Pin::from_config(&call.config);
        wanted.timeout = call.timeout;
        wanted.listener = call.listener;
        wanted.asker = ask::caller();
        let answer = self.pool.call(&server, &wanted).await;
        let answer = answer.map_err(|error| failed(&error, metadata))?;
        let mut done = result::mapped(answer);
        let limit = call.config.get("max_output").and_then(Value::as_u64);
        let limit = limit.map_or(LIMIT, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if let Some(long) = result::too_long(&done.data, limit) {
            let mut capture = OutputCapture::new(limit, call.spill.open());
            capture.push(&long).await;
            let captured = capture.finish().await;
            rye_executor::primitive::note_overflow(metadata, "result", &captured);
            done.data = result::cut(&done.data, limit);
        }
        Ok(done)
    }

    /// The server that the verified configuration describes.
    fn server(&self, call: &Call) -> Result<ServerSpec, CallFailure> {
        let wrong = |why: String| CallFailure::new("mcp_config", why);
        let link = call.items.get(SERVER).ok_or_else(|| {
            wrong("the tool's `config` names no `server`, such as mcp/servers/context7".to_owned())
        })?;
        let id = link.id().to_string();
        let config = link.metadata.value("config").unwrap_or(&Value::Null);
        let config = ServerConfig::parse(config).map_err(|why| {
            let path = link.item.path.display();
            wrong(format!("{path}: {why}")).with_hint(format!("rye load {id}"))
        })?;
        let transport = call.config.get("transport").and_then(Value::as_str);
        let own = config.transport.name();
        if transport.is_some_and(|transport| transport != own) {
            return Err(wrong(format!(
                "the server {id} is reached over {own}; the tool is run by rye/core/runtimes/mcp/{}",
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
        // Those of its servers know nothing of the tool's file.
        false
    }

    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let mut done = match self.answer(call, &mut metadata).await {
                Ok(done) => done,
                Err(failed) => CallOutcome {
                    failure: Some(failed),
                    ..CallOutcome::default()
                },
            };
            done.metadata.extend(metadata);
            done
        })
    }

    fn items(&self) -> &'static [&'static str] {
        &[SERVER]
    }
}

/// A failure with what scripts want to know of it.
fn failed(error: &ClientError, metadata: &mut Map<String, Value>) -> CallFailure {
    match &error.kind {
        ClientErrorKind::Rpc { code, data, .. } => {
            metadata.insert("rpc_code".into(), json!(code));
            if let Some(data) = data {
                metadata.insert("rpc_data".into(), Value::clone(data));
            }
        }
        ClientErrorKind::Drift(drift) => {
            metadata.insert("accepted".into(), json!(drift.accepted.whole));
            metadata.insert("found".into(), json!(drift.found.whole));
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
