//! `rye mcp serve` as the official clients see it, over both transports.
//!
//! The clients are scripts in `crates/rye-mcp/tests/clients`: each follows the same plan
//! and prints what it saw. `cargo xtask test` installs what they need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::mcp_support::http::Server;
use crate::mcp_support::{env, kept};
use crate::support::TestEnv;
use serde_json::{Value, json};

const FIVE: [&str; 5] = ["search", "load", "execute", "sign", "help"];

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Stdio,
    Http,
}

/// What a client is told to do, as its only argument.
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
    // A client without roots names a project below the directory of the server.
    plan["cwd"] = json!(env.path(if roots { "elsewhere" } else { "" }));
    plan
}

fn script(name: &str) -> PathBuf {
    let clients = "../rye-mcp/tests/clients";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(clients)
        .join(name)
}

/// Runs a client and gives what it saw.
fn saw(client: &mut Command) -> Value {
    let output = client.stdin(Stdio::null()).output().unwrap();
    let aside = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{aside}", output.status);
    assert_eq!(aside, "", "it complains");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn python(over: Over, mode: &str, roots: bool) -> Value {
    let (env, sdk) = (env(), kept("python-sdk"));
    let directory = if roots { "project" } else { "" };
    let server = (over == Over::Http).then(|| Server::start_in(&env, directory, &[]));
    let plan = plan(&env, server.as_ref(), mode, roots);
    let mut client = Command::new(sdk.join("bin/python"));
    client.arg(script("python_sdk.py")).arg(plan.to_string());
    let saw = saw(client.env("PYTHONPATH", &sdk));
    check(&saw, roots);
    saw
}

fn typescript(over: Over) -> Value {
    let (env, sdk) = (env(), kept("typescript-sdk"));
    let server = (over == Over::Http).then(|| Server::of_project(&env, &[]));
    let plan = plan(&env, server.as_ref(), "", true);
    let mut client = Command::new(kept("node").join("bin/node"));
    client
        .arg(script("typescript_sdk.mjs"))
        .arg(plan.to_string());
    let saw = saw(client.env("MCP_SDK", sdk));
    check(&saw, true);
    saw
}

/// Whether a call succeeded, and its words.
fn told(result: &Value) -> (bool, &str) {
    let is_good = result["isError"] != true;
    (is_good, result["content"][0]["text"].as_str().unwrap())
}

fn is_good(result: &Value) -> &str {
    let (good, text) = told(result);
    assert!(good, "{text}");
    text
}

/// The code with which a call failed.
fn code(result: &Value) -> &str {
    let (good, text) = told(result);
    assert!(!good, "it succeeded: {text}");
    let code = result["structuredContent"]["error"]["code"]
        .as_str()
        .unwrap();
    assert!(text.starts_with(code), "{text}");
    code
}

/// What every client must have seen.
fn check(saw: &Value, roots: bool) {
    assert_eq!(saw["server"], "rye");
    assert_eq!(saw["tools"], json!(FIVE));
    assert!(is_good(&saw["search"]).contains("tool:greet"));
    assert_eq!(saw["search"]["structuredContent"]["hits"][0]["id"], "greet");
    assert!(is_good(&saw["load"]).contains("echo hello; cat"));
    let load = &saw["load"]["structuredContent"];
    assert_eq!(load["verification"]["state"], "verified", "{load}");
    assert_eq!(is_good(&saw["execute"]), "hello\n{\"name\":\"Ada\"}");
    let ran = &saw["execute"]["structuredContent"];
    assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
    assert_eq!(code(&saw["fails"]), "exit_code");
    assert!(told(&saw["fails"]).1.contains("[stderr]\nwhy"));
    assert_eq!(code(&saw["unsigned"]), "unsigned");
    is_good(&saw["sign"]);
    let signed = &saw["sign"]["structuredContent"]["counts"]["signed"];
    assert_eq!(*signed, 1, "{}", saw["sign"]);
    let asked = saw["asked"].as_array().unwrap();
    let question = asked[0].as_str().unwrap();
    assert!(question.starts_with("Sign tool:fresh?"), "{question}");
    assert!(asked.len() == 1 && question.contains("echo fresh"));
    assert_eq!(is_good(&saw["signed"]), "fresh\n");
    assert!(is_good(&saw["help"]).starts_with("Five tools"));
    assert_eq!(code(&saw["wrong"]), "invalid_arguments");
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
    // Without a root the server does not know the project whose directives they are.
    if roots {
        assert_eq!(saw["prompts"], json!(["tidy"]));
        let prompt = &saw["prompt"]["messages"][0]["content"]["text"];
        assert!(prompt.as_str().unwrap().contains("- where: here"));
    } else {
        assert_eq!(saw["prompts"], json!([]));
    }
}

fn check_approval(approval: &Value) {
    assert_eq!(code(&approval["declined"]), "approval_declined");
    assert_eq!(code(&approval["unticked"]), "approval_declined");
    assert_eq!(approval["ran_unapproved"], false);
    is_good(&approval["approved"]);
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
    is_good(&cancel["after"]);
}

#[test]
fn the_python_client_over_stdio() {
    let saw = python(Over::Stdio, "legacy", true);
    assert_eq!(saw["protocol"], "2025-11-25");
}

#[test]
fn the_python_client_over_stdio_in_the_newest_revision() {
    let saw = python(Over::Stdio, "auto", false);
    assert_eq!(saw["protocol"], "2026-07-28");
}

#[test]
fn the_python_client_over_http() {
    let saw = python(Over::Http, "legacy", true);
    assert_eq!(saw["protocol"], "2025-11-25");
}

#[test]
fn the_python_client_over_http_in_the_newest_revision() {
    let saw = python(Over::Http, "auto", false);
    assert_eq!(saw["protocol"], "2026-07-28");
}

#[test]
fn the_typescript_client_over_stdio() {
    typescript(Over::Stdio);
}

#[test]
fn the_typescript_client_over_http() {
    let saw = typescript(Over::Http);
    assert_eq!(saw["protocol"], "2025-11-25");
}

/// One call of the inspector: its exit code, and what it printed.
fn inspect(env: &TestEnv, server: Option<&Server>, era: &str, ask: &[&str]) -> (i32, Value) {
    let mut inspector = Command::new(kept("node").join("bin/node"));
    inspector
        .arg(kept("mcp-inspector").join("bin/mcp-inspector"))
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

fn inspector(over: Over, era: &str) {
    let env = env();
    let server = (over == Over::Http).then(|| Server::of_project(&env, &[]));
    let inspect = |ask: &[&str]| inspect(&env, server.as_ref(), era, ask);
    let call = |tool: &str, arguments: Value| {
        let arguments = arguments.to_string();
        let ask = ["--method", "tools/call", "--tool-name", tool];
        let ask = [&ask[..], &["--tool-args-json", &arguments]].concat();
        inspect(&ask).1["result"].clone()
    };
    // Strict: it also looks whether every model's host can read the schemas.
    let (exit, listed) = inspect(&["--method", "tools/list", "--strict"]);
    assert_eq!(exit, 0, "{listed}");
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5, "{listed}");
    let tool = |name: &str| json!({ "item_type": "tool", "item_id": name });
    assert!(is_good(&call("search", json!({ "query": "greet" }))).contains("tool:greet"));
    assert!(is_good(&call("load", tool("greet"))).contains("echo hello; cat"));
    assert_eq!(is_good(&call("execute", tool("greet"))), "hello\n{}");
    assert_eq!(code(&call("execute", tool("fails"))), "exit_code");
    // It has no forms, so a person answers from a terminal.
    let refused = call("sign", tool("fresh"));
    assert_eq!(code(&refused), "approval_required");
    let gate = refused["structuredContent"]["error"]["gate"].as_str();
    let approved = env.run(&["gate", "approve", gate.unwrap()]);
    assert!(approved.status.success(), "{approved:?}");
    is_good(&call("sign", tool("fresh")));
    assert!(is_good(&call("help", json!({}))).starts_with("Five tools"));
}

#[test]
fn the_inspector_over_stdio() {
    inspector(Over::Stdio, "legacy");
}

#[test]
fn the_inspector_over_http() {
    inspector(Over::Http, "modern");
}
