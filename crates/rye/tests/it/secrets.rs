//! Secrets that Rye adds to a call are redacted everywhere: on the terminal, for MCP clients,
//! and in records.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::mcp_support::stdio::Client;
use crate::support::TestEnv;
use serde_json::{Value, json};

/// A server that leaks its environment in every possible way.
const SERVER: &str = r#"
import json, os, sys

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

key = os.environ["API_KEY"]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("tell", "text", "wrong")]}
    elif params["name"] == "tell":
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            say({"method": "notifications/progress",
                 "params": {"progressToken": token, "progress": 1, "message": "with " + key}})
        result = {"content": [], "structuredContent": {"env": dict(os.environ), key: [key]}}
    elif params["name"] == "text":
        result = {"content": [{"type": "text", "text": json.dumps("it is " + key)}]}
    else:
        say({"id": message["id"], "error": {"code": -1, "message": "not " + key, "data": {"was": key}}})
        continue
    say({"id": message["id"], "result": result})
"#;

const SECRET: &str = "open\"sesame-4711";

/// A project with a key, a `.env` and a server with a vault secret.
fn env_with_server() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    env.write("server.py", SERVER);
    let server = env.path("server.py");
    let add = ["mcp", "add", "s", "--secret", "API_KEY", "--", "python3"];
    let add = [&add[..], &[server.to_str().unwrap()]].concat();
    let added = env.feed(&add, format!("{SECRET}\n").as_bytes());
    assert!(added.status.success(), "{added:?}");
    let discovered = env.run(&["mcp", "discover", "s"]);
    assert!(discovered.status.success(), "{discovered:?}");
    let flow = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\n\
        permissions: [\"rye.execute.tool.*\"]\n\
        config:\n  start: go\n  nodes:\n    go:\n      action: { primary: execute, \
        item_type: tool, item_id: mcp/s/tell, params: {} }\n      assign: { all: '${result}' }\n      \
        next: done\n    done: { type: return, output: { all: '${state.all}' } }\n";
    env.write("project/.ai/tools/flow.yaml", flow);
    assert!(env.run(&["sign", "flow"]).status.success());
    env
}

fn stdout_and_stderr(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

/// Checks that a text contains the redaction mark and not the secret.
fn assert_redacted(text: &str) {
    assert!(!text.contains("sesame"), "{text}");
    assert!(text.contains("[redacted]"), "{text}");
}

/// Checks that no file below a directory contains a secret.
fn assert_not_in_files(folder: &Path, secret: &str) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            assert_not_in_files(&path, secret);
        } else if let Ok(bytes) = fs::read(&path) {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(secret), "{}: {text}", path.display());
        }
    }
}

/// Waits for a background run and returns its result.
fn background_result(env: &TestEnv, started: &Output) -> String {
    let id = String::from_utf8(started.stdout.clone()).unwrap();
    let output = stdout_and_stderr(&env.run(&["run", "tail", id.trim(), "--follow"]));
    output + &stdout_and_stderr(&env.run(&["run", "status", id.trim()]))
}

#[test]
fn vault_secret_is_redacted_in_server_output() {
    let env = env_with_server();
    for args in [
        &["execute", "mcp/s/tell"][..],
        &["execute", "mcp/s/tell", "--json"],
        &["execute", "mcp/s/text"],
        &["execute", "mcp/s/wrong", "--json"],
        &["mcp", "call", "s", "tell"],
        &["mcp", "call", "s", "wrong", "--json"],
        &["graph", "run", "flow"],
    ] {
        assert_redacted(&stdout_and_stderr(&env.run(args)));
    }
    assert_redacted(&background_result(
        &env,
        &env.run(&["execute", "mcp/s/tell", "--async"]),
    ));
    assert_not_in_files(&env.path("project"), "sesame");
    assert_not_in_files(&env.path("user"), "sesame");
}

#[test]
fn vault_secret_is_redacted_for_mcp_clients() {
    let env = env_with_server();
    let rules = "rules: [{ tool: 'rye:mcp/s/*', action: allow }]\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    let mut client = Client::connect(&env);
    let arguments = json!({ "item_type": "tool", "item_id": "mcp/s/tell" });
    let params = json!({
        "name": "execute", "arguments": arguments, "_meta": { "progressToken": 7 },
    });
    let id = client.request("tools/call", &params);
    loop {
        let message = client.next().unwrap();
        let text = message.to_string();
        assert!(!text.contains("sesame"), "{text}");
        if message["id"] == id {
            assert!(text.contains("[redacted]"), "{text}");
            break;
        }
    }
}

#[test]
fn dotenv_secret_is_redacted_in_tool_output() {
    let env = env_with_server();
    let text = "DB_PASSWORD=sesame-street\nGREETING=hello-there\nPIN_KEY=short\n";
    env.write("project/.env", text);
    let command = ". ./.env; echo $DB_PASSWORD $GREETING $PIN_KEY; echo $DB_PASSWORD | base64; \
                   printf %s ${DB_PASSWORD%t} >&2; sleep 0.1; echo t >&2";
    let bash = ["execute", "rye/bash/bash", "--command", command];
    let output = stdout_and_stderr(&env.run(&bash));
    assert_redacted(&output);
    assert!(output.contains("[redacted] hello-there short"), "{output}");
    assert!(!output.contains("c2VzYW1l"), "{output}");
    assert_redacted(&background_result(
        &env,
        &env.run(&[&bash[..], &["--async"]].concat()),
    ));
    let json =
        json!({ "command": ". ./.env; echo '{\"password\": \"'$DB_PASSWORD'\"}'" }).to_string();
    assert_redacted(&stdout_and_stderr(&env.run(&[
        "execute",
        "rye/bash/bash",
        "--json",
        "--params",
        &json,
    ])));
    assert_not_in_files(&env.path("user/.local"), "sesame");
}

#[test]
fn stored_output_is_redacted() {
    let env = env_with_server();
    env.write("project/.env", "DB_PASSWORD=sesame-street\n");
    let command = "for i in $(seq 100000); do echo line $i ${DB_PASSWORD}; done";
    crate::mcp_support::tool(&env, "long", command);
    assert!(env.run(&["sign", "long"]).status.success());
    let output = env.run(&["execute", "long"]);
    assert!(output.status.success(), "{output:?}");
    let aside = String::from_utf8(output.stderr).unwrap();
    let hint = aside
        .lines()
        .find_map(|line| line.trim().strip_prefix("hint: cat "));
    let whole = fs::read_to_string(hint.unwrap()).unwrap();
    assert_eq!(whole.lines().count(), 100_000);
    assert!(whole.ends_with("line 100000 [redacted]\n"));
    assert_not_in_files(&env.path("user"), "sesame");
}

#[test]
fn long_result_names_where_it_is_stored() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let long = SERVER.replace("\"it is \" + key", "\"x\" * (3 << 20)");
    env.write(
        "server.py",
        &long.replace("os.environ[\"API_KEY\"]", "\"none\""),
    );
    let server = env.path("server.py").display().to_string();
    for args in [
        &["mcp", "add", "s", "--", "python3", &server][..],
        &["mcp", "discover", "s"],
    ] {
        let output = env.run(args);
        assert!(output.status.success(), "{output:?}");
    }
    let output = env.run(&["execute", "mcp/s/text"]);
    let aside = String::from_utf8(output.stderr).unwrap();
    assert!(
        aside.contains("result is too long to show in full"),
        "{aside}"
    );
    let hint = aside
        .lines()
        .find_map(|line| line.trim().strip_prefix("hint: cat "));
    let whole: Value = serde_json::from_slice(&fs::read(hint.unwrap()).unwrap()).unwrap();
    assert!(whole["text"].as_str().unwrap().len() > 3 << 20);
}

#[test]
fn tools_do_not_receive_ryes_own_secrets() {
    let mut env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let models = "providers:\n  mine:\n    api: openai-chat\n    base_url: http://127.0.0.1:9/v1\n    \
                  api_key_env: MY_LLM\n    models: { small: {} }\n  \
                  other:\n    api: openai-chat\n    base_url: http://127.0.0.1:9/v1\n    \
                  api_key_env: PATH\n    models: { tiny: {} }\n";
    env.write("user/.ai/config/agent/models.yaml", models);
    // An unsigned file is ignored.
    let foreign = models.replace("MY_LLM", "GREETING");
    env.write("project/.ai/config/agent/models.yaml", &foreign);
    for name in [
        "MY_LLM",
        "RYE_MCP_TOKEN",
        "RYE_SIGNING_KEY",
        "OPENROUTER_API_KEY",
    ] {
        env.set(name, "sesame");
    }
    env.set("RYE_MAX_TOKENS", "1000");
    env.set("GREETING", "hello");
    let runtime = "rye/core/runtimes/bash/bash";
    let output = env.run(&["execute", runtime, "--command", "env"]);
    let all = stdout_and_stderr(&output);
    assert!(output.status.success() && !all.contains("sesame"), "{all}");
    for kept in ["RYE_MAX_TOKENS=1000", "GREETING=hello", "PATH=/"] {
        assert!(all.contains(kept), "{kept}: {all}");
    }
}
