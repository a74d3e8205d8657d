//! Models that fail, and how that is explained. In each case the session exists afterwards
//! and can be continued.

use crate::support::TestEnv;
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::json as value;

/// What a model does, and what the error message contains.
struct Case {
    name: &'static str,
    replies: fn() -> Vec<Reply>,
    args: &'static [&'static str],
    exit: i32,
    expected: &'static [&'static str],
}

fn text_reply(text: &str) -> Reply {
    Reply::stream(Api::OpenAiChat.stream(&Completion::text(text)))
}

fn call_reply(tool: &str, args: serde_json::Value) -> Reply {
    Reply::stream(Api::OpenAiChat.stream(&Completion::call("call_1", tool, args)))
}

fn error_reply(status: u16, message: &str) -> Reply {
    Reply::json(status, &Api::OpenAiChat.error_body(status, message))
}

const CASES: &[Case] = &[
    Case {
        name: "a wrong key",
        replies: || vec![error_reply(401, "Incorrect API key provided: sk-secret.")],
        args: &[],
        exit: 1,
        expected: &[
            "Incorrect API key provided: [redacted]",
            "variable SOME_API_KEY",
        ],
    },
    Case {
        name: "429 for ever",
        replies: || {
            (0..9)
                .map(|_| error_reply(429, "Rate limit reached"))
                .collect()
        },
        args: &[],
        exit: 1,
        expected: &[
            "rate limited by the provider: Rate limit reached",
            "tried 2 times",
            "`failover` in models.yaml",
        ],
    },
    Case {
        name: "a stream that stops",
        replies: || {
            (0..9)
                .map(|_| text_reply("Hello, and more.").disconnect_after(120))
                .collect()
        },
        args: &[],
        exit: 1,
        expected: &["the connection to the model broke", " (http://127.0.0.1:"],
    },
    Case {
        name: "a page instead of a stream",
        replies: || vec![Reply::page("text/html", "<html>Log in to the WiFi</html>")],
        args: &[],
        exit: 1,
        expected: &[
            "<html>Log in to the WiFi</html>",
            "check `base_url` in models.yaml",
        ],
    },
    Case {
        name: "somewhere else",
        replies: || {
            let reply = Reply::json(307, &value!({}));
            vec![reply.header("location", "http://ada:pw@elsewhere.example/v1?key=k")]
        },
        args: &[],
        exit: 1,
        expected: &["http://elsewhere.example: "],
    },
    Case {
        name: "a key amid a stream",
        replies: || {
            let fault = Api::OpenAiChat
                .error_body(400, "no such key: sk-secret")
                .to_string();
            vec![Reply::stream(format!("data: {fault}\n\n"))]
        },
        args: &[],
        exit: 1,
        expected: &["no such key: [redacted]"],
    },
    Case {
        name: "tool calls without end",
        replies: || {
            (0..9)
                .map(|_| call_reply("glob", value!({ "pattern": "*" })))
                .collect()
        },
        args: &["--max-turns", "3"],
        exit: 7,
        expected: &["limit reached: turns"],
    },
    Case {
        name: "an empty answer",
        replies: || vec![text_reply("")],
        args: &[],
        exit: 1,
        expected: &["the model gave an empty answer", "choose another model"],
    },
    Case {
        name: "thoughts and nothing else",
        replies: || {
            let thought = Completion::default()
                .with_thinking("hm", "")
                .with_stop_reason("length");
            vec![Reply::stream(Api::OpenAiChat.stream(&thought))]
        },
        args: &[],
        exit: 1,
        expected: &["(length)", "`max_output` in models.yaml"],
    },
    Case {
        name: "an answer of 10 MiB",
        replies: || {
            vec![text_reply(
                &format!("{} ", "word".repeat(256)).repeat(10 * 1024 + 100),
            )]
        },
        args: &[],
        exit: 1,
        expected: &["the model's answer is too long", "ask for less at a time"],
    },
    Case {
        name: "a context that cannot fit",
        replies: || {
            let message = "This model's maximum context length is 8000 tokens.";
            let mut body = Api::OpenAiChat.error_body(400, message);
            body["error"]["code"] = value!("context_length_exceeded");
            (0..9).map(|_| Reply::json(400, &body)).collect()
        },
        args: &[],
        exit: 1,
        expected: &[
            "the context is too long for the model",
            "the last message alone exceeds the context window",
        ],
    },
];

fn with_model(provider: &MockProvider) -> TestEnv {
    let mut env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         retry: {{ max_attempts: 2, initial_delay_ms: 1 }}\n\
         providers:\n  \
           local:\n    \
             api: openai-chat\n    \
             base_url: {}/v1\n    \
             api_key_env: SOME_API_KEY\n    \
             models: {{ x: {{}} }}\n",
        provider.url()
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env.set("SOME_API_KEY", "sk-secret");
    env
}

#[test]
fn model_failure_is_explained() {
    for case in CASES {
        let provider = MockProvider::with_replies((case.replies)());
        let env = with_model(&provider);
        let mut args = vec!["prompt", "hello"];
        args.extend(case.args);
        let output = env.run(&args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(case.exit),
            "{}: {printed}",
            case.name
        );
        for expected in case.expected {
            assert!(
                printed.contains(expected),
                "{}: {expected}: {printed}",
                case.name
            );
        }
        assert!(!printed.contains("sk-secret"), "{}: {printed}", case.name);
        assert!(
            printed.contains("rye session show"),
            "{}: {printed}",
            case.name
        );
    }
}

#[test]
fn missing_key_names_the_variable_and_the_command() {
    let provider = MockProvider::with_replies([]);
    let mut env = with_model(&provider);
    env.unset("SOME_API_KEY");
    let output = env.run(&["prompt", "hello"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("rye vault set SOME_API_KEY"), "{printed}");
    let listed = env.run(&["models", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("needs SOME_API_KEY"), "{listed}");
}

#[test]
fn invalid_json_arguments_are_reported_to_the_model() {
    let broken = Api::OpenAiChat
        .stream(&Completion::call(
            "call_1",
            "glob",
            value!({ "pattern": "*" }),
        ))
        .replace("\\\"pattern\\\"", "\\\"pattern");
    let provider = MockProvider::with_replies([Reply::stream(broken), text_reply("I see.")]);
    let env = with_model(&provider);
    let output = env.run(&["prompt", "hello"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "I see.\n");
    let second = provider.requests()[1].body.to_string();
    assert!(second.contains("invalid arguments"), "{second}");
}

#[test]
fn empty_prompt_creates_no_session() {
    let provider = MockProvider::with_replies([]);
    let env = with_model(&provider);
    for text in ["", "  \n "] {
        let output = env.run(&["prompt", text]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("the prompt is empty"), "{printed}");
    }
    assert!(provider.requests().is_empty());
    let listed = env.run(&["session", "list"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "no sessions\n");
}
