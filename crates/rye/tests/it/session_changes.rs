//! `rye session diff` and `rye session undo`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{TestEnv, assert_transcript, json, outcome};

/// How long to wait for a command to start.
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs a prompt with a script, and returns the session.
fn prompt(env: &TestEnv, script: &str) -> String {
    env.write("script.yaml", script);
    let model = format!("scripted:{}", env.path("script.yaml").display());
    let output = env.run(&["prompt", "go", "--model", &model, "--yes", "--json"]);
    let outcome = outcome(&output);
    assert_eq!(outcome["status"], "success", "{outcome}");
    outcome["session"].as_str().unwrap().to_owned()
}

/// Continues a session whose model has given this many answers.
fn continue_with(env: &TestEnv, session: &str, answers: usize, calls: &[(&str, Value)]) {
    let given = "  - text: given\n".repeat(answers);
    let script = script(calls).replacen("steps:\n", &format!("steps:\n{given}"), 1);
    env.write("script.yaml", &script);
    let model = format!("scripted:{}", env.path("script.yaml").display());
    let args = ["prompt", "more", "--session", session, "--model", &model];
    let output = env.run(&[&args[..], &["--yes"]].concat());
    assert!(output.status.success(), "{output:?}");
}

/// A script that calls tools, one after the other, and answers.
fn script(calls: &[(&str, Value)]) -> String {
    let step = |(name, args): &(&str, Value)| {
        format!("  - tool_calls: [{{ name: {name}, args: {args} }}]\n")
    };
    let steps: String = calls.iter().map(step).collect();
    format!("steps:\n{steps}  - text: done\n")
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    (
        "write",
        serde_json::json!({ "path": path, "content": content }),
    )
}

fn bash(command: &str) -> (&'static str, Value) {
    ("bash", serde_json::json!({ "command": command }))
}

/// The changed files, with what happened to them.
fn changed(env: &TestEnv, args: &[&str]) -> Vec<(String, String, String)> {
    let output = env.run(&[&["session", "diff"], args, &["--json"]].concat());
    let diff = json(&output);
    let text = |file: &Value, key: &str| file[key].as_str().unwrap().to_owned();
    let files = diff["files"].as_array().unwrap().iter();
    let of = |file| {
        (
            text(file, "path"),
            text(file, "change"),
            text(file, "status"),
        )
    };
    files.map(of).collect()
}

fn entry(path: &str, change: &str, status: &str) -> (String, String, String) {
    (path.to_owned(), change.to_owned(), status.to_owned())
}

#[test]
fn changes_of_tools_and_commands_are_shown_and_undone() {
    let env = TestEnv::new();
    env.write("project/a.txt", "one\ntwo\n");
    env.write("project/gone.txt", "old\n");
    env.write("project/.gitignore", "*.log\n");
    let edit = serde_json::json!({ "path": "a.txt", "old": "two", "new": "2" });
    let session = prompt(
        &env,
        &script(&[
            ("edit", edit),
            write("sub/new.txt", "new\n"),
            bash("rm gone.txt; echo three >> a.txt; echo log > x.log; cat a.txt"),
        ]),
    );
    let id = &session[..];
    let transcript = env.transcript(&[
        &format!("session diff {id}"),
        &format!("session diff {id} --file sub"),
        &format!("session undo {id}"),
        &format!("session diff {id}"),
        &format!("session diff {id} --turn 1 --file a.txt"),
        &format!("session undo {id}"),
        &format!("session diff {id} --turn 2"),
        &format!("session undo {id} --file other.txt"),
    ]);
    assert_transcript!(transcript);
    assert_eq!(env.read("project/a.txt"), "one\ntwo\n");
    assert_eq!(env.read("project/gone.txt"), "old\n");
    assert!(!env.path("project/sub/new.txt").exists());
    // Ignored files are not tracked.
    assert_eq!(env.read("project/x.log"), "log\n");
}

#[test]
fn directories_that_a_session_created_are_removed_when_they_are_empty() {
    let env = TestEnv::new();
    fs::create_dir_all(env.path("project/kept")).unwrap();
    let session = prompt(
        &env,
        &script(&[
            write("deep/er/new.txt", "new\n"),
            bash("mkdir -p made/by shared; touch made/by/a made/b kept/c shared/d"),
        ]),
    );
    env.write("project/shared/own.txt", "mine\n");
    let undone = env.run(&["session", "undo", &session]);
    assert!(undone.status.success(), "{undone:?}");
    for (path, is_left) in [
        ("deep", false),
        ("made", false),
        ("kept", true),
        ("kept/c", false),
        ("shared/own.txt", true),
        ("shared/d", false),
    ] {
        assert_eq!(
            env.path(&format!("project/{path}")).exists(),
            is_left,
            "{path}"
        );
    }
}

#[test]
fn files_that_a_patch_deleted_or_moved_are_restored() {
    let env = TestEnv::new();
    env.write("project/gone.txt", "old\n");
    env.write("project/sub/from.txt", "x\n");
    env.write("project/target.txt", "target\n");
    std::os::unix::fs::symlink("target.txt", env.path("project/link.txt")).unwrap();
    let patch = "*** Begin Patch\n*** Delete File: gone.txt\n*** Update File: sub/from.txt\n\
        *** Move to: to.txt\n@@\n-x\n+y\n*** Delete File: link.txt\n*** End Patch\n";
    let call = ("apply_patch", serde_json::json!({ "input": patch }));
    let id = &prompt(&env, &script(&[call]));
    assert!(!env.path("project/gone.txt").exists());
    assert!(!env.path("project/sub/from.txt").exists());
    assert_eq!(env.read("project/to.txt"), "y\n");
    // Links are not restored; the target of this one stays.
    assert_eq!(
        changed(&env, &[id]),
        [
            entry("gone.txt", "deleted", "unchanged"),
            entry("sub/from.txt", "deleted", "unchanged"),
            entry("to.txt", "created", "unchanged"),
        ]
    );
    let undone = env.run(&["session", "undo", id]);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(env.read("project/gone.txt"), "old\n");
    assert_eq!(env.read("project/sub/from.txt"), "x\n");
    assert_eq!(env.read("project/target.txt"), "target\n");
    assert!(!env.path("project/to.txt").exists());
}

#[test]
fn changes_of_commands_in_the_background_are_unknown() {
    let env = TestEnv::new();
    let call = serde_json::json!({ "command": "echo x > x.txt", "background": true });
    let id = &prompt(&env, &script(&[("bash", call)]));
    let diff = json(&env.run(&["session", "diff", id, "--json"]));
    assert_eq!(diff["unknown_commands"], 1, "{diff}");
}

/// A signed tool that runs outside of the sandbox.
const STAMP: &str = r#"
version: "1.0.0"
description: Writes a file
executor_id: rye/core/runtimes/bash/bash
config:
  command: 'echo new > kept.txt; mkdir -p out; echo made > out/made.txt; rm gone.txt'
"#;

#[test]
fn changes_of_a_called_tool_are_shown_and_undone() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    env.write("project/.ai/tools/stamp.yaml", STAMP);
    assert!(env.run(&["sign", "stamp"]).status.success());
    env.write("project/kept.txt", "old\n");
    env.write("project/gone.txt", "gone\n");
    let args = serde_json::json!({ "tool_id": "rye:stamp", "summary": "stamp" });
    let session = prompt(&env, &script(&[("call_tool", args)]));
    assert_eq!(env.read("project/kept.txt"), "new\n");
    assert_eq!(
        changed(&env, &[&session]),
        [
            entry("gone.txt", "deleted", "unchanged"),
            entry("kept.txt", "modified", "unchanged"),
            entry("out/made.txt", "created", "unchanged"),
        ]
    );
    let undone = env.run(&["session", "undo", &session]);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(env.read("project/kept.txt"), "old\n");
    assert_eq!(env.read("project/gone.txt"), "gone\n");
    assert!(!env.path("project/out/made.txt").exists());
}

#[test]
fn one_turn_or_one_file_can_be_undone() {
    let env = TestEnv::new();
    env.write("project/a.txt", "0\n");
    let id = &prompt(
        &env,
        &script(&[write("a.txt", "1\n"), write("b.txt", "1\n")]),
    );
    continue_with(&env, id, 3, &[write("b.txt", "2\n"), write("c.txt", "2\n")]);

    assert_eq!(
        changed(&env, &[id, "--turn", "1"]),
        [
            entry("a.txt", "modified", "unchanged"),
            entry("b.txt", "created", "changed_since"),
        ]
    );
    // Only with --force, because turn 2 changed one of the files.
    let refused = json(&env.run(&["session", "undo", id, "--turn", "1", "--json"]));
    assert_eq!(refused["error"]["code"], "conflict");
    assert_eq!(env.read("project/a.txt"), "1\n");
    assert!(
        env.run(&["session", "undo", id, "--turn", "2"])
            .status
            .success()
    );
    assert_eq!(env.read("project/b.txt"), "1\n");
    assert!(!env.path("project/c.txt").exists());
    assert!(
        env.run(&["session", "undo", id, "--file", "a.txt"])
            .status
            .success()
    );
    assert_eq!(env.read("project/a.txt"), "0\n");
    assert_eq!(
        changed(&env, &[id]),
        [entry("b.txt", "created", "unchanged")]
    );
}

#[test]
fn changes_of_the_user_are_not_lost() {
    let env = TestEnv::new();
    env.write("project/a.txt", "0\n");
    let id = &prompt(
        &env,
        &script(&[write("a.txt", "1\n"), write("b.txt", "1\n")]),
    );
    env.write("project/a.txt", "mine\n");
    let transcript = env.transcript(&[
        &format!("session undo {id}"),
        &format!("session undo {id} --force"),
    ]);
    assert_transcript!(transcript);
    assert_eq!(env.read("project/a.txt"), "0\n");
    assert!(!env.path("project/b.txt").exists());
    // The replaced content is kept.
    let blobs = env.path("user/.local/state/rye/blobs");
    assert!(contains_file(&blobs, b"mine\n"), "{}", blobs.display());
}

/// Whether a directory has a file with this content.
fn contains_file(dir: &std::path::Path, content: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contains_file(&path, content)
        } else {
            fs::read(&path).unwrap() == content
        }
    })
}

#[test]
fn edit_of_the_user_between_two_changes_is_a_conflict() {
    let env = TestEnv::new();
    env.write("project/a.txt", "0\n");
    let id = &prompt(&env, &script(&[write("a.txt", "1\n")]));
    env.write("project/a.txt", "mine\n");
    continue_with(&env, id, 2, &[bash("echo 2 >> a.txt")]);
    assert_eq!(
        changed(&env, &[id]),
        [entry("a.txt", "modified", "changed_between")]
    );
    assert!(!env.run(&["session", "undo", id]).status.success());
    assert!(
        env.run(&["session", "undo", id, "--turn", "2"])
            .status
            .success()
    );
    assert_eq!(env.read("project/a.txt"), "mine\n");
}

#[test]
fn modes_are_restored_and_links_are_not_followed() {
    let env = TestEnv::new();
    env.write("project/run.sh", "#!/bin/sh\n");
    env.write("project/dir/secret.txt", "0\n");
    let run = env.path("project/run.sh");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let id = &prompt(
        &env,
        &script(&[bash("rm run.sh"), bash("echo 1 > dir/secret.txt")]),
    );
    // The directory leads elsewhere now.
    fs::rename(env.path("project/dir"), env.path("project/old")).unwrap();
    env.write("elsewhere/secret.txt", "1\n");
    std::os::unix::fs::symlink(env.path("elsewhere"), env.path("project/dir")).unwrap();
    assert!(
        !env.run(&["session", "undo", id, "--force"])
            .status
            .success()
    );
    assert_eq!(env.read("elsewhere/secret.txt"), "1\n");
    assert!(
        env.run(&["session", "undo", id, "--file", "run.sh"])
            .status
            .success()
    );
    assert_eq!(
        fs::metadata(&run).unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn file_that_a_command_unhides_is_not_created_by_it() {
    let env = TestEnv::new();
    env.write("project/.gitignore", ".env\n");
    env.write("project/.env", "KEY=1\n");
    env.write("project/seen.txt", "1\n");
    // A file that changed less than 50 ms before a command may be its work.
    std::thread::sleep(Duration::from_millis(100));
    let id = &prompt(&env, &script(&[bash("echo seen.txt > .gitignore")]));
    assert_eq!(
        changed(&env, &[id]),
        [entry(".gitignore", "modified", "unchanged")]
    );
    assert!(env.run(&["session", "undo", id]).status.success());
    assert_eq!(env.read("project/.env"), "KEY=1\n");
}

#[test]
fn changes_of_a_killed_command_are_found_and_undone() {
    let env = TestEnv::new();
    env.write("project/a.txt", "0\n");
    env.write(
        "script.yaml",
        &script(&[bash(
            "echo 1 > a.txt; echo 1 > b.txt; touch started; sleep 600",
        )]),
    );
    let model = format!("scripted:{}", env.path("script.yaml").display());
    let mut child = env
        .command()
        .args(["prompt", "go", "--model", &model, "--yes"])
        .spawn()
        .unwrap();
    let until = Instant::now() + DEADLINE;
    while !env.path("project/started").exists() {
        assert!(Instant::now() < until, "the command did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let list = json(&env.run(&["session", "list", "--json"]));
    let id = list["sessions"][0]["id"].as_str().unwrap();
    assert_eq!(
        changed(&env, &[id]),
        [
            entry("a.txt", "modified", "unchanged"),
            entry("b.txt", "created", "unchanged"),
            entry("started", "created", "unchanged"),
        ]
    );
    let undone = json(&env.run(&["session", "undo", id, "--json"]));
    assert_eq!(undone["restored"].as_array().unwrap().len(), 3);
    assert_eq!(env.read("project/a.txt"), "0\n");
    assert!(!env.path("project/b.txt").exists());
    assert_eq!(changed(&env, &[id]), []);
}

#[test]
fn a_thousand_files_are_undone() {
    let env = TestEnv::new();
    for number in 0..1000 {
        env.write(&format!("project/src/{number}.txt"), &format!("{number}\n"));
    }
    let id = &prompt(
        &env,
        &script(&[bash("cd src; for f in *.txt; do echo changed > $f; done")]),
    );
    let undone = json(&env.run(&["session", "undo", id, "--json"]));
    assert_eq!(
        undone["restored"].as_array().unwrap().len(),
        1000,
        "{undone}"
    );
    for number in 0..1000 {
        let text = env.read(&format!("project/src/{number}.txt"));
        assert_eq!(text, format!("{number}\n"));
    }
}

#[test]
fn files_of_a_virtual_sandbox_are_shown_and_gone() {
    let env = TestEnv::new();
    env.write(
        "script.yaml",
        &script(&[write("a.txt", "1\n"), bash("echo 2 >> a.txt")]),
    );
    let model = format!("scripted:{}", env.path("script.yaml").display());
    let args = [
        "prompt",
        "go",
        "--model",
        &model,
        "--sandbox",
        "virtual",
        "--json",
    ];
    let outcome = outcome(&env.run(&args));
    let id = outcome["session"].as_str().unwrap();
    let diff = json(&env.run(&["session", "diff", id, "--json"]));
    let shown = diff["files"][0]["diff"].as_str().unwrap();
    assert!(shown.ends_with("+1\n+2\n"), "{shown}");
    let refused = json(&env.run(&["session", "undo", id, "--json"]));
    assert_eq!(refused["error"]["code"], "gone");
}

#[test]
fn changes_of_a_task_belong_to_the_turn_that_started_it() {
    let env = TestEnv::new();
    env.write(
        "project/child.yaml",
        &script(&[write("t.txt", "by the task")]),
    );
    let task = serde_json::json!({ "prompt": "write it", "model": "scripted:child.yaml" });
    let id = &prompt(&env, &script(&[("task", task)]));
    assert_eq!(
        changed(&env, &[id, "--turn", "1"]),
        [entry("t.txt", "created", "unchanged")]
    );
    assert!(env.run(&["session", "undo", id]).status.success());
    assert!(!env.path("project/t.txt").exists());
}
