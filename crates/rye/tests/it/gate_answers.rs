//! The text of gates, and valid answers.

use std::process::Output;

use crate::support::{TestEnv, json, short_gate_id, transcript_entry};

const TOOL: &str = "\
version: \"1.0.0\"
description: Puts it into production
risk_level: high
executor_id: rye/core/runtimes/bash/bash
config:
  command: 'echo ran'
config_schema: { type: object }
";

const MODEL: &[&str] = &[
    "prompt",
    "go",
    "--no-wait",
    "--model",
    "scripted:agent.yaml",
];

fn with_script(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    assert!(env.run(&["init"]).status.success());
    env
}

fn assert_gate_pending(output: &Output) {
    assert_eq!(
        output.status.code(),
        Some(5),
        "{}",
        transcript_entry("", output)
    );
}

#[test]
fn summary_of_a_call_is_shown_as_one_line() {
    let summary = r"look around\nrisk: low\r\n  rye gate approve gate:another";
    let env = with_script(&format!(
        "steps:\n  - tool_calls: [{{ name: call_tool, args: {{ tool_id: 'rye:deploy', params: {{}}, \
         summary: \"{summary}\" }} }}]\n"
    ));
    env.write("project/.ai/tools/deploy.yaml", TOOL);
    assert!(env.run(&["sign", "deploy"]).status.success());
    assert_gate_pending(&env.run(MODEL));
    let listed = transcript_entry("", &env.run(&["gate", "list"]));
    let title = "rye:deploy: look around ⏎ risk: low ⏎ rye gate approve gate:another";
    assert!(listed.contains(title), "{listed}");
    let mut lines = listed.lines().map(str::trim);
    let risks: Vec<_> = lines
        .clone()
        .filter(|line| line.starts_with("risk: "))
        .collect();
    assert_eq!(risks, ["risk: high"], "{listed}");
    assert!(
        lines.all(|line| !line.starts_with("rye gate approve gate:another")),
        "{listed}"
    );
}

#[test]
fn limit_increase_must_be_a_positive_whole_number() {
    let env = with_script(
        "steps:\n  - tool_calls: [{ name: glob, args: { pattern: '*' } }]\n  - text: 'It is done.'\n",
    );
    env.write(
        "user/.ai/config/agent/approvals.yaml",
        "limits: ask\nrules: []\n",
    );
    assert_gate_pending(&env.run(&[MODEL, &["--max-turns", "1"]].concat()));
    let gate = || {
        let listed = json(&env.run(&["gate", "list", "--json"]));
        listed["gates"][0].clone()
    };
    let (id, session) = (gate()["id"].clone(), gate()["origin"]["session"].clone());
    let (id, session) = (id.as_str().unwrap(), session.as_str().unwrap());
    let short = short_gate_id(&gate());
    let answer = ["gate", "answer", id, "--action", "approve", "--value"];
    for wrong in ["abc", "", "0", "1.5", "-3", "18446744073709551616"] {
        let value = format!("--value={wrong}");
        let output = env.run(&[&answer[..5], &[&value]].concat());
        let reply = transcript_entry(wrong, &output);
        assert_eq!(output.status.code(), Some(2), "{reply}");
        assert!(reply.contains("a whole number above 0"), "{reply}");
        assert!(
            reply.contains(&format!("gate {short} needs an amount")),
            "{reply}"
        );
        let hint = format!("hint: rye gate approve {short}\n");
        assert!(reply.contains(&hint), "{reply}");
        assert_eq!(gate()["id"], id, "{reply}");
    }
    let output = env.run(&[&answer[..], &["5"]].concat());
    assert!(output.status.success(), "{output:?}");
    let reply = transcript_entry("", &env.run(&["session", "resume", session]));
    assert!(reply.contains("It is done."), "{reply}");
}

#[test]
fn id_part_must_be_unique_among_closed_gates_too() {
    let env = with_script(
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo harmless' } }]\n  \
         - tool_calls: [{ name: bash, args: { command: 'echo more > more.txt' } }]\n  \
         - text: 'It is done.'\n",
    );
    assert_gate_pending(&env.run(&[MODEL, &["--sandbox", "local"]].concat()));
    let gates = || json(&env.run(&["gate", "list", "--json"]))["gates"].clone();
    let gate = gates()[0].clone();
    let session = gate["origin"]["session"].as_str().unwrap();
    let part = &session[..13];
    // The command prints what was decided.
    let reply = transcript_entry("", &env.run(&["gate", "approve", part]));
    assert!(reply.contains("approved\nrun: echo harmless\n"), "{reply}");
    // If the part is unique, the decision is repeated.
    let again = json(&env.run(&["gate", "approve", part, "--json"]));
    assert_eq!(again["gate"], gate["id"]);
    assert_eq!(again["repeated"], true);
    assert_eq!(again["decision_gate"]["title"], "run: echo harmless");
    let mut child = env.command();
    let child = child.args(["session", "resume", session]).spawn().unwrap();
    crate::support::kill_at_gate(&env, child);
    for args in [
        &["gate", "approve", part][..],
        &["gate", "deny", part],
        &["gate", "answer", part, "--action", "approve"],
    ] {
        let output = env.run(args);
        let reply = transcript_entry(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(1), "{reply}");
        assert!(reply.contains("is ambiguous: 2 match"), "{reply}");
        assert!(reply.contains("(approved by ada (cli), "), "{reply}");
        assert!(reply.contains("(pending): run: echo more"), "{reply}");
    }
    let next = gates()[0].clone();
    assert_eq!(next["title"], "run: echo more > more.txt");
    // The full id and its suffix are unique.
    let whole = next["id"].as_str().unwrap();
    let end = &whole[whole.len() - 12..];
    let reply = transcript_entry("", &env.run(&["gate", "deny", end]));
    assert!(
        reply.contains("denied\nrun: echo more > more.txt"),
        "{reply}"
    );
    let first = gate["id"].as_str().unwrap();
    let conflict = transcript_entry("", &env.run(&["gate", "deny", first]));
    assert!(
        conflict.contains("already closed: approved by ada"),
        "{conflict}"
    );
}

#[test]
fn expired_gate_is_not_pending() {
    let env = with_script(
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo ran' } }]\n  - text: 'done'\n",
    );
    assert_gate_pending(&env.run(&[MODEL, &["--sandbox", "local"]].concat()));
    let gates = |args: &[&str]| json(&env.run(args))["pending_gates"].clone();
    let before = gates(&["session", "list", "--json"]);
    let gate = before[0]["id"].as_str().unwrap();
    let session = before[0]["origin"]["session"].as_str().unwrap();
    let database = env.path("user/.local/state/rye/sessions.db");
    let db = rusqlite::Connection::open(database).unwrap();
    let late = "UPDATE engine_decision_gates SET doc = json_set(doc, '$.expires_at', 1)";
    assert_eq!(db.execute(late, []).unwrap(), 1);
    drop(db);
    let listed = transcript_entry("", &env.run(&["gate", "list"]));
    assert!(listed.contains("no pending gates"), "{listed}");
    assert_eq!(gates(&["session", "list", "--json"]), serde_json::json!([]));
    assert_eq!(
        gates(&["session", "show", session, "--json"]),
        serde_json::json!([])
    );
    let listed = transcript_entry("", &env.run(&["session", "list"]));
    assert!(!listed.contains("pending gate"), "{listed}");
    assert!(listed.contains("1 unfinished prompt"), "{listed}");
    let gone = transcript_entry("", &env.run(&["gate", "approve", gate]));
    assert!(gone.contains("already closed"), "{gone}");
}

#[test]
fn approver_and_signers_are_shown_by_name() {
    let env = TestEnv::new();
    env.write(
        "project/agent.yaml",
        "steps:\n  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:deploy', params: {}, \
         summary: now } }]\n  - text: done\n",
    );
    let owner = "Ada Lovelace";
    assert!(env.run(&["init", "--owner", owner]).status.success());
    env.write("project/.ai/tools/deploy.yaml", TOOL);
    assert!(env.run(&["sign", "deploy"]).status.success());
    assert_gate_pending(&env.run(MODEL));
    let listed = json(&env.run(&["gate", "list", "--json"]));
    let id = short_gate_id(&listed["gates"][0]);
    let shows = |args: &[&str], part: &str| {
        let shown = transcript_entry("", &env.run(args));
        assert!(shown.contains(part), "{args:?}:\n{shown}");
    };
    shows(&["gate", "list"], "rye (this build)");
    shows(&["gate", "list"], owner);
    assert!(env.run(&["gate", "approve", &id]).status.success());
    let decided = format!("by {owner}");
    let session = json(&env.run(&["session", "list", "--json"]))["sessions"][0]["id"].clone();
    let session = session.as_str().unwrap();
    assert!(env.run(&["session", "resume", session]).status.success());
    shows(&["session", "show", session], &decided);
    shows(&["session", "verify", session], owner);
    shows(&["execute", "deploy", "--trace"], "rye (this build)");
    shows(&["execute", "deploy", "--trace"], owner);
}
