//! Valid and invalid scripts.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn documented_example_is_parsed() {
    let script: Script = r###"
context_window: 200000          # optional; so are max_output and a price
steps:
  - tool_calls: [{ name: bash, args: { command: "echo hi >> out.txt" } }]
  - text: "It said: ${last_tool_result}"
  - { text: "slowly", delay_ms: 300, chunk_chars: 8, chunk_ms: 20, usage: { input: 1200, output: 40 } }
  - { error: overloaded, times: 2, then: { text: "third try" } }
on_summary: "## Goal …"
after_last: { text: "(end of script)" }
"###
    .parse()
    .unwrap();
    let then = ScriptedAnswer {
        text: "third try".into(),
        ..ScriptedAnswer::default()
    };
    let slowly = ScriptedAnswer {
        text: "slowly".into(),
        delay_ms: 300,
        chunk_chars: Some(8),
        chunk_ms: 20,
        usage: Some(Tokens {
            input: 1200,
            cached: 0,
            cache_write: 0,
            output: 40,
        }),
        ..ScriptedAnswer::default()
    };
    let expected = [
        Step::call("bash", json!({ "command": "echo hi >> out.txt" })),
        Step::text("It said: ${last_tool_result}"),
        Step::Answer(slowly),
        Step::Fail {
            fault: Fault::Overloaded,
            times: Some((2, then)),
        },
    ];
    assert_eq!(script.steps, expected);
    assert_eq!(script.on_summary, ["## Goal …"]);
    assert_eq!(script.after_last, Script::default().after_last);
}

#[test]
fn errors_contain_their_position() {
    let cases = [
        ("steps: [", 1, "unclosed"),
        (
            "steps: []\non_summary: 3",
            2,
            "a summary, or a list of them",
        ),
        ("stages: []", 1, "stages"),
        ("context_window: 1", 1, "steps"),
        ("steps:\n  - { txt: a }", 2, "txt"),
        ("steps:\n  - text: a\n  - {}", 3, "`text`"),
        ("steps:\n  - { error: busy }", 2, "busy"),
        ("steps:\n  - { text: a, times: 2 }", 2, "`error`"),
        ("steps:\n  - { error: overloaded, times: 2 }", 2, "`then`"),
        (
            "steps:\n  - { error: overloaded, times: 0, then: { text: a } }",
            2,
            "`times`",
        ),
        (
            "steps:\n  - error: overloaded\n    times: 1\n    then: { error: overloaded }",
            4,
            "`then`",
        ),
        (
            "steps:\n  - { error: overloaded, text: a }",
            2,
            "`stream_cut`",
        ),
        (
            "steps:\n  - { error: overloaded, retry_after_ms: 1 }",
            2,
            "`rate_limited`",
        ),
        (
            "steps:\n  - { text: a, chunk_chars: 0 }",
            2,
            "`chunk_chars`",
        ),
        ("steps:\n  - { text: a, delay_ms: -1 }", 2, ""),
        ("steps:\n  - tool_calls: [{ name: '' }]", 2, "`name`"),
        ("steps:\n  - tool_calls: [{ name: a, id: 'b c' }]", 2, "b c"),
        (
            "steps:\n  - tool_calls: [{ name: a, id: b }, { name: a, id: b }]",
            2,
            "`b`",
        ),
        ("steps:\n  - tool_calls: [{ name: a, args: [1] }]", 2, ""),
        (
            "steps:\n  - tool_calls: [{ name: a, args: { n: [123456789012345678901234567890] } }]",
            2,
            "64 bits",
        ),
        ("steps: []\ncontext_window: 0", 2, ""),
        ("steps: []\nprice: { input: -1 }", 2, "`price`"),
        ("steps: []\nprice: { input: .nan }", 2, "`price`"),
        ("", 1, ""),
    ];
    for (text, line, expected) in cases {
        let error = text.parse::<Script>().unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.column >= 1);
        assert!(error.message.contains(expected), "{text}: {error}");
    }
}

#[test]
fn alias_bomb_is_rejected() {
    let script = |levels: u32| {
        let mut args = vec!["x0: &x0 [a, a, a, a, a, a, a, a, a]".to_owned()];
        for level in 1..levels {
            let many = vec![format!("*x{}", level - 1); 9].join(", ");
            args.push(format!("x{level}: &x{level} [{many}]"));
        }
        format!(
            "steps:\n  - tool_calls: [{{ name: a, args: {{ {} }} }}]",
            args.join(", ")
        )
    };
    assert!(script(2).parse::<Script>().is_ok());
    assert!(script(30).parse::<Script>().is_err());
}

proptest! {
    #[test]
    fn parser_never_panics(text in "(steps:\n)?[ -~\n]{0,200}") {
        let _ = text.parse::<Script>();
    }
}
