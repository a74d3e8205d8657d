//! Which paths agents, items, graphs and `rye` itself may use.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use crate::support::{TestEnv, json, kill_at_gate};
use serde_json::{Value, json as value};

const WRITE: &str = "rye:rye/file-system/write";
const READ: &str = "rye:rye/file-system/read";
const KEY: &str = "user/.ai/config/keys/signing/private_key.pem";
const LOCAL: &[&str] = &["--sandbox", "local"];
const VIRTUAL: &[&str] = &["--sandbox", "virtual"];

fn ready() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    fs::create_dir_all(env.path("project/.git/hooks")).unwrap();
    assert!(env.run(&["init"]).status.success());
    env
}

/// A model that makes these calls, and then says what came of the last.
fn script(env: &TestEnv, calls: &[(&str, Value)]) {
    let steps = calls
        .iter()
        .map(|(tool, args)| value!({ "tool_calls": [{ "name": tool, "args": args }] }));
    let last = value!({ "text": "It said: ${last_tool_result}" });
    let steps: Vec<_> = steps.chain([last]).collect();
    env.write(
        "project/agent.yaml",
        &value!({ "steps": steps }).to_string(),
    );
}

fn item(id: &str, params: &Value) -> (&'static str, Value) {
    (
        "call_tool",
        value!({ "tool_id": id, "params": params, "summary": "do it" }),
    )
}

fn prompt<'a>(sandbox: &[&'a str]) -> Vec<&'a str> {
    let words = ["prompt", "go", "--model", "scripted:agent.yaml"];
    [&words, sandbox].concat()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs until a person is asked, and gives the gate.
fn asked(env: &TestEnv, sandbox: &[&str]) -> Value {
    kill_at_gate(env, env.command().args(prompt(sandbox)).spawn().unwrap());
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().pop().unwrap()
}

/// Answers a gate, and goes on with its session.
fn answered(env: &TestEnv, gate: &Value, answer: &str) -> Output {
    let id = gate["id"].as_str().unwrap();
    let decided = env.run(&["gate", answer, id]);
    assert!(decided.status.success(), "{decided:?}");
    let session = gate["origin"]["session"].as_str().unwrap();
    env.run(&["session", "resume", session])
}

fn actions(gate: &Value) -> Vec<&str> {
    let actions = gate["actions"].as_array().unwrap().iter();
    actions
        .map(|action| action["id"].as_str().unwrap())
        .collect()
}

fn no_gates(env: &TestEnv) {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(listed["gates"], value!([]));
}

#[test]
fn an_agent_writes_git_and_ai_through_an_item_only_with_approval() {
    for sandbox in [VIRTUAL, LOCAL] {
        for path in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".ai/config/agent/approvals.yaml",
            ".venv/bin/python",
            ".env",
        ] {
            let env = ready();
            let params = value!({ "path": path, "content": "[core]\n" });
            script(&env, &[item(WRITE, &params)]);
            let gate = asked(&env, sandbox);
            let body = gate["body"].as_str().unwrap();
            assert!(
                body.contains(&format!("reason: it would change {path}")),
                "{body}"
            );
            assert_eq!(
                body.contains("runs on this machine"),
                sandbox == VIRTUAL,
                "{body}"
            );
            assert_eq!(actions(&gate), ["approve", "deny"]);
            let written = env.path("project").join(path);
            answered(&env, &gate, "deny");
            assert!(!written.exists(), "{path}");
            if path == ".git/config" {
                let gate = asked(&env, sandbox);
                let output = answered(&env, &gate, "approve");
                assert!(output.status.success(), "{output:?}");
                assert_eq!(fs::read_to_string(&written).unwrap(), "[core]\n");
                let session = gate["origin"]["session"].as_str().unwrap();
                let verified = env.run(&["session", "verify", session]);
                assert!(verified.status.success(), "{verified:?}");
            }
        }
    }
}

#[test]
fn an_item_asks_in_a_virtual_session_and_says_that_it_runs_on_this_machine() {
    let env = ready();
    env.write("project/notes.txt", "on the disk\n");
    let read = item(READ, &value!({ "path": "notes.txt" }));
    script(&env, &[read.clone(), read]);
    let gate = asked(&env, VIRTUAL);
    let body = gate["body"].as_str().unwrap();
    assert!(
        body.contains("reason: it runs on this machine, outside of the virtual sandbox"),
        "{body}"
    );
    let answer = [
        "gate",
        "approve",
        gate["id"].as_str().unwrap(),
        "--for",
        "session",
    ];
    assert!(env.run(&answer).status.success());
    let session = gate["origin"]["session"].as_str().unwrap();
    let output = env.run(&["session", "resume", session]);
    assert!(said(&output).contains("It said: {"), "{output:?}");
    // Where the session works on this machine anyway, it does not ask.
    let output = env.run(&prompt(LOCAL));
    assert!(said(&output).contains("on the disk"), "{output:?}");
}

#[test]
fn an_approval_of_an_item_for_the_session_does_not_cover_a_sensitive_path() {
    let env = ready();
    let write = |path: &str| item(WRITE, &value!({ "path": path, "content": "x" }));
    script(&env, &[write("a.txt"), write(".git/config")]);
    let gate = asked(&env, VIRTUAL);
    let answer = [
        "gate",
        "approve",
        gate["id"].as_str().unwrap(),
        "--for",
        "session",
    ];
    assert!(env.run(&answer).status.success());
    let session = gate["origin"]["session"].as_str().unwrap();
    let resumed = env.command().args(["session", "resume", session]).spawn();
    kill_at_gate(&env, resumed.unwrap());
    assert!(env.path("project/a.txt").exists());
    assert!(!env.path("project/.git/config").exists());
}

#[test]
fn a_rule_for_items_of_low_risk_does_not_cover_a_sensitive_path() {
    let env = ready();
    let rules = "rules:\n  - { tool: 'rye:*', risk: [low, medium], action: allow }\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    let write = |path: &str| item(WRITE, &value!({ "path": path, "content": "x" }));
    script(&env, &[write("a.txt"), write(".git/config")]);
    asked(&env, VIRTUAL);
    assert!(env.path("project/a.txt").exists());
    assert!(!env.path("project/.git/config").exists());
}

#[test]
fn no_agent_reads_or_writes_a_private_directory() {
    let env = ready();
    let rules = "rules:\n  - { action: allow }\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    symlink(env.path("user/.ai/config"), env.path("project/config")).unwrap();
    fs::hard_link(env.path(KEY), env.path("project/hard")).unwrap();
    let key = fs::read_to_string(env.path(KEY)).unwrap();
    let secret = key.lines().nth(1).unwrap();
    let absolute = env.path(KEY).display().to_string();
    let state = env.path("user/.local/state/rye/sessions.db");
    let state = state.display().to_string();
    let linked = "config/keys/signing/private_key.pem";
    for path in [&absolute, &state, linked, "../user/.ai/config/keys", "hard"] {
        let built_in = [
            ("read", value!({ "path": path })),
            ("grep", value!({ "pattern": ".", "path": path })),
            ("glob", value!({ "pattern": "**", "path": path })),
            ("write", value!({ "path": path, "content": "x" })),
            ("edit", value!({ "path": path, "old": "-", "new": "x" })),
            ("bash", value!({ "command": "cat *", "cwd": path })),
        ];
        for call in built_in {
            script(&env, std::slice::from_ref(&call));
            let output = env.run(&prompt(LOCAL));
            let text = said(&output);
            assert!(text.contains("private directory"), "{call:?}: {output:?}");
            assert!(!text.contains(secret), "{call:?}");
        }
        for sandbox in [VIRTUAL, LOCAL] {
            for call in [
                item(READ, &value!({ "path": path })),
                item(WRITE, &value!({ "path": path, "content": "x" })),
            ] {
                script(&env, std::slice::from_ref(&call));
                let output = env.run(&prompt(sandbox));
                let text = said(&output);
                assert!(text.contains("private directory"), "{call:?}: {output:?}");
            }
        }
    }
    no_gates(&env);
    assert_eq!(fs::read_to_string(env.path(KEY)).unwrap(), key);
    // Nor does a search find it, from wherever it begins.
    for (tool, args) in [
        (
            "grep",
            value!({ "pattern": "PRIVATE KEY", "path": "../user", "hidden": true }),
        ),
        (
            "glob",
            value!({ "pattern": "**/*.pem", "path": "../user", "hidden": true }),
        ),
    ] {
        script(&env, &[(tool, args)]);
        let text = said(&env.run(&prompt(LOCAL)));
        assert!(!text.contains("private_key"), "{tool}: {text}");
    }
}

#[test]
fn a_person_reads_no_private_file_with_the_shipped_tools() {
    let env = ready();
    let folder = env.path(KEY).parent().unwrap().display().to_string();
    for words in [
        &["rye/file-system/read", "--path", "private_key.pem"][..],
        &["rye/file-system/list"],
    ] {
        let args = [&["execute", "--json", "--project", &folder], words].concat();
        let output = env.run(&args);
        assert!(!output.status.success());
        let told = json(&output);
        assert_eq!(told["error"]["code"], "private_path", "{told}");
    }
    // In their project they write what they want.
    let mine = [
        "execute",
        "rye/file-system/write",
        "--path",
        ".git/config",
        "--content",
        "x",
    ];
    assert!(env.run(&mine).status.success());
}

#[test]
fn every_write_asks_where_the_workspace_is_the_home_directory() {
    let mut env = ready();
    let rules = "rules:\n  - { action: allow }\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    let keys = env.path("user").display().to_string();
    env.set("USER_SPACE", keys);
    let home = env.path("project").display().to_string();
    env.set("HOME", home);
    env.set("RYE_STATE_DIR", env.path("state").display().to_string());
    env.set("RYE_CACHE_DIR", env.path("cache").display().to_string());
    for path in [".bashrc", ".ssh/authorized_keys"] {
        script(&env, &[("write", value!({ "path": path, "content": "x" }))]);
        let gate = asked(&env, LOCAL);
        assert_eq!(gate["context"]["reason"], "hidden_in_home", "{gate}");
        answered(&env, &gate, "deny");
        script(
            &env,
            &[item(WRITE, &value!({ "path": path, "content": "x" }))],
        );
        let gate = asked(&env, LOCAL);
        answered(&env, &gate, "deny");
        assert!(!env.path("project").join(path).exists(), "{path}");
    }
}

/// A graph whose one node writes a file.
fn graph(env: &TestEnv, path: &str) {
    let text = format!(
        "version: \"1.0.0\"\ntool_type: graph\nrisk_level: low\n\
         executor_id: rye/core/runtimes/state-graph/runtime\n\
         permissions: [rye.execute.tool.rye.file-system.write]\nconfig:\n  start: put\n  nodes:\n    put:\n      \
         action: {{ item_id: rye/file-system/write, params: {{ path: {path}, content: x }} }}\n"
    );
    env.write("project/.ai/tools/flow.yaml", &text);
    let signed = env.run(&["sign", "flow"]);
    assert!(signed.status.success(), "{signed:?}");
}

#[test]
fn the_nodes_of_a_graph_that_an_agent_runs_write_nothing_sensitive() {
    let env = ready();
    script(&env, &[item("rye:flow", &value!({}))]);
    graph(&env, ".git/config");
    let output = env.run(&prompt(&["--sandbox", "local", "--yes"]));
    assert!(output.status.success(), "{output:?}");
    assert!(!env.path("project/.git/config").exists(), "{output:?}");
    graph(&env, "plain.txt");
    let output = env.run(&prompt(&["--sandbox", "local", "--yes"]));
    assert!(env.path("project/plain.txt").exists(), "{output:?}");
    // A person who runs it has said what is to be written; what is private stays so.
    graph(&env, ".git/config");
    assert!(env.run(&["graph", "run", "flow"]).status.success());
    assert!(env.path("project/.git/config").exists());
    symlink(env.path("user/.ai/config/keys"), env.path("project/keys")).unwrap();
    graph(&env, "keys/new");
    assert!(!env.run(&["graph", "run", "flow"]).status.success());
    assert!(!env.path("user/.ai/config/keys/new").exists());
}

#[test]
fn nothing_is_written_through_a_link_that_leads_out_of_the_project() {
    for link in [
        ".ai",
        ".ai/tools",
        ".ai/config",
        ".ai/state",
        ".ai/state/graphs",
    ] {
        let env = TestEnv::bare();
        let outside = env.path("outside");
        fs::create_dir(&outside).unwrap();
        let place = env.path("project").join(link);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(&outside, &place).unwrap();
        let folder = env.path("project").display().to_string();
        let init = ["init", "--project", &folder, "--json"];
        let output = env.run(&init);
        let empty = || fs::read_dir(&outside).unwrap().count() == 0;
        assert!(empty(), "{link}: {output:?}");
        if link == ".ai/state/graphs" {
            assert!(output.status.success(), "{output:?}");
            graph(&env, "plain.txt");
            let output = env.run(&["graph", "run", "flow", "--json"]);
            let told = json(&output);
            assert_eq!(told["error"]["code"], "leaves_project", "{told}");
            assert!(empty(), "{output:?}");
            assert!(!env.path("project/plain.txt").exists());
            continue;
        }
        assert!(!output.status.success(), "{link}");
        let told = json(&output);
        assert!(
            told["error"]["message"].as_str().unwrap().contains(link),
            "{told}"
        );
        if link == ".ai/state" {
            let hint = told["error"]["hint"].as_str().unwrap();
            let fixed = std::process::Command::new("sh").args(["-c", hint]).status();
            assert!(fixed.unwrap().success());
            assert!(env.run(&init).status.success());
        }
    }
}

#[test]
fn an_approval_for_the_project_is_not_written_through_a_link() {
    let env = ready();
    let outside = env.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir_all(env.path("project/.ai/config/agent")).unwrap();
    symlink(&outside, env.path("project/.ai/config/agent/approved")).unwrap();
    script(&env, &[item(READ, &value!({ "path": "agent.yaml" }))]);
    let gate = asked(&env, VIRTUAL);
    let answer = [
        "gate",
        "approve",
        gate["id"].as_str().unwrap(),
        "--for",
        "project",
    ];
    assert!(env.run(&answer).status.success());
    let session = gate["origin"]["session"].as_str().unwrap();
    let output = env.run(&["session", "resume", session]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{output:?}");
}
