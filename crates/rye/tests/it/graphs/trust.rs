//! Records and approvals that are refused: forged, truncated, untrusted, for another question.

use std::time::{Duration, Instant};

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lillux::Hash;
use serde_json::{Value, json};

use super::{env_with_examples, newest_run, sign, wait_for_state, write_graph};
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

/// A record forged without a key: approved and consistent.
fn forge(record: &str) -> String {
    let mut forged = String::new();
    let (mut before, mut seq) = (String::new(), 0);
    let mut add = |at: i64, event: &str| {
        seq += 1;
        let head = format!("rye graph event 1\n{before}\n{seq}\n{at}\n");
        before = Hash::digest(format!("{head}{event}")).to_hex();
        let _ = writeln!(
            forged,
            "{{\"seq\":{seq},\"at\":{at},\"event\":{event},\"hash\":\"{before}\"}}"
        );
    };
    for line in record.lines() {
        let parsed: Value = serde_json::from_str(line).unwrap();
        let event = &line[line.find("\"event\":").unwrap() + 8..line.find(",\"hash\"").unwrap()];
        if ["started", "begin", "step"].contains(&parsed["event"]["type"].as_str().unwrap()) {
            add(parsed["at"].as_i64().unwrap(), event);
        }
    }
    let approved = json!({
        "type": "step", "step": 2, "node": "approve", "outcome": "done", "next": "publish",
        "set": { "approved_by": "the boss", "artifact": "build-1.2.txt" }, "duration_us": 1,
    });
    add(1, &approved.to_string());
    forged
}

#[test]
fn forged_record_is_detected_and_not_resumed() {
    let env = env_with_examples();
    let id = killed_at_the_decision(&env);
    let folder = format!("project/.ai/state/graphs/{id}");
    let record = format!("{folder}/events.jsonl");
    let good = env.read(&record);
    let (verify, resume) = (
        format!("run verify {id}"),
        format!("graph run --resume {id}"),
    );
    let mut transcript = env.transcript(&[&verify]);
    // Rewritten without a key.
    env.write(&record, &forge(&good));
    fs::rename(env.path(&format!("{folder}/gates")), env.path("gates")).unwrap();
    transcript += &env.transcript(&[&verify, &resume, &format!("{resume} --async")]);
    // Forged lines after signed ones.
    let tail = forge(&good);
    let tail = tail.lines().last().unwrap();
    env.write(&record, &format!("{good}{tail}\n"));
    transcript += &env.transcript(&[&verify, &resume]);
    // Emptied.
    env.write(&record, "");
    transcript += &env.transcript(&[&verify, &resume]);
    assert!(!env.path("project/published.txt").exists());
    // The original record resumes, and an unsigned approval doesn't count.
    env.write(&record, &good);
    fs::rename(env.path("gates"), env.path(&format!("{folder}/gates"))).unwrap();
    let gates = env.path(&format!("{folder}/gates"));
    let gate = fs::read_dir(gates).unwrap().next().unwrap().unwrap().path();
    let answer = gate.with_extension("answer.json");
    let reply = json!({ "status": "resolved", "resolution": {
        "action": "approve", "value": null, "by": "the boss", "at": 1, "source": "cli" } });
    fs::write(&answer, reply.to_string()).unwrap();
    transcript += &env.transcript(&[&format!("run status {id}"), "gate list"]);
    let walker = env
        .command()
        .args(["graph", "run", "--resume", &id, "--quiet"])
        .spawn()
        .unwrap();
    wait_for_state(&env, "waiting");
    assert!(!env.path("project/published.txt").exists());
    transcript += &env.transcript(&[&format!("gate approve {id}")]);
    let output = walker.wait_with_output().unwrap();
    transcript += &transcript_entry("rye graph run --resume RUN --quiet", &output);
    transcript += &env.transcript(&[&verify]);
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    // A finished run, truncated.
    let whole = env.read(&record);
    let part: Vec<_> = whole.split_inclusive('\n').take(5).collect();
    env.write(&record, &part.concat());
    transcript += &env.transcript(&[&verify, &resume]);
    env.write(&record, &whole);
    env.write(&format!("{folder}/snapshot"), "0000\n");
    transcript += &env.transcript(&[&verify]);
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
        String::from_utf8_lossy(&output.stdout).contains("step-1:ask:2")
    };
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_asked_again() {
        assert!(
            Instant::now() < deadline,
            "the changed question is not asked"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
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
fn records_are_ignored_by_git() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    assert_eq!(env.read("project/.ai/state/.gitignore"), "*\n");
    let env = env_with_examples();
    fs::remove_dir_all(env.path("project/.ai/state")).unwrap();
    assert!(
        env.run(&["graph", "run", "workflows/stats", "--directory", "src"])
            .status
            .success()
    );
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    assert!(Path::new(&env.path(&format!("project/.ai/state/graphs/{id}"))).is_dir());
    assert_eq!(env.read("project/.ai/state/.gitignore"), "*\n");
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
