//! Runs of graphs: background, changed graphs, altered records, listing.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{database, env_with_examples, holder, newest_run, wait_for_state, write_graph};
use crate::support::{assert_transcript, json, transcript_entry};

#[test]
fn background_run_is_followed_cancelled_and_resumed() {
    let env = env_with_examples();
    let started = json(&env.run(&[
        "graph",
        "run",
        "--async",
        "--json",
        "workflows/release",
        "--version",
        "2",
    ]));
    let id = started["run"]["id"].as_str().unwrap().to_owned();
    assert_eq!(wait_for_state(&env, "waiting"), id);
    let tail = env
        .command()
        .args(["run", "tail", "--follow", &id])
        .spawn()
        .unwrap();
    let mut transcript = env.transcript(&[&format!("run cancel {id}"), "run list"]);
    let output = tail.wait_with_output().unwrap();
    transcript += &transcript_entry("rye run tail --follow RUN", &output);
    transcript += &env.transcript(&[
        &format!("gate approve {id}"),
        &format!("graph run --resume {id}"),
        &format!("run verify {id}"),
        &format!("run rm {id}"),
        &format!("run status {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn changed_graph_must_be_accepted_to_resume() {
    let env = env_with_examples();
    let config = "  start: one\n  max_steps: 1\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n    two: { type: return, output: { a: \"${state.a}\" } }\n";
    write_graph(&env, "old", "[]", config);
    env.run(&["graph", "run", "flows/old"]);
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    write_graph(
        &env,
        "old",
        "[]",
        &config.replace("{ a: \"${state.a}\" }", "{ b: \"${state.a}\" }"),
    );
    let transcript = env.transcript(&[
        &format!("graph run --resume {id}"),
        &format!("graph run --resume {id} --accept-changed"),
        &format!("run verify {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn altered_record_is_detected() {
    let env = env_with_examples();
    assert!(
        env.run(&["graph", "run", "workflows/stats", "--directory", "src"])
            .status
            .success()
    );
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    let verify = format!("run verify {id}");
    let mut transcript = env.transcript(&[&verify]);
    for (alter, undo) in [
        (
            "UPDATE engine_log SET doc = replace(doc, '\"files\":2', '\"files\":3')",
            "UPDATE engine_log SET doc = replace(doc, '\"files\":3', '\"files\":2')",
        ),
        (
            "UPDATE engine_sessions SET doc = replace(doc, '\"completed\"', '\"failed\"')",
            "UPDATE engine_sessions SET doc = replace(doc, '\"failed\"', '\"completed\"')",
        ),
    ] {
        database(&env).execute_batch(alter).unwrap();
        let output = env.run(&["run", "verify", &id]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        database(&env).execute_batch(undo).unwrap();
    }
    transcript += &env.transcript(&[&verify]);
    transcript += &env.transcript(&[&format!("run status {id}")]);
    assert_transcript!(transcript);
}

#[test]
fn background_resume_keeps_the_run_id() {
    let env = env_with_examples();
    let config = "  start: one\n  max_steps: 1\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n    two: { type: return, output: { a: \"${state.a}\" } }\n";
    write_graph(&env, "rest", "[]", config);
    env.run(&["graph", "run", "flows/rest"]);
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    write_graph(
        &env,
        "rest",
        "[]",
        &config.replace("{ a: \"${state.a}\" }", "{ b: \"${state.a}\" }"),
    );
    let resume = format!("graph run --resume {id} --async");
    let follow = format!("run tail {id} --follow");
    let mut transcript = env.transcript(&[&resume, &format!("{resume} --accept-changed")]);
    assert_eq!(wait_for_state(&env, "completed"), id);
    transcript += &env.transcript(&[
        &follow,
        "run list",
        &resume,
        &format!("run verify {id}"),
        &format!("run cancel {id}"),
        "graph run --resume 20200101 --async",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn runs_of_one_second_are_listed_newest_first() {
    let env = env_with_examples();
    write_graph(
        &env,
        "quick",
        "[]",
        "  start: one\n  nodes:\n    one: { type: return, output: \"${inputs.n}\" }\n",
    );
    for n in 0..6 {
        let params = format!("{{\"n\":{n}}}");
        let output = env.run(&["graph", "run", "flows/quick", "--params", &params]);
        assert!(output.status.success(), "{output:?}");
    }
    let listed = json(&env.run(&["run", "list", "--json"]));
    let ids = listed["runs"].as_array().unwrap().iter();
    let numbers = ids.map(|run| {
        let id = run["id"].as_str().unwrap();
        json(&env.run(&["run", "status", "--json", id]))["output"].clone()
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn state_override_is_recorded() {
    let env = env_with_examples();
    write_graph(
        &env,
        "over",
        "[]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n\
         \x20   two: { type: gate, assign: { b: 2 }, next: three }\n\
         \x20   three: { type: return, output: { a: \"${state.a}\", b: \"${state.b || 'none'}\" } }\n",
    );
    assert!(env.run(&["graph", "step", "flows/over"]).status.success());
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    let transcript = env.transcript(&[
        &format!("graph step --resume {id} --node three --state {{\"a\":7}}"),
        &format!("run verify {id}"),
        &format!("run tail {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn graph_run_replays_from_its_record() {
    let env = env_with_examples();
    let ran = env.run(&["graph", "run", "workflows/stats", "--directory", "src"]);
    assert!(ran.status.success(), "{ran:?}");
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    let replay = json(&env.run(&["replay", &id, "--json"]));
    assert_eq!(replay["differences"], serde_json::json!([]), "{replay}");
    assert!(replay["steps"].as_u64() > Some(1), "{replay}");
    // The result of the node stays as it was.
    let alter = "UPDATE engine_log SET doc = replace(doc, '\"files\":2', '\"files\":3')";
    database(&env).execute_batch(alter).unwrap();
    let replay = json(&env.run(&["replay", &id, "--json"]));
    assert_eq!(replay["error"]["code"], "differs", "{replay}");
}

#[test]
fn first_resume_after_a_kill_asks_about_a_call_that_no_node_handles() {
    let env = env_with_examples();
    let tool = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
        echo called >> calls\n[ -e go ] || sleep 60\n";
    env.write("project/.ai/tools/flows/slow.sh", tool);
    let config = "  start: one\n  nodes:\n    \
        one: { action: { item_id: flows/slow, params: {} }, next: two }\n    \
        two: { type: return, output: done }\n";
    write_graph(&env, "once", "[\"rye.execute.tool.flows.*\"]", config);
    let mut killed = env
        .command()
        .args(["graph", "run", "flows/once"])
        .spawn()
        .unwrap();
    while !env.path("project/calls").exists() {
        lillux::watch::wait_for_change(&[env.path("project")], Some(Duration::from_millis(200)))
            .ok();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    env.write("project/go", "");
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    let resumed = env
        .command()
        .args(["graph", "run", "--resume", &id])
        .spawn()
        .unwrap();
    assert_eq!(wait_for_state(&env, "waiting"), id);
    assert_eq!(env.read("project/calls"), "called\n");
    let gate = json(&env.run(&["gate", "list", "--json"]))["gates"][0]["id"].clone();
    let answer = [
        "gate",
        "answer",
        gate.as_str().unwrap(),
        "--action",
        "run_again",
    ];
    assert!(env.run(&answer).status.success());
    let output = resumed.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.read("project/calls"), "called\ncalled\n");
}

#[test]
fn run_that_a_signal_ended_at_a_gate_is_interrupted_and_resumes() {
    let env = env_with_examples();
    let start = "graph run --async workflows/release --version 2";
    assert!(
        env.run(&start.split(' ').collect::<Vec<_>>())
            .status
            .success()
    );
    let id = wait_for_state(&env, "waiting");
    let process = Pid::from_raw(holder(&env, &id).pid()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    assert_eq!(wait_for_state(&env, "interrupted"), id);
    let sessions = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(
        sessions["sessions"][0]["state"], "interrupted",
        "{sessions}"
    );
    let transcript = env.transcript(&[
        &format!("run status {id}"),
        "run list",
        &format!("gate approve {id}"),
        &format!("graph run --resume {id}"),
    ]);
    assert_transcript!(transcript);
}
