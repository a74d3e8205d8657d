//! Roles, skills, rules, results, replay and compaction on the command line.

use crate::support::{TestEnv, json, outcome};
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::{Value, json as value};

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A `TestEnv` whose user has the models `local/x` and `local/y`.
fn with_model(provider: &MockProvider) -> TestEnv {
    let env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         retry: {{ max_attempts: 2, initial_delay_ms: 1 }}\n\
         providers:\n  \
           local: {{ api: openai-chat, base_url: {}/v1, models: {{ x: {{}}, y: {{}} }} }}\n",
        provider.url()
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env
}

fn provider_answering(texts: &[&str]) -> MockProvider {
    let replies = texts.iter().map(|text| {
        let stream = Api::OpenAiChat.stream(&Completion::text(*text));
        Reply::stream(stream)
    });
    MockProvider::with_replies(replies.collect::<Vec<_>>())
}

fn system_prompt(provider: &MockProvider, at: usize) -> String {
    let body = &provider.requests()[at].body;
    body["messages"][0]["content"].to_string()
}

fn session_count(env: &TestEnv) -> usize {
    let listed = json(&env.run(&["session", "list", "--json"]));
    listed["sessions"].as_array().map_or(0, Vec::len)
}

#[test]
fn role_rules_and_skills_are_in_the_system_prompt() {
    let provider = provider_answering(&["Fine.", "Fine again."]);
    let env = with_model(&provider);
    env.write(
        "project/.ai/roles/reviewer.md",
        "---\ndescription: Reviews.\nmodel: local/y\n---\nYou review, and nothing else.\n",
    );
    env.write("project/AGENTS.md", "Tabs, not spaces.\n");
    env.write(
        "user/.ai/skills/release/SKILL.md",
        "---\ndescription: How to release.\n---\nTag {{version}}.\n",
    );
    let output = env.run(&["prompt", "review it", "--role", "reviewer"]);
    assert_eq!(stdout(&output), "Fine.\n", "{}", stderr(&output));
    let output_text = system_prompt(&provider, 0);
    for words in [
        "You review, and nothing else.",
        "Tabs, not spaces.",
        "release: How to release. (needs version)",
    ] {
        assert!(output_text.contains(words), "{words}: {output_text}");
    }
    assert_eq!(
        provider.requests()[0].body["model"],
        "y",
        "the role's model"
    );
    let tools = provider.requests()[0].body["tools"].to_string();
    assert!(tools.contains("\"skill\""), "{tools}");
    // The prompt's model overrides the role's.
    let args = [
        "prompt", "again", "--role", "reviewer", "--model", "local/x",
    ];
    assert!(env.run(&args).status.success());
    assert_eq!(provider.requests()[1].body["model"], "x");
}

#[test]
fn thread_can_have_its_own_role_and_model() {
    let provider = provider_answering(&["One.", "Two.", "Three.", "Four.", "Five."]);
    let env = with_model(&provider);
    for (name, text) in [("reviewer", "You review."), ("poet", "You rhyme.")] {
        env.write(&format!("project/.ai/roles/{name}.md"), text);
    }
    let first = outcome(&env.run(&["prompt", "hi", "--json"]));
    let id = first["session"].as_str().unwrap();
    let thread = |args: &[&str]| env.run(&[&["session", "thread", id], args].concat());
    let ask = |args: &[&str]| {
        let output = env.run(&[&["prompt", "go", "--session", id], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let last = provider.requests().len() - 1;
        let model = provider.requests()[last].body["model"].clone();
        (
            system_prompt(&provider, last),
            model.as_str().unwrap().to_owned(),
        )
    };
    // An unknown role is not stored.
    let unknown = thread(&["--thread", "review", "--role", "critic"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("there is no role `critic`"));
    let shown = json(&env.run(&["session", "show", id, "--json"]));
    assert_eq!(shown["threads"].as_array().unwrap().len(), 1);

    let own = [
        "--thread", "review", "--role", "reviewer", "--model", "local/y",
    ];
    assert_eq!(
        stdout(&thread(&own)),
        "thread review\n  role   reviewer\n  model  local/y\n  mode   followup\n"
    );
    let (output_text, model) = ask(&["--thread", "review"]);
    assert!(output_text.contains("You review."), "{output_text}");
    assert_eq!(model, "y");
    // Another thread is not affected, and a prompt overrides both.
    let (output_text, model) = ask(&[]);
    assert!(!output_text.contains("You review."), "{output_text}");
    assert_eq!(model, "x");
    let (output_text, _) = ask(&["--thread", "review", "--role", "poet"]);
    assert!(
        output_text.contains("You rhyme.") && !output_text.contains("You review."),
        "{output_text}"
    );

    let taken_back = thread(&["--thread", "review", "--role", "none", "--mode", "steer"]);
    assert_eq!(
        stdout(&taken_back),
        "thread review\n  role   (session default)\n  model  local/y\n  mode   steer\n"
    );
    let (output_text, _) = ask(&["--thread", "review"]);
    assert!(!output_text.contains("You review."), "{output_text}");
    // Each prompt is replayed with its own role.
    let same = env.run(&["replay", id]);
    assert_eq!(
        stdout(&same),
        "identical: 5 prompts, 10 entries\n",
        "{}",
        stderr(&same)
    );
}

#[test]
fn skill_variables_are_filled_in_or_reported_missing() {
    let provider = provider_answering(&["Released."]);
    let env = with_model(&provider);
    env.write(
        "project/.ai/skills/release.md",
        "Tag {{version}} on {{branch}}.\n",
    );
    let missing = env.run(&["prompt", "go", "--skill", "release", "--var", "version=1.2"]);
    let words = stderr(&missing);
    assert_eq!(missing.status.code(), Some(1));
    assert!(words.contains("skill `release` needs `branch`"), "{words}");
    let none = stderr(&env.run(&["prompt", "go", "--skill", "releases"]));
    assert!(
        none.contains("there is no skill `releases`; available: `release`"),
        "{none}"
    );
    assert_eq!((session_count(&env), provider.requests().len()), (0, 0));
    let args = [
        "prompt",
        "go",
        "--skill",
        "release",
        "--var",
        "version=1.2",
        "--var",
        "branch=main",
    ];
    let output = env.run(&args);
    assert_eq!(stdout(&output), "Released.\n", "{}", stderr(&output));
    let asked = provider.requests()[0].body["messages"].to_string();
    assert!(asked.contains("Tag 1.2 on main."), "{asked}");
}

#[test]
fn invalid_prompt_creates_no_session() {
    let provider = provider_answering(&[]);
    let env = with_model(&provider);
    env.write("project/.ai/roles/broken.md", "---\ncolour: x\n---\nBe.\n");
    for (args, words) in [
        (
            vec!["prompt", "hi", "--model", "local/z"],
            "unknown model `local/z`; did you mean",
        ),
        (
            vec!["prompt", "hi", "--role", "reviewer"],
            "there is no role `reviewer`; available: `broken`",
        ),
        (
            vec!["prompt", "hi", "--role", "broken"],
            "role `broken`: unknown field",
        ),
    ] {
        let output = env.run(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let output_text = stderr(&output);
        assert!(output_text.contains(words), "{args:?}: {output_text}");
    }
    assert_eq!((session_count(&env), provider.requests().len()), (0, 0));
}

const RESULT: &str = "So:\n---RESULT_START---\n{\"n\": 1}\n---RESULT_END---";

#[test]
fn invalid_result_is_requested_once_more() {
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
    let provider = provider_answering(&["One.", RESULT, "One.", "Still one."]);
    let env = with_model(&provider);
    env.write("project/n.json", schema);
    let file = env.path("project/n.json");
    let file = file.to_str().unwrap();
    let output = env.run(&["prompt", "count", "--schema", file]);
    let printed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(printed, value!({ "n": 1 }), "{}", stderr(&output));
    assert!(system_prompt(&provider, 0).contains("---RESULT_START---"));
    let second = provider.requests()[1].body["messages"].to_string();
    assert!(
        second.contains("missing line ---RESULT_START---"),
        "{second}"
    );
    let failed = env.run(&["prompt", "count", "--schema", file]);
    assert_eq!(failed.status.code(), Some(8));
    let words = stderr(&failed);
    assert!(
        words.contains("invalid result after a correction"),
        "{words}"
    );
    assert_eq!(provider.requests().len(), 4);
    env.write("project/n.json", r#"{"type": 1}"#);
    let gone = env.run(&["prompt", "count", "--schema", "no-such.json"]);
    let output_text = String::from_utf8_lossy(&gone.stderr);
    assert_eq!(gone.status.code(), Some(2), "{output_text}");
    assert!(
        output_text.contains("no-such.json: No such file or directory"),
        "{output_text}"
    );
    let wrong = env.run(&["prompt", "count", "--schema", file]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
}

const SCRIPT: &str = "steps:\n\
    - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]\n\
    - text: 'It said: ${last_tool_result}'\n\
    - text: Bye.\n";

#[test]
fn session_replays_bit_for_bit_until_something_changes() {
    let env = TestEnv::new();
    env.write("project/demo.yaml", SCRIPT);
    let first = outcome(&env.run(&["prompt", "hi", "--model", "scripted:demo.yaml", "--json"]));
    let id = first["session"].as_str().unwrap();
    assert!(
        env.run(&["prompt", "bye", "--session", id])
            .status
            .success()
    );
    let same = env.run(&["replay", id]);
    assert_eq!(
        stdout(&same),
        "identical: 2 prompts, 6 entries\n",
        "{}",
        stderr(&same)
    );
    let file = env.path("project/work.jsonl");
    let file = file.to_str().unwrap();
    assert!(
        env.run(&["session", "export", id, "--output", file])
            .status
            .success()
    );
    assert!(env.run(&["replay", file]).status.success());
    // The system prompt changes, and the model is removed.
    env.write("project/AGENTS.md", "Be brief.\n");
    std::fs::remove_file(env.path("project/demo.yaml")).unwrap();
    let changed = env.run(&["replay", file]);
    assert_eq!(changed.status.code(), Some(1));
    let words = stdout(&changed);
    for expected in [
        "system prompt differs\n",
        "  + Be brief.\n",
        "model scripted:demo.yaml differs\n",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    let all = json(&env.run(&["replay", file, "--json"]));
    assert_eq!(all["differences"].as_array().unwrap().len(), 2, "{all:#}");
}

#[test]
fn exported_script_reproduces_the_session() {
    let env = TestEnv::new();
    env.write("project/demo.yaml", SCRIPT);
    let first = outcome(&env.run(&["prompt", "hi", "--model", "scripted:demo.yaml", "--json"]));
    let id = first["session"].as_str().unwrap();
    let file = env.path("project/again.yaml");
    let args = [
        "session",
        "export",
        id,
        "--script",
        "--output",
        file.to_str().unwrap(),
    ];
    let written = env.run(&args);
    assert!(written.status.success(), "{}", stderr(&written));
    let again = env.run(&["prompt", "hi", "--model", "scripted:again.yaml"]);
    assert_eq!(stdout(&again), "It said: hi\n", "{}", stderr(&again));
}

#[test]
fn history_is_compacted_and_the_compaction_undone() {
    let env = TestEnv::new();
    let made = env.run(&["keys", "generate", "--owner", "ada"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let long = "word ".repeat(4_000);
    let script = format!("steps:\n  - text: '{long}'\n  - text: short\n  - text: more\n");
    env.write("project/demo.yaml", &script);
    let first = outcome(&env.run(&["prompt", "hi", "--model", "scripted:demo.yaml", "--json"]));
    let id = first["session"].as_str().unwrap();
    for prompt in ["and?", "so?"] {
        assert!(
            env.run(&["prompt", prompt, "--session", id])
                .status
                .success()
        );
    }
    let done = env.run(&["session", "compact", id]);
    assert!(
        stdout(&done).starts_with("compacted "),
        "{}{}",
        stdout(&done),
        stderr(&done)
    );
    let again = env.run(&["session", "compact", id]);
    assert_eq!(stdout(&again), "nothing to compact\n");
    let verified = env.run(&["session", "verify", id]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    let undone = env.run(&["session", "compact", id, "--undo"]);
    assert_eq!(stdout(&undone), "compaction undone\n");
    assert_eq!(
        env.run(&["session", "compact", id, "--undo"]).status.code(),
        Some(1)
    );
    let verified = env.run(&["session", "verify", id]);
    assert!(verified.status.success(), "{}", stderr(&verified));
}

#[test]
fn integer_beyond_64_bits_in_a_call_keeps_its_digits() {
    let large = "123456789012345678901234567890";
    let arguments = format!("{{\"pattern\": \"*\", \"limit\": {large}}}");
    let call = value!({ "index": 0, "id": "c1", "type": "function",
        "function": { "name": "glob", "arguments": arguments } });
    let chunk = |delta: Value, reason: Value| {
        let choice = value!({ "index": 0, "delta": delta, "finish_reason": reason });
        let chunk = value!({ "id": "x", "object": "chat.completion.chunk", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let events = [
        chunk(
            value!({ "role": "assistant", "tool_calls": [call] }),
            Value::Null,
        ),
        chunk(value!({}), value!("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let done = Api::OpenAiChat.stream(&Completion::text("done"));
    let provider =
        MockProvider::with_replies([Reply::stream(events.concat()), Reply::stream(done)]);
    let env = with_model(&provider);
    let output = env.run(&["prompt", "go"]);
    assert!(output.status.success(), "{output:?}");
    let messages = provider.requests()[1].body["messages"].clone();
    let result = messages.as_array().and_then(|all| all.last()).unwrap();
    assert_eq!(result["role"], "tool", "{messages}");
    let text = result["content"].to_string();
    assert!(text.contains(large), "{text}");
}
