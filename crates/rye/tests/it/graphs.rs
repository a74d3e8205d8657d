//! `rye graph` and runs of graphs.

mod errors;
mod other_directories;
mod runs;
mod trust;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::support::{TestEnv, assert_transcript, json, transcript_entry};
use lillux::process::Handle;
use lillux::watch::Watch;
use serde_json::Value;

/// A `TestEnv` with the signed examples.
pub(crate) fn env_with_examples() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs/.ai/tools");
    for folder in ["lib", "workflows"] {
        for entry in fs::read_dir(examples.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            env.write(&format!("project/.ai/tools/{folder}/{name}"), &text);
        }
    }
    env.write("project/src/a.txt", "one\ntwo\n");
    env.write("project/src/b.txt", "three\n");
    assert!(env.run(&["init"]).status.success());
    sign(&env);
    env
}

fn sign(env: &TestEnv) {
    let output = env.run(&["sign", "--all"]);
    assert!(output.status.success(), "{output:?}");
}

/// Writes and signs a graph.
fn write_graph(env: &TestEnv, name: &str, permissions: &str, config: &str) {
    let text = format!(
        "version: \"1.0.0\"\ntool_type: graph\n\
         executor_id: rye/core/runtimes/state-graph/runtime\n\
         permissions: {permissions}\nconfig:\n{config}"
    );
    env.write(&format!("project/.ai/tools/flows/{name}.yaml"), &text);
    sign(env);
}

/// The newest run.
fn newest_run(env: &TestEnv) -> Value {
    let document = json(&env.run(&["run", "list", "--json"]));
    document["runs"][0].clone()
}

/// The session database.
fn database(env: &TestEnv) -> rusqlite::Connection {
    rusqlite::Connection::open(env.path("user/.local/state/rye/sessions.db")).unwrap()
}

/// The process that holds a session.
pub(crate) fn holder(env: &TestEnv, session: &str) -> Handle {
    let query = "SELECT process FROM engine_leases WHERE session = ?1";
    let process = database(env).query_row(query, [session], |row| row.get::<_, String>(0));
    process.unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Waits until a run has this state and returns its id. Two runs may have started in one second.
fn wait_for_state(env: &TestEnv, state: &str) -> String {
    wait_for_commit(env, || {
        let document = json(&env.run(&["run", "list", "--json"]));
        let runs = document["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["state"] == state)?;
        Some(run["id"].as_str().unwrap().to_owned())
    })
}

/// Waits until `check` returns a value. It is called again after every commit to the store.
fn wait_for_commit<T>(env: &TestEnv, check: impl Fn() -> Option<T>) -> T {
    let state = env.path("user/.local/state/rye");
    fs::create_dir_all(&state).unwrap();
    let watch = Watch::new(&[state]).unwrap();
    loop {
        if let Some(found) = check() {
            return found;
        }
        let change = watch.wait(Some(Duration::from_mins(1))).unwrap();
        assert!(change.is_some(), "nothing happens: {}", newest_run(env));
    }
}

#[test]
fn development_mode_runs_unverified_graphs_with_warnings() {
    let mut env = env_with_examples();
    let graph = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\n\
        permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: go\n  nodes:\n    go:\n      \
        action: { item_id: draft/say, params: {} }\n";
    env.write("project/.ai/tools/draft/go.yaml", graph);
    let say = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\ntouch ran\n";
    env.write("project/.ai/tools/draft/say.sh", say);
    let refused = env.run(&["execute", "draft/go"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    env.set("RYE_DEV_MODE", "1");
    let output = env.run(&["execute", "draft/go"]);
    assert!(output.status.success(), "{output:?}");
    assert!(env.path("project/ran").exists());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("tool:draft/go cannot be trusted"),
        "{printed}"
    );
}

#[test]
fn examples_are_valid_and_run() {
    let env = env_with_examples();
    let transcript = env.transcript(&[
        "graph validate workflows/stats workflows/fan_out workflows/release workflows/fallback workflows/report",
        "graph run workflows/stats --directory src",
        "graph run workflows/stats --directory src --large 2 --json --quiet",
        "graph run workflows/fan_out --directory src",
        "graph run workflows/fallback --first none.txt --second src/b.txt",
        "graph run workflows/report --directories [\"src\",\".\"]",
        "execute workflows/stats --directory src --quiet",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn decision_is_answered_from_another_process_also_after_a_kill() {
    let env = env_with_examples();
    let walk = |args: &[&str]| -> Child { env.command().args(args).spawn().unwrap() };
    let mut walker = walk(&["graph", "run", "workflows/release", "--version", "1.2"]);
    let id = wait_for_state(&env, "waiting");
    let mut transcript = env.transcript(&["gate list", &format!("run status {id}")]);
    walker.kill().unwrap();
    walker.wait().unwrap();
    transcript += &env.transcript(&[
        &format!("run status {id}"),
        &format!("gate answer {id} --action perhaps"),
        &format!("gate approve {id}"),
        &format!("gate deny gate:{id}:graph:step-2:approve"),
        &format!("gate approve gate:{id}:graph:step-2:approve"),
        &format!("graph run --resume {id}"),
        &format!("run verify {id}"),
        &format!("run tail {id}"),
        &format!("graph show --run {id}"),
        &format!("graph run --resume {id}"),
    ]);
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    // The decision is denied while the run waits.
    let walker = walk(&[
        "graph",
        "run",
        "workflows/release",
        "--version",
        "1.3",
        "--quiet",
    ]);
    let id = wait_for_state(&env, "waiting");
    assert!(env.run(&["gate", "deny", &id]).status.success());
    let output = walker.wait_with_output().unwrap();
    transcript += &transcript_entry(
        "rye graph run workflows/release --version 1.3 --quiet",
        &output,
    );
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    assert_transcript!(transcript);
}

#[test]
fn step_runs_one_node() {
    let env = env_with_examples();
    let mut transcript = env.transcript(&[
        "graph step workflows/stats --params {\"directory\":\"src\"}",
        "graph step workflows/stats --node small --state {\"files\":7,\"lines\":8}",
        "graph step workflows/stats --node small2",
    ]);
    let runs = json(&env.run(&["run", "list", "--json"]));
    let runs = runs["runs"].as_array().unwrap();
    let paused = runs.iter().find(|run| run["state"] == "paused").unwrap();
    let id = paused["id"].as_str().unwrap().to_owned();
    transcript += &env.transcript(&[
        &format!("graph step --resume {id}"),
        &format!("graph run --resume {id}"),
        &format!("run verify {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn graph_is_drawn_in_three_formats() {
    let env = env_with_examples();
    let transcript = env.transcript(&[
        "graph show workflows/release",
        "graph show workflows/release --format dot",
        "graph show workflows/fallback --format svg",
        "graph show workflows/none",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn cached_result_is_used_until_something_changes() {
    let env = env_with_examples();
    write_graph(
        &env,
        "kept",
        "[\"rye.execute.tool.lib.publish\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: lib/publish, params: { artifact: \"${inputs.what || 'x'}\" } }, cache_result: true }\n",
    );
    let transcript = env.transcript(&[
        "graph run flows/kept",
        "graph run flows/kept",
        "graph run flows/kept --params {\"what\":\"y\"}",
    ]);
    assert_eq!(env.read("project/published.txt"), "x\ny\n");
    let tool = env.read("project/.ai/tools/lib/publish.py");
    env.write(
        "project/.ai/tools/lib/publish.py",
        &(tool + "\n# another\n"),
    );
    sign(&env);
    let transcript = transcript + &env.transcript(&["graph run flows/kept"]);
    assert_eq!(env.read("project/published.txt"), "x\ny\nx\n");
    assert_transcript!(transcript);
}

#[test]
fn foreach_calls_only_elements_that_are_not_cached() {
    let env = env_with_examples();
    write_graph(
        &env,
        "each",
        "[\"rye.execute.tool.lib.publish\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: foreach, over: \"${inputs.names}\", as: name, cache_result: true, collect: all,\n\
         \x20          action: { item_id: lib/publish, params: { artifact: \"${name}\" } } }\n",
    );
    let mut transcript = env.transcript(&[
        "graph run flows/each --params {\"names\":[\"x\",\"y\"]}",
        "graph run flows/each --params {\"names\":[\"y\",\"z\",\"x\"]}",
        "graph run flows/each --params {\"names\":[\"z\",\"y\"]}",
    ]);
    assert_eq!(env.read("project/published.txt"), "x\ny\nz\n");
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
    transcript += &env.transcript(&[&format!("run verify {id}")]);
    assert_transcript!(transcript);
}
