//! `rye graph` and the runs of graphs, on the examples and on whatever can go wrong.

mod bad;
mod elsewhere;
mod runs;
mod trust;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::support::{TestEnv, assert_transcript, json, told};
use serde_json::Value;

/// A `TestEnv` with the examples, signed.
fn ready() -> TestEnv {
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

/// Writes a graph, signed.
fn graph(env: &TestEnv, name: &str, permissions: &str, config: &str) {
    let text = format!(
        "version: \"1.0.0\"\ntool_type: graph\n\
         executor_id: rye/core/runtimes/state-graph/runtime\n\
         permissions: {permissions}\nconfig:\n{config}"
    );
    env.write(&format!("project/.ai/tools/flows/{name}.yaml"), &text);
    sign(env);
}

/// The newest run.
fn newest(env: &TestEnv) -> Value {
    let document = json(&env.run(&["run", "list", "--json"]));
    document["runs"][0].clone()
}

/// Waits until a run stands so, at most for some seconds. Two may have begun in one second.
fn until(env: &TestEnv, state: &str) -> String {
    for _ in 0..400 {
        let document = json(&env.run(&["run", "list", "--json"]));
        let runs = document["runs"].as_array().unwrap();
        if let Some(run) = runs.iter().find(|run| run["state"] == state) {
            return run["id"].as_str().unwrap().to_owned();
        }
        let graphs = env.path("project/.ai/state/graphs");
        let _ = lillux::watch::wait_for_change(&[graphs], Some(Duration::from_millis(50)));
    }
    panic!("no run is {state}: {}", newest(env));
}

#[test]
fn development_mode_lets_a_graph_and_what_it_calls_pass_with_warnings() {
    let mut env = ready();
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
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("tool:draft/go cannot be trusted"), "{told}");
}

#[test]
fn every_example_is_sound_and_does_what_it_says() {
    let env = ready();
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
fn a_person_approves_from_another_terminal_also_when_the_walker_is_gone() {
    let env = ready();
    let walk = |args: &[&str]| -> Child { env.command().args(args).spawn().unwrap() };
    let mut walker = walk(&["graph", "run", "workflows/release", "--version", "1.2"]);
    let id = until(&env, "waiting");
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
    // Somebody says no while it waits.
    let walker = walk(&[
        "graph",
        "run",
        "workflows/release",
        "--version",
        "1.3",
        "--quiet",
    ]);
    let id = until(&env, "waiting");
    assert!(env.run(&["gate", "deny", &id]).status.success());
    let output = walker.wait_with_output().unwrap();
    transcript += &told(
        "rye graph run workflows/release --version 1.3 --quiet",
        &output,
    );
    assert_eq!(env.read("project/published.txt"), "build-1.2.txt\n");
    assert_transcript!(transcript);
}

#[test]
fn single_steps_go_node_by_node() {
    let env = ready();
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
fn graphs_are_drawn_in_three_forms() {
    let env = ready();
    let transcript = env.transcript(&[
        "graph show workflows/release",
        "graph show workflows/release --format dot",
        "graph show workflows/fallback --format svg",
        "graph show workflows/none",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn a_result_that_was_kept_is_used_until_something_of_it_changes() {
    let env = ready();
    graph(
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
fn items_that_were_kept_are_not_called_again_and_new_ones_are() {
    let env = ready();
    graph(
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
    let id = newest(&env)["id"].as_str().unwrap().to_owned();
    transcript += &env.transcript(&[&format!("run verify {id}")]);
    assert_transcript!(transcript);
}
