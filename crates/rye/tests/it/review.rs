//! Review mode: a person approves the changes of a turn instead of its commands.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Output};

use serde_json::{Value, json};

use crate::support::{TestEnv, json, outcome, short_gate_id, wait_for_gate};

/// A script whose first turn runs commands, and whose second turn repeats what the model was
/// told.
fn script(env: &TestEnv, commands: &[&str]) {
    let call = |command: &&str| json!({ "name": "bash", "args": { "command": command } });
    let steps: Vec<_> = commands.iter().map(call).collect();
    let steps = steps
        .iter()
        .map(|call| format!("  - tool_calls: [{call}]\n"));
    let steps: String = steps.collect();
    let text = format!("steps:\n{steps}  - text: '${{last_tool_result}}'\n  - text: 'done'\n");
    env.write("project/script.yaml", &text);
}

const PROMPT: [&str; 5] = ["prompt", "go", "--model", "scripted:script.yaml", "--json"];

/// Runs a prompt in review mode up to the gate.
fn prompt(env: &TestEnv, options: &[&str]) -> Output {
    let mut args = PROMPT.to_vec();
    args.extend(["--review", "--no-wait"]);
    args.extend(options);
    env.run(&args)
}

/// Starts a prompt in review mode, which waits at the gate.
fn start(env: &TestEnv) -> (Child, Value) {
    let args = [
        "prompt",
        "go",
        "--model",
        "scripted:script.yaml",
        "--review",
    ];
    let mut child = env.command().args(args).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let gate = wait_for_gate(env, &mut errors);
    (child, gate)
}

fn only_gate(env: &TestEnv) -> Value {
    let gates = json(&env.run(&["gate", "list", "--json"]));
    let gates = gates["gates"].as_array().unwrap().clone();
    assert_eq!(gates.len(), 1, "{gates:?}");
    gates[0].clone()
}

fn succeed(env: &TestEnv, args: &[&str]) -> Output {
    let output = env.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

/// Runs a prompt to its gate and returns the ids of its session and gate.
fn prompt_to_gate(env: &TestEnv) -> (String, String) {
    let output = prompt(env, &[]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let gate = only_gate(env);
    let session = gate["origin"]["session"].as_str().unwrap().to_owned();
    (session, short_gate_id(&gate))
}

/// The notes about reviews in a session's history.
fn notes(env: &TestEnv, session: &str) -> Vec<String> {
    let shown = succeed(env, &["session", "show", session, "--json"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let shown: Value = serde_json::from_str(&text).unwrap();
    let mut notes = Vec::new();
    collect_notes(&shown, &mut notes);
    notes
}

fn collect_notes(value: &Value, notes: &mut Vec<String>) {
    match value {
        Value::Object(fields) if fields.get("synthetic") == Some(&json!("review")) => {
            notes.push(value["parts"][0]["text"].as_str().unwrap().to_owned());
        }
        Value::Object(fields) => fields.values().for_each(|it| collect_notes(it, notes)),
        Value::Array(values) => values.iter().for_each(|it| collect_notes(it, notes)),
        _ => {}
    }
}

const CHANGE_ALL: &str = "set -e; echo new > made.txt; echo more >> kept.txt; rm old.txt; \
    mkdir -p d/e; printf '#!/bin/sh\\n' > d/e/run; chmod 755 d/e/run; ln -s made.txt link; \
    cat kept.txt; ls";

fn project() -> TestEnv {
    let env = TestEnv::new();
    succeed(&env, &["keys", "generate"]);
    env.write("project/kept.txt", "one\n");
    env.write("project/old.txt", "old\n");
    env
}

/// A command in the background would change files after the review.
#[test]
fn command_in_the_background_is_refused() {
    let env = project();
    let call = json!({ "command": "echo x > x.txt", "background": true });
    let script = format!(
        "steps:\n  - tool_calls: [{{ name: bash, args: {call} }}]\n  \
         - text: '${{last_tool_result}}'\n"
    );
    env.write("project/script.yaml", &script);
    let output = prompt(&env, &[]);
    let outcome = outcome(&output);
    assert_eq!(outcome["status"], "success", "{outcome}");
    let session = outcome["session"].as_str().unwrap();
    let exported = succeed(&env, &["session", "export", session]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(exported.contains("\"invalid_arguments\""), "{exported}");
    let gates = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(gates["gates"], json!([]));
    assert!(!env.path("project/x.txt").exists());
}

#[test]
fn approved_changes_reach_the_workspace_and_no_others_before() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let (mut child, gate) = start(&env);
    // The model's commands see their changes; the real files are as before.
    assert_eq!(env.read("project/kept.txt"), "one\n");
    assert!(env.path("project/old.txt").exists());
    for name in ["made.txt", "d", "link"] {
        assert!(!env.path(&format!("project/{name}")).exists(), "{name}");
    }
    let summary = &gate["context"]["change_set"];
    assert_eq!(summary["added"], 3, "{gate}");
    assert_eq!(
        (&summary["changed"], &summary["removed"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(gate["context"]["sandbox"]["tier"], "full");
    let body = gate["body"].as_str().unwrap();
    assert!(body.contains("+more") && body.contains("-old"), "{body}");

    // Another process answers.
    succeed(&env, &["gate", "approve", &short_gate_id(&gate)]);
    assert!(child.wait().unwrap().success());
    assert_eq!(env.read("project/kept.txt"), "one\nmore\n");
    assert_eq!(env.read("project/made.txt"), "new\n");
    assert!(!env.path("project/old.txt").exists());
    let mode = fs::metadata(env.path("project/d/e/run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    let link = fs::read_link(env.path("project/link")).unwrap();
    assert_eq!(link.to_str(), Some("made.txt"));
    let left = fs::read_dir(env.path("project")).unwrap();
    let left = left.filter(|it| {
        let name = it.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".rye")
    });
    assert_eq!(left.count(), 0);

    let session = gate["origin"]["session"].as_str().unwrap();
    let notes = notes(&env, session);
    assert_eq!(notes.len(), 1);
    for path in ["made.txt", "kept.txt", "old.txt", "d/e/run", "link"] {
        assert!(notes[0].contains(path), "{notes:?}");
    }
    succeed(&env, &["session", "verify", session]);
    succeed(&env, &["session", "review", session]);
    succeed(&env, &["replay", session]);
}

#[test]
fn refused_changes_are_discarded_and_the_next_turn_starts_from_the_real_files() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let (session, gate) = prompt_to_gate(&env);
    succeed(&env, &["gate", "deny", &gate]);
    succeed(&env, &["session", "resume", &session]);
    assert_eq!(env.read("project/kept.txt"), "one\n");
    assert!(!env.path("project/made.txt").exists());
    assert!(notes(&env, &session)[0].contains("made.txt"));
    // The next turn of the script only answers, and there is nothing to review.
    let args = ["prompt", "go", "--session", &session, "--json", "--no-wait"];
    assert_eq!(outcome(&succeed(&env, &args))["answer"], "done");
}

#[test]
fn single_files_can_be_approved_rejected_and_edited() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let (session, gate) = prompt_to_gate(&env);
    env.write("edited", "my version\n");
    let unknown = env.run(&["gate", "approve", &gate, "--only", "nothing.txt"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let edited = format!("made.txt={}", env.path("edited").display());
    let args = [
        "gate", "approve", &gate, "--except", "old.txt", "d", "--edit", &edited,
    ];
    succeed(&env, &args);
    succeed(&env, &["session", "resume", &session]);
    assert_eq!(env.read("project/made.txt"), "my version\n");
    assert_eq!(env.read("project/kept.txt"), "one\nmore\n");
    assert_eq!(env.read("project/old.txt"), "old\n");
    assert!(!env.path("project/d").exists());
    let note = &notes(&env, &session)[0];
    let (applied, rejected) = note.split_once("Rejected").unwrap();
    assert!(
        applied.contains("made.txt") && rejected.contains("old.txt"),
        "{note}"
    );
    succeed(&env, &["session", "verify", &session]);
}

#[test]
fn session_whose_process_died_is_reviewed_by_another_one() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let (mut child, gate) = start(&env);
    child.kill().unwrap();
    child.wait().unwrap();
    let id = short_gate_id(&gate);
    let shown = succeed(&env, &["gate", "show", &id, "--json"]);
    let shown = json(&shown);
    assert_eq!(shown["changes"]["changes"].as_array().unwrap().len(), 5);
    assert!(shown["diff"].as_str().unwrap().contains("+more"));
    succeed(&env, &["gate", "show", &id]);
    succeed(&env, &["gate", "approve", &id]);
    assert_eq!(env.read("project/kept.txt"), "one\n");
    let session = gate["origin"]["session"].as_str().unwrap();
    succeed(&env, &["session", "resume", session]);
    assert_eq!(env.read("project/kept.txt"), "one\nmore\n");
    // Nothing is left to do.
    succeed(&env, &["session", "resume", session]);
    assert_eq!(notes(&env, session).len(), 1);
}

#[test]
fn workspace_that_changed_meanwhile_voids_the_approval() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let (session, first) = prompt_to_gate(&env);
    env.write("project/kept.txt", "mine\n");
    succeed(&env, &["gate", "approve", &first]);
    let review = ["session", "review", &session, "--no-wait"];
    let output = env.run(&review);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(env.read("project/kept.txt"), "mine\n");
    assert!(
        !env.path("project/made.txt").exists(),
        "nothing was applied"
    );
    let gate = only_gate(&env);
    assert_ne!(short_gate_id(&gate), first);
    let conflicts = &gate["context"]["change_set"]["conflicts"];
    assert_eq!(*conflicts, json!(["kept.txt"]), "{gate}");
    let id = short_gate_id(&gate);
    succeed(&env, &["gate", "approve", &id, "--except", "kept.txt"]);
    succeed(&env, &["session", "resume", &session]);
    assert_eq!(env.read("project/kept.txt"), "mine\n");
    assert_eq!(env.read("project/made.txt"), "new\n");
}

#[test]
fn yes_does_not_approve_changes() {
    let env = project();
    script(&env, &[CHANGE_ALL]);
    let output = prompt(&env, &["--yes"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(!env.path("project/made.txt").exists());
}

#[test]
fn file_tools_see_the_same_files_as_commands() {
    let env = project();
    let calls = [
        json!({ "name": "bash", "args": { "command": "mkdir sub && echo shell > sub/a.txt && rm old.txt" } }),
        json!({ "name": "edit", "args": { "path": "sub/a.txt", "old": "shell", "new": "tool" } }),
        json!({ "name": "write", "args": { "path": "sub/b.txt", "content": "written\n" } }),
        json!({ "name": "bash", "args": { "command": "cat a.txt b.txt; ls ..", "cwd": "sub" } }),
    ];
    let steps = calls
        .iter()
        .map(|call| format!("  - tool_calls: [{call}]\n"));
    let steps: String = steps.collect();
    let text = format!("steps:\n{steps}  - text: '${{last_tool_result}}'\n");
    env.write("project/script.yaml", &text);
    let (session, gate) = prompt_to_gate(&env);
    assert!(!env.path("project/sub").exists());
    let shown = succeed(&env, &["session", "show", &session]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("tool") && shown.contains("written"),
        "{shown}"
    );
    succeed(&env, &["gate", "approve", &gate]);
    succeed(&env, &["session", "resume", &session]);
    assert_eq!(env.read("project/sub/a.txt"), "tool\n");
    assert_eq!(env.read("project/sub/b.txt"), "written\n");
    assert!(!env.path("project/old.txt").exists());
}

#[test]
fn protected_files_stay_read_only_and_new_ones_are_marked() {
    let env = project();
    env.write("project/.git/config", "[core]\n");
    script(
        &env,
        &["echo x >> .git/config; mkdir -p sub/.git && echo x > sub/.git/config; true"],
    );
    let (_, gate) = prompt_to_gate(&env);
    let shown = json(&succeed(&env, &["gate", "show", &gate, "--json"]));
    let changes = shown["changes"]["changes"].as_array().unwrap();
    let paths: Vec<_> = changes.iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["sub/.git/config"]);
    assert_eq!(changes[0]["protected"], true);
}

#[test]
fn setting_turns_review_mode_on_and_an_option_off() {
    let env = project();
    script(&env, &["echo new > made.txt"]);
    env.write("user/.ai/config/agent/sandbox.yaml", "review: true\n");
    let mut args = PROMPT.to_vec();
    args.push("--no-wait");
    let output = env.run(&args);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(!env.path("project/made.txt").exists());
    args.push("--review=false");
    succeed(&env, &args);
    assert_eq!(env.read("project/made.txt"), "new\n");
}

#[test]
fn setting_is_for_new_sessions_whose_files_are_real() {
    let env = project();
    script(&env, &["echo new > made.txt"]);
    let mut args = PROMPT.to_vec();
    args.extend(["--no-wait", "--sandbox", "local"]);
    assert_eq!(env.run(&args).status.code(), Some(5));
    let session = only_gate(&env)["origin"]["session"].clone();
    env.write("user/.ai/config/agent/sandbox.yaml", "review: true\n");
    // An existing session keeps its mode.
    let session = session.as_str().unwrap();
    let mut more = args.clone();
    more.extend(["--session", session]);
    let resumed = env.run(&more);
    assert_eq!(resumed.status.code(), Some(5), "{resumed:?}");
    let refused = env.run(&args);
    assert!(!refused.status.success() && refused.status.code() != Some(5));
    args.pop();
    args.push("virtual");
    succeed(&env, &args);
    assert!(!env.path("project/made.txt").exists());
}

#[test]
fn mode_of_a_session_is_changed_while_nothing_runs_in_it() {
    let env = project();
    script(&env, &["echo one > one.txt"]);
    let first = outcome(&env.run(&PROMPT));
    let session = first["session"].as_str().unwrap();
    assert_eq!(env.read("project/one.txt"), "one\n");
    let set = |option: &str| env.run(&["session", "review", session, option, "--json"]);
    assert_eq!(json(&set("--on"))["review"], true);
    // The script goes on after the two answers of the first prompt.
    let call = json!({ "name": "bash", "args": { "command": "echo two > two.txt" } });
    let text = format!(
        "steps: [{{ text: a }}, {{ text: b }}, {{ tool_calls: [{call}] }}]\nafter_last: {{ text: done }}\n"
    );
    env.write("project/script.yaml", &text);
    let args = ["prompt", "go on", "--session", session, "--no-wait"];
    let second = env.run(&args);
    assert_eq!(second.status.code(), Some(5), "{second:?}");
    assert!(!env.path("project/two.txt").exists());
    assert_eq!(json(&set("--off"))["error"]["code"], "busy");
    succeed(&env, &["gate", "approve", &short_gate_id(&only_gate(&env))]);
    succeed(&env, &["session", "resume", session]);
    assert_eq!(env.read("project/two.txt"), "two\n");
    assert_eq!(json(&set("--off"))["review"], false);
    succeed(&env, &["session", "verify", session]);
    let virtual_session = outcome(&env.run(&[&PROMPT[..], &["--sandbox", "virtual"]].concat()));
    let id = virtual_session["session"].as_str().unwrap();
    let refused = env.run(&["session", "review", id, "--on"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("`confined`"), "{message}");
}

#[test]
fn review_mode_is_refused_in_other_sandboxes() {
    let env = project();
    script(&env, &["echo new > made.txt"]);
    for sandbox in ["local", "virtual"] {
        let output = prompt(&env, &["--sandbox", sandbox]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let sessions = json(&succeed(&env, &["session", "list", "--json"]));
    assert_eq!(sessions["sessions"], json!([]));
}

#[test]
fn removed_session_leaves_no_changes_behind() {
    let env = project();
    script(&env, &["mkdir -m 000 closed; echo new > made.txt"]);
    let (session, _) = prompt_to_gate(&env);
    succeed(&env, &["session", "rm", &session]);
    let left: Vec<_> = find_reviews(&env.path(""));
    assert_eq!(left, [] as [std::path::PathBuf; 0]);
}

/// State directories of sessions in review mode.
fn find_reviews(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name() == "review" {
            let below = fs::read_dir(&path).into_iter().flatten().flatten();
            found.extend(below.map(|it| it.path()));
        } else if entry.file_type().unwrap().is_dir() {
            found.extend(find_reviews(&path));
        }
    }
    found
}
