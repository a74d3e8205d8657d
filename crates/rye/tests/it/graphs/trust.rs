//! Records and approvals that are refused: forged, truncated, untrusted, for another question.

use std::fs;

use serde_json::Value;

use super::{database, env_with_examples, sign, wait_for_commit, wait_for_state, write_graph};
use crate::support::{TestEnv, assert_transcript, transcript_entry};

/// A run that was killed while it waited for an approval.
fn killed_at_the_decision(env: &TestEnv) -> String {
    let mut walker = env
        .command()
        .args(["graph", "run", "workflows/release", "--version", "1.2"])
        .spawn()
        .unwrap();
    let id = wait_for_state(env, "waiting");
    walker.kill().unwrap();
    walker.wait().unwrap();
    id
}

#[test]
fn forged_record_is_detected_and_not_resumed() {
    let env = env_with_examples();
    let id = killed_at_the_decision(&env);
    let (verify, resume) = (
        format!("run verify {id}"),
        format!("graph run --resume {id}"),
    );
    let mut transcript = env.transcript(&[&verify]);
    // The step before the decision leads past it.
    let (forge, undo) = (
        r#"UPDATE engine_log SET doc = replace(doc, '"next":"approve"', '"next":"publish"')"#,
        r#"UPDATE engine_log SET doc = replace(doc, '"next":"publish"', '"next":"approve"')"#,
    );
    database(&env).execute_batch(forge).unwrap();
    let output = env.run(&["run", "verify", &id]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for resume in [
        &["graph", "run", "--resume", &id][..],
        &["graph", "run", "--resume", &id, "--async"],
    ] {
        let output = env.run(resume);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("was modified"), "{printed}");
    }
    assert!(!env.path("project/published.txt").exists());
    database(&env).execute_batch(undo).unwrap();
    // An approval without a signature doesn't count: the run asks again.
    let approve = r#"UPDATE engine_decision_gates SET pending = 0, doc = json_set(doc, '$.status',
        json('{"type":"resolved","resolution":{"action":"approve","by":"the boss","at":1,"source":"cli"}}'))"#;
    database(&env).execute_batch(approve).unwrap();
    let walker = env
        .command()
        .args(["graph", "run", "--resume", &id, "--quiet"])
        .spawn()
        .unwrap();
    wait_for_state(&env, "waiting");
    assert!(!env.path("project/published.txt").exists());
    let listed = env.run(&["gate", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let gate = listed["gates"][0]["id"].as_str().unwrap().to_owned();
    assert!(gate.ends_with(":approve:2"), "{gate}");
    assert!(env.run(&["gate", "approve", &gate]).status.success());
    let output = walker.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    transcript += &env.transcript(&[&resume]);
    assert_transcript!(transcript);
}

#[test]
fn run_signed_by_an_untrusted_key_is_not_resumed() {
    let env = env_with_examples();
    let id = killed_at_the_decision(&env);
    // Another user's home, where the graph's signer is trusted.
    let keys = env.path("user/.ai/config/keys");
    fs::rename(&keys, env.path("theirs")).unwrap();
    assert!(env.run(&["init"]).status.success());
    sign(&env);
    let transcript = env.transcript(&[
        &format!("run verify {id}"),
        &format!("graph run --resume {id}"),
    ]);
    assert_transcript!(transcript);
    assert!(!env.path("project/published.txt").exists());
}

#[test]
fn approval_is_bound_to_its_question() {
    let env = env_with_examples();
    let config = |title: &str, body: &str| {
        format!(
            "  start: ask\n  nodes:\n    ask: {{ type: decision, title: \"{title}\", body: \"{body}\", next: done }}\n    done: {{ type: return, output: {{ said: yes }} }}\n"
        )
    };
    write_graph(&env, "ask", "[]", &config("read the logs?", "of today"));
    let mut walker = env
        .command()
        .args(["graph", "run", "flows/ask"])
        .spawn()
        .unwrap();
    let id = wait_for_state(&env, "waiting");
    walker.kill().unwrap();
    walker.wait().unwrap();
    let mut transcript = env.transcript(&[&format!("gate approve {id}")]);
    write_graph(&env, "ask", "[]", &config("delete production?", "of today"));
    let walker = env
        .command()
        .args([
            "graph",
            "run",
            "--resume",
            &id,
            "--accept-changed",
            "--quiet",
        ])
        .spawn()
        .unwrap();
    // Until then, the first question is pending.
    let is_asked_again = || {
        let output = env.run(&["gate", "list", "--json"]);
        let gates = String::from_utf8_lossy(&output.stdout);
        gates.contains("step-1:ask:2").then_some(())
    };
    wait_for_commit(&env, is_asked_again);
    transcript += &env.transcript(&[
        "gate list",
        &format!("gate approve gate:{id}:graph:step-1:ask"),
        &format!("run status {id}"),
        &format!("gate deny {id}"),
        &format!("gate deny {id}:graph:step-1:ask:2"),
    ]);
    let output = walker.wait_with_output().unwrap();
    transcript += &transcript_entry(
        "rye graph run --resume RUN --accept-changed --quiet",
        &output,
    );
    transcript += &env.transcript(&[&format!("run verify {id}")]);
    assert_transcript!(transcript);
}

#[test]
fn decision_needs_a_key() {
    let env = env_with_examples();
    let id = killed_at_the_decision(&env);
    fs::rename(env.path("user/.ai/config/keys"), env.path("keys")).unwrap();
    let output = env.run(&["gate", "approve", &id]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("hint: rye init"), "{text}");
}
