//! What was approved in one folder and would be done in another: it is asked about again.

use std::fs;

use crate::support::{World, json, waits_at_a_gate};
use serde_json::Value;

const COMMAND: &str = "{ name: bash, args: { command: 'pwd >> ran.txt' } }";
const OUTSIDE: &str = "{ name: write, args: { path: ../ran.txt, content: ran } }";
const ITEM: &str = "{ name: call_tool, args: { tool_id: 'rye:work', summary: work } }";
const TOOL: &str = "version: \"1.0.0\"\ndescription: Works\nrisk_level: high\n\
    executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'pwd >> ran.txt'\n";

/// Two projects, each in a folder of its own, and an agent that wants the same twice.
fn ready(call: &str) -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    let step = format!("  - tool_calls: [{call}]\n  - text: done\n");
    world.write("user/agent.yaml", &format!("steps:\n{}", step.repeat(2)));
    fs::create_dir_all(world.path("far/other/.ai")).unwrap();
    assert!(world.run(&["init"]).status.success());
    world.write("user/.ai/tools/work.yaml", TOOL);
    let signed = world.run(&["sign", "work", "--space", "user"]);
    assert!(signed.status.success(), "{signed:?}");
    world
}

/// Runs `rye` until it waits at a gate, and gives that.
fn gate(world: &World, args: &[&str]) -> Value {
    waits_at_a_gate(world.command().args(args).spawn().unwrap());
    let mut listed = json(&world.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().pop().unwrap()
}

/// A session that waits for an approval in the first project.
fn asked(world: &World) -> (String, String) {
    let script = format!("scripted:{}", world.path("user/agent.yaml").display());
    let gate = gate(
        world,
        &["prompt", "go", "--sandbox", "local", "--model", &script],
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&gate["id"]), text(&gate["origin"]["session"]))
}

fn done(world: &World, args: &[&str]) {
    let output = world.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn an_approval_holds_in_the_folder_in_which_it_was_asked_for() {
    for (call, here, there) in [
        (COMMAND, "project/ran.txt", "far/other/ran.txt"),
        (OUTSIDE, "ran.txt", "far/ran.txt"),
        (ITEM, "project/ran.txt", "far/other/ran.txt"),
    ] {
        let world = ready(call);
        let other = world.path("far/other").display().to_string();
        let (first, session) = asked(&world);
        done(&world, &["gate", "approve", &first]);
        let elsewhere = ["session", "resume", &session, "--project", &other];
        let second = gate(&world, &elsewhere);
        assert_ne!(second["id"], first.as_str());
        let body = second["body"].as_str().unwrap();
        assert!(body.contains(&other), "{body}");
        for place in [here, there] {
            assert!(!world.path(place).exists(), "{call}: {place}");
        }
        done(&world, &["gate", "approve", second["id"].as_str().unwrap()]);
        done(&world, &elsewhere);
        assert!(world.path(there).exists(), "{call}");
        assert!(!world.path(here).exists(), "{call}");
        done(&world, &["session", "verify", &session]);
    }
}

#[test]
fn an_approval_holds_in_its_folder_from_wherever_the_session_goes_on() {
    for (call, here) in [
        (COMMAND, "project/ran.txt"),
        (OUTSIDE, "ran.txt"),
        (ITEM, "project/ran.txt"),
    ] {
        let world = ready(call);
        let (gate, session) = asked(&world);
        done(&world, &["gate", "approve", &gate]);
        // The same folder by another name.
        std::os::unix::fs::symlink(world.path("project"), world.path("link")).unwrap();
        let link = world.path("link").display().to_string();
        done(&world, &["session", "resume", &session, "--project", &link]);
        assert!(world.path(here).exists(), "{call}");
    }
}

#[test]
fn an_approval_for_the_session_holds_in_its_folder() {
    for (call, there) in [
        (COMMAND, "far/other/ran.txt"),
        (OUTSIDE, "far/ran.txt"),
        (ITEM, "far/other/ran.txt"),
    ] {
        let world = ready(call);
        let other = world.path("far/other").display().to_string();
        let (first, session) = asked(&world);
        done(&world, &["gate", "approve", &first, "--for", "session"]);
        done(&world, &["session", "resume", &session]);
        let args = ["prompt", "again", "--session", &session];
        gate(&world, &[&args[..], &["--project", &other]].concat());
        assert!(!world.path(there).exists(), "{call}");
    }
}
