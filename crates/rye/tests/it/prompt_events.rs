//! `rye prompt` while the session runs: `--yes`, `--no-wait`, live events, exit codes and
//! signals.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStdout, Command, Output};
use std::time::Duration;

use crate::support::{TestEnv, json as document, outcome, transcript_entry};
use rye_engine::protocol::short_id;
use serde_json::{Value, json};

/// A script that writes a word to a file of that name, then answers.
fn script_writing(word: &str) -> String {
    format!(
        "steps:\n  - tool_calls: [{{ name: bash, args: {{ command: 'echo {word} > {word}.txt' }} }}]\n  \
         - text: '{word} is done'\n"
    )
}

fn env_with_scripts() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    for word in ["one", "two"] {
        env.write(&format!("project/{word}.yaml"), &script_writing(word));
    }
    env.write("project/says.yaml", "steps:\n  - text: 'hello'\n");
    env
}

/// Runs `rye prompt` with a model and more arguments.
fn prompt(env: &TestEnv, model: &str, more: &[&str]) -> Output {
    let model = format!("scripted:{model}.yaml");
    let args = [
        "prompt",
        "go",
        "--json",
        "--sandbox",
        "local",
        "--model",
        &model,
    ];
    env.run(&[&args[..], more].concat())
}

/// A session whose thread `default` waits at the gate of the model `one`.
fn session_at_gate(env: &TestEnv) -> String {
    let output = prompt(env, "one", &["--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn yes_approves_gates_of_its_own_prompt_only() {
    let env = env_with_scripts();
    let session = session_at_gate(&env);
    let beside = ["--session", &session, "--thread", "b", "--yes"];
    let output = prompt(&env, "two", &beside);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(outcome(&output)["answer"], "two is done");
    assert!(env.path("project/two.txt").exists());
    assert!(!env.path("project/one.txt").exists());
    let reply = transcript_entry("", &output);
    let other = "another thread is waiting for a decision: run: echo one > one.txt";
    assert!(reply.contains(other), "{reply}");
    // A prompt queued behind the gate doesn't answer it either.
    let behind = prompt(&env, "says", &["--session", &session, "--yes", "--no-wait"]);
    assert_eq!(behind.status.code(), Some(5), "{behind:?}");
    let message = outcome(&behind)["error"]["message"].clone();
    assert!(
        message
            .as_str()
            .unwrap()
            .contains("blocked by another prompt"),
        "{message}"
    );
    assert!(!env.path("project/one.txt").exists());
    // Resuming the session covers all its gates.
    let resumed = env.run(&["session", "resume", &session, "--yes"]);
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    assert!(env.path("project/one.txt").exists());
}

#[test]
fn yes_approves_gates_of_tasks() {
    let env = env_with_scripts();
    env.write(
        "project/above.yaml",
        "steps:\n  - tool_calls: [{ name: task, args: { prompt: do it, model: 'scripted:two.yaml' } }]\n  \
         - text: 'it said: ${last_tool_result}'\n",
    );
    let output = prompt(&env, "above", &["--yes"]);
    assert_eq!(outcome(&output)["answer"], "it said: two is done");
    assert!(env.path("project/two.txt").exists());
}

#[test]
fn no_wait_names_the_gate_of_its_own_prompt() {
    let env = env_with_scripts();
    let session = session_at_gate(&env);
    let beside = ["--session", &session, "--thread", "b", "--no-wait"];
    let output = prompt(&env, "two", &beside);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let named = outcome(&output)["error"]["gate"].clone();
    let listed = document(&env.run(&["gate", "list", "--json"]));
    let gates = listed["gates"].as_array().unwrap();
    assert_eq!(gates.len(), 2, "{gates:?}");
    let gate = gates.iter().find(|gate| gate["id"] == named).unwrap();
    assert_eq!(gate["title"], "run: echo two > two.txt");
}

#[test]
fn resume_exits_like_the_resumed_prompt() {
    let env = env_with_scripts();
    let call = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo ran' } }]\n";
    env.write(
        "project/fails.yaml",
        &format!("{call}  - error: invalid_request\n"),
    );
    env.write("project/limit.yaml", &format!("{call}  - text: 'done'\n"));
    for (model, more, code, error) in [
        ("fails", &[][..], 1, Some("error")),
        ("limit", &["--max-turns", "1"], 7, Some("limit")),
        ("limit", &[], 0, None),
    ] {
        let output = prompt(&env, model, &[more, &["--no-wait"]].concat());
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let session = outcome(&output)["session"].clone();
        let session = session.as_str().unwrap();
        let resumed = env.run(&["session", "resume", session, "--yes", "--json"]);
        assert_eq!(resumed.status.code(), Some(code), "{resumed:?}");
        let reply = document(&resumed);
        let status = if error.is_some() { "error" } else { "success" };
        assert_eq!(reply["status"], status, "{reply}");
        assert_eq!(reply["error"]["code"].as_str(), error, "{reply}");
        assert_eq!(reply["session"], session);
    }
}

#[test]
fn only_the_parent_can_prompt_a_task() {
    let env = env_with_scripts();
    env.write(
        "project/sub.yaml",
        "steps:\n  - text: 'found it'\n  - text: 'in the attic'\n",
    );
    env.write(
        "project/above.yaml",
        "steps:\n  - tool_calls: [{ name: task, args: { prompt: do it, model: 'scripted:sub.yaml' } }]\n  \
         - text: 'it said: ${last_tool_result}'\n",
    );
    let output = prompt(&env, "above", &[]);
    let session = outcome(&output)["session"].clone();
    let session = session.as_str().unwrap();
    let shown = document(&env.run(&["session", "show", session, "--json"]));
    let task = shown["children"][0]["id"].as_str().unwrap();
    for args in [
        &["prompt", "where?", "--session", task][..],
        &["chat", "--plain", "--session", task],
        &["session", "thread", task, "--mode", "steer"],
        &["session", "compact", task],
    ] {
        let output = env.run(args);
        let reply = transcript_entry(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{reply}");
        assert!(reply.contains(short_id(session)), "{reply}");
        assert!(
            reply.contains(&format!("rye session fork {}", short_id(task))),
            "{reply}"
        );
    }
    let again = document(&env.run(&["session", "show", session, "--json"]));
    assert_eq!(again, shown);
    let fork = document(&env.run(&["session", "fork", task, "--json"]));
    let fork = fork["session"].as_str().unwrap();
    let asked = env.run(&["prompt", "where?", "--session", fork]);
    let reply = transcript_entry("", &asked);
    assert!(reply.contains("in the attic"), "{reply}");
    // Resuming a task resumes its parent.
    let resumed = transcript_entry("", &env.run(&["session", "resume", task]));
    assert!(
        resumed.contains(&format!(
            "resuming its parent session {}",
            short_id(session)
        )),
        "{resumed}"
    );
}

/// A `rye prompt --json` whose events are read one by one.
struct PromptProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl PromptProcess {
    fn start(env: &TestEnv, model: &str, more: &[&str]) -> Self {
        let model = format!("scripted:{model}.yaml");
        let args = [
            "prompt",
            "go",
            "--json",
            "--sandbox",
            "local",
            "--model",
            &model,
        ];
        let mut child = env.command().args(args).args(more).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The next event of a type.
    fn until(&mut self, name: &str) -> Value {
        loop {
            let event = self.next().unwrap();
            if event["type"] == name {
                return event;
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Sequence numbers of events.
fn sequence_numbers(events: impl Iterator<Item = Value>) -> Vec<u64> {
    events
        .filter_map(|event| event["sequence"].as_u64())
        .collect()
}

#[test]
fn decision_is_published_before_the_tool_ends() {
    let env = env_with_scripts();
    env.write(
        "project/long.yaml",
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'until [ -e end ]; do sleep 0.02; done' } }]\n  \
         - text: 'done'\n",
    );
    let mut process = PromptProcess::start(&env, "long", &[]);
    let gate = process.until("decision_gate")["data"]["gate"]["id"].clone();
    let end = env.path("project/end");
    // Ends the tool if the test fails.
    let late = end.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_mins(1));
        let _ = std::fs::write(late, "");
    });
    let approved = env.run(&["gate", "approve", gate.as_str().unwrap()]);
    assert!(approved.status.success(), "{approved:?}");
    process.until("decision_gate_resolved");
    assert!(!end.exists(), "it was told when the tool had ended");
    std::fs::write(&end, "").unwrap();
    let outcome = process.until("outcome");
    assert_eq!(outcome["answer"], "done");
    process.child.wait().unwrap();
}

#[test]
fn resumed_session_numbers_events_without_gaps() {
    let env = env_with_scripts();
    env.write(
        "project/long.yaml",
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo > begun; sleep 600' } }]\n  \
         - text: 'first'\n  - text: 'second'\n",
    );
    let mut process = PromptProcess::start(&env, "long", &["--yes"]);
    let session = process.until("decision_gate")["session"].clone();
    let session = session.as_str().unwrap();
    while !env.path("project/begun").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    process.kill();
    let record = env.run(&["session", "export", session]);
    let record = String::from_utf8(record.stdout).unwrap();
    let lines = record
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let written = sequence_numbers(lines.map(|line: Value| line["event"].clone()));
    let before = written.into_iter().max().unwrap();
    let output = prompt(&env, "long", &["--session", session, "--yes"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let after = sequence_numbers(events);
    let expected: Vec<_> = (before + 1..).take(after.len()).collect();
    assert_eq!(after, expected);
    assert!(text.contains("\"answer\":\"second\""), "{text}");
}

#[test]
fn unfinished_prompts_of_a_killed_process_are_listed() {
    let env = env_with_scripts();
    env.write(
        "project/slow.yaml",
        "steps:\n  - { text: 'late', delay_ms: 600000 }\n",
    );
    let mut process = PromptProcess::start(&env, "slow", &[]);
    let session = process.until("queue_state")["session"].clone();
    let session = session.as_str().unwrap();
    process.kill();
    let listed = transcript_entry("", &env.run(&["session", "list"]));
    assert!(listed.contains("1 unfinished prompt"), "{listed}");
    let listed = document(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["queue"][0]["content"], "go");
    let shown = transcript_entry("", &env.run(&["session", "show", session]));
    assert!(shown.contains("unfinished prompt: go"), "{shown}");
    let next = format!("rye session resume {}", short_id(session));
    assert!(shown.contains(&next), "{shown}");
    // A prompt queued behind a gate is listed too.
    let session = session_at_gate(&env);
    let behind = prompt(&env, "says", &["--session", &session, "--no-wait"]);
    assert_eq!(behind.status.code(), Some(5), "{behind:?}");
    let shown = transcript_entry("", &env.run(&["session", "show", &session]));
    assert!(shown.contains("queued prompt: go"), "{shown}");
    let shown = document(&env.run(&["session", "show", &session, "--json"]));
    let queue = shown["queue"].as_array().unwrap().iter();
    let queue: Vec<_> = queue.map(|prompt| &prompt["status"]).collect();
    assert_eq!(queue, ["running", "waiting"]);
}

#[test]
fn signal_prints_the_command_that_resumes_the_session() {
    let env = env_with_scripts();
    env.write(
        "project/slow.yaml",
        "steps:\n  - { text: 'late', delay_ms: 600000 }\n",
    );
    for (signal, code) in [
        ("INT", "interrupted"),
        ("TERM", "terminated"),
        ("HUP", "terminated"),
    ] {
        let mut process = PromptProcess::start(&env, "slow", &[]);
        let session = process.until("queue_state")["session"].clone();
        let next = format!("rye session resume {}", short_id(session.as_str().unwrap()));
        let pid = process.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        let rest: Vec<_> = std::iter::from_fn(|| process.next()).collect();
        let last = rest.last().unwrap();
        assert_eq!(last["type"], "outcome", "{rest:?}");
        assert_eq!(last["session"], session);
        assert_eq!(last["status"], "error");
        assert_eq!(last["error"]["code"], code);
        assert_eq!(last["error"]["hint"], json!(next));
        let mut reply = String::new();
        let mut errors = process.child.stderr.take().unwrap();
        errors.read_to_string(&mut reply).unwrap();
        assert!(reply.contains(&format!("ended by SIG{signal}")), "{reply}");
        assert!(reply.ends_with(&format!("{next}\n")), "{reply}");
        assert!(!process.child.wait().unwrap().success());
    }
}

#[test]
fn empty_thread_key_is_refused() {
    let env = env_with_scripts();
    let session = session_at_gate(&env);
    for args in [
        &["prompt", "go", "--thread", ""][..],
        &["chat", "--plain", "--thread", " "],
        &["session", "thread", &session, "--thread", ""],
        &["session", "compact", &session, "--thread", ""],
    ] {
        let output = env.run(args);
        let reply = transcript_entry(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{reply}");
        assert!(reply.contains("a thread key must not be empty"), "{reply}");
    }
}

/// Prompts from a pipe: each line is sent once the previous one is queued.
#[test]
fn prompts_to_a_busy_thread_follow_its_mode() {
    for (mode, answers) in [("followup", 3), ("collect", 2)] {
        let env = env_with_scripts();
        env.write(
            "project/says.yaml",
            "steps:\n  - text: 'zero'\n  - { text: 'one', delay_ms: 2000 }\nafter_last: { text: 'more' }\n",
        );
        let output = prompt(&env, "says", &[]);
        let session = outcome(&output)["session"].clone();
        let session = session.as_str().unwrap();
        let set = env.run(&["session", "thread", session, "--mode", mode]);
        assert!(set.status.success(), "{set:?}");
        let chat = ["chat", "--plain", "--session", session];
        env.feed(&chat, b"first\nsecond\n");
        let shown = document(&env.run(&["session", "show", session, "--json"]));
        let entries = shown["threads"][0]["entries"].as_array().unwrap().iter();
        let spoken = entries.filter(|entry| entry["kind"]["role"] == "assistant");
        assert_eq!(spoken.count(), answers, "{mode}: {shown}");
    }
}
