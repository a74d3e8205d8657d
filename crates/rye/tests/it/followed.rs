//! A session that is followed: what is approved with `--yes`, what is told as it happens, how
//! it ended, and what is said when a signal ends whoever follows it.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStdout, Command, Output};
use std::time::Duration;

use crate::support::{TestEnv, json as document, outcome, told};
use rye_engine::protocol::short_id;
use serde_json::{Value, json};

/// A model that wants to write a word into a file of that name, and then answers.
fn wants(word: &str) -> String {
    format!(
        "steps:\n  - tool_calls: [{{ name: bash, args: {{ command: 'echo {word} > {word}.txt' }} }}]\n  \
         - text: '{word} is done'\n"
    )
}

fn ready() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    for word in ["one", "two"] {
        env.write(&format!("project/{word}.yaml"), &wants(word));
    }
    env.write("project/says.yaml", "steps:\n  - text: 'hello'\n");
    env
}

/// `rye prompt` with a model, and further words.
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
fn waiting(env: &TestEnv) -> String {
    let output = prompt(env, "one", &["--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn yes_is_for_what_the_prompt_asks_and_not_for_what_waited_before() {
    let env = ready();
    let session = waiting(&env);
    let beside = ["--session", &session, "--thread", "b", "--yes"];
    let output = prompt(&env, "two", &beside);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(outcome(&output)["answer"], "two is done");
    assert!(env.path("project/two.txt").exists());
    assert!(!env.path("project/one.txt").exists());
    let said = told("", &output);
    let other = "another thread is waiting for a decision: run: echo one > one.txt";
    assert!(said.contains(other), "{said}");
    // One that waits behind it does not answer it either.
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
    // Whoever goes on with the session goes on with all of it.
    let resumed = env.run(&["session", "resume", &session, "--yes"]);
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    assert!(env.path("project/one.txt").exists());
}

#[test]
fn yes_is_for_the_tasks_of_the_prompt_too() {
    let env = ready();
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
fn a_prompt_that_does_not_wait_names_its_own_gate() {
    let env = ready();
    let session = waiting(&env);
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
fn going_on_ends_as_the_prompt_that_was_gone_on_with() {
    let env = ready();
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
        let said = document(&resumed);
        let status = if error.is_some() { "error" } else { "success" };
        assert_eq!(said["status"], status, "{said}");
        assert_eq!(said["error"]["code"].as_str(), error, "{said}");
        assert_eq!(said["session"], session);
    }
}

#[test]
fn a_task_is_asked_by_its_parent_alone() {
    let env = ready();
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
        let said = told(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(short_id(session)), "{said}");
        assert!(
            said.contains(&format!("rye session fork {}", short_id(task))),
            "{said}"
        );
    }
    let again = document(&env.run(&["session", "show", session, "--json"]));
    assert_eq!(again, shown);
    let fork = document(&env.run(&["session", "fork", task, "--json"]));
    let fork = fork["session"].as_str().unwrap();
    let asked = env.run(&["prompt", "where?", "--session", fork]);
    let said = told("", &asked);
    assert!(said.contains("in the attic"), "{said}");
    // To go on with it is to go on with what it is a part of.
    let resumed = told("", &env.run(&["session", "resume", task]));
    assert!(
        resumed.contains(&format!(
            "resuming its parent session {}",
            short_id(session)
        )),
        "{resumed}"
    );
}

/// A `rye prompt --json` whose events are read one by one.
struct Followed {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Followed {
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

/// The numbers of events.
fn numbers(events: impl Iterator<Item = Value>) -> Vec<u64> {
    events
        .filter_map(|event| event["sequence"].as_u64())
        .collect()
}

#[test]
fn that_somebody_decided_is_told_while_what_they_let_runs() {
    let env = ready();
    env.write(
        "project/long.yaml",
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'until [ -e end ]; do sleep 0.02; done' } }]\n  \
         - text: 'done'\n",
    );
    let mut followed = Followed::start(&env, "long", &[]);
    let gate = followed.until("decision_gate")["data"]["gate"]["id"].clone();
    let end = env.path("project/end");
    // So that nobody waits for ever.
    let late = end.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_mins(1));
        let _ = std::fs::write(late, "");
    });
    let approved = env.run(&["gate", "approve", gate.as_str().unwrap()]);
    assert!(approved.status.success(), "{approved:?}");
    followed.until("decision_gate_resolved");
    assert!(!end.exists(), "it was told when the tool had ended");
    std::fs::write(&end, "").unwrap();
    let outcome = followed.until("outcome");
    assert_eq!(outcome["answer"], "done");
    followed.child.wait().unwrap();
}

#[test]
fn whoever_goes_on_tells_all_that_they_write_without_gaps() {
    let env = ready();
    env.write(
        "project/long.yaml",
        "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo > begun; sleep 600' } }]\n  \
         - text: 'first'\n  - text: 'second'\n",
    );
    let mut followed = Followed::start(&env, "long", &["--yes"]);
    let session = followed.until("decision_gate")["session"].clone();
    let session = session.as_str().unwrap();
    while !env.path("project/begun").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    followed.kill();
    let record = env.run(&["session", "export", session]);
    let record = String::from_utf8(record.stdout).unwrap();
    let lines = record
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let written = numbers(lines.map(|line: Value| line["event"].clone()));
    let before = written.into_iter().max().unwrap();
    let output = prompt(&env, "long", &["--session", session, "--yes"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let after = numbers(events);
    let expected: Vec<_> = (before + 1..).take(after.len()).collect();
    assert_eq!(after, expected);
    assert!(text.contains("\"answer\":\"second\""), "{text}");
}

#[test]
fn what_a_dead_process_left_to_do_is_seen() {
    let env = ready();
    env.write(
        "project/slow.yaml",
        "steps:\n  - { text: 'late', delay_ms: 600000 }\n",
    );
    let mut followed = Followed::start(&env, "slow", &[]);
    let session = followed.until("queue_state")["session"].clone();
    let session = session.as_str().unwrap();
    followed.kill();
    let listed = told("", &env.run(&["session", "list"]));
    assert!(listed.contains("1 unfinished prompt"), "{listed}");
    let listed = document(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["queue"][0]["content"], "go");
    let shown = told("", &env.run(&["session", "show", session]));
    assert!(shown.contains("unfinished prompt: go"), "{shown}");
    let next = format!("rye session resume {}", short_id(session));
    assert!(shown.contains(&next), "{shown}");
    // And what waits behind a gate.
    let session = waiting(&env);
    let behind = prompt(&env, "says", &["--session", &session, "--no-wait"]);
    assert_eq!(behind.status.code(), Some(5), "{behind:?}");
    let shown = told("", &env.run(&["session", "show", &session]));
    assert!(shown.contains("queued prompt: go"), "{shown}");
    let shown = document(&env.run(&["session", "show", &session, "--json"]));
    let queue = shown["queue"].as_array().unwrap().iter();
    let queue: Vec<_> = queue.map(|prompt| &prompt["status"]).collect();
    assert_eq!(queue, ["running", "waiting"]);
}

#[test]
fn whom_a_signal_ends_says_which_session_it_was_and_how_it_goes_on() {
    let env = ready();
    env.write(
        "project/slow.yaml",
        "steps:\n  - { text: 'late', delay_ms: 600000 }\n",
    );
    for (signal, code) in [
        ("INT", "interrupted"),
        ("TERM", "terminated"),
        ("HUP", "terminated"),
    ] {
        let mut followed = Followed::start(&env, "slow", &[]);
        let session = followed.until("queue_state")["session"].clone();
        let next = format!("rye session resume {}", session.as_str().unwrap());
        let pid = followed.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        let rest: Vec<_> = std::iter::from_fn(|| followed.next()).collect();
        let last = rest.last().unwrap();
        assert_eq!(last["type"], "outcome", "{rest:?}");
        assert_eq!(last["session"], session);
        assert_eq!(last["status"], "error");
        assert_eq!(last["error"]["code"], code);
        assert_eq!(last["error"]["hint"], json!(next));
        let mut said = String::new();
        let mut errors = followed.child.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        assert!(said.contains(&format!("ended by SIG{signal}")), "{said}");
        assert!(said.ends_with(&format!("{next}\n")), "{said}");
        assert!(!followed.child.wait().unwrap().success());
    }
}

#[test]
fn a_thread_without_a_name_is_none() {
    let env = ready();
    let session = waiting(&env);
    for args in [
        &["prompt", "go", "--thread", ""][..],
        &["chat", "--plain", "--thread", " "],
        &["session", "thread", &session, "--thread", ""],
        &["session", "compact", &session, "--thread", ""],
    ] {
        let output = env.run(args);
        let said = told(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("the key of a thread is not"), "{said}");
    }
}

/// By a pipe, line after line as soon as the one before is in its queue.
#[test]
fn what_is_said_to_a_busy_thread_follows_its_mode() {
    for (mode, answers) in [("followup", 3), ("collect", 2)] {
        let env = ready();
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
