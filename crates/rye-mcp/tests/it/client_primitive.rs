//! Tools of a server called through the executor: verification, pins, and result mapping.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::fault_server;
use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_executor::{ExecutionResult, Executor, Request, Roots, Status};
use rye_items::vault::Vault;
use rye_items::{Library, Options, PathItem, SYSTEM, Space, UserKeys};
use rye_mcp::McpPrimitive;
use rye_mcp::client::Pool;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A project with signed items and an executor.
struct SignedProject {
    dir: TempDir,
    key: SigningKey,
    executor: Executor,
}

impl SignedProject {
    /// Creates a project with a server and an item `mcp/s/TOOL` for each of `tools`.
    fn new(tools: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (project, user) = (dir.path().join("project"), dir.path().join("user"));
        fs::create_dir_all(project.join(".ai")).unwrap();
        let key = UserKeys::new(&user)
            .generate("Ada", IfExists::Fail)
            .unwrap();
        let supervisor = Arc::new(Supervisor::start().unwrap());
        let pool = Pool::new(&supervisor);
        let roots = Roots {
            user: Some(user.clone()),
            ..Roots::new(&project, dir.path().join("cache"))
        };
        let mut executor = Executor::new(roots, supervisor);
        let mcp = McpPrimitive::new(pool, &project, Some(user));
        let primitives = executor.primitives_mut();
        primitives.register(McpPrimitive::ID.parse().unwrap(), Vec::new(), Arc::new(mcp));
        let project = Self { dir, key, executor };
        let server = fault_server();
        project.write(
            "mcp/servers/s",
            &json!({"tool_type": "mcp_server", "config": {
                "command": "python3", "args": [server, "healthy"],
                "env": {"API_TOKEN": {"vault": "S_TOKEN"}},
            }}),
        );
        for tool in tools {
            project.tool(tool, &json!({}));
        }
        project
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    fn secret(&self, value: &str) {
        let vault = Vault::new(&self.user(), Some(&self.project()));
        let secret = lillux::envelope::Secret::new(value.into());
        vault
            .set(Space::User, &"S_TOKEN".parse().unwrap(), &secret)
            .unwrap();
    }

    /// Writes an item as JSON, which is valid YAML, and signs it.
    fn write(&self, id: &str, fields: &Value) {
        let path = self.project().join(format!(".ai/tools/{id}.yaml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, fields.to_string()).unwrap();
        self.sign(&path);
    }

    fn sign(&self, path: &Path) {
        let (project, user) = (self.project(), self.user());
        let library = Library::open(&Options {
            project: Some(&project),
            user: Some(&user),
            ..Options::new(&SYSTEM)
        })
        .unwrap();
        let (PathItem::Items(items), _) = library.items_at_path(path).unwrap() else {
            panic!("{} is not an item", path.display());
        };
        for found in items {
            library.sign(&found, &self.key, None).unwrap();
        }
    }

    fn tool(&self, name: &str, more: &Value) {
        let mut config = json!({"server": "mcp/servers/s", "tool_name": name});
        let fields = config.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let item = json!({
            "version": "1.0.0", "executor_id": "rye/core/runtimes/mcp/stdio", "config": config,
        });
        self.write(&format!("mcp/s/{name}"), &item);
    }

    async fn run(&self, tool: &str, parameters: Value) -> ExecutionResult {
        let id = format!("mcp/s/{tool}").parse().unwrap();
        self.executor
            .execute(Request::new(id).with_parameters(parameters))
            .await
    }
}

fn code(result: &ExecutionResult) -> &str {
    result.error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn results_are_mapped_and_failures_have_codes() {
    let project = SignedProject::new(&["structured", "image", "failed", "error", "echo", "secret"]);
    project.secret("open-sesame");
    let structured = project
        .run("structured", json!({"timeout": 1, "server": "x"}))
        .await;
    assert_eq!(structured.status, Status::Success, "{structured:?}");
    // Parameter names cannot clash with configuration keys.
    assert_eq!(
        structured.data,
        json!({"got": {"timeout": 1, "server": "x"}})
    );
    assert_eq!(structured.metadata["server"], "mcp/servers/s");
    let image = project.run("image", json!({})).await;
    assert_eq!(image.data["content"][0]["mimeType"], "image/png");
    let failed = project.run("failed", json!({})).await;
    assert_eq!(code(&failed), "tool_failed");
    let error = project.run("error", json!({})).await;
    assert_eq!(code(&error), "mcp_error");
    assert_eq!(error.metadata["rpc_code"], -32042);
    assert_eq!(error.metadata["rpc_data"], json!({"city": "X"}));
    let literal = project
        .run("echo", json!({"text": "${HOME} {tool_path}"}))
        .await;
    assert_eq!(literal.data, json!({"text": "${HOME} {tool_path}"}));
    let secret = project.run("secret", json!({})).await;
    let shown = serde_json::to_string(&secret).unwrap();
    assert!(
        shown.contains("the token is [redacted]") && !shown.contains("sesame"),
        "{shown}"
    );
}

#[tokio::test]
async fn missing_or_changed_items_are_reported_and_nothing_runs() {
    let project = SignedProject::new(&["echo"]);
    let unset = project.run("echo", json!({})).await;
    assert_eq!(code(&unset), "mcp_config", "{unset:?}");
    assert!(unset.error.unwrap().message.contains("S_TOKEN"));
    project.secret("x");
    let hash = project.run("echo", json!({})).await.metadata["chain_hash"].clone();
    project.write(
        "mcp/servers/s",
        &json!({"tool_type": "mcp_server", "config": {"command": "python3", "args": [fault_server()]}}),
    );
    let other = project.run("echo", json!({})).await;
    assert_ne!(
        other.metadata["chain_hash"], hash,
        "the configuration is part of what runs"
    );
    let file = project.project().join(".ai/tools/mcp/servers/s.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("python3", "python4")).unwrap();
    assert_eq!(
        code(&project.run("echo", json!({})).await),
        "content_changed"
    );
    fs::remove_file(&file).unwrap();
    let removed = project.run("echo", json!({})).await;
    assert_eq!(code(&removed), "item_not_found", "{removed:?}");
    project.tool(
        "drifted",
        &json!({"tool_name": "echo", "pin": "0".repeat(64)}),
    );
    fs::write(&file, text).unwrap();
    let drifted = project.run("drifted", json!({})).await;
    assert_eq!(code(&drifted), "mcp_drift", "{drifted:?}");
}

#[tokio::test]
async fn long_result_is_stored_in_the_cas() {
    let project = SignedProject::new(&["long"]);
    project.secret("x");
    let long = project.run("long", json!({"mebibytes": 3})).await;
    assert_eq!(long.status, Status::Success, "{:?}", long.error);
    assert_eq!(long.data["truncated"], true);
    assert_eq!(long.data["text"].as_str().unwrap().len(), 1 << 20);
    let hash = long.metadata["result_hash"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let store = lillux::cas::Cas::open(project.dir.path().join("cache/output")).unwrap();
    let whole: Value = serde_json::from_slice(&store.get(&hash).unwrap()).unwrap();
    assert_eq!(whole["text"].as_str().unwrap().len(), 3 << 20);
}

#[tokio::test]
async fn runtime_can_be_called_directly_and_a_dry_run_finds_a_wrong_transport() {
    let project = SignedProject::new(&["echo"]);
    project.secret("x");
    let request = |transport: &str, dry_run| {
        let id = format!("rye/core/runtimes/mcp/{transport}");
        let mut request = Request::new(id.parse().unwrap()).with_parameters(json!({
            "server": "mcp/servers/s", "tool_name": "echo", "arguments": {"text": "hi"},
        }));
        request.dry_run = dry_run;
        request
    };
    let result = project.executor.execute(request("stdio", false)).await;
    assert_eq!(result.data, json!({"text": "hi"}), "{result:?}");
    for dry_run in [true, false] {
        let result = project.executor.execute(request("http", dry_run)).await;
        assert_eq!(code(&result), "mcp_config", "{result:?}");
    }
}
