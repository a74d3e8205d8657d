//! `rye session verify`, `export`, `import` and `fork`: a record that proves itself and can
//! be taken elsewhere.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use support::{World, assert_transcript, json, outcome};

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]
  - text: 'It said: ${last_tool_result}'
  - text: 'And again.'
";

fn ready() -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    world.write("project/agent.yaml", SCRIPT);
    assert!(world.run(&["init"]).status.success());
    world
}

/// A session with one answered prompt.
fn answered(world: &World) -> String {
    let output = world.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_is_verified_here_and_from_its_file() {
    let world = ready();
    let id = answered(&world);
    let mut transcript = world.transcript(&[
        &format!("session verify {id}"),
        &format!("session export {id} --output work.jsonl"),
        "session verify work.jsonl",
        "session import work.jsonl",
    ]);
    let text = world
        .read("project/work.jsonl")
        .replace("It said", "It sang");
    world.write("project/sung.jsonl", &text);
    let cut: Vec<_> = text.lines().take(3).collect();
    world.write("project/cut.jsonl", &cut.join("\n"));
    transcript += &world.transcript(&[
        "session verify sung.jsonl",
        "session verify cut.jsonl",
        "session import cut.jsonl",
        "session verify agent.yaml",
        "session verify none",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn a_database_in_which_somebody_wrote_is_found_out() {
    let world = ready();
    let id = answered(&world);
    let database = std::fs::read_dir(world.path("user"))
        .unwrap()
        .find_map(|_| find(&world.path("user"), "sessions.db"))
        .unwrap();
    let db = rusqlite::Connection::open(database).unwrap();
    let changed = db
        .execute(
            "UPDATE engine_entries SET doc = replace(doc, 'echo hi', 'echo ho')",
            [],
        )
        .unwrap();
    assert!(changed > 0);
    drop(db);
    let output = world.run(&["session", "verify", &id, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let faults = &json(&output)["sessions"][0]["faults"];
    assert_eq!(faults[0]["trouble"], "altered", "{faults}");
    assert_eq!(faults.as_array().unwrap().len(), 1);
}

fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.ends_with(name) {
            return Some(path);
        }
    }
    None
}

#[test]
fn a_session_goes_on_on_another_machine() {
    let here = ready();
    let id = answered(&here);
    let file = here.run(&["session", "export", &id]).stdout;
    let there = ready();
    let imported = there.feed(&["session", "import", "-"], &file);
    assert!(imported.status.success(), "{imported:?}");
    // Whose key signed it, nobody knows here.
    let output = there.run(&["session", "verify", &id]);
    assert_eq!(output.status.code(), Some(3));
    let key = here.run(&["keys", "show"]).stdout;
    let shown = String::from_utf8(key).unwrap();
    let start = shown.find("-----BEGIN").unwrap();
    there.write("project/ada.pem", &shown[start..]);
    let trusted = there.run(&["keys", "trust", "ada.pem", "--yes"]);
    assert!(trusted.status.success(), "{trusted:?}");
    let output = there.run(&["session", "verify", &id]);
    assert!(output.status.success(), "{output:?}");
    let more = there.run(&[
        "prompt",
        "more",
        "--session",
        &id,
        "--model",
        "scripted:agent.yaml",
    ]);
    assert_eq!(String::from_utf8_lossy(&more.stdout), "And again.\n");
    assert!(there.run(&["session", "verify", &id]).status.success());
}

#[test]
fn a_fork_shares_the_past_up_to_an_entry() {
    let world = ready();
    let id = answered(&world);
    let shown = json(&world.run(&["session", "show", &id, "--json"]));
    let entries = shown["threads"][0]["entries"].as_array().unwrap();
    let first = entries[0]["id"].as_str().unwrap();
    let forked = world.run(&["session", "fork", &id, "--at", first, "--json"]);
    let fork = json(&forked)["session"].as_str().unwrap().to_owned();
    assert!(world.run(&["session", "verify", &fork]).status.success());
    let shown = json(&world.run(&["session", "show", &fork, "--json"]));
    let own = shown["threads"][0]["entries"].as_array().unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["hash"], entries[0]["hash"]);
    let unknown = world.run(&["session", "fork", &id, "--at", "nothing"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn without_a_key_nothing_is_signed_and_verify_says_so() {
    let mut world = World::new();
    world.set("USER", "ada");
    world.write("project/agent.yaml", SCRIPT);
    let id = answered(&world);
    let output = world.run(&["session", "verify", &id]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("signed by nobody"));
}
