//! The built-in tools `apply_patch`, `ask`, `plan` and commands in the background, in the real
//! workspace.

use std::io::BufReader;
use std::process::Output;

use crate::support::{TestEnv, json, outcome, wait_for_gate};
use serde_json::{Value, json as value};

/// Runs a prompt with a script in the local sandbox.
fn prompt(env: &TestEnv, script: &str, args: &[&str]) -> Output {
    env.write("project/agent.yaml", script);
    let fixed = [
        "prompt",
        "go",
        "--model",
        "scripted:agent.yaml",
        "--sandbox",
        "local",
        "--json",
    ];
    env.run(&[&fixed[..], args].concat())
}

/// The results of all tool calls of the newest session: texts or messages of errors, and data.
fn results(env: &TestEnv, output: &Output) -> Vec<(String, Value)> {
    let session = outcome(output)["session"].as_str().unwrap().to_owned();
    let exported = env.run(&["session", "export", &session]);
    assert!(exported.status.success(), "{exported:?}");
    let lines = String::from_utf8_lossy(&exported.stdout).into_owned();
    let mut results = Vec::new();
    for line in lines.lines() {
        collect(&serde_json::from_str(line).unwrap(), &mut results);
    }
    results
}

/// Collects the tool results of a JSON document, in order.
fn collect(document: &Value, results: &mut Vec<(String, Value)>) {
    if document["type"] == "tool_result" {
        let text = document["error"]["message"].as_str();
        let text = text
            .or_else(|| document["text"].as_str())
            .unwrap_or_default();
        results.push((text.to_owned(), document["data"].clone()));
        return;
    }
    match document {
        Value::Array(all) => all.iter().for_each(|it| collect(it, results)),
        Value::Object(fields) => fields.values().for_each(|it| collect(it, results)),
        _ => {}
    }
}

const PATCH: &str = r"
steps:
  - tool_calls:
      - name: apply_patch
        args:
          input: |
            *** Begin Patch
            *** Add File: new.txt
            +new
            *** Update File: a.txt
            @@
             one
            -missing
            +2
            *** End Patch
  - tool_calls:
      - name: apply_patch
        args:
          input: |
            *** Begin Patch
            *** Update File: a.txt
            @@
             one
            -two
            +2
            *** Add File: dir/new.txt
            +new
            *** Delete File: gone.txt
            *** Update File: from.txt
            *** Move to: to.txt
            @@
            -x
            +y
            *** End Patch
  - text: done
";

#[test]
fn patch_changes_all_files_or_none() {
    let env = TestEnv::new();
    for (path, text) in [
        ("a.txt", "one\r\ntwo\r\n"),
        ("gone.txt", "old\n"),
        ("from.txt", "x\n"),
    ] {
        env.write(&format!("project/{path}"), text);
    }
    let output = prompt(&env, PATCH, &[]);
    let results = results(&env, &output);
    assert!(
        results[0].0.contains("No change was applied."),
        "{results:?}"
    );
    assert!(!env.path("project/new.txt").exists());
    let files = results[1].1["files"].as_array().unwrap();
    let kinds: Vec<_> = files
        .iter()
        .map(|file| value!([file["path"], file["kind"]]))
        .collect();
    assert_eq!(
        value!(kinds),
        value!([
            ["a.txt", "updated"],
            ["dir/new.txt", "added"],
            ["gone.txt", "deleted"],
            ["to.txt", "moved"],
        ])
    );
    // Line endings are preserved.
    assert_eq!(env.read("project/a.txt"), "one\r\n2\r\n");
    assert_eq!(env.read("project/dir/new.txt"), "new\n");
    assert_eq!(env.read("project/to.txt"), "y\n");
    for gone in ["gone.txt", "from.txt"] {
        assert!(!env.path(&format!("project/{gone}")).exists(), "{gone}");
    }
}

const SENSITIVE: &str = r"
steps:
  - tool_calls:
      - name: apply_patch
        args:
          input: |
            *** Begin Patch
            *** Add File: AGENTS.md
            +one
            *** Add File: .github/x.yml
            +two
            *** End Patch
  - text: done
";

/// A person approves each sensitive file by itself, and a denial changes nothing.
#[test]
fn each_sensitive_file_of_a_patch_has_its_own_gate() {
    for last in ["approve", "deny"] {
        let env = TestEnv::new();
        env.write("project/agent.yaml", SENSITIVE);
        let args = [
            "prompt",
            "go",
            "--model",
            "scripted:agent.yaml",
            "--sandbox",
            "local",
        ];
        let mut waiting = env.command().args(args).spawn().unwrap();
        let mut errors = BufReader::new(waiting.stderr.take().unwrap());
        for (title, answer) in [("AGENTS.md", "approve"), (".github/x.yml", last)] {
            let gate = wait_for_gate(&env, &mut errors);
            assert_eq!(gate["title"], format!("apply_patch: {title}"), "{gate:#}");
            let decided = env.run(&["gate", answer, gate["id"].as_str().unwrap()]);
            assert!(decided.status.success(), "{decided:?}");
        }
        assert!(waiting.wait().unwrap().success());
        for path in ["AGENTS.md", ".github/x.yml"] {
            let exists = env.path(&format!("project/{path}")).exists();
            assert_eq!(exists, last == "approve", "{path}");
        }
    }
}

#[test]
fn rules_for_edits_hold_for_patches() {
    let env = TestEnv::new();
    let policy = "rules:\n  - { tool: 'builtin:edit', action: deny }\n";
    env.write("user/.ai/config/agent/approvals.yaml", policy);
    env.write("project/a.txt", "one\r\ntwo\r\n");
    let output = prompt(&env, PATCH, &[]);
    let results = results(&env, &output);
    assert!(
        results.iter().all(|(text, _)| text.starts_with("denied")),
        "{results:?}"
    );
}

#[test]
fn question_is_answered_from_another_process() {
    let env = TestEnv::new();
    let script = "steps:\n  \
        - tool_calls: [{ name: ask, args: { question: 'Which?', options: [red, blue] } }]\n  \
        - text: 'You said ${last_tool_result}'\n";
    let output = prompt(&env, script, &["--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let session = outcome(&output)["session"].as_str().unwrap().to_owned();
    let gate = json(&env.run(&["gate", "list", "--json"]))["gates"][0].clone();
    assert_eq!(
        (&gate["title"], &gate["kind"]),
        (&value!("Which?"), &value!("question"))
    );
    assert_eq!(gate["body"], "1. red\n2. blue");
    let id = gate["id"].as_str().unwrap();
    let answered = env.run(&["gate", "answer", id, "--value", "2"]);
    assert!(answered.status.success(), "{answered:?}");
    let resumed = env.run(&["session", "resume", &session]);
    let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(text.contains("You said blue"), "{resumed:?}");
}

/// A pipe is the event that the command waits for.
const BACKGROUND: &str = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'mkfifo go; echo ready; cat go; sleep 600', background: true } }]
  - tool_calls: [{ name: bash, args: { command: 'echo later > go' } }]
  - tool_calls: [{ name: bash_output, args: { id: bg-1, wait: 60 } }]
  - tool_calls: [{ name: bash_kill, args: { id: bg-1 } }]
  - tool_calls: [{ name: bash_output, args: { id: bg-2 } }]
  - tool_calls: [{ name: bash, args: { command: 'exit 3', background: true } }]
  - tool_calls: [{ name: bash_output, args: { id: bg-2, wait: 60 } }]
  - tool_calls: [{ name: bash, args: { command: 'echo $$ > pid; sleep 600', background: true } }]
  - tool_calls: [{ name: bash, args: { command: 'until [ -s pid ]; do sleep 0.1; done' } }]
  - text: done
";

#[test]
fn command_in_the_background_is_read_killed_and_ends_with_the_session() {
    let env = TestEnv::new();
    let output = prompt(&env, BACKGROUND, &["--yes"]);
    let results = results(&env, &output);
    let texts: Vec<_> = results.iter().map(|(text, _)| text.as_str()).collect();
    assert!(texts[0].contains("[bg-1 runs"), "{texts:?}");
    assert!(texts[2].contains("later\n[bg-1 runs"), "{texts:?}");
    assert!(
        [texts[0], texts[2]].concat().contains("ready\n"),
        "{texts:?}"
    );
    assert_eq!(texts[3], "[bg-1: killed]");
    assert!(texts[4].contains("there are bg-1"), "{texts:?}");
    // It may end after `bash` has returned.
    assert!(
        [texts[5], texts[6]].concat().contains("exit code 3]"),
        "{texts:?}"
    );
    let pid = env.read("project/pid");
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(!process.exists(), "the command outlives the session");
}

#[test]
fn task_in_the_background_outlasts_its_call_and_its_process() {
    let env = TestEnv::new();
    let script = "steps:\n  - tool_calls: [{ name: task, args: { prompt: count, background: true, \
                  model: 'scripted:child.yaml' } }]\n  - text: started\n";
    let child = "steps:\n  - tool_calls: [{ name: task, args: { prompt: count, background: true } }]\n  \
                 - { text: 'forty-two, ${last_tool_result}', delay_ms: 2000 }\n";
    env.write("project/child.yaml", child);
    let output = prompt(&env, script, &[]);
    assert_eq!(outcome(&output)["answer"], "started", "{output:?}");
    // It is no child session.
    let events = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(events.contains("tool_start") && !events.contains("task_start"));
    let started = results(&env, &output);
    let key = started[0].1["thread"].as_str().unwrap().to_owned();
    assert!(started[0].0.contains(&key), "{started:?}");
    let session = outcome(&output)["session"].as_str().unwrap().to_owned();
    let read = value!({ "thread": key, "wait": 60, "limit": 1 });
    // The first answers of the script were given in the first process.
    let script = format!(
        "steps:\n  - text: unused\n  - text: unused\n  - tool_calls: [{{ name: thread_read, args: {read} }}]\n  - text: read\n"
    );
    let output = prompt(&env, &script, &["--session", &session]);
    let all = results(&env, &output);
    let answers: Vec<_> = all.iter().map(|(text, _)| text.as_str()).collect();
    let found = answers.iter().find(|text| text.contains("forty-two"));
    // A task in the background cannot start another one.
    let found = found.unwrap_or_else(|| panic!("{answers:?}"));
    assert!(found.contains("cannot start tasks"), "{answers:?}");
}

/// A check that finds each line with `bad`, and one that does not exist.
const CHECKS: &str = "
checks:
  - { files: ['*.txt', '!ignored.txt'], command: \"grep -n bad {file} | sed 's/^/{file}:/'\" }
  - { files: ['*.md'], command: 'no-such-linter {file}' }
";

const CHECKED: &str = "
steps:
  - tool_calls: [{ name: edit, args: { path: a.txt, old: one, new: \"one\\nbad two\" } }]
  - tool_calls: [{ name: edit, args: { path: a.txt, old: one, new: \"one\\nzero\" } }]
  - tool_calls: [{ name: write, args: { path: new.txt, content: \"bad\\nbad\\n\" } }]
  - tool_calls: [{ name: write, args: { path: ignored.txt, content: bad } }]
  - tool_calls: [{ name: write, args: { path: a.md, content: bad } }]
  - text: done
";

#[test]
fn new_diagnostics_of_a_checker_follow_an_edit() {
    let env = TestEnv::new();
    env.write("project/a.txt", "bad start\none\n");
    // A project cannot run commands that nobody accepted.
    env.write("project/.ai/config/agent/checks.yaml", CHECKS);
    let ignored = prompt(&env, CHECKED, &[]);
    let texts = results(&env, &ignored);
    assert!(
        texts.iter().all(|(_, data)| data["diagnostics"].is_null()),
        "{texts:?}"
    );
    let notice = String::from_utf8_lossy(&ignored.stderr).into_owned();
    assert!(notice.contains("checks.yaml"), "{notice}");
    std::fs::remove_file(env.path("project/.ai/config/agent/checks.yaml")).unwrap();

    env.write("user/.ai/config/agent/checks.yaml", CHECKS);
    env.write("project/a.txt", "bad start\none\n");
    for name in ["new.txt", "ignored.txt", "a.md"] {
        std::fs::remove_file(env.path(&format!("project/{name}"))).unwrap();
    }
    let results = results(&env, &prompt(&env, CHECKED, &[]));
    let lines = |index: usize| results[index].1["diagnostics"][0]["lines"].clone();
    assert_eq!(lines(0), value!(["a.txt:3:bad two"]), "{results:?}");
    assert!(results[0].0.ends_with("\na.txt:3:bad two"), "{results:?}");
    // What moved is not new.
    assert_eq!(lines(1), Value::Null);
    assert_eq!(lines(2), value!(["new.txt:1:bad", "new.txt:2:bad"]));
    assert_eq!(lines(3), Value::Null);
    assert!(
        results[4].0.contains("[check `no-such-linter a.md`: "),
        "{results:?}"
    );

    env.write(
        "user/.ai/config/agent/checks.yaml",
        "checks: [{ files: [], command: x }]",
    );
    let invalid = prompt(&env, CHECKED, &[]);
    let message = outcome(&invalid)["error"]["message"].to_string();
    assert!(message.contains("checks.yaml"), "{message}");
}
