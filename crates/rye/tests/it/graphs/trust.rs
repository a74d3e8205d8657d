//! Records and approvals that do not count: forged, cut, of strangers, for another question.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lillux::Hash;
use serde_json::{Value, json};

use super::{graph, newest, ready, sign, until};
use crate::support::{TestEnv, assert_transcript, told};

/// A run that waits for an approval, and whose walker is killed.
fn killed_at_the_decision(env: &TestEnv) -> String {
    let mut walker = env
        .command()
        .args(["graph", "run", "workflows/release", "--version", "1.2"])
        .spawn()
        .unwrap();
    let id = until(env, "waiting");
    walker.kill().unwrap();
    walker.wait().unwrap();
    id
}

/// The record of a run as whoever has no key can write it: approved, and in order.
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
fn a_forged_record_is_found_out_and_never_gone_on_with() {
    let env = ready();
    let id = killed_at_the_decision(&env);
    let folder = format!("project/.ai/state/graphs/{id}");
    let record = format!("{folder}/events.jsonl");
    let good = env.read(&record);
    let (verify, resume) = (
        format!("run verify {id}"),
        format!("graph run --resume {id}"),
    );
    let mut transcript = env.transcript(&[&verify]);
    // Rewritten without any key.
    env.write(&record, &forge(&good));
    fs::rename(env.path(&format!("{folder}/gates")), env.path("gates")).unwrap();
    transcript += &env.transcript(&[&verify, &resume, &format!("{resume} --async")]);
    // The same behind what is signed.
    let tail = forge(&good);
    let tail = tail.lines().last().unwrap();
    env.write(&record, &format!("{good}{tail}\n"));
    transcript += &env.transcript(&[&verify, &resume]);
    // Emptied.
    env.write(&record, "");
    transcript += &env.transcript(&[&verify, &resume]);
    assert!(!env.path("project/published.txt").exists());
    // As it was, it goes on, and an approval that nobody signed is none.
    env.write(&record, &good);
    fs::rename(env.path("gates"), env.path(&format!("{folder}/gates"))).unwrap();
    let gates = env.path(&format!("{folder}/gates"));
    let gate = fs::read_dir(gates).unwrap().next().unwrap().unwrap().path();
    let answer = gate.with_extension("answer.json");
    let said = json!({ "status": "resolved", "resolution": {
        "action": "approve", "value": null, "by": "the boss", "at": 1, "source": "cli" } });
    fs::write(&answer, said.to_string()).unwrap();
    transcript += &env.transcript(&[&format!("run status {id}"), "gate list"]);
    let walker = env
        .command()
        .args(["graph", "run", "--resume", &id, "--quiet"])
        .spawn()
        .unwrap();
    until(&env, "waiting");
    assert!(!env.path("project/published.txt").exists());
    transcript += &env.transcript(&[&format!("gate approve {id}")]);
    let output = walker.wait_with_output().unwrap();
    transcript += &told("rye graph run --resume RUN --quiet", &output);
    transcript += &env.transcript(&[&verify]);
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    // A run that is over, cut.
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
fn a_run_that_a_stranger_signed_is_not_gone_on_with() {
    let env = ready();
    let id = killed_at_the_decision(&env);
    // Another person's home, in which the graph is signed by somebody trusted.
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
fn an_approval_of_one_question_is_none_of_another() {
    let env = ready();
    let config = |title: &str, body: &str| {
        format!(
            "  start: ask\n  nodes:\n    ask: {{ type: decision, title: \"{title}\", body: \"{body}\", next: done }}\n    done: {{ type: return, output: {{ said: yes }} }}\n"
        )
    };
    graph(&env, "ask", "[]", &config("read the logs?", "of today"));
    let mut walker = env
        .command()
        .args(["graph", "run", "flows/ask"])
        .spawn()
        .unwrap();
    let id = until(&env, "waiting");
    walker.kill().unwrap();
    walker.wait().unwrap();
    let mut transcript = env.transcript(&[&format!("gate approve {id}")]);
    graph(&env, "ask", "[]", &config("delete production?", "of today"));
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
    // Until then it is the first question that it waits with.
    while !told("", &env.run(&["gate", "list"])).contains("step-1:ask:2") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    transcript += &env.transcript(&[
        "gate list",
        &format!("gate approve gate:{id}:graph:step-1:ask"),
        &format!("run status {id}"),
        &format!("gate deny {id}"),
        &format!("gate deny {id}:graph:step-1:ask:2"),
    ]);
    let output = walker.wait_with_output().unwrap();
    transcript += &told(
        "rye graph run --resume RUN --accept-changed --quiet",
        &output,
    );
    transcript += &env.transcript(&[&format!("run verify {id}")]);
    assert_transcript!(transcript);
}

#[test]
fn what_runs_write_down_stays_out_of_the_repository() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    assert_eq!(env.read("project/.ai/state/.gitignore"), "*\n");
    let env = ready();
    fs::remove_dir_all(env.path("project/.ai/state")).unwrap();
    assert!(
        env.run(&["graph", "run", "workflows/stats", "--directory", "src"])
            .status
            .success()
    );
    let id = newest(&env)["id"].as_str().unwrap().to_owned();
    assert!(Path::new(&env.path(&format!("project/.ai/state/graphs/{id}"))).is_dir());
    assert_eq!(env.read("project/.ai/state/.gitignore"), "*\n");
}

#[test]
fn without_a_key_nothing_is_decided() {
    let env = ready();
    let id = killed_at_the_decision(&env);
    fs::rename(env.path("user/.ai/config/keys"), env.path("keys")).unwrap();
    let output = env.run(&["gate", "approve", &id]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("hint: rye init"), "{text}");
}
