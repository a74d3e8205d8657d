//! `rye graph` and the runs of graphs, on the examples and on whatever can go wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;
use support::{World, assert_transcript, json, told};

/// A world with the examples, signed.
fn ready() -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs/.ai/tools");
    for folder in ["lib", "workflows"] {
        for entry in fs::read_dir(examples.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            world.write(&format!("project/.ai/tools/{folder}/{name}"), &text);
        }
    }
    world.write("project/src/a.txt", "one\ntwo\n");
    world.write("project/src/b.txt", "three\n");
    assert!(world.run(&["init"]).status.success());
    sign(&world);
    world
}

fn sign(world: &World) {
    let output = world.run(&["sign", "--all"]);
    assert!(output.status.success(), "{output:?}");
}

/// Writes a graph, signed.
fn graph(world: &World, name: &str, permissions: &str, config: &str) {
    let text = format!(
        "version: \"1.0.0\"\ntool_type: graph\n\
         executor_id: rye/core/runtimes/state-graph/runtime\n\
         permissions: {permissions}\nconfig:\n{config}"
    );
    world.write(&format!("project/.ai/tools/flows/{name}.yaml"), &text);
    sign(world);
}

/// The newest run.
fn newest(world: &World) -> Value {
    let document = json(&world.run(&["run", "list", "--json"]));
    document["runs"][0].clone()
}

/// Waits until a run stands so, at most for some seconds. Two may have begun in one second.
fn until(world: &World, state: &str) -> String {
    for _ in 0..400 {
        let document = json(&world.run(&["run", "list", "--json"]));
        let runs = document["runs"].as_array().unwrap();
        if let Some(run) = runs.iter().find(|run| run["state"] == state) {
            return run["id"].as_str().unwrap().to_owned();
        }
        let graphs = world.path("project/.ai/state/graphs");
        let _ = lillux::watch::paths(&[graphs], Some(Duration::from_millis(50)));
    }
    panic!("no run is {state}: {}", newest(world));
}

#[test]
fn every_example_is_sound_and_does_what_it_says() {
    let world = ready();
    let transcript = world.transcript(&[
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
    let world = ready();
    let walk = |args: &[&str]| -> Child { world.command().args(args).spawn().unwrap() };
    let mut walker = walk(&["graph", "run", "workflows/release", "--version", "1.2"]);
    let id = until(&world, "waiting");
    let mut transcript = world.transcript(&["gate list", &format!("run status {id}")]);
    walker.kill().unwrap();
    walker.wait().unwrap();
    transcript += &world.transcript(&[
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
    assert_eq!(world.read("project/published.txt"), "build-1.2.txt\n");
    // Somebody says no while it waits.
    let walker = walk(&[
        "graph",
        "run",
        "workflows/release",
        "--version",
        "1.3",
        "--quiet",
    ]);
    let id = until(&world, "waiting");
    assert!(world.run(&["gate", "deny", &id]).status.success());
    let output = walker.wait_with_output().unwrap();
    transcript += &told(
        "rye graph run workflows/release --version 1.3 --quiet",
        &output,
    );
    assert_eq!(world.read("project/published.txt"), "build-1.2.txt\n");
    assert_transcript!(transcript);
}

#[test]
fn a_graph_runs_in_the_background_is_followed_and_cancelled_and_goes_on() {
    let world = ready();
    let started = json(&world.run(&[
        "graph",
        "run",
        "--async",
        "--json",
        "workflows/release",
        "--version",
        "2",
    ]));
    let id = started["run"]["id"].as_str().unwrap().to_owned();
    for _ in 0..400 {
        let status = json(&world.run(&["run", "status", "--json", &id]));
        if status["run"]["state"] == "waiting" {
            break;
        }
        let _ = lillux::watch::paths(
            &[world.path("project/.ai")],
            Some(Duration::from_millis(50)),
        );
    }
    let tail = world
        .command()
        .args(["run", "tail", "--follow", &id])
        .spawn()
        .unwrap();
    let mut transcript = world.transcript(&[&format!("run cancel {id}"), "run list"]);
    let output = tail.wait_with_output().unwrap();
    transcript += &told("rye run tail --follow RUN", &output);
    transcript += &world.transcript(&[
        &format!("gate approve {id}"),
        &format!("graph run --resume {id}"),
        &format!("run verify {id}"),
        &format!("run rm {id}"),
        &format!("run status {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn single_steps_go_node_by_node() {
    let world = ready();
    let mut transcript = world.transcript(&[
        "graph step workflows/stats --params {\"directory\":\"src\"}",
        "graph step workflows/stats --node small --state {\"files\":7,\"lines\":8}",
        "graph step workflows/stats --node small2",
    ]);
    let runs = json(&world.run(&["run", "list", "--json"]));
    let runs = runs["runs"].as_array().unwrap();
    let paused = runs.iter().find(|run| run["state"] == "paused").unwrap();
    let id = paused["id"].as_str().unwrap().to_owned();
    transcript += &world.transcript(&[
        &format!("graph step --resume {id}"),
        &format!("graph run --resume {id}"),
        &format!("run verify {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn graphs_are_drawn_in_three_forms() {
    let world = ready();
    let transcript = world.transcript(&[
        "graph show workflows/release",
        "graph show workflows/release --format dot",
        "graph show workflows/fallback --format svg",
        "graph show workflows/none",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn what_is_wrong_with_a_graph_is_told_all_at_once_and_nothing_runs() {
    let world = ready();
    graph(
        &world,
        "bad",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: first2\n  nodes:\n\
         \x20   first: { action: { item_id: lib/count, params: { what: files } }, next: second2 }\n\
         \x20   second: { type: gate, next: [{ to: second, when: { path: state.x, op: gtt, value: 1 } }] }\n\
         \x20   list: { type: foreach, over: 3, action: { item_id: lib/list } }\n",
    );
    graph(
        &world,
        "loop",
        "[]",
        "  start: one\n  nodes:\n    one: { type: gate, next: two }\n    two: { type: gate, next: one }\n    dead: { type: gate }\n",
    );
    graph(
        &world,
        "closed",
        "[]",
        "  start: one\n  nodes:\n    one: { action: { item_id: lib/count, params: { what: files } } }\n",
    );
    world.write("project/.ai/tools/flows/text.yaml", "a: [\n");
    let transcript = world.transcript(&[
        "graph validate flows/bad",
        "graph validate flows/loop flows/closed --json",
        "graph run flows/bad",
        "graph run flows/closed",
        "graph validate .ai/tools/flows/text.yaml",
        "graph validate flows/none",
        "graph run lib/count",
        "graph run workflows/stats --large much",
        "graph run --resume 20200101",
        "graph run --resume 20200101 workflows/stats",
        "run verify 20200101",
        "run tail 20200101",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn what_goes_wrong_on_the_way_keeps_the_state_and_says_how_to_go_on() {
    let world = ready();
    graph(
        &world,
        "limit",
        "[]",
        "  start: one\n  max_steps: 3\n  nodes:\n\
         \x20   one: { type: gate, assign: { s: \"${state.s || ''}x\" }, next: [{ to: one, when: { path: state.s, op: ne, value: xxxxx } }] }\n",
    );
    graph(
        &world,
        "paths",
        "[\"rye.execute.tool.*\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: lib/count, params: { what: files, directory: src } }, assign: { n: \"${result.cont}\" }, next: two }\n\
         \x20   two: { type: foreach, over: \"${state.n || 'text'}\", action: { item_id: lib/count } }\n",
    );
    graph(
        &world,
        "dynamic",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: \"${inputs.tool}\", params: { what: files } }, on_error: two }\n    two: { type: return }\n",
    );
    let text = world.read("project/.ai/tools/flows/limit.yaml");
    let text: String = text.split_inclusive('\n').skip(1).collect();
    let needs = text.replace("config:", "env_requires: [NO_SUCH_ONE, NOR_THIS]\nconfig:");
    world.write("project/.ai/tools/flows/needs.yaml", &needs);
    sign(&world);
    let mut transcript = world.transcript(&["graph run flows/limit"]);
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    transcript += &world.transcript(&[
        &format!("run status {id}"),
        &format!("graph run --resume {id}"),
        "graph run flows/paths",
        "graph run flows/dynamic --params {\"tool\":\"lib/publish\"}",
        "graph run flows/dynamic --params {\"tool\":\"lib/none\"}",
        "graph run flows/needs",
    ]);
    assert!(!world.path("project/published.txt").exists());
    assert_transcript!(transcript);
}

#[test]
fn a_run_whose_graph_has_changed_goes_on_only_if_that_is_accepted() {
    let world = ready();
    let config = "  start: one\n  max_steps: 1\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n    two: { type: return, output: { a: \"${state.a}\" } }\n";
    graph(&world, "old", "[]", config);
    world.run(&["graph", "run", "flows/old"]);
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    graph(
        &world,
        "old",
        "[]",
        &config.replace("{ a: \"${state.a}\" }", "{ b: \"${state.a}\" }"),
    );
    let transcript = world.transcript(&[
        &format!("graph run --resume {id}"),
        &format!("graph run --resume {id} --accept-changed"),
        &format!("run verify {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn a_record_that_was_touched_is_found_out() {
    let world = ready();
    assert!(
        world
            .run(&["graph", "run", "workflows/stats", "--directory", "src"])
            .status
            .success()
    );
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    let path = format!("project/.ai/state/graphs/{id}/events.jsonl");
    let good = world.read(&path);
    let verify = format!("run verify {id}");
    let mut transcript = world.transcript(&[&verify]);
    let mut lines: Vec<_> = good.lines().collect();
    lines.remove(3);
    for bad in [
        good.replace("\"files\":2", "\"files\":3"),
        lines.join("\n") + "\n",
    ] {
        world.write(&path, &bad);
        transcript += &world.transcript(&[&verify]);
    }
    transcript += &world.transcript(&[&format!("run status {id}")]);
    assert_transcript!(transcript);
}

#[test]
fn where_nothing_can_be_written_down_nothing_is_done() {
    let world = ready();
    // As a person who may not, and on a disk that is full: both are root's to arrange.
    let state = world.path("project/.ai/state");
    fs::write(&state, "in the way").unwrap();
    let mut transcript = world.transcript(&["graph run workflows/release --version 3"]);
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o500)).unwrap();
    let probe = fs::create_dir(state.join("probe"));
    if probe.is_err() {
        transcript += &world.transcript(&["graph run workflows/release --version 3"]);
    }
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!world.path("project/build-3.txt").exists());
    assert!(transcript.contains("exit 1"), "{transcript}");
    assert!(transcript.contains(".ai/state"), "{transcript}");
}

#[test]
fn where_the_record_cannot_grow_it_stops_and_goes_on_when_it_can() {
    let world = ready();
    let walk = [
        "graph",
        "run",
        "workflows/stats",
        "--directory",
        "src",
        "--json",
        "--quiet",
    ];
    let whole = json(&world.run(&walk));
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    let record = world.path(&format!("project/.ai/state/graphs/{id}/events.jsonl"));
    assert!(world.run(&["run", "rm", &id]).status.success() && !record.exists());
    // As on a disk that is full, but for the number of the error.
    let most = 3;
    let rye = world.command().get_program().to_owned();
    let mut shell = world.command();
    let limited = format!("trap '' XFSZ; ulimit -f {most}; exec \"$0\" \"$@\"");
    let mut command = std::process::Command::new("/bin/bash");
    command.arg("-c").arg(limited).arg(rye).args(walk);
    command.env_clear().current_dir(world.path("project"));
    for (name, value) in shell.arg("").get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    let stopped = json(&output);
    assert_eq!(output.status.code(), Some(1), "{stopped}");
    let message = stopped["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("events.jsonl: File too large"),
        "{message}"
    );
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    let resumed = json(&world.run(&["graph", "run", "--resume", &id, "--json", "--quiet"]));
    assert_eq!(resumed["data"], whole["data"], "{resumed}");
}

#[test]
fn a_large_state_and_many_items_are_walked_and_too_large_a_state_is_refused() {
    let world = ready();
    let fifty = "x".repeat(50 << 20);
    world.write(
        "project/fifty.json",
        &serde_json::json!({ "text": fifty }).to_string(),
    );
    graph(
        &world,
        "large",
        "[]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: \"${inputs.text}\" }, next: two }\n\
         \x20   two: { type: gate, assign: { b: 1 }, next: three }\n\
         \x20   three: { type: gate, assign: { c: \"${inputs.text}\" }, on_error: four, next: four }\n\
         \x20   four: { type: return, output: { b: \"${state.b}\", why: \"${state._last_error.error}\" } }\n",
    );
    let output = world.run(&[
        "graph",
        "run",
        "flows/large",
        "--params",
        "@fifty.json",
        "--json",
        "--quiet",
    ]);
    let document = json(&output);
    let why = "the state would have 100 MiB, and 64 MiB is the most";
    assert_eq!(document["data"]["b"], 1, "{document}");
    assert_eq!(document["data"]["why"], why);
    let items: Vec<_> = (0..100_000).collect();
    world.write(
        "project/many.json",
        &serde_json::json!({ "items": items }).to_string(),
    );
    // Refused for each, which is the quickest thing that can happen to an item.
    graph(
        &world,
        "many",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: foreach, over: \"${inputs.items}\", as: n, parallel: true, collect: all, on_error: two,\n\
         \x20          action: { item_id: \"no id ${n}\" } }\n\
         \x20   two: { type: return, output: { last: \"${state.all.99999}\", why: \"${state._last_error.error}\" } }\n",
    );
    let output = world.run(&[
        "graph",
        "run",
        "flows/many",
        "--params",
        "@many.json",
        "--json",
        "--quiet",
    ]);
    let document = json(&output);
    assert_eq!(
        document["data"]["last"]["code"],
        "bad_item_id",
        "{:.400}",
        document.to_string()
    );
    let why = document["data"]["why"].as_str().unwrap();
    assert!(why.starts_with("100000 of 100000 items failed"), "{why}");
}

#[test]
fn a_result_that_was_kept_is_used_until_something_of_it_changes() {
    let world = ready();
    graph(
        &world,
        "kept",
        "[\"rye.execute.tool.lib.publish\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: lib/publish, params: { artifact: \"${inputs.what || 'x'}\" } }, cache_result: true }\n",
    );
    let transcript = world.transcript(&[
        "graph run flows/kept",
        "graph run flows/kept",
        "graph run flows/kept --params {\"what\":\"y\"}",
    ]);
    assert_eq!(world.read("project/published.txt"), "x\ny\n");
    let tool = world.read("project/.ai/tools/lib/publish.py");
    world.write(
        "project/.ai/tools/lib/publish.py",
        &(tool + "\n# another\n"),
    );
    sign(&world);
    let transcript = transcript + &world.transcript(&["graph run flows/kept"]);
    assert_eq!(world.read("project/published.txt"), "x\ny\nx\n");
    assert_transcript!(transcript);
}

#[test]
fn items_that_were_kept_are_not_called_again_and_new_ones_are() {
    let world = ready();
    graph(
        &world,
        "each",
        "[\"rye.execute.tool.lib.publish\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: foreach, over: \"${inputs.names}\", as: name, cache_result: true, collect: all,\n\
         \x20          action: { item_id: lib/publish, params: { artifact: \"${name}\" } } }\n",
    );
    let mut transcript = world.transcript(&[
        "graph run flows/each --params {\"names\":[\"x\",\"y\"]}",
        "graph run flows/each --params {\"names\":[\"y\",\"z\",\"x\"]}",
        "graph run flows/each --params {\"names\":[\"z\",\"y\"]}",
    ]);
    assert_eq!(world.read("project/published.txt"), "x\ny\nz\n");
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    transcript += &world.transcript(&[&format!("run verify {id}")]);
    assert_transcript!(transcript);
}

#[test]
fn a_run_goes_on_in_the_background_under_its_name() {
    let world = ready();
    let config = "  start: one\n  max_steps: 1\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n    two: { type: return, output: { a: \"${state.a}\" } }\n";
    graph(&world, "rest", "[]", config);
    world.run(&["graph", "run", "flows/rest"]);
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    graph(
        &world,
        "rest",
        "[]",
        &config.replace("{ a: \"${state.a}\" }", "{ b: \"${state.a}\" }"),
    );
    let resume = format!("graph run --resume {id} --async");
    let follow = format!("run tail {id} --follow");
    let mut transcript = world.transcript(&[&resume, &format!("{resume} --accept-changed")]);
    let state = |wanted: &str| {
        for _ in 0..400 {
            let status = json(&world.run(&["run", "status", "--json", &id]));
            if status["run"]["state"] == wanted {
                return;
            }
            let folder = world.path(&format!("project/.ai/state/graphs/{id}"));
            let _ = lillux::watch::paths(&[folder], Some(Duration::from_millis(50)));
        }
        panic!("{id} is never {wanted}: {}", newest(&world));
    };
    state("completed");
    transcript += &world.transcript(&[
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
fn runs_of_one_second_are_listed_the_newest_first() {
    let world = ready();
    graph(
        &world,
        "quick",
        "[]",
        "  start: one\n  nodes:\n    one: { type: return, output: \"${inputs.n}\" }\n",
    );
    for n in 0..6 {
        let params = format!("{{\"n\":{n}}}");
        let output = world.run(&["graph", "run", "flows/quick", "--params", &params]);
        assert!(output.status.success(), "{output:?}");
    }
    let listed = json(&world.run(&["run", "list", "--json"]));
    let ids = listed["runs"].as_array().unwrap().iter();
    let numbers = ids.map(|run| {
        let id = run["id"].as_str().unwrap();
        json(&world.run(&["run", "status", "--json", id]))["output"].clone()
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
}

#[test]
fn what_is_put_over_the_state_of_a_run_is_part_of_its_record() {
    let world = ready();
    graph(
        &world,
        "over",
        "[]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: 1 }, next: two }\n\
         \x20   two: { type: gate, assign: { b: 2 }, next: three }\n\
         \x20   three: { type: return, output: { a: \"${state.a}\", b: \"${state.b || 'none'}\" } }\n",
    );
    assert!(world.run(&["graph", "step", "flows/over"]).status.success());
    let id = newest(&world)["id"].as_str().unwrap().to_owned();
    let transcript = world.transcript(&[
        &format!("graph step --resume {id} --node three --state {{\"a\":7}}"),
        &format!("run verify {id}"),
        &format!("run tail {id}"),
    ]);
    assert_transcript!(transcript);
}

#[test]
fn every_graph_that_is_named_is_looked_at_whatever_is_wrong_with_the_others() {
    let world = ready();
    world.write("project/.ai/tools/flows/text.yaml", "a: [\n");
    let transcript = world.transcript(&[
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats",
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats --json",
    ]);
    assert_transcript!(transcript);
}
