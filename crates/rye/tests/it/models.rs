//! `rye models`, and `rye prompt` with mock providers that speak the real
//! wire formats.

use crate::support::{TestEnv, assert_transcript, json, outcome, transcript_entry};
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::{Value, json as value};

const APIS: [(&str, Api); 4] = [
    ("anthropic", Api::Anthropic),
    ("openai-responses", Api::OpenAiResponses),
    ("openai-chat", Api::OpenAiChat),
    ("gemini", Api::Gemini),
];

/// A `TestEnv` whose user has a model `local/x`.
fn with_model(api: &str, provider: &MockProvider, more: &str) -> TestEnv {
    let env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         providers:\n  \
           local:\n    \
             api: {api}\n    \
             base_url: {}/v1\n    \
             {more}\n    \
             models: {{ x: {{ context_window: 8000, max_output: 1000, price: {{ input: 1, output: 2 }} }} }}\n",
        provider.url()
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn prompt_with_tools_works_with_every_provider() {
    for (name, api) in APIS {
        let call = Completion::call("call_1", "bash", value!({ "command": "echo grüße" }));
        let provider = MockProvider::with_replies([
            Reply::stream(api.stream(&call)).in_chunks_of(3),
            Reply::stream(api.stream(&Completion::text("It said grüße."))).with_keep_alives(),
        ]);
        let env = with_model(name, &provider, "");
        let output = env.run(&["prompt", "say it", "--model", "local/x", "--json"]);
        let reply = outcome(&output);
        assert_eq!(
            reply["answer"],
            "It said grüße.",
            "{name}: {}",
            stderr(&output)
        );
        let requests = provider.requests();
        assert_eq!(requests.len(), 2, "{name}");
        let second = requests[1].body.to_string();
        assert!(second.contains("grüße"), "{name}: {second}");
        // The session shows the model and the cost.
        let shown = env.run(&[
            "session",
            "show",
            reply["session"].as_str().unwrap(),
            "--json",
        ]);
        assert!(json(&shown).to_string().contains("local/x"), "{name}");
    }
}

#[test]
fn key_comes_from_the_environment_or_the_vault_and_is_not_stored() {
    let reply = Api::OpenAiChat.stream(&Completion::text("Hello."));
    let provider = MockProvider::with_replies([Reply::stream(reply)]);
    let mut env = with_model("openai-chat", &provider, "api_key_env: SOME_API_KEY");
    let missing = env.run(&["models", "test"]);
    assert_transcript!(transcript_entry("rye models test", &missing));
    let kept = env.feed(&["vault", "set", "SOME_API_KEY"], b"sk-from-the-vault");
    assert!(kept.status.success(), "{}", stderr(&kept));
    let asked = || provider.requests().pop().unwrap().headers["authorization"].clone();
    let output = env.run(&["prompt", "hello"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Hello.\n",
        "{}",
        stderr(&output)
    );
    assert_eq!(asked(), "Bearer sk-from-the-vault");
    let record = std::fs::read(env.path("user/.local/state/rye/sessions.db")).unwrap();
    assert!(!record.windows(17).any(|it| it == b"sk-from-the-vault"));
    env.set("SOME_API_KEY", "sk-from-the-environment");
    assert!(env.run(&["models", "test"]).status.success());
    assert_eq!(asked(), "Bearer sk-from-the-environment");
}

#[test]
fn models_test_reports_success_and_failure() {
    let mut reply = Completion::text("ready");
    (reply.input_tokens, reply.output_tokens) = (20, 10);
    let provider = MockProvider::with_replies([
        Reply::stream(Api::OpenAiChat.stream(&reply)),
        Reply::json(
            401,
            &Api::OpenAiChat.error_body(401, "Incorrect API key provided: sk-x."),
        ),
    ]);
    let mut env = with_model("openai-chat", &provider, "api_key_env: SOME_API_KEY");
    env.set("SOME_API_KEY", "sk-x");
    let tested = json(&env.run(&["models", "test", "local/x", "--json"]));
    assert_eq!(
        (&tested["name"], &tested["answer"]),
        (&value!("local/x"), &value!("ready"))
    );
    assert_eq!(tested["usage"]["micro_dollars"], 20 + 2 * 10);
    assert!(tested["took_ms"].as_u64() >= tested["first_ms"].as_u64());
    let wrong = env.run(&["models", "test"]);
    let words = stderr(&wrong);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        words.contains("Incorrect API key provided: [redacted]"),
        "{words}"
    );
    assert!(words.contains("variable SOME_API_KEY"), "{words}");
    drop(provider);
    let gone = stderr(&env.run(&["models", "test"]));
    assert!(gone.contains("the connection to the model broke"), "{gone}");
}

/// A server that accepts connections and never answers.
fn silent_server() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn models_without_a_key_are_ready_if_their_server_answers() {
    let running = MockProvider::new(|_, request| match request.path.as_str() {
        "/v1/models" => Reply::json(200, &value!({ "data": [] })),
        _ => Reply::json(404, &value!({})),
    });
    let other = MockProvider::new(|_, _| Reply::json(404, &value!({})));
    let loading = MockProvider::new(|_, _| Reply::json(503, &value!({})));
    let (_silent, silent) = silent_server();
    let (_silent_too, silent_too) = silent_server();
    let (closed_listener, closed) = silent_server();
    drop(closed_listener);
    let mut env = TestEnv::new();
    env.unset("ANTHROPIC_API_KEY");
    let keyed = format!("{closed}/keyed");
    let urls = [
        ("running", running.url(), ""),
        ("other", other.url(), ""),
        ("loading", loading.url(), ""),
        ("silent", silent, ""),
        ("silent2", silent_too, ""),
        ("closed", closed.clone(), ""),
        ("keyed", keyed, "api_key_env: SOME_API_KEY, "),
    ];
    let providers = urls.map(|(name, url, key)| {
        format!(
            "  {name}: {{ api: openai-chat, base_url: '{url}/v1', {key}models: {{ x: {{}}, y: {{}} }} }}\n"
        )
    });
    let text = format!("allow: ['*']\nproviders:\n{}", providers.concat());
    env.write("user/.ai/config/agent/models.yaml", &text);
    env.set("SOME_API_KEY", "sk-x");
    let began = std::time::Instant::now();
    let listed = json(&env.run(&["models", "list", "--json"]));
    let took = began.elapsed();
    let find = |name: &str| {
        let models = listed["models"].as_array().unwrap();
        let model = models.iter().find(|model| model["name"] == name);
        model.unwrap().clone()
    };
    for name in ["running/x", "running/y", "other/x", "keyed/x"] {
        assert_eq!(find(name)["usable"], true, "{name}: {}", find(name));
    }
    for name in ["loading/x", "silent/x", "silent2/y", "closed/x", "closed/y"] {
        assert_eq!(find(name)["usable"], false, "{name}");
    }
    assert_eq!(
        find("closed/x")["why_not"],
        format!("no answer from {closed}/v1")
    );
    // One request per provider; a provider with a key gets none.
    assert_eq!(running.requests().len(), 1);
    // In parallel: two silent servers take no longer than one, on a busy machine too.
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    let table = env.run(&["models", "list"]);
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(
        table.contains(&format!("no answer from {closed}/v1")),
        "{table}"
    );
}

#[test]
fn errors_have_hints() {
    let mut env = TestEnv::new();
    env.write(
        "project/.ai/config/agent/models.yaml",
        "default: ollama/qwen3\n",
    );
    let calls = [
        "models test anthropc/claude-sonnet-5-5",
        "models test no-such-thing-at-all",
        "prompt hello --model ollama/qwen",
        "prompt hello",
    ];
    let before = env.transcript(&calls);
    env.write(
        "user/.ai/config/agent/models.yaml",
        "providers:\n  mine: { api: openia }\n",
    );
    let after = env.transcript(&["models list"]);
    env.write("user/.ai/config/agent/models.yaml", "allow: ['ollama/*']\n");
    let refused = env.transcript(&["models test openai/gpt-5"]);
    env.set("RYE_MAX_TOKENS", "many");
    let limits = env.transcript(&["models list"]);
    assert_transcript!(format!("{before}{after}{refused}{limits}"));
}

#[test]
fn environment_overrides_model_limits() {
    let reply = Api::Anthropic.stream(&Completion::text("Hello."));
    let provider = MockProvider::with_replies([Reply::stream(reply)]);
    let mut env = with_model("anthropic", &provider, "");
    env.set("RYE_MAX_TOKENS", "77");
    env.set("RYE_CONTEXT_WINDOW", "5000");
    assert!(env.run(&["prompt", "hello"]).status.success());
    assert_eq!(provider.requests()[0].body["max_tokens"], 77);
    let listed = json(&env.run(&["models", "list", "--json"]));
    let models = listed["models"].as_array().unwrap();
    let own = models.iter().find(|model| model["name"] == "local/x");
    let own: &Value = own.unwrap();
    assert_eq!(
        (&own["context_window"], &own["max_output"]),
        (&value!(5000), &value!(77))
    );
    assert_eq!(listed["default"], "local/x");
}

#[test]
fn project_models_must_be_signed_by_a_trusted_key() {
    let env = TestEnv::new();
    let path = ".ai/config/agent/models.yaml";
    env.write(&format!("project/{path}"), "default: ollama/qwen3\n");
    let default = |env: &TestEnv| {
        let output = env.run(&["models", "list", "--json"]);
        (
            json(&output)["default"].as_str().unwrap().to_owned(),
            stderr(&output),
        )
    };
    let (before, words) = default(&env);
    assert_eq!(before, "anthropic/claude-sonnet-5-5");
    assert!(words.contains("models.yaml is ignored"), "{words}");
    assert!(
        env.run(&["keys", "generate", "--owner", "ada"])
            .status
            .success()
    );
    let signed = env.run(&["sign", path]);
    assert!(signed.status.success(), "{}", stderr(&signed));
    assert_eq!(default(&env).0, "ollama/qwen3");
}

#[test]
fn busy_model_fails_over_to_the_next() {
    let busy = Reply::json(529, &Api::OpenAiChat.error_body(529, "busy"));
    let provider = MockProvider::new(move |_, request| {
        if request.body["model"] == "x" {
            return busy.clone();
        }
        Reply::stream(Api::OpenAiChat.stream(&Completion::text("I do.")))
    });
    let more = "headers: { x-title: rye }";
    let env = with_model("openai-chat", &provider, more);
    let text = env.read("user/.ai/config/agent/models.yaml");
    let text = text.replace("models: {", "models: { y: {},");
    let retry = "failover: [local/y]\nretry: { max_attempts: 2, initial_delay_ms: 1 }\n";
    env.write(
        "user/.ai/config/agent/models.yaml",
        &format!("{retry}{text}"),
    );
    let output = env.run(&["prompt", "who answers?"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "I do.\n",
        "{}",
        stderr(&output)
    );
    let asked = provider.requests();
    let models: Vec<_> = asked
        .iter()
        .map(|it| it.body["model"].as_str().unwrap())
        .collect();
    assert_eq!(models, ["x", "x", "y"]);
    assert_eq!(asked[0].headers["x-title"], "rye");
}
