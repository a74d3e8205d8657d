//! Models that give no answer, and what a person is told to do about it. In each case the
//! session is there afterwards and goes on.

use crate::support::TestEnv;
use rye_model_wire::{Api, Completion, MockProvider, Reply};
use serde_json::json as value;

/// What a model does, in a line, and the words that a person must find.
struct Case {
    what: &'static str,
    replies: fn() -> Vec<Reply>,
    args: &'static [&'static str],
    exit: i32,
    words: &'static [&'static str],
}

fn says(text: &str) -> Reply {
    Reply::stream(Api::OpenAiChat.stream(&Completion::text(text)))
}

fn calls(tool: &str, args: serde_json::Value) -> Reply {
    Reply::stream(Api::OpenAiChat.stream(&Completion::call("call_1", tool, args)))
}

fn fault(status: u16, message: &str) -> Reply {
    Reply::json(status, &Api::OpenAiChat.error_body(status, message))
}

const CASES: &[Case] = &[
    Case {
        what: "a wrong key",
        replies: || vec![fault(401, "Incorrect API key provided: sk-secret.")],
        args: &[],
        exit: 1,
        words: &[
            "Incorrect API key provided: [redacted]",
            "variable SOME_API_KEY",
        ],
    },
    Case {
        what: "429 for ever",
        replies: || (0..9).map(|_| fault(429, "Rate limit reached")).collect(),
        args: &[],
        exit: 1,
        words: &[
            "the model was asked too often: Rate limit reached",
            "it was asked 2 times",
            "`failover` in models.yaml names others to ask",
        ],
    },
    Case {
        what: "a stream that stops",
        replies: || {
            (0..9)
                .map(|_| says("Hello, and more.").disconnect_after(120))
                .collect()
        },
        args: &[],
        exit: 1,
        words: &["the connection to the model broke", " (http://127.0.0.1:"],
    },
    Case {
        what: "a page instead of a stream",
        replies: || vec![Reply::page("text/html", "<html>Log in to the WiFi</html>")],
        args: &[],
        exit: 1,
        words: &[
            "<html>Log in to the WiFi</html>",
            "check `base_url` in models.yaml",
        ],
    },
    Case {
        what: "somewhere else",
        replies: || {
            let reply = Reply::json(307, &value!({}));
            vec![reply.header("location", "http://ada:pw@elsewhere.example/v1?key=k")]
        },
        args: &[],
        exit: 1,
        words: &["http://elsewhere.example: "],
    },
    Case {
        what: "a key amid a stream",
        replies: || {
            let fault = Api::OpenAiChat
                .error_body(400, "no such key: sk-secret")
                .to_string();
            vec![Reply::stream(format!("data: {fault}\n\n"))]
        },
        args: &[],
        exit: 1,
        words: &["no such key: [redacted]"],
    },
    Case {
        what: "tool calls without end",
        replies: || {
            (0..9)
                .map(|_| calls("glob", value!({ "pattern": "*" })))
                .collect()
        },
        args: &["--max-turns", "3"],
        exit: 7,
        words: &["the limit of turns is reached"],
    },
    Case {
        what: "an empty answer",
        replies: || vec![says("")],
        args: &[],
        exit: 1,
        words: &["the model gave an empty answer", "choose another model"],
    },
    Case {
        what: "thoughts and nothing else",
        replies: || {
            let thought = Completion::default()
                .with_thinking("hm", "")
                .with_stop_reason("length");
            vec![Reply::stream(Api::OpenAiChat.stream(&thought))]
        },
        args: &[],
        exit: 1,
        words: &["(length)", "`max_output` in models.yaml"],
    },
    Case {
        what: "an answer of 10 MiB",
        replies: || {
            vec![says(
                &format!("{} ", "word".repeat(256)).repeat(10 * 1024 + 100),
            )]
        },
        args: &[],
        exit: 1,
        words: &["the model's answer is too long", "ask for less at a time"],
    },
    Case {
        what: "a context that cannot fit",
        replies: || {
            let message = "This model's maximum context length is 8000 tokens.";
            let mut body = Api::OpenAiChat.error_body(400, message);
            body["error"]["code"] = value!("context_length_exceeded");
            (0..9).map(|_| Reply::json(400, &body)).collect()
        },
        args: &[],
        exit: 1,
        words: &[
            "the context is too long for the model",
            "what is said last does not fit by itself; ask for less at once",
        ],
    },
];

fn with_model(wire: &MockProvider) -> TestEnv {
    let mut env = TestEnv::new();
    let text = format!(
        "default: local/x\n\
         retry: {{ tries: 2, first_ms: 1 }}\n\
         providers:\n  \
           local:\n    \
             api: openai-chat\n    \
             base_url: {}/v1\n    \
             api_key_env: SOME_API_KEY\n    \
             models: {{ x: {{}} }}\n",
        wire.url()
    );
    env.write("user/.ai/config/agent/models.yaml", &text);
    env.set("SOME_API_KEY", "sk-secret");
    env
}

#[test]
fn a_model_that_does_not_answer_is_explained() {
    for case in CASES {
        let wire = MockProvider::with_replies((case.replies)());
        let env = with_model(&wire);
        let mut args = vec!["prompt", "hello"];
        args.extend(case.args);
        let output = env.run(&args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(case.exit),
            "{}: {told}",
            case.what
        );
        for words in case.words {
            assert!(told.contains(words), "{}: {words}: {told}", case.what);
        }
        assert!(!told.contains("sk-secret"), "{}: {told}", case.what);
        assert!(told.contains("rye session show"), "{}: {told}", case.what);
    }
}

#[test]
fn no_key_says_which_variable_and_which_command() {
    let wire = MockProvider::with_replies([]);
    let mut env = with_model(&wire);
    env.unset("SOME_API_KEY");
    let output = env.run(&["prompt", "hello"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("rye vault set SOME_API_KEY"), "{told}");
    let listed = env.run(&["models", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("needs SOME_API_KEY"), "{listed}");
}

#[test]
fn arguments_that_are_no_json_are_told_to_the_model() {
    let broken = Api::OpenAiChat
        .stream(&Completion::call(
            "call_1",
            "glob",
            value!({ "pattern": "*" }),
        ))
        .replace("\\\"pattern\\\"", "\\\"pattern");
    let wire = MockProvider::with_replies([Reply::stream(broken), says("I see.")]);
    let env = with_model(&wire);
    let output = env.run(&["prompt", "hello"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "I see.\n");
    let second = wire.requests()[1].body.to_string();
    assert!(second.contains("the arguments do not fit"), "{second}");
}

#[test]
fn a_prompt_of_nothing_asks_nobody_and_leaves_no_session() {
    let wire = MockProvider::with_replies([]);
    let env = with_model(&wire);
    for text in ["", "  \n "] {
        let output = env.run(&["prompt", text]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("nothing is asked: give words"), "{told}");
    }
    assert!(wire.requests().is_empty());
    let listed = env.run(&["session", "list"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "no sessions\n");
}
