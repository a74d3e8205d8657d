//! Whatever can be wrong with a graph, or go wrong on its way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{graph, newest, ready, sign};
use crate::support::{assert_transcript, json};

#[test]
fn what_is_wrong_with_a_graph_is_told_all_at_once_and_nothing_runs() {
    let env = ready();
    graph(
        &env,
        "bad",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: first2\n  nodes:\n\
         \x20   first: { action: { item_id: lib/count, params: { what: files } }, next: second2 }\n\
         \x20   second: { type: gate, next: [{ to: second, when: { path: state.x, op: gtt, value: 1 } }] }\n\
         \x20   list: { type: foreach, over: 3, action: { item_id: lib/list } }\n",
    );
    graph(
        &env,
        "loop",
        "[]",
        "  start: one\n  nodes:\n    one: { type: gate, next: two }\n    two: { type: gate, next: one }\n    dead: { type: gate }\n",
    );
    graph(
        &env,
        "closed",
        "[]",
        "  start: one\n  nodes:\n    one: { action: { item_id: lib/count, params: { what: files } } }\n",
    );
    env.write("project/.ai/tools/flows/text.yaml", "a: [\n");
    let transcript = env.transcript(&[
        "graph validate flows/bad",
        "graph validate flows/loop flows/closed --json",
        "graph run flows/bad",
        "graph run flows/closed",
        "graph validate .ai/tools/flows/text.yaml",
        "graph validate flows/none",
        "graph run lib/count",
        "graph run workflows/stats --large much",
        "graph run workflows/stats --help",
        "graph step workflows/stats --state [1]",
        "graph step workflows/stats --node nope",
        "graph run --resume 20200101",
        "graph run --resume 20200101 workflows/stats",
        "run verify 20200101",
        "run tail 20200101",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn a_value_is_passed_to_a_command_and_never_becomes_part_of_it() {
    let env = ready();
    let node = |params: &str| {
        format!(
            "  start: one\n  nodes:\n    one: {{ action: {{ item_id: rye/bash/bash, params: {params} }} }}\n"
        )
    };
    let permissions = "[\"rye.execute.tool.rye.bash.*\"]";
    graph(
        &env,
        "text",
        permissions,
        &node("{ command: \"echo $(( ${inputs.n} ))\" }"),
    );
    graph(
        &env,
        "argument",
        permissions,
        &node("{ command: 'printf %s \"$1\" > \"$2\"', args: [\"${inputs.n}\", out] }"),
    );
    let hostile = "--params={\"n\":\"a[$(touch ran)]\"}";
    let refused = env.run(&["graph", "run", "flows/text", hostile, "--json"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(json(&refused)["metadata"]["node"], "one", "{refused:?}");
    let done = env.run(&["graph", "run", "flows/argument", hostile]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(env.read("project/out"), "a[$(touch ran)]");
    assert!(!env.path("project/ran").exists());
}

#[test]
fn what_goes_wrong_on_the_way_keeps_the_state_and_says_how_to_go_on() {
    let env = ready();
    graph(
        &env,
        "limit",
        "[]",
        "  start: one\n  max_steps: 3\n  nodes:\n\
         \x20   one: { type: gate, assign: { s: \"${state.s || ''}x\" }, next: [{ to: one, when: { path: state.s, op: ne, value: xxxxx } }] }\n",
    );
    graph(
        &env,
        "paths",
        "[\"rye.execute.tool.*\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: lib/count, params: { what: files, directory: src } }, assign: { n: \"${result.cont}\" }, next: two }\n\
         \x20   two: { type: foreach, over: \"${state.n || 'text'}\", action: { item_id: lib/count } }\n",
    );
    graph(
        &env,
        "dynamic",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: \"${inputs.tool}\", params: { what: files } }, on_error: two }\n    two: { type: return }\n",
    );
    let text = env.read("project/.ai/tools/flows/limit.yaml");
    let text: String = text.split_inclusive('\n').skip(1).collect();
    let needs = text.replace("config:", "env_requires: [NO_SUCH_ONE, NOR_THIS]\nconfig:");
    env.write("project/.ai/tools/flows/needs.yaml", &needs);
    sign(&env);
    let mut transcript = env.transcript(&["graph run flows/limit"]);
    let id = newest(&env)["id"].as_str().unwrap().to_owned();
    transcript += &env.transcript(&[
        &format!("run status {id}"),
        &format!("graph run --resume {id}"),
        "graph run flows/paths",
        "graph run flows/dynamic --params {\"tool\":\"lib/publish\"}",
        "graph run flows/dynamic --params {\"tool\":\"lib/none\"}",
        "graph run flows/needs",
    ]);
    assert!(!env.path("project/published.txt").exists());
    assert_transcript!(transcript);
}

#[test]
fn where_nothing_can_be_written_down_nothing_is_done() {
    let env = ready();
    // As a person who may not, and on a disk that is full: both are root's to arrange.
    let state = env.path("project/.ai/state");
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "in the way").unwrap();
    let mut transcript = env.transcript(&["graph run workflows/release --version 3"]);
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o500)).unwrap();
    let probe = fs::create_dir(state.join("probe"));
    if probe.is_err() {
        transcript += &env.transcript(&["graph run workflows/release --version 3"]);
    }
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!env.path("project/build-3.txt").exists());
    assert!(transcript.contains("exit 1"), "{transcript}");
    assert!(transcript.contains(".ai/state"), "{transcript}");
}

#[test]
fn where_the_record_cannot_grow_it_stops_and_goes_on_when_it_can() {
    let env = ready();
    let walk = [
        "graph",
        "run",
        "workflows/stats",
        "--directory",
        "src",
        "--json",
        "--quiet",
    ];
    let whole = json(&env.run(&walk));
    let id = newest(&env)["id"].as_str().unwrap().to_owned();
    let record = env.path(&format!("project/.ai/state/graphs/{id}/events.jsonl"));
    assert!(env.run(&["run", "rm", &id]).status.success() && !record.exists());
    // As on a disk that is full, but for the number of the error.
    let most = 3;
    let rye = env.command().get_program().to_owned();
    let mut shell = env.command();
    let limited = format!("trap '' XFSZ; ulimit -f {most}; exec \"$0\" \"$@\"");
    let mut command = std::process::Command::new("/bin/bash");
    command.arg("-c").arg(limited).arg(rye).args(walk);
    command.env_clear().current_dir(env.path("project"));
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
    let id = newest(&env)["id"].as_str().unwrap().to_owned();
    let resumed = json(&env.run(&["graph", "run", "--resume", &id, "--json", "--quiet"]));
    assert_eq!(resumed["data"], whole["data"], "{resumed}");
}

#[test]
fn a_large_state_and_many_items_are_walked_and_too_large_a_state_is_refused() {
    let env = ready();
    let fifty = "x".repeat(50 << 20);
    env.write(
        "project/fifty.json",
        &serde_json::json!({ "text": fifty }).to_string(),
    );
    graph(
        &env,
        "large",
        "[]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: gate, assign: { a: \"${inputs.text}\" }, next: two }\n\
         \x20   two: { type: gate, assign: { b: 1 }, next: three }\n\
         \x20   three: { type: gate, assign: { c: \"${inputs.text}\" }, on_error: four, next: four }\n\
         \x20   four: { type: return, output: { b: \"${state.b}\", why: \"${state._last_error.error}\" } }\n",
    );
    let output = env.run(&[
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
    env.write(
        "project/many.json",
        &serde_json::json!({ "items": items }).to_string(),
    );
    // Refused for each, which is the quickest thing that can happen to an item.
    graph(
        &env,
        "many",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { type: foreach, over: \"${inputs.items}\", as: n, parallel: true, collect: all, on_error: two,\n\
         \x20          action: { item_id: \"no id ${n}\" } }\n\
         \x20   two: { type: return, output: { last: \"${state.all.99999}\", why: \"${state._last_error.error}\" } }\n",
    );
    let output = env.run(&[
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
fn a_tool_that_is_no_graph_is_called_so_whatever_is_asked_of_it() {
    let env = ready();
    for command in ["run", "show", "validate"] {
        let output = env.run(&["graph", command, "hello"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(
            text.contains("error: hello is not a graph"),
            "{command}: {text}"
        );
    }
}

#[test]
fn every_graph_that_is_named_is_looked_at_whatever_is_wrong_with_the_others() {
    let env = ready();
    env.write("project/.ai/tools/flows/text.yaml", "a: [\n");
    let transcript = env.transcript(&[
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats",
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats --json",
    ]);
    assert_transcript!(transcript);
}
