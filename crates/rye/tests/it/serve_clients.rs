//! `rye serve` with other people's clients: a client generated from the API's document, and clients
//! of the OpenAI-compatible endpoints and of `/ag-ui`.
//!
//! The clients are scripts in `crates/rye-server/tests/clients`. `cargo xtask test` installs what
//! they need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::mcp_support::tools_dir;
use crate::serve::env_with;
use crate::serve_support::{Server, client};
use crate::support::TestEnv;

/// Four turns, the third of which asks before it writes.
const STEPS: &str = "steps:
  - { text: 'hello wörld', chunk_chars: 2, usage: { input: 100, output: 5 } }
  - { text: 'second', chunk_chars: 2, chunk_ms: 5 }
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'Done.' }
  - { text: 'last' }
";
const SLOW: &str = "steps: [{ text: 'slow', chunk_chars: 1, chunk_ms: 60000 }]\n";
const JUDGE: &str =
    "steps: [{ text: \"---RESULT_START---\\n{\\\"good\\\": true}\\n---RESULT_END---\" }]\n";

/// A project with the roles that the clients use as models.
fn project() -> TestEnv {
    let env = env_with(STEPS);
    env.write("project/slow.yaml", SLOW);
    env.write("project/judge.yaml", JUDGE);
    let roles = [
        ("reviewer", "Review."),
        ("slow", "---\nmodel: scripted:slow.yaml\n---\nWait."),
        ("judge", "---\nmodel: scripted:judge.yaml\n---\nJudge."),
    ];
    for (name, text) in roles {
        env.write(&format!("project/.ai/roles/{name}.md"), text);
    }
    env
}

fn script(name: &str) -> PathBuf {
    let clients = "../rye-server/tests/clients";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(clients)
        .join(name)
}

/// Runs a client to its end.
fn run(client: &mut Command, server: &Server) {
    client.args([&server.url, &server.token]);
    let output = client.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
}

#[test]
fn python_client_works() {
    let (env, packages) = (project(), tools_dir("openai-python"));
    let server = Server::start(&env);
    let mut client = Command::new(packages.join("bin/python"));
    client.arg(script("openai_python.py"));
    run(client.env("PYTHONPATH", &packages), &server);
}

#[test]
fn npm_clients_work() {
    let (env, packages) = (project(), tools_dir("openai-node"));
    let server = Server::start(&env);
    let mut client = Command::new(tools_dir("node").join("bin/node"));
    client.arg(script("openai_node.mjs"));
    run(client.env("OPENAI_PACKAGES", &packages), &server);
}

#[test]
fn ag_ui_client_works() {
    let (env, packages) = (project(), tools_dir("ag-ui-node"));
    let server = Server::start(&env);
    let mut client = Command::new(tools_dir("node").join("bin/node"));
    client.arg(script("ag_ui_node.mjs"));
    run(client.env("AG_UI_PACKAGES", &packages), &server);
}

#[test]
fn ag_ui_events_are_valid_for_the_python_package() {
    let (env, packages) = (project(), tools_dir("ag-ui-python"));
    let server = Server::start(&env);
    let mut client = Command::new(packages.join("bin/python"));
    client.arg(script("ag_ui_python.py"));
    run(client.env("PYTHONPATH", &packages), &server);
}

/// Runs a program to its end.
fn check(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}\n{output:?}");
}

/// The packages for the document, and the document of a running server.
async fn document(env: &TestEnv, server: &Server) -> (PathBuf, PathBuf) {
    let url = format!("{}/api/openapi.json", server.url);
    let document = client().get(url).send().await.unwrap();
    env.write("client/openapi.json", &document.text().await.unwrap());
    let packages = tools_dir("openapi-client").canonicalize().unwrap();
    (packages, env.path("client/openapi.json"))
}

/// A program of the packages, which Node 22 runs.
fn package(packages: &Path, script: &str) -> Command {
    let mut command = Command::new(tools_dir("node").join("bin/node"));
    command.arg(packages.join("node_modules").join(script));
    command
}

#[tokio::test]
async fn openapi_document_passes_the_linter() {
    let env = project();
    let server = Server::start(&env);
    let (packages, document) = document(&env, &server).await;
    let mut lint = package(&packages, "@redocly/cli/bin/cli.js");
    lint.arg("lint").arg("--config").arg(script("redocly.yaml"));
    lint.env("REDOCLY_TELEMETRY", "off")
        .env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    check(lint.arg(document).current_dir(env.path("client")));
}

#[tokio::test]
async fn client_generated_from_the_document_prompts_streams_and_decides() {
    let env = env_with(
        "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'Done.' }
",
    );
    let server = Server::start(&env);
    let (packages, document) = document(&env, &server).await;
    let folder = env.path("client");
    std::os::unix::fs::symlink(packages.join("node_modules"), folder.join("node_modules")).unwrap();
    let own = folder.join("openapi_client.mjs");
    fs::copy(script("openapi_client.mjs"), &own).unwrap();
    let mut generate = package(&packages, "openapi-typescript/bin/cli.js");
    generate.arg("--default-non-nullable=false").arg(document);
    check(generate.arg("--output").arg(folder.join("openapi.d.ts")));
    let mut types = package(&packages, "typescript/bin/tsc");
    types.args(["--noEmit", "--checkJs", "--strict", "--skipLibCheck"]);
    types.args([
        "--target", "es2023", "--module", "nodenext", "--types", "node",
    ]);
    check(types.arg(&own).current_dir(&folder));
    let mut client = Command::new(tools_dir("node").join("bin/node"));
    run(client.arg(own), &server);
    assert_eq!(env.read("project/out.txt"), "hi\n");
}
