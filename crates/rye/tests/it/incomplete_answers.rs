//! What `rye prompt` reports about an answer: truncation, refusal, retries and failover, but
//! never the provider's credentials.

use std::fs;
use std::process::Output;

use crate::support::{TestEnv, outcome};
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::Value;

/// An API with its stop reasons for the output limit and for a refusal.
const APIS: [(&str, Api, [&str; 2]); 4] = [
    ("anthropic", Api::Anthropic, ["max_tokens", "refusal"]),
    (
        "openai-responses",
        Api::OpenAiResponses,
        ["max_output_tokens", "content_filter"],
    ),
    ("openai-chat", Api::OpenAiChat, ["length", "content_filter"]),
    ("gemini", Api::Gemini, ["MAX_TOKENS", "SAFETY"]),
];

fn with_model(api: &str, url: &str, more: &str) -> TestEnv {
    let env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         retry: {{ max_attempts: 2, initial_delay_ms: 1 }}\n\
         providers:\n  \
           local:\n    \
             api: {api}\n    \
             base_url: {url}/v1\n    \
             {more}\n    \
             models: {{ x: {{ context_window: 8000, max_output: 1000 }} }}\n",
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn incomplete_answer_causes_a_warning() {
    for (name, api, [limit, refusal]) in APIS {
        for (word, is, warning, hint) in [
            (
                limit,
                "output_limit",
                "the answer is truncated",
                "`max_output` in models.yaml",
            ),
            (
                refusal,
                "refused",
                "the model refused to continue",
                "hint: rye models list",
            ),
        ] {
            let reply = api.stream(&Completion::text("so far").with_stop_reason(word));
            let provider = MockProvider::new(move |_, _| Reply::stream(reply.clone()));
            let env = with_model(name, &provider.url(), "");
            let output = env.run(&["prompt", "go"]);
            let printed = stderr(&output);
            assert_eq!(output.stdout, b"so far\n", "{name}: {printed}");
            assert!(output.status.success(), "{name}: {printed}");
            for words in [warning, hint, word] {
                assert!(printed.contains(words), "{name}: {words}: {printed}");
            }
            let quiet = env.run(&["prompt", "go", "--quiet"]);
            assert_eq!(stderr(&quiet), "", "{name}");
            let output = env.run(&["prompt", "go", "--json"]);
            let last = outcome(&output);
            assert_eq!(last["end"], "end_turn", "{name}");
            assert_eq!(last["stop_reason"], word, "{name}");
            assert_eq!(last["incomplete"], is, "{name}");
            assert!(!stderr(&output).contains(warning), "{name}");
            let shown = env.run(&["session", "show", last["session"].as_str().unwrap()]);
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            let line = format!("so far [incomplete: {word}]");
            assert!(shown.contains(&line), "{name}: {shown}");
        }
        let reply = api.stream(&Completion::text("all of it"));
        let provider = MockProvider::with_replies([Reply::stream(reply)]);
        let env = with_model(name, &provider.url(), "");
        let last = outcome(&env.run(&["prompt", "go", "--json"]));
        assert!(last["stop_reason"].is_string(), "{name}: {last}");
        assert_eq!(last["incomplete"], Value::Null, "{name}");
    }
}

#[test]
fn request_is_limited_to_the_remaining_tokens() {
    for (name, api, _) in APIS {
        let reply = api.stream(&Completion::text("so far"));
        let provider = MockProvider::new(move |_, _| Reply::stream(reply.clone()));
        let env = with_model(name, &provider.url(), "");
        env.run(&["prompt", "hello", "--max-tokens", "50"]);
        env.run(&["prompt", "hello"]);
        let asked = provider.requests();
        let most = |number: usize| {
            let body = &asked[number].body;
            let places = [
                &body["max_tokens"],
                &body["max_output_tokens"],
                &body["generationConfig"]["maxOutputTokens"],
            ];
            places.into_iter().find_map(Value::as_u64).unwrap()
        };
        assert!((1..=50).contains(&most(0)), "{name}: {}", most(0));
        assert_eq!(most(1), 1000, "{name}");
    }
}

#[test]
fn retry_and_failover_are_reported_in_one_line() {
    let busy = Reply::json(529, &Api::OpenAiChat.error_body(529, "busy\nindeed"));
    let provider = MockProvider::new(move |_, request| {
        if request.body["model"] == "x" {
            return busy.clone();
        }
        Reply::stream(Api::OpenAiChat.stream(&Completion::text("I do.")))
    });
    let env = with_model("openai-chat", &provider.url(), "");
    let path = "user/.ai/config/agent/models.yaml";
    let text = env.read(path).replace("models: {", "models: { y: {},");
    env.write(path, &format!("failover: [local/y]\n{text}"));
    let output = env.run(&["prompt", "who answers?"]);
    let printed = stderr(&output);
    assert_eq!(output.stdout, b"I do.\n", "{printed}");
    for line in [
        "retrying local/x in 0.001 s: the model is overloaded: busy indeed",
        "switched from local/x to local/y: the model is overloaded: busy indeed",
    ] {
        assert_eq!(printed.matches(line).count(), 1, "{printed}");
    }
    for how in ["--json", "--quiet"] {
        let printed = stderr(&env.run(&["prompt", "who answers?", how]));
        assert!(!printed.contains("local/x"), "{how}: {printed}");
    }
}

#[test]
fn provider_credentials_are_never_printed_or_stored() {
    let repeats = "wrong: pa55word1234, Bearer hdr-S3cret/0001, hdr-S3cret%2F0001";
    let refused = Reply::json(401, &Api::OpenAiChat.error_body(401, repeats));
    let provider = MockProvider::new(move |_, _| refused.clone());
    let gone = MockProvider::with_replies([]).url();
    for url in [provider.url(), gone] {
        let url = url.replace("http://", "http://ada:pa55word1234@");
        let header = "headers: { Authorization: 'Bearer hdr-S3cret/0001' }";
        let mut env = with_model("openai-chat", &url, header);
        env.set("RYE_STATE_DIR", env.path("state").to_str().unwrap());
        let output = env.run(&["prompt", "hello", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let last = outcome(&output);
        let id = last["session"].as_str().unwrap().to_owned();
        let show = env.run(&["session", "show", &id]);
        let export = env.run(&["session", "export", &id, "--output", "out.jsonl"]);
        let mut all = vec![env.read("project/out.jsonl").into_bytes()];
        for output in [output, show, export, env.run(&["prompt", "hello"])] {
            all.extend([output.stdout, output.stderr]);
        }
        let state = env.path("state");
        for entry in fs::read_dir(&state).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push(fs::read(path).unwrap());
            }
        }
        for text in all {
            let text = String::from_utf8_lossy(&text);
            for secret in ["pa55word", "S3cret"] {
                let at = text
                    .find(secret)
                    .map(|at| text.get(at.saturating_sub(60)..));
                assert_eq!(at, None, "{secret}");
            }
        }
    }
}
