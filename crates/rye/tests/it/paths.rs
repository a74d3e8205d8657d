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

fn env_after_init() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    fs::create_dir_all(env.path("project/.git/hooks")).unwrap();
    assert!(env.run(&["init"]).status.success());
    env
}

/// Writes a script that makes these calls and prints the last result.
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

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the agent until it waits at a gate, and returns the gate.
fn run_to_gate(env: &TestEnv, sandbox: &[&str]) -> Value {
    kill_at_gate(env, env.command().args(prompt(sandbox)).spawn().unwrap());
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().pop().unwrap()
}

/// Answers a gate and resumes its session.
fn answer_and_resume(env: &TestEnv, gate: &Value, answer: &str) -> Output {
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

fn assert_no_gates(env: &TestEnv) {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(listed["gates"], value!([]));
}

#[test]
fn writing_git_and_ai_through_an_item_needs_approval() {
    for sandbox in [VIRTUAL, LOCAL] {
        for path in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".ai/config/agent/approvals.yaml",
            ".venv/bin/python",
            ".env",
        ] {
            let env = env_after_init();
            let params = value!({ "path": path, "content": "[core]\n" });
            script(&env, &[item(WRITE, &params)]);
            let gate = run_to_gate(&env, sandbox);
            let body = gate["body"].as_str().unwrap();
            assert!(
                body.contains(&format!("reason: it writes to {path}: ")),
                "{body}"
            );
            assert_eq!(
                body.contains("runs on this machine"),
                sandbox == VIRTUAL,
                "{body}"
            );
            assert_eq!(actions(&gate), ["approve", "deny"]);
            let written = env.path("project").join(path);
            answer_and_resume(&env, &gate, "deny");
            assert!(!written.exists(), "{path}");
            if path == ".git/config" {
                let gate = run_to_gate(&env, sandbox);
                let output = answer_and_resume(&env, &gate, "approve");
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
fn item_in_a_virtual_session_needs_approval() {
    let env = env_after_init();
    env.write("project/notes.txt", "on the disk\n");
    let read = item(READ, &value!({ "path": "notes.txt" }));
    script(&env, &[read.clone(), read]);
    let gate = run_to_gate(&env, VIRTUAL);
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
    assert!(stdout_text(&output).contains("It said: {"), "{output:?}");
    // A `local` session doesn't ask.
    let output = env.run(&prompt(LOCAL));
    assert!(stdout_text(&output).contains("on the disk"), "{output:?}");
}

#[test]
fn session_approval_does_not_cover_sensitive_paths() {
    let env = env_after_init();
    let write = |path: &str| item(WRITE, &value!({ "path": path, "content": "x" }));
    script(&env, &[write("a.txt"), write(".git/config")]);
    let gate = run_to_gate(&env, VIRTUAL);
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
fn low_risk_rule_does_not_cover_sensitive_paths() {
    let env = env_after_init();
    let rules = "rules:\n  - { tool: 'rye:*', risk: [low, medium], action: allow }\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    let write = |path: &str| item(WRITE, &value!({ "path": path, "content": "x" }));
    script(&env, &[write("a.txt"), write(".git/config")]);
    run_to_gate(&env, VIRTUAL);
    assert!(env.path("project/a.txt").exists());
    assert!(!env.path("project/.git/config").exists());
}

#[test]
fn agents_cannot_read_or_write_private_directories() {
    let env = env_after_init();
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
            let text = stdout_text(&output);
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
                let text = stdout_text(&output);
                assert!(text.contains("private directory"), "{call:?}: {output:?}");
            }
        }
    }
    assert_no_gates(&env);
    assert_eq!(fs::read_to_string(env.path(KEY)).unwrap(), key);
    // Searches don't find it, wherever they start.
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
        let text = stdout_text(&env.run(&prompt(LOCAL)));
        assert!(!text.contains("private_key"), "{tool}: {text}");
    }
}

#[test]
fn shipped_tools_refuse_private_files() {
    let env = env_after_init();
    let folder = env.path(KEY).parent().unwrap().display().to_string();
    for words in [
        &["rye/file-system/read", "--path", "private_key.pem"][..],
        &["rye/file-system/list"],
    ] {
        let args = [&["execute", "--json", "--project", &folder], words].concat();
        let output = env.run(&args);
        assert!(!output.status.success());
        let printed = json(&output);
        assert_eq!(printed["error"]["code"], "private_path", "{printed}");
    }
    // A user can write any file of the project.
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
fn every_write_in_the_home_directory_needs_approval() {
    let mut env = env_after_init();
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
        let gate = run_to_gate(&env, LOCAL);
        assert_eq!(gate["context"]["reason"], "hidden_in_home", "{gate}");
        answer_and_resume(&env, &gate, "deny");
        script(
            &env,
            &[item(WRITE, &value!({ "path": path, "content": "x" }))],
        );
        let gate = run_to_gate(&env, LOCAL);
        answer_and_resume(&env, &gate, "deny");
        assert!(!env.path("project").join(path).exists(), "{path}");
    }
}

/// Writes a graph with one node that writes a file.
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
fn graph_nodes_run_by_an_agent_cannot_write_sensitive_paths() {
    let env = env_after_init();
    script(&env, &[item("rye:flow", &value!({}))]);
    graph(&env, ".git/config");
    let output = env.run(&prompt(&["--sandbox", "local", "--yes"]));
    assert!(output.status.success(), "{output:?}");
    assert!(!env.path("project/.git/config").exists(), "{output:?}");
    graph(&env, "plain.txt");
    let output = env.run(&prompt(&["--sandbox", "local", "--yes"]));
    assert!(env.path("project/plain.txt").exists(), "{output:?}");
    // A user who runs the graph can write it; private paths stay private.
    graph(&env, ".git/config");
    assert!(env.run(&["graph", "run", "flow"]).status.success());
    assert!(env.path("project/.git/config").exists());
    symlink(env.path("user/.ai/config/keys"), env.path("project/keys")).unwrap();
    graph(&env, "keys/new");
    assert!(!env.run(&["graph", "run", "flow"]).status.success());
    assert!(!env.path("user/.ai/config/keys/new").exists());
}

#[test]
fn links_out_of_the_project_are_not_followed() {
    for link in [".ai", ".ai/tools", ".ai/config", ".ai/state"] {
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
        assert!(!output.status.success(), "{link}");
        let printed = json(&output);
        assert!(
            printed["error"]["message"].as_str().unwrap().contains(link),
            "{printed}"
        );
        if link == ".ai/state" {
            let hint = printed["error"]["hint"].as_str().unwrap();
            let fixed = std::process::Command::new("sh").args(["-c", hint]).status();
            assert!(fixed.unwrap().success());
            assert!(env.run(&init).status.success());
        }
    }
}

#[test]
fn project_approval_is_not_written_through_a_link() {
    let env = env_after_init();
    let outside = env.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir_all(env.path("project/.ai/config/agent")).unwrap();
    symlink(&outside, env.path("project/.ai/config/agent/approved")).unwrap();
    script(&env, &[item(READ, &value!({ "path": "agent.yaml" }))]);
    let gate = run_to_gate(&env, VIRTUAL);
    let answer = [
        "gate",
        "approve",
        gate["id"].as_str().unwrap(),
        "--for",
        "project",
    ];
    let output = env.run(&answer);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let session = gate["origin"]["session"].as_str().unwrap();
    let output = env.run(&["session", "resume", session]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{output:?}");
}
