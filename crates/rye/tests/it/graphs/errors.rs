//! Invalid graphs, and runs that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{env_with_examples, newest_run, sign, write_graph};
use crate::support::{assert_transcript, json};

#[test]
fn invalid_graph_reports_all_errors_and_does_not_run() {
    let env = env_with_examples();
    write_graph(
        &env,
        "bad",
        "[\"rye.execute.tool.lib.count\"]",
        "  start: first2\n  nodes:\n\
         \x20   first: { action: { item_id: lib/count, params: { what: files } }, next: second2 }\n\
         \x20   second: { type: gate, next: [{ to: second, when: { path: state.x, op: gtt, value: 1 } }] }\n\
         \x20   list: { type: foreach, over: 3, action: { item_id: lib/list } }\n",
    );
    write_graph(
        &env,
        "loop",
        "[]",
        "  start: one\n  nodes:\n    one: { type: gate, next: two }\n    two: { type: gate, next: one }\n    dead: { type: gate }\n",
    );
    write_graph(
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
fn values_are_arguments_and_never_code() {
    let env = env_with_examples();
    let node = |params: &str| {
        format!(
            "  start: one\n  nodes:\n    one: {{ action: {{ item_id: rye/bash/bash, params: {params} }} }}\n"
        )
    };
    let permissions = "[\"rye.execute.tool.rye.bash.*\"]";
    write_graph(
        &env,
        "text",
        permissions,
        &node("{ command: \"echo $(( ${inputs.n} ))\" }"),
    );
    write_graph(
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
fn failed_run_keeps_its_state_and_hints_at_resume() {
    let env = env_with_examples();
    write_graph(
        &env,
        "limit",
        "[]",
        "  start: one\n  max_steps: 3\n  nodes:\n\
         \x20   one: { type: gate, assign: { s: \"${state.s || ''}x\" }, next: [{ to: one, when: { path: state.s, op: ne, value: xxxxx } }] }\n",
    );
    write_graph(
        &env,
        "paths",
        "[\"rye.execute.tool.*\"]",
        "  start: one\n  nodes:\n\
         \x20   one: { action: { item_id: lib/count, params: { what: files, directory: src } }, assign: { n: \"${result.cont}\" }, next: two }\n\
         \x20   two: { type: foreach, over: \"${state.n || 'text'}\", action: { item_id: lib/count } }\n",
    );
    write_graph(
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
    let id = newest_run(&env)["id"].as_str().unwrap().to_owned();
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
fn run_stops_if_its_record_cannot_be_created() {
    let env = env_with_examples();
    // Needs root: a user without permission, and a full disk.
    let state = env.path("user/.local/state/rye");
    let _ = fs::remove_dir_all(&state);
    fs::create_dir_all(state.parent().unwrap()).unwrap();
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
    assert!(transcript.contains(".local/state/rye"), "{transcript}");
}

#[test]
fn large_state_and_lists_work_and_too_large_state_is_refused() {
    let env = env_with_examples();
    let fifty = "x".repeat(50 << 20);
    env.write(
        "project/fifty.json",
        &serde_json::json!({ "text": fifty }).to_string(),
    );
    write_graph(
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
    let why = "the state would have 100 MiB; the limit is 64 MiB";
    assert_eq!(document["data"]["b"], 1, "{document}");
    assert_eq!(document["data"]["why"], why);
    let items: Vec<_> = (0..100_000).collect();
    env.write(
        "project/many.json",
        &serde_json::json!({ "items": items }).to_string(),
    );
    // Each call is refused, which is the fastest outcome.
    write_graph(
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
    assert!(why.starts_with("100000 of 100000 elements failed"), "{why}");
}

#[test]
fn graph_commands_refuse_other_tools() {
    let env = env_with_examples();
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
fn validate_checks_every_named_graph() {
    let env = env_with_examples();
    env.write("project/.ai/tools/flows/text.yaml", "a: [\n");
    let transcript = env.transcript(&[
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats",
        "graph validate .ai/tools/flows/text.yaml flows/none workflows/stats --json",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn all_unsigned_tools_of_a_graph_are_reported_with_one_command() {
    let env = env_with_examples();
    let config = "  start: one\n  nodes:\n    \
        one: { action: { item_id: draft/one, params: {} }, next: two }\n    \
        two: { type: foreach, over: [1], action: { item_id: draft/two, params: {} }, next: nested }\n    \
        nested: { action: { item_id: draft/nested, params: {} } }\n";
    let nested = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\n\
        permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: go\n  nodes:\n    \
        go: { action: { item_id: draft/three, params: {} } }\n";
    let tool = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\necho '{}'\n";
    write_graph(&env, "all", "[\"rye.execute.tool.*\"]", config);
    for name in ["one", "two", "three"] {
        env.write(&format!("project/.ai/tools/draft/{name}.sh"), tool);
    }
    env.write("project/.ai/tools/draft/nested.yaml", nested);
    let sign_all = |output: &std::process::Output| {
        let document = json(output);
        let hint = document["error"]["hint"].as_str().unwrap();
        let command = hint.split(" #").next().unwrap();
        let mut arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
        assert_eq!(arguments.remove(0), "rye", "{hint}");
        arguments
    };
    let refused = env.run(&["--json", "graph", "run", "flows/all"]);
    let arguments = sign_all(&refused);
    let four = ["draft/one", "draft/two", "draft/nested", "draft/three"];
    assert_eq!(arguments, [&["sign"], &four[..]].concat());
    // An unsigned graph is listed with its tools.
    let path = env.path("project/.ai/tools/flows/all.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}# edited\n")).unwrap();
    let refused = env.run(&["--json", "graph", "run", "flows/all"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let arguments = sign_all(&refused);
    assert_eq!(arguments, [&["sign", "flows/all"], &four[..]].concat());
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let signed = env.run(&arguments);
    assert!(signed.status.success(), "{signed:?}");
    let output = env.run(&["graph", "run", "flows/all"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn violated_parameters_of_a_node_are_reported_once() {
    let env = env_with_examples();
    env.write(
        "project/.ai/tools/lib/strict.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\n\
         config: { command: \"true\" }\n\
         config_schema: { type: object, properties: { n: { type: integer } }, required: [m] }\n",
    );
    write_graph(
        &env,
        "loose",
        "[\"rye.execute.tool.lib.strict\"]",
        "  start: one\n  nodes:\n    one: { action: { item_id: lib/strict, params: { n: \"x\" } } }\n",
    );
    let document = json(&env.run(&["graph", "run", "flows/loose", "--json"]));
    let message = document["error"]["message"].as_str().unwrap();
    for violation in ["\"m\" is a required property", "\"x\" is not of type"] {
        assert_eq!(message.matches(violation).count(), 1, "{document}");
    }
}
