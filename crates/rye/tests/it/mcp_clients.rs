//! `rye mcp serve` with the official clients, over both transports.
//!
//! The clients are scripts in `crates/rye-mcp/tests/clients`: each follows the same plan
//! and prints its observations. `cargo xtask test` installs what they need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::mcp_support::http::Server;
use crate::mcp_support::{env, tools_dir};
use crate::support::TestEnv;
use serde_json::{Value, json};

const TOOLS: [&str; 5] = ["search", "load", "execute", "sign", "help"];

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    Http,
}

/// The plan of a client, passed as its only argument.
fn plan(env: &TestEnv, server: Option<&Server>, mode: &str, roots: bool) -> Value {
    let mut plan = json!({
        "project": env.path("project"),
        "mode": mode,
        "roots": roots,
    });
    if let Some(server) = server {
        plan["url"] = json!(server.url());
        return plan;
    }
    let command = env.command();
    let all = command.get_envs();
    let all = all.filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    plan["env"] = all.map(|(name, value)| (name, json!(value))).collect();
    plan["command"] = json!([env!("CARGO_BIN_EXE_rye"), "mcp", "serve"]);
    // A client without roots names a project below the server's directory.
    plan["cwd"] = json!(env.path(if roots { "elsewhere" } else { "" }));
    plan
}

fn script(name: &str) -> PathBuf {
    let clients = "../rye-mcp/tests/clients";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(clients)
        .join(name)
}

/// Runs a client and returns its observations.
fn run_client(client: &mut Command) -> Value {
    let output = client.stdin(Stdio::null()).output().unwrap();
    let aside = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{aside}", output.status);
    assert_eq!(aside, "", "it complains");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn python(over: Transport, mode: &str, roots: bool) -> Value {
    let (env, sdk) = (env(), tools_dir("python-sdk"));
    let directory = if roots { "project" } else { "" };
    let server = (over == Transport::Http).then(|| Server::start_in(&env, directory, &[]));
    let plan = plan(&env, server.as_ref(), mode, roots);
    let mut client = Command::new(sdk.join("bin/python"));
    client.arg(script("python_sdk.py")).arg(plan.to_string());
    let saw = run_client(client.env("PYTHONPATH", &sdk));
    check(&saw, roots);
    saw
}

fn typescript(over: Transport) -> Value {
    let (env, sdk) = (env(), tools_dir("typescript-sdk"));
    let server = (over == Transport::Http).then(|| Server::start_in_project(&env, &[]));
    let plan = plan(&env, server.as_ref(), "", true);
    let mut client = Command::new(tools_dir("node").join("bin/node"));
    client
        .arg(script("typescript_sdk.mjs"))
        .arg(plan.to_string());
    let saw = run_client(client.env("MCP_SDK", sdk));
    check(&saw, true);
    saw
}

/// Whether a call succeeded, and its text.
fn text_of_result(result: &Value) -> (bool, &str) {
    let is_good = result["isError"] != true;
    (is_good, result["content"][0]["text"].as_str().unwrap())
}

fn text_of_success(result: &Value) -> &str {
    let (good, text) = text_of_result(result);
    assert!(good, "{text}");
    text
}

/// The error code of a failed call.
fn error_code(result: &Value) -> &str {
    let (good, text) = text_of_result(result);
    assert!(!good, "it succeeded: {text}");
    let code = result["structuredContent"]["error"]["code"]
        .as_str()
        .unwrap();
    assert!(text.starts_with(code), "{text}");
    code
}

/// Checks the observations that every client must make.
fn check(saw: &Value, roots: bool) {
    assert_eq!(saw["server"], "rye");
    assert_eq!(saw["tools"], json!(TOOLS));
    assert!(text_of_success(&saw["search"]).contains("tool:greet"));
    assert_eq!(saw["search"]["structuredContent"]["hits"][0]["id"], "greet");
    assert!(text_of_success(&saw["load"]).contains("echo hello; cat"));
    let load = &saw["load"]["structuredContent"];
    assert_eq!(load["verification"]["state"], "verified", "{load}");
    assert_eq!(
        text_of_success(&saw["execute"]),
        "hello\n{\"name\":\"Ada\"}"
    );
    let ran = &saw["execute"]["structuredContent"];
    assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
    assert_eq!(error_code(&saw["fails"]), "exit_code");
    assert!(text_of_result(&saw["fails"]).1.contains("[stderr]\nwhy"));
    assert_eq!(error_code(&saw["unsigned"]), "unsigned");
    text_of_success(&saw["sign"]);
    let signed = &saw["sign"]["structuredContent"]["counts"]["signed"];
    assert_eq!(*signed, 1, "{}", saw["sign"]);
    let asked = saw["asked"].as_array().unwrap();
    let question = asked[0].as_str().unwrap();
    assert!(question.starts_with("Sign tool:fresh?"), "{question}");
    assert!(asked.len() == 1 && question.contains("echo fresh"));
    assert_eq!(text_of_success(&saw["signed"]), "fresh\n");
    assert!(text_of_success(&saw["help"]).starts_with("Five tools"));
    assert_eq!(error_code(&saw["wrong"]), "invalid_arguments");
    check_approval(&saw["approval"]);
    check_cancel(&saw["cancel"]);
    let resources = saw["resources"].as_array().unwrap();
    assert!(resources.contains(&json!("rye://knowledge/rye/items")));
    let resource = &saw["resource"]["contents"][0];
    assert_eq!(resource["mimeType"], "text/markdown");
    assert!(
        resource["text"]
            .as_str()
            .unwrap()
            .contains("Items and spaces")
    );
    // Without a root, the server doesn't know the project of the directives.
    if roots {
        assert_eq!(saw["prompts"], json!(["tidy"]));
        let prompt = &saw["prompt"]["messages"][0]["content"]["text"];
        assert!(prompt.as_str().unwrap().contains("- where: here"));
    } else {
        assert_eq!(saw["prompts"], json!([]));
    }
}

fn check_approval(approval: &Value) {
    assert_eq!(error_code(&approval["declined"]), "approval_declined");
    assert_eq!(error_code(&approval["unticked"]), "approval_declined");
    assert_eq!(approval["ran_unapproved"], false);
    text_of_success(&approval["approved"]);
    assert_eq!(approval["ran"], true);
    let asked = approval["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 3);
    let question = asked[0].as_str().unwrap();
    assert!(question.starts_with("Run careful?") && question.contains("signed by: "));
}

fn check_cancel(cancel: &Value) {
    let progress = cancel["progress"].as_array().unwrap();
    assert_eq!(progress[0][0].as_f64(), Some(8.0), "{cancel}");
    assert_eq!(progress[0][1], "started", "{cancel}");
    assert_eq!(cancel["gone"], true, "a process was left");
    text_of_success(&cancel["after"]);
}

#[test]
fn python_client_over_stdio() {
    let saw = python(Transport::Stdio, "legacy", true);
    assert_eq!(saw["protocol"], "2025-11-25");
}

#[test]
fn python_client_over_stdio_in_the_newest_revision() {
    let saw = python(Transport::Stdio, "auto", false);
    assert_eq!(saw["protocol"], "2026-07-28");
}

#[test]
fn python_client_over_http() {
    let saw = python(Transport::Http, "legacy", true);
    assert_eq!(saw["protocol"], "2025-11-25");
}

#[test]
fn python_client_over_http_in_the_newest_revision() {
    let saw = python(Transport::Http, "auto", false);
    assert_eq!(saw["protocol"], "2026-07-28");
}

#[test]
fn typescript_client_over_stdio() {
    typescript(Transport::Stdio);
}

#[test]
fn typescript_client_over_http() {
    let saw = typescript(Transport::Http);
    assert_eq!(saw["protocol"], "2025-11-25");
}

/// Runs the inspector and returns its exit code and output.
fn inspect(env: &TestEnv, server: Option<&Server>, era: &str, ask: &[&str]) -> (i32, Value) {
    let mut inspector = Command::new(tools_dir("node").join("bin/node"));
    inspector
        .arg(tools_dir("mcp-inspector").join("bin/mcp-inspector"))
        .args(["--cli", "--format", "json", "--protocol-era", era])
        .args(ask)
        .current_dir(env.path("project"))
        .env_clear()
        .envs(env.command().get_envs().filter_map(|(n, v)| Some((n, v?))))
        .stdin(Stdio::null());
    match server {
        Some(server) => inspector.args(["--server-url", &server.url()]),
        None => inspector.args(["--", env!("CARGO_BIN_EXE_rye"), "mcp", "serve"]),
    };
    let output = inspector.output().unwrap();
    let aside = String::from_utf8_lossy(&output.stderr);
    let printed = serde_json::from_slice(&output.stdout);
    let printed = printed.unwrap_or_else(|error| panic!("{error}: {aside}"));
    (output.status.code().unwrap(), printed)
}

fn inspector(over: Transport, era: &str) {
    let env = env();
    let server = (over == Transport::Http).then(|| Server::start_in_project(&env, &[]));
    let inspect = |ask: &[&str]| inspect(&env, server.as_ref(), era, ask);
    let call = |tool: &str, arguments: Value| {
        let arguments = arguments.to_string();
        let ask = ["--method", "tools/call", "--tool-name", tool];
        let ask = [&ask[..], &["--tool-args-json", &arguments]].concat();
        inspect(&ask).1["result"].clone()
    };
    // Strict: also checks that every client can read the schemas.
    let (exit, listed) = inspect(&["--method", "tools/list", "--strict"]);
    assert_eq!(exit, 0, "{listed}");
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5, "{listed}");
    let tool = |name: &str| json!({ "item_type": "tool", "item_id": name });
    assert!(text_of_success(&call("search", json!({ "query": "greet" }))).contains("tool:greet"));
    assert!(text_of_success(&call("load", tool("greet"))).contains("echo hello; cat"));
    assert_eq!(
        text_of_success(&call("execute", tool("greet"))),
        "hello\n{}"
    );
    assert_eq!(error_code(&call("execute", tool("fails"))), "exit_code");
    // The inspector has no forms, so the gate is answered with `rye gate`.
    let refused = call("sign", tool("fresh"));
    assert_eq!(error_code(&refused), "approval_required");
    let gate = refused["structuredContent"]["error"]["gate"].as_str();
    let approved = env.run(&["gate", "approve", gate.unwrap()]);
    assert!(approved.status.success(), "{approved:?}");
    text_of_success(&call("sign", tool("fresh")));
    assert!(text_of_success(&call("help", json!({}))).starts_with("Five tools"));
}

#[test]
fn inspector_over_stdio() {
    inspector(Transport::Stdio, "legacy");
}

#[test]
fn inspector_over_http() {
    inspector(Transport::Http, "modern");
}
