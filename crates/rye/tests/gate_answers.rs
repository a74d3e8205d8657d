//! What a person is shown at a gate, and what they may answer.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::process::Output;

use support::{World, told};

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

fn with_script(script: &str) -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    world.write("project/agent.yaml", script);
    assert!(world.run(&["init"]).status.success());
    world
}

fn waits(output: &Output) {
    assert_eq!(output.status.code(), Some(5), "{}", told("", output));
}

#[test]
fn what_a_model_says_a_call_is_for_is_one_line() {
    let summary = r"look around\nrisk: low\r\n  rye gate approve gate:another";
    let world = with_script(&format!(
        "steps:\n  - tool_calls: [{{ name: call_tool, args: {{ tool_id: 'rye:deploy', params: {{}}, \
         summary: \"{summary}\" }} }}]\n"
    ));
    world.write("project/.ai/tools/deploy.yaml", TOOL);
    assert!(world.run(&["sign", "deploy"]).status.success());
    waits(&world.run(MODEL));
    let listed = told("", &world.run(&["gate", "list"]));
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
