//! `rye prompt` in pipes and scripts.

use std::io::{BufRead as _, BufReader};
use std::process::Output;

use crate::support::{TestEnv, assert_transcript, json, outcome, short_gate_id, wait_for_gate};
use serde_json::Value;

const MODEL: &[&str] = &["--model", "scripted:agent.yaml"];

fn env(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    env
}

const ACKNOWLEDGING_SCRIPT: &str = "{ steps: [], after_last: { text: noted } }";

const BASH: &str = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt; \
                    cat out.txt' } }]\n  - text: 'It said: ${last_tool_result}'\n";

fn prompt<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["prompt"], more, MODEL].concat()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The prompt of the newest session.
fn prompted_text(env: &TestEnv) -> String {
    let listed = json(&env.run(&["session", "list", "--json"]));
    let id = listed["sessions"][0]["id"].as_str().unwrap().to_owned();
    let shown = json(&env.run(&["session", "show", &id, "--json"]));
    let message = &shown["threads"][0]["entries"][0]["kind"];
    message["parts"][0]["text"].as_str().unwrap().to_owned()
}

/// As if the disk were full once the model has answered.
#[test]
fn prompt_that_cannot_be_stored_fails_within_its_time_limit() {
    let text = "x".repeat(3_000_000);
    let env = env(&format!("steps: [{{ text: {text} }}]\n"));
    let rye = env.command();
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1500; exec \"$0\" \"$@\""]);
    limited.arg(rye.get_program());
    limited.args(prompt(&["go", "--max-time", "1"]));
    limited
        .current_dir(rye.get_current_dir().unwrap())
        .env_clear();
    let set = rye
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = limited.envs(set).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    for words in [
        "warning: the store is unavailable",
        "time limit was reached",
    ] {
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
fn piped_input_is_appended_to_the_prompt_or_replaces_it() {
    for (words, input, expected) in [
        (
            &["why?"][..],
            "one\ntwo\n",
            "why?\n\n<stdin>\none\ntwo\n</stdin>",
        ),
        (&["why?"], "", "why?"),
        (&[], "all of it\n", "all of it"),
    ] {
        let env = env(ACKNOWLEDGING_SCRIPT);
        let output = env.feed(&prompt(words), input.as_bytes());
        assert_eq!(output.stdout, b"noted\n", "{output:?}");
        assert_eq!(prompted_text(&env), expected);
    }
}

#[test]
fn events_are_lines_and_the_last_is_the_outcome() {
    let env = env(BASH);
    let output = env.run(&prompt(&["go", "--json"]));
    let all = lines(&output);
    // Stored events are numbered without gaps, with live events in between.
    let numbers: Vec<_> = all
        .iter()
        .filter_map(|it| it["sequence"].as_u64())
        .collect();
    assert!(
        numbers.windows(2).all(|it| it[1] == it[0] + 1),
        "{numbers:?}"
    );
    let kinds: Vec<_> = all.iter().map(|it| it["type"].as_str().unwrap()).collect();
    for wanted in [
        "text_delta",
        "tool_start",
        "tool_output",
        "tool_end",
        "turn_end",
    ] {
        assert!(kinds.contains(&wanted), "no {wanted} in {kinds:?}");
    }
    let reply: String = all
        .iter()
        .filter(|it| it["type"] == "text_delta")
        .filter_map(|it| it["data"]["text"].as_str())
        .collect();
    assert_eq!(reply, "It said: ran");
    let written = all.iter().filter(|it| it["type"] == "message_end");
    let roles: Vec<_> = written.map(|it| &it["data"]["content"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let last = outcome(&output);
    assert_eq!(last["answer"], "It said: ran");
    // A continued session prints only new events.
    let id = last["session"].as_str().unwrap();
    let again = lines(&env.run(&["prompt", "more", "--session", id, "--json"]));
    let first = again.iter().find_map(|it| it["sequence"].as_u64());
    assert_eq!(first, numbers.last().map(|it| it + 1));
    let written = again.iter().filter(|it| it["type"] == "message_end");
    assert_eq!(written.count(), 2);
}

#[test]
fn prompt_with_an_id_is_sent_once() {
    let script = "steps: [{ text: one }, { text: two }, { error: invalid_request }]\n";
    let env = env(script);
    let session = outcome(&env.run(&prompt(&["go", "--json"])))["session"].clone();
    let session = session.as_str().unwrap();
    let entries = || {
        let shown = json(&env.run(&["session", "show", session, "--json"]));
        shown["threads"][0]["entries"].as_array().unwrap().len()
    };
    let send = |id: &str| env.run(&["prompt", "more", "--session", session, "--id", id]);
    for _ in 0..2 {
        let output = send("job-1");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"two\n");
        assert_eq!(entries(), 4);
    }
    // A failed prompt fails again.
    let failed = send("job-2");
    let before = entries();
    let again = send("job-2");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert_eq!(again.stderr, failed.stderr);
    assert_eq!(entries(), before);
    // Without a session there is nothing to find the id in.
    let alone = env.run(&prompt(&["go", "--id", "job-3"]));
    assert_eq!(alone.status.code(), Some(2));
}

#[test]
fn prompt_with_an_id_continues_after_a_crash() {
    let env =
        env("steps: [{ text: one }, { text: 'two two', chunk_chars: 4, chunk_ms: 600000 }]\n");
    let session = outcome(&env.run(&prompt(&["go", "--json"])))["session"].clone();
    let args = ["prompt", "more", "--id", "job-1", "--json", "--session"];
    let args = [&args[..], &[session.as_str().unwrap()]].concat();
    let mut child = env.command().args(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let streams = lines.any(|line| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        line["type"] == "text_delta"
    });
    assert!(streams);
    child.kill().unwrap();
    child.wait().unwrap();
    env.write(
        "project/agent.yaml",
        "steps: [{ text: one }, { text: two }]\n",
    );
    for _ in 0..2 {
        assert_eq!(outcome(&env.run(&args))["answer"], "two");
    }
    let shown = json(&env.run(&["session", "show", session.as_str().unwrap(), "--json"]));
    let entries = shown["threads"][0]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 4, "{shown}");
}

#[test]
fn events_are_printed_immediately() {
    let script = "steps:\n  - { text: 'first second', chunk_chars: 6, chunk_ms: 600000 }\n";
    let env = env(script);
    let mut child = env
        .command()
        .args(prompt(&["go", "--json"]))
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let heard = lines.find_map(|line| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        line["data"]["text"].as_str().map(str::to_owned)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(heard.as_deref(), Some("first "));
}

#[test]
fn exit_codes() {
    let failing = "steps:\n  - { error: invalid_request }\n";
    let silent = "steps:\n  - { text: at last, delay_ms: 600000 }\n";
    let schema = "{\"type\":\"object\",\"required\":[\"n\"]}";
    for (script, more, code, error) in [
        (ACKNOWLEDGING_SCRIPT, &["go"][..], 0, Value::Null),
        (failing, &["go"], 1, "error".into()),
        (ACKNOWLEDGING_SCRIPT, &[], 2, "usage".into()),
        (
            ACKNOWLEDGING_SCRIPT,
            &["go", "--schema", "nowhere.json"],
            2,
            "bad_schema".into(),
        ),
        (
            BASH,
            &["go", "--sandbox", "local", "--no-wait"],
            5,
            "gate_pending".into(),
        ),
        (BASH, &["go", "--max-turns", "1"], 7, "limit".into()),
        (
            ACKNOWLEDGING_SCRIPT,
            &["go", "--schema", "n.json"],
            8,
            "invalid_result".into(),
        ),
        (
            ACKNOWLEDGING_SCRIPT,
            &["go", "--max-time", "0"],
            124,
            "limit".into(),
        ),
        (silent, &["go", "--max-time", "1"], 124, "limit".into()),
    ] {
        let env = env(script);
        env.write("project/n.json", schema);
        let reply = env.run(&prompt(more));
        assert_eq!(reply.status.code(), Some(code), "{more:?} {reply:?}");
        let output = env.run(&prompt(&[more, &["--json"]].concat()));
        assert_eq!(output.status.code(), Some(code), "{more:?} {output:?}");
        assert_eq!(outcome(&output)["error"]["code"], error, "{more:?}");
    }
}

#[test]
fn no_wait_prints_how_to_continue() {
    let env = env(BASH);
    let words = prompt(&["go", "--sandbox", "local", "--no-wait"]);
    let mut transcript = env.transcript(&[&words.join(" ")]);
    let output = env.run(&[&words[..], &["--json"]].concat());
    let last = outcome(&output);
    let (gate, id) = (
        last["error"]["gate"].as_str().unwrap(),
        last["session"].as_str().unwrap(),
    );
    let of_gates = lines(&output);
    let asked = of_gates.iter().find(|it| it["type"] == "decision_gate");
    assert_eq!(asked.unwrap()["data"]["gate"]["id"], gate);
    transcript += &env.transcript(&[
        &format!("gate approve {gate}"),
        &format!("session resume {id} --quiet"),
    ]);
    assert_transcript!(transcript);
}

/// `--no-wait` doesn't end calls that run concurrently with the gate.
#[test]
fn no_wait_lets_concurrent_calls_finish() {
    let deploy = "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
                  executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo out'\n";
    let of_its_own = "{ name: call_tool, args: { tool_id: 'rye:deploy', summary: ship } }";
    let of_a_task = "{ name: task, args: { prompt: x, model: 'scripted:gated.yaml' } }";
    let slow = "{ name: task, args: { prompt: x, model: 'scripted:slow.yaml' } }";
    for gated in [of_its_own, of_a_task] {
        let script = format!("steps: [{{ tool_calls: [{gated}, {slow}] }}, {{ text: done }}]\n");
        let env = env(&script);
        assert!(env.run(&["init"]).status.success());
        env.write("project/.ai/tools/deploy.yaml", deploy);
        assert!(env.run(&["sign", "deploy"]).status.success());
        let slept = "steps: [{ text: slept, delay_ms: 1500 }]\n";
        env.write("project/slow.yaml", slept);
        env.write("project/gated.yaml", BASH);
        let words = prompt(&["go", "--sandbox", "local", "--no-wait", "--json"]);
        let output = env.run(&words);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let id = outcome(&output)["session"].as_str().unwrap().to_owned();
        let shown = json(&env.run(&["session", "show", &id, "--json"]));
        let results = shown["threads"][0]["entries"].to_string();
        assert!(results.contains("slept"), "{results}");
        assert!(!results.contains("interrupted"), "{results}");
        assert_eq!(shown["pending_gates"].as_array().unwrap().len(), 1);
        // Its events were printed.
        let printed = lines(&output);
        assert!(
            printed.iter().any(|it| it["type"] == "tool_end"),
            "{printed:?}"
        );
    }
}

/// Queued prompts can't run before the gate is decided.
#[test]
fn no_wait_ignores_queued_prompts() {
    let call = "{ name: bash, args: { command: 'echo hi' } }";
    let env = env(&format!("steps: [{{ tool_calls: [{call}, {call}] }}]\n"));
    let output = env.run(&prompt(&["go", "--sandbox", "local", "--no-wait"]));
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[test]
fn quiet_does_not_hide_a_pending_gate() {
    let env = env(BASH);
    let words = prompt(&["go", "--sandbox", "local", "--quiet"]);
    let mut child = env.command().args(words).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let gate = short_gate_id(&wait_for_gate(&env, &mut errors));
    assert!(env.run(&["gate", "approve", &gate]).status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"It said: ran\n");
}

#[test]
fn time_limit_holds_although_limits_ask_and_prints_the_partial_answer() {
    let env = env("steps: [{ text: 'one two three', chunk_chars: 4, chunk_ms: 60000 }]\n");
    let file = "user/.ai/config/agent/approvals.yaml";
    env.write(file, "limits: ask\nrules: []\n");
    let output = env.run(&prompt(&["go", "--max-time", "2"]));
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert_eq!(output.stdout, b"one\n");
}

#[test]
fn edited_arguments_are_what_runs() {
    let env = env(BASH);
    let words = prompt(&["go", "--sandbox", "local", "--no-wait", "--json"]);
    let last = outcome(&env.run(&words));
    let (gate, id) = (
        last["error"]["gate"].as_str().unwrap(),
        last["session"].as_str().unwrap(),
    );
    // Arguments that don't match the schema are refused, and the gate stays pending.
    let refused = env.run(&[
        "gate",
        "approve",
        gate,
        "--arguments",
        "{\"order\":1}",
        "--json",
    ]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(json(&refused)["error"]["code"], "invalid_arguments");
    let fits = [
        "gate",
        "approve",
        gate,
        "--arguments",
        "{\"command\":\"echo other\"}",
    ];
    let approved = env.run(&fits);
    let shown = String::from_utf8_lossy(&approved.stdout);
    assert!(shown.contains("\"command\": \"echo other\""), "{shown}");
    let output = env.run(&["session", "resume", id]);
    let shown = env.run(&["session", "show", id]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    let decision = "approved by ada (cli), with edited arguments {\"command\":\"echo other\"}";
    assert!(shown.contains(decision), "{shown}");
    let reply = String::from_utf8_lossy(&output.stdout);
    assert!(reply.contains("ada edited the arguments"), "{reply}");
    assert!(reply.contains("other"), "{reply}");
    assert!(!env.path("project/out.txt").exists());
}

/// A script that fills the context window, answers, and continues after the compaction.
fn script_filling_the_window(answer: &str, then: &str) -> String {
    format!(
        "context_window: 20000\nmax_output: 500\nsteps:\n  - tool_calls: [{{ name: bash, args: {{ command: \
         'seq 8000' }} }}]\n  - {{ text: \"{answer}\", usage: {{ input: 19000, output: 900 }} }}\n{then}"
    )
}

#[test]
fn continuation_after_compaction_is_part_of_the_prompt() {
    let env = env(&script_filling_the_window(
        "the answer",
        "  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt; cat out.txt' } }]\n  \
         - { text: 'and then it ${last_tool_result}', delay_ms: 200 }\n",
    ));
    // A gate of the automatic continuation is like any other.
    let more = ["go", "--sandbox", "local", "--yes"];
    let output = env.run(&prompt(&more));
    let (reply, beside) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{beside}");
    assert_eq!(reply, "the answer\n\nand then it ran\n");
    let place = |text: &str| {
        beside
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {beside}"))
    };
    assert!(
        place("compacted") < place("user       Continue"),
        "{beside}"
    );
    assert!(place("user       Continue") < place("echo ran"), "{beside}");
    // Nothing is left in the queue.
    let id = json(&env.run(&["session", "list", "--json"]))["sessions"][0]["id"].clone();
    let again = env.run(&prompt(&["more", "--session", id.as_str().unwrap()]));
    assert_eq!(again.stdout, b"(end of script)\n", "{again:?}");
}

#[test]
fn events_of_the_continuation_are_printed() {
    let env = env(&script_filling_the_window(
        "the answer",
        "after_last: { text: noted }\n",
    ));
    let output = env.run(&prompt(&["go", "--json"]));
    let all = lines(&output);
    let kinds: Vec<_> = all.iter().map(|it| it["type"].as_str().unwrap()).collect();
    let wanted = ["turn_end", "compaction_start", "compaction_end", "turn_end"];
    let found: Vec<_> = kinds.iter().filter(|it| wanted.contains(it)).collect();
    assert_eq!(found, wanted.iter().collect::<Vec<_>>());
    assert_eq!(outcome(&output)["answer"], "the answer\n\nnoted");
}

#[test]
fn outcome_is_that_of_the_last_turn() {
    let env = env(&script_filling_the_window(
        "the answer",
        "  - { error: invalid_request }\n",
    ));
    let output = env.run(&prompt(&["go", "--json"]));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let last = outcome(&output);
    assert_eq!(
        (&last["end"], &last["error"]["code"]),
        (&"error".into(), &"error".into())
    );
    assert_eq!(last["answer"], "the answer");
}

#[test]
fn result_is_kept_if_the_agent_continues() {
    let env = env(&script_filling_the_window(
        "---RESULT_START---\\n{\\\"n\\\": 1}\\n---RESULT_END---",
        "after_last: { text: noted }\n",
    ));
    env.write(
        "project/n.json",
        "{\"type\":\"object\",\"required\":[\"n\"]}",
    );
    let output = env.run(&prompt(&["go", "--schema", "n.json", "--json"]));
    let last = outcome(&output);
    assert_eq!(output.status.code(), Some(0), "{last}");
    assert_eq!(last["result"]["n"], 1, "{last}");
    let turns = lines(&output)
        .into_iter()
        .filter(|it| it["type"] == "turn_end");
    assert_eq!(turns.count(), 2);
}

#[test]
fn continuation_uses_the_model_and_limits_of_the_prompt() {
    let env = env(&script_filling_the_window(
        "the answer",
        "after_last: { text: noted }\n",
    ));
    // No turns are left, which is not a failure.
    let output = env.run(&prompt(&["go", "--max-turns", "2"]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"the answer\n");
    // The third model call is the summary, which is not a turn of the prompt.
    let output = env.run(&prompt(&["go", "--max-turns", "3"]));
    assert_eq!(output.stdout, b"the answer\n\nnoted\n", "{output:?}");

    env.write(
        "project/other.yaml",
        "{ steps: [], after_last: { text: other } }",
    );
    let other = ["prompt", "hi", "--json", "--model", "scripted:other.yaml"];
    let id = outcome(&env.run(&other))["session"].clone();
    let script = script_filling_the_window("the answer", "after_last: { text: noted }\n");
    let script = script.replace("steps:\n", "steps:\n  - { text: one more }\n");
    env.write("project/agent.yaml", &script);
    let output = env.run(&prompt(&["go", "--session", id.as_str().unwrap()]));
    assert_eq!(output.stdout, b"the answer\n\nnoted\n", "{output:?}");
}

#[test]
fn newest_session_of_the_project_is_continued() {
    let env = TestEnv::new();
    env.write("project/two.yaml", "steps:\n  - text: one\n  - text: two\n");
    let go = |args: &[&str]| {
        let all = [
            &["prompt", "go", "--model", "scripted:two.yaml", "--json"],
            args,
        ]
        .concat();
        outcome(&env.run(&all))
    };
    let none = go(&["--continue"]);
    assert_eq!(none["error"]["code"], "not_found", "{none}");
    let first = go(&[]);
    let second = go(&["--continue"]);
    assert_eq!(second["session"], first["session"]);
    assert_eq!(second["answer"], "two");
}

#[test]
fn id_of_a_prompt_needs_a_session() {
    let env = TestEnv::new();
    let output = env.run(&["prompt", "go", "--id", "deploy-1", "--json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = &outcome(&output)["error"];
    assert_eq!(error["code"], "usage", "{error}");
    let hint = "rye prompt 'your task' --continue --id deploy-1";
    assert_eq!(error["hint"], hint, "{error}");
}

#[test]
fn attached_text_and_images_are_part_of_the_prompt() {
    let env = TestEnv::new();
    env.write("project/one.yaml", "steps:\n  - text: seen\n");
    env.write("project/app.log", "line 1\nline 2\n");
    env.write("project/data.bin", "\0\u{1}");
    std::fs::write(env.path("project/p.png"), b"\x89PNG\r\n\x1a\nrest").unwrap();
    let prompt = ["prompt", "look", "--model", "scripted:one.yaml", "--json"];
    let sent = [&prompt[..], &["--attach", "app.log", "--attach", "p.png"]].concat();
    let done = outcome(&env.run(&sent));
    let id = done["session"].as_str().unwrap();
    let shown = json(&env.run(&["session", "show", id, "--json"]));
    let parts = &shown["threads"][0]["entries"][0]["content"];
    let parts = if parts.is_null() {
        &shown["threads"][0]["entries"][0]["kind"]["parts"]
    } else {
        &parts["parts"]
    };
    let text = parts[0]["text"].as_str().unwrap();
    assert!(
        text.ends_with("<file path=\"app.log\">\nline 1\nline 2\n</file>"),
        "{text}"
    );
    assert_eq!(parts[1]["mime_type"], "image/png");
    for refused in ["data.bin", "missing.txt", "."] {
        let sent = [&prompt[..], &["--attach", refused]].concat();
        let output = env.run(&sent);
        assert_eq!(output.status.code(), Some(2), "{refused}");
    }
}
