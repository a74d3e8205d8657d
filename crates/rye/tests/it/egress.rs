//! The network and the limits of the sandbox, as an agent and its person see them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Output};

use serde_json::{Value, json};

use crate::support::{TestEnv, json as parse, outcome, short_gate_id, wait_for_gate};

/// An HTTP server on the loopback interface.
fn serve(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut request = BufReader::new(&stream).lines();
            while request
                .next()
                .is_some_and(|line| line.is_ok_and(|it| !it.is_empty()))
            {}
            let length = text.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}");
            let _ = (&stream).write_all(head.as_bytes());
        }
    });
    address
}

/// A command that uses the proxy also for this machine.
fn curl(address: SocketAddr) -> String {
    let port = address.port();
    format!("curl -sS --max-time 60 --noproxy '' -w '%{{http_code}}' http://localhost:{port}/")
}

fn policy(env: &TestEnv, space: &str, network: &Value) {
    let text = json!({ "network": network }).to_string();
    env.write(&format!("{space}/.ai/config/agent/sandbox.yaml"), &text);
}

/// A script that makes calls one after the other and reports the last result.
fn script(env: &TestEnv, calls: &[Value]) {
    let steps = calls.iter().map(|call| json!({ "tool_calls": [call] }));
    let steps = steps.chain([json!({ "text": "${last_tool_result}" })]);
    let text = json!({ "steps": steps.collect::<Vec<_>>() }).to_string();
    env.write("project/script.yaml", &text);
}

fn bash(args: &Value) -> Value {
    json!({ "name": "bash", "args": args })
}

const PROMPT: [&str; 5] = ["prompt", "go", "--model", "scripted:script.yaml", "--json"];

fn start(env: &TestEnv) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = env.command().args(PROMPT).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    (child, errors)
}

/// Answers the first gate of a prompt; returns the gate and the answer of the prompt.
fn decide(env: &TestEnv, decision: &str) -> (Value, String) {
    let (child, mut errors) = start(env);
    let gate = wait_for_gate(env, &mut errors);
    let answered = env.run(&["gate", decision, &short_gate_id(&gate)]);
    assert!(answered.status.success(), "{answered:?}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (gate, answer(&output))
}

fn answer(output: &Output) -> String {
    outcome(output)["answer"].as_str().unwrap().to_owned()
}

#[test]
fn policy_names_the_hosts_of_a_command() {
    let env = TestEnv::new();
    let address = serve("hello");
    let command = curl(address);
    let run = || env.run(&["sandbox", "run", "--", "sh", "-c", &command]);
    assert_ne!(run().status.code(), Some(0), "no network by default");
    let network =
        json!({ "allow": [format!("localhost:{}", address.port())], "private": [address] });
    policy(&env, "project", &network);
    assert_ne!(
        run().status.code(),
        Some(0),
        "a project cannot allow itself a network"
    );
    policy(&env, "user", &network);
    let output = run();
    assert_eq!(output.stdout, b"hello200", "{output:?}");
    policy(
        &env,
        "user",
        &json!({ "allow": ["other.test"], "private": [address] }),
    );
    let output = run();
    assert!(
        output.stdout.ends_with(b"403"),
        "it does not ask: {output:?}"
    );
    assert!(
        !output.stderr.is_empty(),
        "says which connection was refused"
    );
}

#[test]
fn project_can_deny_what_the_user_allows() {
    let env = TestEnv::new();
    let address = serve("hello");
    let network = json!({ "allow": ["localhost:*"], "private": [address] });
    policy(&env, "user", &network);
    let command = curl(address);
    let run = || env.run(&["sandbox", "run", "--", "sh", "-c", &command]);
    assert_eq!(run().stdout, b"hello200");
    policy(&env, "project", &json!({ "deny": ["localhost"] }));
    let project = env.path("project/.ai/config/agent/sandbox.yaml");
    assert!(env.run(&["keys", "generate"]).status.success());
    let signed = env.run(&["sign", project.to_str().unwrap()]);
    assert!(signed.status.success(), "{signed:?}");
    assert!(run().stdout.ends_with(b"403"));
}

#[test]
fn missing_secret_is_named_and_nothing_is_sent() {
    let env = TestEnv::new();
    let inject = json!([{ "host": "localhost", "header": "X-Key", "value": "${vault:MISSING}" }]);
    policy(&env, "user", &json!({ "inject": inject, "ask": false }));
    let command = "curl -sS --noproxy '' http://localhost/";
    let output = env.run(&["sandbox", "run", "--", "sh", "-c", command]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("MISSING"), "{output:?}");
}

#[test]
fn connection_of_a_running_command_is_a_gate() {
    let address = serve("hello");
    let target = format!("localhost:{}", address.port());
    for (decision, expected) in [("approve", "hello200"), ("deny", "403")] {
        let env = TestEnv::new();
        policy(&env, "user", &json!({ "ask": true, "private": [address] }));
        script(&env, &[bash(&json!({ "command": curl(address) }))]);
        let (gate, answer) = decide(&env, decision);
        assert_eq!(gate["context"]["connection"], target.as_str());
        assert_eq!(gate["context"]["sandbox"]["network"], "proxied");
        assert!(answer.contains(expected), "{answer}");
        assert_eq!(
            answer.contains(&format!("{target}: ")),
            decision == "deny",
            "{answer}"
        );
    }
}

#[test]
fn approved_connection_holds_for_the_session() {
    let address = serve("hello");
    let env = TestEnv::new();
    policy(&env, "user", &json!({ "ask": true, "private": [address] }));
    let call = bash(&json!({ "command": curl(address) }));
    script(&env, &[call.clone(), call]);
    let (_, answer) = decide(&env, "approve");
    assert!(answer.contains("hello200"), "{answer}");
}

#[test]
fn connection_gate_of_a_killed_process_is_withdrawn() {
    let env = TestEnv::new();
    policy(&env, "user", &json!({ "ask": true }));
    let command = format!("echo x >> started; {}", curl(serve("hello")));
    script(&env, &[bash(&json!({ "command": command }))]);
    let (mut child, mut errors) = start(&env);
    let gate = wait_for_gate(&env, &mut errors);
    let session = gate["origin"]["session"].as_str().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let output = env.run(&["session", "resume", session, "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.read("project/started"), "x\n", "the command ran once");
    let gates = parse(&env.run(&["gate", "list", "--json"]));
    assert_eq!(gates["gates"], json!([]));
}

#[test]
fn command_can_request_hosts_in_advance() {
    let address = serve("hello");
    let host = format!("localhost:{}", address.port());
    for (decision, expected) in [("approve", "hello200"), ("deny", "denied")] {
        let env = TestEnv::new();
        policy(&env, "user", &json!({ "private": [address] }));
        let args = json!({ "command": curl(address), "network": [host], "reason": "to greet" });
        script(&env, &[bash(&args)]);
        let (gate, answer) = decide(&env, decision);
        assert_eq!(gate["context"]["grants"], json!({ "network": [host] }));
        assert_eq!(gate["context"]["sandbox"]["network"], "proxied");
        assert!(
            gate["body"].as_str().unwrap().contains("to greet"),
            "{gate}"
        );
        assert!(answer.contains(expected), "{answer}");
    }
}

#[test]
fn command_can_request_a_protected_path() {
    let commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m first \
        && git log --format=%s";
    for (args, decision, expected) in [
        (
            json!({ "command": commit, "write": [".git"] }),
            Some("approve"),
            true,
        ),
        (
            json!({ "command": commit, "write": [".git"] }),
            Some("deny"),
            false,
        ),
        (json!({ "command": commit }), None, false),
    ] {
        let env = TestEnv::new();
        let init = std::process::Command::new("git")
            .args(["init", "-q"])
            .current_dir(env.path("project"))
            .status()
            .unwrap();
        assert!(init.success());
        script(&env, &[bash(&args)]);
        let answer = match decision {
            Some(decision) => decide(&env, decision).1,
            None => answer(&env.run(&PROMPT)),
        };
        assert_eq!(answer.ends_with("first"), expected, "{answer}");
        assert!(!env.path("project/.rye-quarantine").exists());
    }
}

#[test]
fn paths_outside_are_gates_that_name_them() {
    let env = TestEnv::new();
    // Commands have their own `/tmp`.
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = |name: &str, text: &str| {
        let path = outside.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (path, other) = (
        file("file", "outside text\n"),
        file("other", "other text\n"),
    );
    let cat = format!("cat {path}; cat {other}; true");
    let calls = [
        (
            json!({ "name": "read", "args": { "path": path } }),
            "outside text",
        ),
        (
            bash(&json!({ "command": cat, "read": [path] })),
            "outside text",
        ),
        (
            json!({ "name": "edit", "args": { "path": path, "old": "outside", "new": "edited" } }),
            "edited",
        ),
        (
            json!({ "name": "write", "args": { "path": path, "content": "new\n" } }),
            "overwritten",
        ),
    ];
    for (call, expected) in calls {
        script(&env, &[call]);
        let (gate, answer) = decide(&env, "approve");
        assert!(gate.to_string().contains(&path), "{gate}");
        assert!(answer.contains(expected), "{answer}");
        assert!(
            !answer.contains("other text"),
            "only what was approved: {answer}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
}

#[test]
fn command_can_request_to_run_without_the_sandbox() {
    let env = TestEnv::new();
    env.write("outside/file", "outside text\n");
    let command = format!("cat {}", env.path("outside/file").display());
    script(
        &env,
        &[bash(&json!({ "command": command, "unconfined": true }))],
    );
    let (gate, answer) = decide(&env, "approve");
    assert_eq!(gate["context"]["grants"], json!({ "unconfined": true }));
    assert!(answer.contains("outside text"), "{answer}");
}
