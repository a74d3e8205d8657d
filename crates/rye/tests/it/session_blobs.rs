//! Blobs of a session are exported and imported with it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::support::{TestEnv, json, outcome};
use lillux::Hash;
use serde_json::Value;

/// A task with long output, long output of the session itself, and a later read of both.
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

fn hash_of_range(from: u32, to: u32) -> Hash {
    let numbers: Vec<_> = (from..=to).map(|number| number.to_string()).collect();
    Hash::digest(numbers.join("\n"))
}

fn session_blob() -> Hash {
    hash_of_range(1, 60_000)
}

fn task_blob() -> Hash {
    hash_of_range(7, 30_000)
}

fn env_with_scripts() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let script = SCRIPT.replace("OWN", &session_blob().to_hex());
    let script = script.replace("TASK", &task_blob().to_hex());
    env.write("project/agent.yaml", &script);
    env.write("project/other.yaml", OTHER);
    assert!(env.run(&["init"]).status.success());
    env
}

fn session_with_output(env: &TestEnv) -> String {
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

/// Exports a session with a task: its id, the output of `export`, and the lines of the file.
fn export_session(env: &TestEnv) -> (String, Value, Vec<Value>) {
    let id = session_with_output(env);
    let reply = env.run(&["session", "export", &id, "--output", "work.jsonl", "--json"]);
    assert!(reply.status.success(), "{reply:?}");
    let text = env.read("project/work.jsonl");
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 200_000, "a line has {longest} bytes");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (id, json(&reply), lines.collect())
}

/// A complete but unsigned file with these lines.
fn file_with_checksum(lines: &[Value]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.get("end").is_none()) {
        writeln!(text, "{line}").unwrap();
    }
    let end = serde_json::json!({ "end": { "hash": Hash::digest(&text).to_hex() } });
    format!("{text}{end}\n")
}

/// The path of a blob.
fn blob_path(env: &TestEnv, hash: &Hash) -> PathBuf {
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

/// Findings about blobs by hash.
fn blob_findings(env: &TestEnv, what: &str) -> Vec<(String, String)> {
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
fn exported_blobs_can_be_read_on_another_machine() {
    let here = env_with_scripts();
    let (id, reply, lines) = export_session(&here);
    assert_eq!(reply["blobs"], 2);
    assert_eq!(reply["missing_blobs"], serde_json::json!([]));
    let pieces = lines.iter().filter(|line| line.get("blob").is_some());
    assert!(pieces.count() > 3, "a long blob is in several lines");
    let verified = json(&here.run(&["session", "verify", "work.jsonl", "--json"]));
    assert_eq!(verified["status"], "success", "{verified}");
    let counts = verified["sessions"].as_array().unwrap().iter();
    let counts: Vec<_> = counts.map(|it| it["blobs"].clone()).collect();
    assert_eq!(counts, [1, 1]);

    let there = env_with_scripts();
    let key = here.run(&["keys", "show"]).stdout;
    there.write("project/here.pem", &String::from_utf8(key).unwrap());
    let trusted = there.run(&["keys", "trust", "here.pem", "--yes"]);
    assert!(trusted.status.success(), "{trusted:?}");
    let file = fs::read(here.path("project/work.jsonl")).unwrap();
    let imported = json(&there.feed(&["session", "import", "-", "--json"], &file));
    assert_eq!(imported["blobs"], 2, "{imported}");
    assert_eq!(imported["missing_blobs"], serde_json::json!([]));
    assert_eq!(blob_findings(&there, &id), []);
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
fn fork_exports_shared_blobs() {
    let env = env_with_scripts();
    let id = session_with_output(&env);
    let forked = json(&env.run(&["session", "fork", &id, "--json"]));
    let fork = forked["session"].as_str().unwrap();
    let reply = env.run(&["session", "export", fork, "--output", "f.jsonl", "--json"]);
    assert_eq!(json(&reply)["blobs"], 1, "{reply:?}");
    assert!(env.run(&["session", "verify", "f.jsonl"]).status.success());
}

#[test]
fn missing_or_altered_blob_in_a_file_is_detected() {
    let env = env_with_scripts();
    let (_, _, lines) = export_session(&env);
    let is = |line: &Value, hash: &Hash| line["blob"]["hash"] == hash.to_hex();

    let without = lines.iter().filter(|line| !is(line, &task_blob()));
    let without: Vec<_> = without.cloned().collect();
    env.write("project/without.jsonl", &file_with_checksum(&without));
    let found = blob_findings(&env, "without.jsonl");
    assert_eq!(found, [("missing".into(), task_blob().to_hex())]);

    let mut other = lines.clone();
    let piece = other
        .iter_mut()
        .find(|line| is(line, &session_blob()))
        .unwrap();
    let bytes = piece["blob"]["bytes"].as_str().unwrap();
    let bytes = format!("AAAA{}", &bytes[4..]);
    piece["blob"]["bytes"] = bytes.into();
    env.write("project/other.jsonl", &file_with_checksum(&other));
    let found = blob_findings(&env, "other.jsonl");
    assert_eq!(found, [("altered".into(), session_blob().to_hex())]);

    // Nothing of such a file is imported.
    let there = env_with_scripts();
    let refused = there.feed(
        &["session", "import", "-"],
        file_with_checksum(&other).as_bytes(),
    );
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let listed = json(&there.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"], serde_json::json!([]));
    assert!(!blob_path(&there, &task_blob()).exists());

    // A file with half a blob is damaged.
    let at = lines
        .iter()
        .rposition(|line| is(line, &session_blob()))
        .unwrap();
    let mut half = lines;
    half.remove(at);
    env.write("project/half.jsonl", &file_with_checksum(&half));
    let output = env.run(&["session", "verify", "half.jsonl"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn missing_or_altered_local_blob_is_detected_and_reported_by_export() {
    let env = env_with_scripts();
    let id = session_with_output(&env);
    let printed = [(&session_blob(), "altered"), (&task_blob(), "missing")];
    fs::remove_file(blob_path(&env, &task_blob())).unwrap();
    fs::remove_file(blob_path(&env, &session_blob())).unwrap();
    fs::write(blob_path(&env, &session_blob()), "something else").unwrap();
    let mut found = blob_findings(&env, &id);
    found.sort();
    let expected = printed.map(|(hash, trouble)| (trouble.to_owned(), hash.to_hex()));
    assert_eq!(found, expected);
    let reply = env.run(&["session", "export", &id, "--output", "w.jsonl", "--json"]);
    assert!(reply.status.success(), "{reply:?}");
    let missing = json(&reply)["missing_blobs"].as_array().unwrap().len();
    assert_eq!(missing, 2);
    let warned = String::from_utf8_lossy(&reply.stderr);
    assert!(
        warned.contains(&format!("blob:{} was not exported", task_blob())),
        "{warned}"
    );
    let missing: Vec<_> = blob_findings(&env, "w.jsonl")
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(missing, ["missing", "missing"]);
}
