//! What an editor chooses in a session of `rye acp`: mode, model and slash commands.

use crate::acp_support::{RawClient, env};
use crate::support::TestEnv;
use serde_json::{Value, json};

/// An editor whose agent works in the sandbox `local`, which asks before commands, but not before
/// changes of files.
fn start(env: &TestEnv, sandbox: &str) -> RawClient {
    let model = format!("scripted:{}", env.path("project/agent.yaml").display());
    let args = ["acp", "--model", &model, "--sandbox", sandbox];
    let mut client = RawClient::start_with(env, &args);
    client.initialise(json!({}));
    client
}

/// A script that writes these files, each in a turn of its own.
fn writes(files: &[&str]) -> String {
    let turn = |file: &&str| {
        format!(
            "  - tool_calls: [{{ name: write, args: {{ path: {file}, content: x }} }}]\n  \
             - text: '${{last_tool_result}}'\n"
        )
    };
    format!("steps:\n{}", files.iter().map(turn).collect::<String>())
}

fn set_mode(client: &mut RawClient, session: &str, mode: &str) -> Value {
    let params = json!({ "sessionId": session, "modeId": mode });
    client.request("session/set_mode", params)
}

fn set_option(client: &mut RawClient, session: &str, option: &str, value: &str) -> Value {
    let params = json!({ "sessionId": session, "configId": option, "value": value });
    client.request("session/set_config_option", params)
}

/// The current value of an option in a response.
fn current<'a>(response: &'a Value, option: &str) -> &'a Value {
    let options = response["result"]["configOptions"].as_array();
    let options = options.unwrap_or_else(|| panic!("{response}"));
    let found = options.iter().find(|it| it["id"] == option).unwrap();
    &found["currentValue"]
}

/// Sends a prompt that must end normally, and returns the text of the answer.
fn ask(client: &mut RawClient, session: &str, text: &str) -> String {
    client.take_skipped();
    let answered = client.send_prompt(session, text);
    let response = client.response(answered);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    let messages = client.take_skipped();
    let updates = messages.iter().map(|it| &it["params"]["update"]);
    let chunks = updates.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    let texts = chunks.filter_map(|it| it["content"]["text"].as_str());
    texts.collect()
}

#[test]
fn mode_decides_what_runs_without_asking() {
    let env = env(&writes(&["a.txt", "b.txt", "c.txt", "d.txt"]));
    let mut client = start(&env, "local");
    let params = json!({ "cwd": env.path("project"), "mcpServers": [] });
    let created = client.request("session/new", params);
    let session = created["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(created["result"]["modes"]["currentModeId"], "auto");
    let modes = created["result"]["modes"]["availableModes"]
        .as_array()
        .unwrap();
    let modes: Vec<_> = modes
        .iter()
        .map(|mode| mode["id"].as_str().unwrap())
        .collect();
    assert_eq!(modes, ["ask", "auto", "read_only"]);
    let exists = |file: &str| env.path(&format!("project/{file}")).exists();

    ask(&mut client, &session, "write a");
    assert!(exists("a.txt"));

    assert_eq!(set_mode(&mut client, &session, "ask")["result"], json!({}));
    assert_eq!(client.update("current_mode_update")["currentModeId"], "ask");
    let answered = client.send_prompt(&session, "write b");
    let request = client.choose("deny");
    assert_eq!(request["params"]["toolCall"]["title"], "write: b.txt");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    assert!(!exists("b.txt"));

    let chosen = set_option(&mut client, &session, "mode", "read_only");
    assert_eq!(current(&chosen, "mode"), "read_only");
    let answer = ask(&mut client, &session, "write c");
    assert!(answer.contains("read-only"), "{answer}");
    assert!(!exists("c.txt"));

    // The mode belongs to the session.
    assert_eq!(client.stop(), Some(0));
    let mut client = start(&env, "local");
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    let loaded = client.request("session/load", load);
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "read_only");
    assert_eq!(current(&loaded, "mode"), "read_only");
    set_mode(&mut client, &session, "auto");
    ask(&mut client, &session, "write d");
    assert!(exists("d.txt"));
    let verified = env.run(&["session", "verify", &session]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn read_only_mode_holds_for_commands_items_and_tasks() {
    let careful = "{ name: call_tool, args: { tool_id: 'rye:careful', params: {}, summary: x } }";
    let env = env(&format!(
        "steps:
  - tool_calls:
      - {{ name: bash, args: {{ command: touch bash.txt }} }}
      - {careful}
      - {{ name: task, args: {{ prompt: do it, model: 'scripted:task.yaml' }} }}
      - {{ name: list_tools, args: {{}} }}
  - text: done
"
    ));
    env.write("project/task.yaml", &writes(&["task.txt"]));
    for sandbox in ["local", "virtual"] {
        let mut client = start(&env, sandbox);
        let session = client.new_session(&env);
        set_mode(&mut client, &session, "read_only");
        let answered = client.send_prompt(&session, "go");
        let response = client.response(answered);
        assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
        let messages = client.take_skipped();
        assert!(
            messages
                .iter()
                .all(|it| it["method"] != "session/request_permission")
        );
        let updates = messages.iter().map(|it| &it["params"]["update"]);
        let statuses: Vec<_> = updates.filter_map(|it| it["status"].as_str()).collect();
        let count = |status: &str| statuses.iter().filter(|it| **it == status).count();
        assert_eq!(
            (count("failed"), count("completed")),
            (2, 2),
            "{statuses:?}"
        );
        for file in ["bash.txt", "careful.txt", "task.txt"] {
            assert!(!env.path(&format!("project/{file}")).exists(), "{file}");
        }
    }
}

#[test]
fn unknown_choices_are_refused_with_a_reason() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let mut client = start(&env, "virtual");
    let session = client.new_session(&env);
    for (refused, reason) in [
        (
            set_mode(&mut client, &session, "yolo"),
            "there is no mode `yolo`",
        ),
        (set_mode(&mut client, "x", "ask"), "there is no session x"),
        (
            set_option(&mut client, &session, "colour", "red"),
            "the option `colour` has no value",
        ),
        (
            set_option(&mut client, &session, "model", "no/such"),
            "unknown model",
        ),
    ] {
        let message = refused["error"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{refused}"));
        assert!(message.starts_with(reason), "{message}");
    }
    assert_eq!(ask(&mut client, &session, "hi"), "noted");
}

#[test]
fn chosen_model_answers_and_stays_chosen() {
    let env = env("{ steps: [], after_last: { text: first model } }");
    env.write(
        "project/other.yaml",
        "{ steps: [], after_last: { text: other model } }",
    );
    let other = format!("scripted:{}", env.path("project/other.yaml").display());
    let mut client = start(&env, "virtual");
    let session = client.new_session(&env);
    assert_eq!(ask(&mut client, &session, "hi"), "first model");
    let chosen = set_option(&mut client, &session, "model", &other);
    assert_eq!(current(&chosen, "model"), &json!(other));
    assert_eq!(ask(&mut client, &session, "hi"), "other model");
    assert_eq!(client.stop(), Some(0));
    let mut client = start(&env, "virtual");
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    let loaded = client.request("session/load", load);
    assert_eq!(current(&loaded, "model"), &json!(other));
    assert_eq!(ask(&mut client, &session, "hi"), "other model");
}

#[test]
fn slash_commands_are_announced_and_run() {
    let env = env(
        "steps:
  - tool_calls:
      - { name: plan, args: { steps: [{ text: look, status: done }, { text: write, status: pending }] } }
      - { name: write, args: { path: a.txt, content: \"one\\n\" } }
  - text: written
  - text: 'you said ${prompt}'
",
    );
    let mut client = start(&env, "local");
    let session = client.new_session(&env);
    let available = client.update("available_commands_update");
    let commands = available["availableCommands"].as_array().unwrap();
    let undo = commands.iter().find(|it| it["name"] == "undo").unwrap();
    assert_eq!(undo["input"]["hint"], "[TURN] [FILE] [--force]");
    let plan = ask(&mut client, &session, "/plan");
    assert_eq!(plan.trim(), "There is no plan.");
    ask(&mut client, &session, "write");
    let plan = ask(&mut client, &session, "/plan");
    assert_eq!(plan.trim(), "- [x] look\n- [ ] write");
    let diff = ask(&mut client, &session, "/diff");
    assert!(diff.contains("created `a.txt` (+1 -0)"), "{diff}");
    assert!(diff.contains("+one"), "{diff}");
    let undone = ask(&mut client, &session, "/undo a.txt");
    assert!(undone.contains("Removed `a.txt`."), "{undone}");
    assert!(!env.path("project/a.txt").exists());
    let status = ask(&mut client, &session, "/status");
    assert!(status.contains(&session), "{status}");
    assert!(status.contains("- mode: `Auto`"), "{status}");
    let compacted = ask(&mut client, &session, "/compact");
    assert!(!compacted.trim().is_empty());
    for name in ["help", "model", "role", "skill", "tools", "gates", "review"] {
        let answer = ask(&mut client, &session, &format!("/{name}"));
        assert!(!answer.trim().is_empty(), "{name}");
    }
    let unknown = ask(&mut client, &session, "/frobnicate now");
    assert_eq!(
        unknown.trim(),
        "Unknown command `/frobnicate`; `/help` lists the commands."
    );
    let usage = ask(&mut client, &session, "/undo 0");
    assert_eq!(usage.trim(), "Usage: `/undo [TURN] [FILE] [--force]`");
    // A path is a prompt; commands are not part of the history.
    ask(&mut client, &session, "/usr/bin/env is missing");
    let shown = crate::support::json(&env.run(&["session", "show", &session, "--json"]));
    let entries = shown["threads"][0]["entries"].as_array().unwrap();
    let of_user = entries
        .iter()
        .filter(|it| it["kind"]["role"] == "user" && it["kind"]["synthetic"].is_null());
    let texts: Vec<_> = of_user
        .filter_map(|it| it["kind"]["parts"][0]["text"].as_str())
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[1].contains("/usr/bin/env is missing"), "{texts:?}");
}
