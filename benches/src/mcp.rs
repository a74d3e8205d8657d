//! Calls to an MCP server.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, anyhow};
use lillux::Hash;
use lillux::process::Supervisor;
use rye_mcp::client::{Pool, ServerConfig, ServerSpec, ToolCall};
use serde_json::{Map, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::measure::try_interleaved;
use crate::table::Row;

/// Rounds; each starts a server.
const ROUNDS: usize = 40;

/// A minimal server.
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

/// A second call, compared with the first one, which starts the server.
pub fn run() -> Result<Vec<Row>> {
    let fixture = Fixture::new()?;
    let warm = Pool::new(&fixture.supervisor);
    let second = try_interleaved(
        ROUNDS,
        || fixture.call(&Pool::new(&fixture.supervisor)),
        || fixture.call(&warm),
    )?;
    Ok(vec![Row::time(
        "second call to a stdio server vs. the first",
        second,
        0.1,
    )])
}

struct Fixture {
    _directory: TempDir,
    supervisor: Supervisor,
    runtime: Runtime,
    server: ServerSpec,
}

impl Fixture {
    fn new() -> Result<Self> {
        let supervisor = Supervisor::start()?;
        let directory = tempfile::tempdir()?;
        let script = directory.path().join("server.py");
        fs::write(&script, SERVER)?;
        let config = json!({ "command": "python3", "args": [script] });
        let server = ServerSpec {
            id: "mcp/servers/minimal".to_owned(),
            hash: Hash::digest(config.to_string()),
            config: ServerConfig::parse(&config).map_err(|why| anyhow!(why))?,
            project: directory.path().to_owned(),
            environment: std::env::vars().collect::<BTreeMap<_, _>>(),
            vault: None,
        };
        Ok(Self {
            _directory: directory,
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
