//! Going on with a session: which one is meant, and where it works.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use support::{World, outcome, told};

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt' } }]
  - text: 'It is done.'
";

const UNTIL_THE_GATE: &[&str] = &[
    "prompt",
    "go",
    "--model",
    "scripted:agent.yaml",
    "--sandbox",
    "local",
    "--no-wait",
    "--json",
];

/// A session that waits at a gate, and its id.
fn waiting(world: &World) -> String {
    world.write("project/agent.yaml", SCRIPT);
    let output = world.run(UNTIL_THE_GATE);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn an_empty_id_means_nothing_though_there_is_only_one() {
    let world = World::new();
    let session = waiting(&world);
    for args in [
        &["gate", "approve", ""][..],
        &["gate", "deny", ""],
        &["gate", "answer", "", "--value", "x"],
        &["gate", "approve", " "],
        &["session", "rm", ""],
        &["session", "resume", ""],
        &["session", "show", ""],
        &["session", "verify", ""],
        &["session", "export", ""],
        &["session", "fork", ""],
        &["session", "fork", &session, "--at", ""],
        &["session", "compact", ""],
        &["prompt", "go", "--session", ""],
        &["chat", "--plain", "--session", ""],
        &["replay", ""],
        &["run", "cancel", ""],
        &["run", "rm", ""],
        &["graph", "run", "--resume", ""],
    ] {
        let output = world.run(args);
        let said = told(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it is empty"), "{said}");
    }
    let listed = world.run(&["gate", "list"]);
    assert!(told("", &listed).contains(&session), "{listed:?}");
}
