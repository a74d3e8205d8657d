//! What a call to an MCP server costs.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, anyhow};
use lillux::Hash;
use lillux::process::Supervisor;
use rye_mcp::client::{Pool, Server, ServerConfig, ToolCall};
use serde_json::{Map, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::measure::try_interleaved;
use crate::table::Row;

/// Rounds: each starts a server.
const ROUNDS: usize = 40;

/// The least that answers: what is measured beside it is ours.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"content": [{"type": "text", "text": "x"}]}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// A first call, which starts the server, and a second.
pub fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let warm = Pool::new(&world.supervisor);
    let second = try_interleaved(
        ROUNDS,
        || world.call(&Pool::new(&world.supervisor)),
        || world.call(&warm),
    )?;
    Ok(vec![Row::time(
        "a second call to a stdio server, beside the first",
        second,
        0.1,
    )])
}

struct World {
    _folder: TempDir,
    supervisor: Supervisor,
    runtime: Runtime,
    server: Server,
}

impl World {
    fn make() -> Result<Self> {
        let supervisor = Supervisor::start()?;
        let folder = tempfile::tempdir()?;
        let script = folder.path().join("server.py");
        fs::write(&script, SERVER)?;
        let config = json!({ "command": "python3", "args": [script] });
        let server = Server {
            id: "mcp/servers/least".to_owned(),
            hash: Hash::of(config.to_string()),
            config: ServerConfig::read(&config).map_err(|why| anyhow!(why))?,
            project: folder.path().to_owned(),
            environment: std::env::vars().collect::<BTreeMap<_, _>>(),
            vault: None,
        };
        Ok(Self {
            _folder: folder,
            supervisor,
            runtime: Builder::new_current_thread().enable_all().build()?,
            server,
        })
    }

    fn call(&self, pool: &Pool) -> Result<()> {
        let call = ToolCall::new("x", Map::new());
        self.runtime.block_on(pool.call(&self.server, &call))?;
        Ok(())
    }
}
