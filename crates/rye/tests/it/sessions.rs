//! `rye prompt`, `rye session` and `rye gate`, also across crashes.

use std::io::{BufReader, Read as _};
use std::process::{Child, ChildStderr, Output};

use crate::support::{TestEnv, assert_transcript, json, outcome, transcript_entry, wait_for_gate};

/// A script that runs a command and prints its result.
const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt; cat out.txt' } }]
  - text: 'It said: ${last_tool_result}'
  - text: 'And again.'
";

const PROMPT: &[&str] = &["prompt", "go", "--model", "scripted:agent.yaml"];
const PROMPT_LOCAL: &[&str] = &[
    "prompt",
    "go",
    "--model",
    "scripted:agent.yaml",
    "--sandbox",
    "local",
];

fn env_after_init() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", SCRIPT);
    env
}

fn field(output: &Output, name: &str) -> String {
    outcome(output)[name]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A `rye prompt` that waits at a gate, killed on drop.
struct WaitingPrompt {
    child: Child,
    errors: BufReader<ChildStderr>,
    gate: String,
}

impl WaitingPrompt {
    /// Starts it and waits until it names its gate.
    fn start(env: &TestEnv) -> Self {
        let mut child = env.command().args(PROMPT_LOCAL).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let gate = String::new();
        let mut waiting = Self {
            child,
            errors,
            gate,
        };
        let gate = wait_for_gate(env, &mut waiting.errors);
        gate["id"].as_str().unwrap().clone_into(&mut waiting.gate);
        waiting
    }

    fn session(&self) -> String {
        self.gate.split(':').nth(1).unwrap().to_owned()
    }

    /// Waits for the end: its output, errors and exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        let (mut out, mut err) = (String::new(), String::new());
        self.errors.read_to_string(&mut err).unwrap();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code();
        (out, err, code)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for WaitingPrompt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn answer_goes_to_stdout_and_progress_to_stderr() {
    let env = env_after_init();
    let mut transcript = env.transcript(&["session list", "prompt go --model scripted:agent.yaml"]);
    let listed = json(&env.run(&["session", "list", "--json"]));
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    transcript += &env.transcript(&[
        &format!("prompt once more --session {id} --quiet"),
        "session list",
        &format!("session show {id}"),
        &format!("session rm {id}"),
        "session list",
        &format!("session show {id}"),
        "gate list",
    ]);
    assert_transcript!(transcript);
    // The command ran in the confined sandbox.
    assert!(env.path("project/out.txt").exists());
}

#[test]
fn last_json_line_is_the_outcome() {
    let env = env_after_init();
    let output = env.run(&[PROMPT, &["--json"]].concat());
    let document = outcome(&output);
    assert_eq!(document["status"], "success");
    assert_eq!(document["answer"], "It said: ran");
    assert_eq!(document["end"], "end_turn");
    let session = field(&output, "session");
    let shown = json(&env.run(&["session", "show", &session, "--json"]));
    let entries = shown["threads"][0]["entries"].as_array().unwrap();
    let roles: Vec<_> = entries.iter().map(|entry| &entry["kind"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[test]
fn invalid_requests_have_hints() {
    let env = env_after_init();
    env.write("project/broken.yaml", "steps: [{ txt: a }]\n");
    assert_transcript!(env.transcript(&[
        "prompt go",
        "prompt go --model scripted:agents.yaml",
        "prompt go --model scripted:broken.yaml",
        "prompt go --session nowhere",
        "session resume nowhere",
        "gate approve nowhere",
        "gate approve gate:nowhere",
    ]));
}

#[test]
fn gate_is_answered_from_another_process() {
    let env = env_after_init();
    let waiting = WaitingPrompt::start(&env);
    let gate = waiting.gate.clone();
    let listed = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(listed["gates"][0]["id"], gate.as_str());
    assert_eq!(listed["gates"].as_array().unwrap().len(), 1);
    let mut transcript = env.transcript(&[
        "session list",
        "gate list",
        &format!("session show {}", waiting.session()),
        &format!("session resume {}", waiting.session()),
        &format!("session rm {}", waiting.session()),
    ]);
    assert!(!env.path("project/out.txt").exists());
    transcript += &env.transcript(&[&format!("gate approve {gate}")]);
    let (out, _, code) = waiting.end();
    assert_eq!((out.as_str(), code), ("It said: ran\n", Some(0)));
    assert_eq!(env.read("project/out.txt"), "ran\n");
    // The first decision is final.
    transcript += &env.transcript(&[
        &format!("gate approve {gate}"),
        &format!("gate deny {gate}"),
        "gate list",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn gate_survives_its_process() {
    let env = env_after_init();
    let waiting = WaitingPrompt::start(&env);
    let (gate, session) = (waiting.gate.clone(), waiting.session());
    waiting.kill();
    let mut transcript = env.transcript(&[&format!("gate approve {gate}")]);
    // From another directory: the session has stored its own.
    let resume = || {
        let mut command = env.command();
        let args = ["session", "resume", &session];
        command.args(args).current_dir(env.path("user"));
        command.output().unwrap()
    };
    transcript += &transcript_entry("rye session resume ID", &resume());
    transcript += &transcript_entry("rye session resume ID", &resume());
    assert_transcript!(transcript);
    assert_eq!(env.read("project/out.txt"), "ran\n");
}

#[test]
fn resumed_session_prints_new_entries_once() {
    let env = env_after_init();
    let looks = "  - tool_calls: [{ name: glob, args: { pattern: '*' } }]\n".repeat(20);
    let script = env.read("project/agent.yaml");
    let (first, last) = script.split_once("  - text").unwrap();
    let script = format!("{first}{looks}  - text{last}");
    env.write("project/agent.yaml", &script);
    let waiting = WaitingPrompt::start(&env);
    let (gate, session) = (waiting.gate.clone(), waiting.session());
    waiting.kill();
    assert!(env.run(&["gate", "deny", &gate]).status.success());
    let output = env.run(&["session", "resume", &session]);
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    // Everything except the prompt, the call and the gate, which were printed before.
    let new: Vec<_> = shown.lines().skip(6).map(str::trim_start).collect();
    assert_eq!(new.len(), 42, "{shown}");
    assert_eq!(
        output_text.lines().collect::<Vec<_>>(),
        new,
        "{output_text}"
    );
}

#[test]
fn denied_command_does_not_run_and_the_model_is_told() {
    let env = env_after_init();
    let waiting = WaitingPrompt::start(&env);
    let output = env.run(&["gate", "deny", &waiting.gate]);
    assert!(output.status.success(), "{output:?}");
    let (out, err, code) = waiting.end();
    assert_eq!(out, "It said: denied by ada\n", "{err}");
    assert_eq!(code, Some(0));
    assert!(!env.path("project/out.txt").exists());
}

#[test]
fn yes_approves_without_asking() {
    let env = env_after_init();
    let output = env.run(&[PROMPT_LOCAL, &["--yes"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "It said: ran\n");
    assert_eq!(env.read("project/out.txt"), "ran\n");
}

/// A script that starts a task whose command needs approval.
fn with_tasks() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write(
        "project/agent.yaml",
        "steps:
  - tool_calls: [{ name: task, args: { prompt: 'look after it', model: 'scripted:child.yaml' } }]
  - text: 'They said: ${last_tool_result}'
",
    );
    env.write(
        "project/child.yaml",
        "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt; cat out.txt' } }]
  - text: 'It is ${last_tool_result}'
",
    );
    env
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn gate_of_a_task_is_answered_in_its_parent() {
    let env = with_tasks();
    let mut all = PROMPT_LOCAL.to_vec();
    all.push("--yes");
    let output = env.run(&all);
    assert_eq!(stdout_text(&output).trim(), "They said: It is ran");
    let listed = json(&env.run(&["session", "list", "--json"]));
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    assert_eq!(
        sessions[1]["usage"]["turns"], 4,
        "its own two and those of the task"
    );
    assert_eq!(sessions[0]["state"], "ended");
    let id = sessions[1]["id"].as_str().unwrap();
    let shown = json(&env.run(&["session", "show", id, "--json"]));
    assert_eq!(shown["state"], "idle", "{shown}");
    assert_eq!(shown["children"][0]["state"], "ended", "{shown}");
    assert_eq!(shown["children"][0].get("status"), None, "{shown}");
}

#[test]
fn killed_task_resumes_with_its_parent() {
    let env = with_tasks();
    let waiting = WaitingPrompt::start(&env);
    let (gate, child) = (waiting.gate.clone(), waiting.session());
    assert!(child.starts_with("task-"), "{child}");
    waiting.kill();
    assert!(env.run(&["gate", "approve", &gate]).status.success());
    // By the id of the task or of its parent.
    let output = env.run(&["session", "resume", &child]);
    assert!(
        stdout_text(&output).contains("They said: It is ran"),
        "{output:?}"
    );
    let ran = std::fs::read_to_string(env.path("project/out.txt")).unwrap();
    assert_eq!(ran, "ran\n");
}

/// The task's session is opened only when its turn comes.
#[test]
fn resumed_session_asks_the_gate_of_its_task() {
    let env = with_tasks();
    let waiting = WaitingPrompt::start(&env);
    let child = waiting.session();
    waiting.kill();
    let output = env.run(&["session", "resume", &child, "--yes"]);
    assert!(
        stdout_text(&output).contains("They said: It is ran"),
        "{output:?}"
    );
    assert_eq!(env.read("project/out.txt"), "ran\n");
}

#[test]
fn removing_a_session_removes_its_tasks() {
    let env = with_tasks();
    let mut all = PROMPT_LOCAL.to_vec();
    all.extend(["--yes", "--json"]);
    let id = field(&env.run(&all), "session");
    assert!(env.run(&["session", "rm", &id]).status.success());
    let listed = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn limit_ends_the_prompt() {
    let env = env_after_init();
    let mut transcript = env.transcript(&[
        "prompt go --model scripted:agent.yaml --max-turns 1",
        "prompt go --model scripted:agent.yaml --max-cost a-lot",
        "prompt go --model scripted:agent.yaml --max-time 0",
    ]);
    transcript += &env.transcript(&["session list"]);
    assert_transcript!(transcript);
}

#[test]
fn list_shows_the_state_title_model_and_cost_of_sessions() {
    let env = env_after_init();
    assert!(env.run(&["keys", "generate"]).status.success());
    let long = "Count the lines of all files in this project and then write them down";
    let prompt = format!("{long}\nsecond line");
    let first = env.run(&[
        "prompt",
        &prompt,
        "--model",
        "scripted:agent.yaml",
        "--json",
    ]);
    let id = field(&first, "session");
    let listed =
        |env: &TestEnv| json(&env.run(&["session", "list", "--json"]))["sessions"][0].clone();
    let before = listed(&env);
    assert_eq!(
        before["title"],
        "Count the lines of all files in this project and then write…"
    );
    assert_eq!(before["state"], "idle", "{before}");
    assert_eq!(before.get("status"), None, "the only state: {before}");
    assert_eq!(before["model"], "scripted:agent.yaml", "{before}");
    assert!(before["title"].as_str().unwrap().chars().count() <= 60);
    let more = env.run(&["prompt", "more", "--session", &id]);
    assert!(more.status.success(), "{more:?}");
    let after = listed(&env);
    assert!(
        after["updated_at"].as_u64() > before["updated_at"].as_u64(),
        "{after}"
    );
    assert_eq!(after["title"], before["title"]);
    let titled = env.run(&["session", "title", &id, "Line counts"]);
    assert!(titled.status.success(), "{titled:?}");
    assert_eq!(listed(&env)["title"], "Line counts");
    assert_eq!(
        env.run(&["session", "title", &id, " "]).status.code(),
        Some(2)
    );
    let verified = env.run(&["session", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
    let third = env.run(&["prompt", "again", "--session", &id]);
    assert!(third.status.success(), "{third:?}");
    assert_eq!(listed(&env)["title"], "Line counts");
}

#[test]
fn approver_is_shown_by_the_owner_of_the_key() {
    let mut env = env_after_init();
    env.unset("USER");
    let key = env.run(&["keys", "generate", "--owner", "Ada Lovelace"]);
    assert!(key.status.success(), "{key:?}");
    let waiting = WaitingPrompt::start(&env);
    let session = waiting.session();
    let approved = env.run(&["gate", "approve", &waiting.gate]);
    assert!(approved.status.success(), "{approved:?}");
    waiting.end();
    let shown = env.run(&["session", "show", &session]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("approved by Ada Lovelace (cli)"), "{shown}");
    let verified = env.run(&["session", "verify", &session]);
    let verified = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.contains("signed by Ada Lovelace ("), "{verified}");
    let again = env.run(&["gate", "deny", &waiting_gate(&env, &session)]);
    let again = String::from_utf8_lossy(&again.stderr);
    assert!(again.contains("by Ada Lovelace"), "{again}");
}

/// The gate of a session, also if it is closed.
fn waiting_gate(env: &TestEnv, session: &str) -> String {
    let shown = json(&env.run(&["session", "show", session, "--json"]));
    shown["gates"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn fork_replays_without_differences() {
    let env = env_after_init();
    let first = env.run(&["prompt", "go", "--model", "scripted:agent.yaml"]);
    assert!(first.status.success(), "{first:?}");
    let id = json(&env.run(&["session", "list", "--json"]))["sessions"][0]["id"].clone();
    let forked = json(&env.run(&["session", "fork", id.as_str().unwrap(), "--json"]));
    let fork = forked["session"].as_str().unwrap();
    let unchanged = json(&env.run(&["replay", fork, "--json"]));
    assert_eq!(
        unchanged["differences"],
        serde_json::json!([]),
        "{unchanged}"
    );
    let more = env.run(&["prompt", "more", "--session", fork]);
    assert!(more.status.success(), "{more:?}");
    let replayed = json(&env.run(&["replay", fork, "--json"]));
    assert_eq!(replayed["differences"], serde_json::json!([]), "{replayed}");
    assert_eq!(replayed["prompts"], 1, "{replayed}");
}

#[test]
fn full_history_has_all_text_and_the_ids_of_entries() {
    let env = env_after_init();
    env.write(
        "project/agent.yaml",
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'seq 3' } }]\n  - text: counted\n",
    );
    let session = field(&env.run(&[PROMPT, &["--json"]].concat()), "session");
    let shown = env.run(&["session", "show", &session, "--full"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\n    1\n    2\n    3\n"), "{shown}");
    let user = shown.lines().find(|line| line.ends_with(" user")).unwrap();
    let entry = user.split_whitespace().next().unwrap();
    let forked = env.run(&["session", "fork", &session, "--at", entry]);
    assert!(forked.status.success(), "{forked:?}");
}

#[test]
fn resume_without_waiting_ends_at_the_gate() {
    let env = env_after_init();
    let waiting = WaitingPrompt::start(&env);
    let session = waiting.session();
    waiting.kill();
    let resumed = env.run(&["session", "resume", &session, "--no-wait"]);
    assert_eq!(resumed.status.code(), Some(5), "{resumed:?}");
}
