//! A client pool and the scriptable fault server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lillux::Hash;
use lillux::process::Supervisor;
use rye_mcp::client::{ClientError, Pool, ServerConfig, ServerSpec, ToolCall};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than any limit of the client, but much shorter than a hanging server.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A pool and the directory in which its servers run.
pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) pool: Pool,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            pool: Pool::new(&Supervisor::start().unwrap()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The fault server in this mode, with limits of 20 s.
    pub(crate) fn server(&self, mode: &str) -> ServerSpec {
        self.server_with(mode, &json!({}))
    }

    /// The fault server in this mode, with additional configuration.
    pub(crate) fn server_with(&self, mode: &str, overrides: &Value) -> ServerSpec {
        let mut config = json!({
            "command": "python3",
            "args": [fault_server(), mode],
            "env": {"EVENT_LOG": self.event_log()},
            "start_timeout": 20,
            "call_timeout": 20,
        });
        let fields = config.as_object_mut().unwrap();
        fields.extend(overrides.as_object().unwrap().clone());
        self.configured(mode, &config)
    }

    /// A server with this configuration.
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

    /// File in which the fault server records events.
    pub(crate) fn event_log(&self) -> PathBuf {
        self.path().join("events")
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

    /// The text of a successful call.
    pub(crate) async fn text(&self, server: &ServerSpec, tool: &str, arguments: Value) -> String {
        let answer = self.call(server, tool, arguments).await.unwrap();
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The error of a call without arguments, which must come before the timeout.
    pub(crate) async fn call_error(&self, server: &ServerSpec, tool: &str) -> ClientError {
        self.call_error_with(server, &ToolCall::new(tool, serde_json::Map::new()))
            .await
    }

    pub(crate) async fn call_error_with(
        &self,
        server: &ServerSpec,
        call: &ToolCall,
    ) -> ClientError {
        let outcome = tokio::time::timeout(TIMEOUT, self.pool.call(server, call)).await;
        outcome.unwrap().unwrap_err()
    }

    /// Processes whose working directory is the fixture's: servers and their children.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let in_dir = all.filter(|process| {
            let cwd = fs::read_link(process.path().join("cwd"));
            cwd.is_ok_and(|cwd| cwd.starts_with(self.path()))
        });
        in_dir
            .filter_map(|process| process.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Waits until there are exactly `count` processes.
    pub(crate) async fn until_processes(&self, count: usize) {
        until(
            || self.processes().len() == count,
            || format!("expected {count} processes, found {:?}", self.processes()),
        )
        .await;
    }
}

/// Waits until `condition` holds; panics with `message` after the timeout.
pub(crate) async fn until(condition: impl Fn() -> bool, message: impl Fn() -> String) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "{}", message());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Path of the fault server.
pub(crate) fn fault_server() -> String {
    format!("{}/tests/fault_server.py", env!("CARGO_MANIFEST_DIR"))
}
