//! What a session has in the blob store goes where the session goes.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::support::{TestEnv, json, outcome};
use lillux::Hash;
use serde_json::Value;

/// A task whose output is long, and long output of its own; and what is asked for elsewhere.
const SCRIPT: &str = "\
steps:
  - tool_calls:
      - { name: bash, args: { command: 'seq 1 60000' } }
      - { name: task, args: { prompt: x, model: 'scripted:other.yaml' } }
  - text: done
  - tool_calls: [{ name: read, args: { path: 'blob:OWN', offset: 31234, limit: 1 } }]
  - tool_calls: [{ name: read, args: { path: 'blob:TASK', offset: 4567, limit: 1 } }]
  - text: '${last_tool_result}'
";
const OTHER: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 7 30000' } }]
  - text: done
";

fn counted(from: u32, to: u32) -> Hash {
    let numbers: Vec<_> = (from..=to).map(|number| number.to_string()).collect();
    Hash::digest(numbers.join("\n"))
}

fn own() -> Hash {
    counted(1, 60_000)
}

fn of_task() -> Hash {
    counted(7, 30_000)
}

fn ready() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let script = SCRIPT.replace("OWN", &own().to_hex());
    let script = script.replace("TASK", &of_task().to_hex());
    env.write("project/agent.yaml", &script);
    env.write("project/other.yaml", OTHER);
    assert!(env.run(&["init"]).status.success());
    env
}

fn worked(env: &TestEnv) -> String {
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

/// A session with a task, exported; what `export` says, and the file.
fn exported(env: &TestEnv) -> (String, Value, Vec<Value>) {
    let id = worked(env);
    let said = env.run(&["session", "export", &id, "--output", "work.jsonl", "--json"]);
    assert!(said.status.success(), "{said:?}");
    let text = env.read("project/work.jsonl");
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 200_000, "a line has {longest} bytes");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (id, json(&said), lines.collect())
}

/// Lines as a file that is whole, though nobody has signed it.
fn whole(lines: &[Value]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.get("end").is_none()) {
        writeln!(text, "{line}").unwrap();
    }
    let end = serde_json::json!({ "end": { "hash": Hash::digest(&text).to_hex() } });
    format!("{text}{end}\n")
}

/// The file of a blob of an environment.
fn blob(env: &TestEnv, hash: &Hash) -> PathBuf {
    let name = hash.to_hex();
    let database = find(&env.path("user"), "sessions.db").unwrap();
    let blobs = database.with_file_name("blobs").join("blobs");
    blobs.join(&name[..2]).join(&name[2..4]).join(name)
}

fn find(folder: &std::path::Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).unwrap() {
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

/// The troubles with blobs that a check finds, by their hashes.
fn troubles(env: &TestEnv, what: &str) -> Vec<(String, String)> {
    let verified = json(&env.run(&["session", "verify", what, "--json"]));
    let sessions = verified["sessions"].as_array().unwrap();
    let faults = sessions
        .iter()
        .flat_map(|it| it["findings"].as_array().unwrap());
    let blobs = faults.filter_map(|fault| {
        let hash = fault["location"].as_str().unwrap().strip_prefix("blob:")?;
        Some((fault["kind"].as_str().unwrap().into(), hash.into()))
    });
    blobs.collect()
}

#[test]
fn long_output_can_be_read_on_another_machine() {
    let here = ready();
    let (id, said, lines) = exported(&here);
    assert_eq!(said["blobs"], 2);
    assert_eq!(said["missing_blobs"], serde_json::json!([]));
    let pieces = lines.iter().filter(|line| line.get("blob").is_some());
    assert!(pieces.count() > 3, "a long blob is in several lines");
    let verified = json(&here.run(&["session", "verify", "work.jsonl", "--json"]));
    assert_eq!(verified["status"], "success", "{verified}");
    let counts = verified["sessions"].as_array().unwrap().iter();
    let counts: Vec<_> = counts.map(|it| it["blobs"].clone()).collect();
    assert_eq!(counts, [1, 1]);

    let there = ready();
    let key = here.run(&["keys", "show"]).stdout;
    there.write("project/here.pem", &String::from_utf8(key).unwrap());
    let trusted = there.run(&["keys", "trust", "here.pem", "--yes"]);
    assert!(trusted.status.success(), "{trusted:?}");
    let file = fs::read(here.path("project/work.jsonl")).unwrap();
    let imported = json(&there.feed(&["session", "import", "-", "--json"], &file));
    assert_eq!(imported["blobs"], 2, "{imported}");
    assert_eq!(imported["missing_blobs"], serde_json::json!([]));
    assert_eq!(troubles(&there, &id), []);
    let asked = ["prompt", "more", "--model", "scripted:agent.yaml"];
    let more = there
        .command()
        .args(asked)
        .args(["--session", &id])
        .output();
    let more = more.unwrap();
    let text = String::from_utf8_lossy(&more.stdout);
    assert!(text.starts_with("4567\t4573\n"), "{more:?}");
    let shown = there.run(&["session", "show", &id, "--json"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("31234\\t31234\\n"), "{shown}");
}

#[test]
fn a_fork_takes_along_what_it_shares() {
    let env = ready();
    let id = worked(&env);
    let forked = json(&env.run(&["session", "fork", &id, "--json"]));
    let fork = forked["session"].as_str().unwrap();
    let said = env.run(&["session", "export", fork, "--output", "f.jsonl", "--json"]);
    assert_eq!(json(&said)["blobs"], 1, "{said:?}");
    assert!(env.run(&["session", "verify", "f.jsonl"]).status.success());
}

#[test]
fn a_blob_that_is_missing_from_a_file_or_altered_in_it_is_found_out() {
    let env = ready();
    let (_, _, lines) = exported(&env);
    let is = |line: &Value, hash: &Hash| line["blob"]["hash"] == hash.to_hex();

    let without = lines.iter().filter(|line| !is(line, &of_task()));
    let without: Vec<_> = without.cloned().collect();
    env.write("project/without.jsonl", &whole(&without));
    let found = troubles(&env, "without.jsonl");
    assert_eq!(found, [("missing".into(), of_task().to_hex())]);

    let mut other = lines.clone();
    let piece = other.iter_mut().find(|line| is(line, &own())).unwrap();
    let bytes = piece["blob"]["bytes"].as_str().unwrap();
    let bytes = format!("AAAA{}", &bytes[4..]);
    piece["blob"]["bytes"] = bytes.into();
    env.write("project/other.jsonl", &whole(&other));
    let found = troubles(&env, "other.jsonl");
    assert_eq!(found, [("altered".into(), own().to_hex())]);

    // Nothing of such a file is taken in.
    let there = ready();
    let refused = there.feed(&["session", "import", "-"], whole(&other).as_bytes());
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let listed = json(&there.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"], serde_json::json!([]));
    assert!(!blob(&there, &of_task()).exists());

    // Half a blob is a damaged file.
    let at = lines.iter().rposition(|line| is(line, &own())).unwrap();
    let mut half = lines;
    half.remove(at);
    env.write("project/half.jsonl", &whole(&half));
    let output = env.run(&["session", "verify", "half.jsonl"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn a_blob_that_is_gone_or_altered_here_is_found_out_and_told_when_exported() {
    let env = ready();
    let id = worked(&env);
    let told = [(&own(), "altered"), (&of_task(), "missing")];
    fs::remove_file(blob(&env, &of_task())).unwrap();
    fs::remove_file(blob(&env, &own())).unwrap();
    fs::write(blob(&env, &own()), "something else").unwrap();
    let mut found = troubles(&env, &id);
    found.sort();
    let expected = told.map(|(hash, trouble)| (trouble.to_owned(), hash.to_hex()));
    assert_eq!(found, expected);
    let said = env.run(&["session", "export", &id, "--output", "w.jsonl", "--json"]);
    assert!(said.status.success(), "{said:?}");
    let missing = json(&said)["missing_blobs"].as_array().unwrap().len();
    assert_eq!(missing, 2);
    let warned = String::from_utf8_lossy(&said.stderr);
    assert!(
        warned.contains(&format!("blob:{} was not exported", of_task())),
        "{warned}"
    );
    let missing: Vec<_> = troubles(&env, "w.jsonl")
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(missing, ["missing", "missing"]);
}
