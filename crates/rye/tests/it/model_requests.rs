//! The exact requests that models of each family get: base system prompt, environment,
//! instructions, tools and history.

use crate::support::{TestEnv, outcome};
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::{Value, json};

/// Providers' APIs with their names in `models.yaml`.
const APIS: [(&str, Api); 4] = [
    ("anthropic", Api::Anthropic),
    ("openai-responses", Api::OpenAiResponses),
    ("openai-chat", Api::OpenAiChat),
    ("gemini", Api::Gemini),
];

/// Options for a sandbox that is the same on every machine.
const VIRTUAL: [&str; 2] = ["--sandbox", "virtual"];
/// Maximum estimated tokens of the base prompt and the built-in tools.
const MAX_TOKENS: usize = 4_000;

fn with_model(api: &str, provider: &MockProvider) -> TestEnv {
    let env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         providers:\n  \
           local:\n    \
             api: {api}\n    \
             base_url: {}/v1\n    \
             models: {{ x: {{ context_window: 100000, max_output: 1000 }} }}\n",
        provider.url()
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env
}

/// A provider whose model calls a tool and then answers, for each prompt.
fn provider(api: Api) -> MockProvider {
    MockProvider::new(move |number, _| {
        Reply::stream(api.stream(&match number % 2 {
            0 => Completion::call("call_1", "glob", json!({ "pattern": "*" })),
            _ => Completion::text("Done."),
        }))
    })
}

/// The two requests of a prompt.
fn requests(env: &TestEnv, provider: &MockProvider, args: &[&str]) -> [Value; 2] {
    let output = env.run(&[&["prompt", "look", "--json"], args].concat());
    assert_eq!(outcome(&output)["answer"], "Done.", "{output:?}");
    let mut requests = provider.requests();
    let mut last = || requests.pop().unwrap().body;
    let second = last();
    [last(), second]
}

/// The body as JSON whose strings have line breaks instead of `\n`.
fn readable(body: &Value) -> String {
    let text = serde_json::to_string_pretty(body).unwrap();
    text.replace("\\n", "\n")
}

/// The texts of the system prompt.
fn system(api: Api, body: &Value) -> &Value {
    match api {
        Api::Anthropic => &body["system"],
        Api::OpenAiResponses => &body["instructions"],
        Api::OpenAiChat => &body["messages"][0],
        Api::Gemini => &body["systemInstruction"],
    }
}

macro_rules! assert_request {
    ($name:expr, $text:expr) => {
        insta::with_settings!({
            omit_expression => true,
            filters => [
                (r"\d{4}-\d\d-\d\d", "DATE"),
                (r"/tmp/\.tmp\w+", "TMP"),
                (r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID"),
            ],
        }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}

#[test]
fn request_has_the_base_prompt_the_instructions_the_tools_and_the_history() {
    let mut sizes = Vec::new();
    for (name, api) in APIS {
        let provider = provider(api);
        let env = with_model(name, &provider);
        let [bare, _] = requests(&env, &provider, &VIRTUAL);
        let size = |value: &Value| value.to_string().len().div_ceil(4);
        let (system, tools) = (size(system(api, &bare)), size(&bare["tools"]));
        assert!(system > 300 && tools > 1_000, "{name}: {bare:#}");
        assert!(system + tools <= MAX_TOKENS, "{name}: {system} + {tools}");
        sizes.push(format!(
            "{name}: system {system}, tools {tools}, {}",
            system + tools
        ));

        env.write("user/.ai/AGENTS.md", "Be brief.\n");
        env.write("project/AGENTS.md", "Use tabs.\n");
        env.write("project/.ai/roles/reviewer.md", "You review.\n");
        let args = [&VIRTUAL[..], &["--role", "reviewer"]].concat();
        let [_, with_files] = requests(&env, &provider, &args);
        assert_request!(name, readable(&with_files));
    }
    let text = format!("tokens, estimated as 4 bytes each\n{}", sizes.join("\n"));
    assert_request!("sizes", text);
}

#[test]
fn environment_describes_the_workspace_and_the_sandbox() {
    let api = Api::Anthropic;
    let provider = provider(api);
    let env = with_model("anthropic", &provider);
    env.write("project/.git/HEAD", "ref: refs/heads/topic\n");
    let [body, _] = requests(&env, &provider, &["--sandbox", "local"]);
    let text = system(api, &body).to_string();
    let project = std::fs::canonicalize(env.path("project")).unwrap();
    for expected in [
        &format!("Workspace: {}", project.display()),
        "Git branch: topic",
        &format!(
            "Platform: {} {}",
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
        "A person approves each command.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn session_role_and_team_replace_the_base_prompt() {
    let api = Api::OpenAiChat;
    let provider = provider(api);
    let env = with_model("openai-chat", &provider);
    let text = |args: &[&str]| {
        let [_, body] = requests(&env, &provider, args);
        system(api, &body).to_string()
    };
    let base = "You are an agent that works for a person through Rye";
    assert!(text(&VIRTUAL).contains(base));
    // The session.
    env.write("project/pirate.md", "You are a pirate.\n");
    let pirate = text(&["--system", "pirate.md"]);
    assert!(
        pirate.contains("You are a pirate.") && !pirate.contains(base),
        "{pirate}"
    );
    // Later prompts of the session have it as well.
    let listed = crate::support::json(&env.run(&["session", "list", "--json"]));
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    let again = text(&["--session", id]);
    assert!(again.contains("You are a pirate."), "{again}");
    let missing = env.run(&["prompt", "hi", "--system", "none.md"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    // A role.
    env.write(
        "project/.ai/roles/poet.md",
        "---\nsystem: replace\n---\nYou rhyme.\n",
    );
    let poet = text(&["--role", "poet"]);
    assert!(
        poet.contains("You rhyme.") && !poet.contains(base),
        "{poet}"
    );
    // The project's own item, which must be signed.
    let item = "project/.ai/knowledge/rye/agent/system.md";
    assert!(env.run(&["init"]).status.success());
    env.write(item, "---\ntitle: Ours\n---\n\nYou work for the team.\n");
    let unsigned = env.run(&["prompt", "hi"]);
    let message = String::from_utf8_lossy(&unsigned.stderr);
    assert!(
        !unsigned.status.success() && message.contains("rye sign"),
        "{message}"
    );
    let signed = env.run(&["sign", "knowledge:rye/agent/system"]);
    assert!(signed.status.success(), "{signed:?}");
    let team = text(&VIRTUAL);
    assert!(
        team.contains("You work for the team.") && !team.contains(base),
        "{team}"
    );
}
