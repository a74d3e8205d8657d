//! Servers that go wrong as told, and a pool to call them from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lillux::Hash;
use lillux::process::Supervisor;
use rye_mcp::client::{ClientError, Pool, ServerConfig, ServerSpec, ToolCall};
use serde_json::{Value, json};
use tempfile::TempDir;

/// More than any bounded time of the client, and far less than a server that hangs.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A pool, and a folder in which its servers run.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) pool: Pool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            pool: Pool::new(&Supervisor::start().unwrap()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The fault server, started in a way, with a limit of 2 s on everything.
    pub(crate) fn server(&self, start: &str) -> ServerSpec {
        self.server_with(start, &json!({}))
    }

    /// The same, with more of a configuration.
    pub(crate) fn server_with(&self, start: &str, more: &Value) -> ServerSpec {
        let mut config = json!({
            "command": "python3",
            "args": [fault_server(), start],
            "env": {"MARK": self.mark()},
            "start_timeout": 20,
            "call_timeout": 20,
        });
        let fields = config.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        self.configured(start, &config)
    }

    pub(crate) fn configured(&self, name: &str, config: &Value) -> ServerSpec {
        ServerSpec {
            id: format!("mcp/servers/{name}"),
            hash: Hash::digest(config.to_string()),
            config: ServerConfig::parse(config).unwrap(),
            project: self.path().to_owned(),
            environment: std::env::vars().collect::<BTreeMap<_, _>>(),
            vault: None,
        }
    }

    /// A file that servers write to.
    pub(crate) fn mark(&self) -> PathBuf {
        self.path().join("mark")
    }

    pub(crate) async fn call(
        &self,
        server: &ServerSpec,
        tool: &str,
        arguments: Value,
    ) -> Result<Value, ClientError> {
        let arguments = arguments.as_object().unwrap().clone();
        let call = ToolCall::new(tool, arguments);
        self.pool.call(server, &call).await
    }

    /// The text that a call gives.
    pub(crate) async fn text(&self, server: &ServerSpec, tool: &str, arguments: Value) -> String {
        let answer = self.call(server, tool, arguments).await.unwrap();
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// How a call fails, and that it does soon.
    pub(crate) async fn fails(&self, server: &ServerSpec, tool: &str) -> ClientError {
        self.fails_with(server, &ToolCall::new(tool, serde_json::Map::new()))
            .await
    }

    pub(crate) async fn fails_with(&self, server: &ServerSpec, call: &ToolCall) -> ClientError {
        let outcome = tokio::time::timeout(SOON, self.pool.call(server, call)).await;
        outcome.unwrap().unwrap_err()
    }

    /// The processes that are in the folder: servers, and what they started.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let inside = all.filter(|process| {
            let cwd = fs::read_link(process.path().join("cwd"));
            cwd.is_ok_and(|cwd| cwd.starts_with(self.path()))
        });
        inside
            .filter_map(|process| process.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Waits until there are so many processes.
    pub(crate) async fn until_processes(&self, count: usize) {
        until(
            || self.processes().len() == count,
            || format!("{:?} are not {count}", self.processes()),
        )
        .await;
    }
}

/// Waits until something is so, for a bounded time.
pub(crate) async fn until(is: impl Fn() -> bool, what: impl Fn() -> String) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < SOON, "{}", what());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn fault_server() -> String {
    format!("{}/tests/fault_server.py", env!("CARGO_MANIFEST_DIR"))
}
