//! What `rye prompt` says of an answer beside the answer: that it is cut off, who gave it, and
//! never what the provider was sent to let us in.

use std::fs;
use std::process::Output;

use crate::support::{TestEnv, outcome};
use rye_model_wire::{Api, Completion, MockProvider, Reply};
use serde_json::Value;

/// An API, and its words for an answer that is too long and for one that is refused.
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
         retry: {{ tries: 2, first_ms: 1 }}\n\
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
fn an_answer_that_is_not_whole_is_one_with_a_warning() {
    for (name, api, [limit, refusal]) in APIS {
        for (word, is, warning, hint) in [
            (
                limit,
                "output_limit",
                "the answer is truncated",
                "'go on', or a larger `max_output`",
            ),
            (
                refusal,
                "refused",
                "the model refused to continue",
                "choose another model",
            ),
        ] {
            let said = api.stream(&Completion::text("so far").with_stop_reason(word));
            let wire = MockProvider::new(move |_, _| Reply::stream(said.clone()));
            let env = with_model(name, &wire.url(), "");
            let output = env.run(&["prompt", "go"]);
            let told = stderr(&output);
            assert_eq!(output.stdout, b"so far\n", "{name}: {told}");
            assert!(output.status.success(), "{name}: {told}");
            for words in [warning, hint, word] {
                assert!(told.contains(words), "{name}: {words}: {told}");
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
        let said = api.stream(&Completion::text("all of it"));
        let wire = MockProvider::with_replies([Reply::stream(said)]);
        let env = with_model(name, &wire.url(), "");
        let last = outcome(&env.run(&["prompt", "go", "--json"]));
        assert!(last["stop_reason"].is_string(), "{name}: {last}");
        assert_eq!(last["incomplete"], Value::Null, "{name}");
    }
}

#[test]
fn no_more_is_asked_for_than_is_left() {
    for (name, api, _) in APIS {
        let said = api.stream(&Completion::text("so far"));
        let wire = MockProvider::new(move |_, _| Reply::stream(said.clone()));
        let env = with_model(name, &wire.url(), "");
        env.run(&["prompt", "hello", "--max-tokens", "50"]);
        env.run(&["prompt", "hello"]);
        let asked = wire.requests();
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
fn that_a_model_is_asked_again_or_gives_way_is_said_in_a_line() {
    let busy = Reply::json(529, &Api::OpenAiChat.error_body(529, "busy\nindeed"));
    let wire = MockProvider::new(move |_, request| {
        if request.body["model"] == "x" {
            return busy.clone();
        }
        Reply::stream(Api::OpenAiChat.stream(&Completion::text("I do.")))
    });
    let env = with_model("openai-chat", &wire.url(), "");
    let path = "user/.ai/config/agent/models.yaml";
    let text = env.read(path).replace("models: {", "models: { y: {},");
    env.write(path, &format!("failover: [local/y]\n{text}"));
    let output = env.run(&["prompt", "who answers?"]);
    let told = stderr(&output);
    assert_eq!(output.stdout, b"I do.\n", "{told}");
    for line in [
        "retrying local/x in 0.001 s: the model is overloaded: busy indeed",
        "switched from local/x to local/y: the model is overloaded: busy indeed",
    ] {
        assert_eq!(told.matches(line).count(), 1, "{told}");
    }
    for how in ["--json", "--quiet"] {
        let told = stderr(&env.run(&["prompt", "who answers?", how]));
        assert!(!told.contains("local/x"), "{how}: {told}");
    }
}

#[test]
fn what_lets_us_in_stands_nowhere() {
    let repeats = "wrong: pa55word1234, Bearer hdr-S3cret/0001, hdr-S3cret%2F0001";
    let refused = Reply::json(401, &Api::OpenAiChat.error_body(401, repeats));
    let wire = MockProvider::new(move |_, _| refused.clone());
    let gone = MockProvider::with_replies([]).url();
    for url in [wire.url(), gone] {
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
