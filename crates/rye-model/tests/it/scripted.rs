//! Scripted models.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::model::{
    Delta, Deltas, Model as _, ModelAnswer, ModelError, ModelRequest, Models as _,
};
use rye_model::{Catalogue, Script, ScriptedModel};
use rye_protocol::{Message, Part, ResultStatus, Role};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

fn script(text: &str) -> ScriptedModel {
    ScriptedModel::from(text.parse::<Script>().unwrap())
}

fn history(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        system: String::new(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::default(),
        max_output: None,
        for_summary: false,
        previous_compactions: 0,
        compacted_answers: 0,
    }
}

fn after(answers: usize) -> ModelRequest {
    let pair = |_| [Role::User, Role::Assistant].map(|role| Message::text(role, "x"));
    let mut messages: Vec<_> = (0..answers).flat_map(pair).collect();
    messages.push(Message::text(Role::User, "go on"));
    history(messages)
}

fn tool_result(text: &str) -> Message {
    let part = Part::ToolResult {
        call_id: "call-0-0".parse().unwrap(),
        tool: "bash".into(),
        status: ResultStatus::Success,
        text: text.into(),
        data: Value::Null,
        error: None,
        elided: false,
    };
    Message::new(Role::Tool, vec![part])
}

fn discard_deltas() -> Deltas {
    Arc::new(|_| {})
}

async fn ask(model: &ScriptedModel, request: ModelRequest) -> Result<ModelAnswer, ModelError> {
    model.call(request, discard_deltas()).await
}

fn text(answer: &ModelAnswer) -> String {
    Message::new(Role::Assistant, answer.parts.clone()).content()
}

#[tokio::test]
async fn step_is_the_number_of_answers_in_the_history() {
    let model = script("steps: [{ text: a }, { text: b }]\nafter_last: { text: over }");
    for (answers, completion) in [(1, "b"), (0, "a"), (2, "over"), (9, "over"), (1, "b")] {
        let answer = ask(&model, after(answers)).await.unwrap();
        assert_eq!(text(&answer), completion);
        assert_eq!(answer.stop_reason.as_deref(), Some("end_turn"));
    }
}

#[tokio::test]
async fn call_ids_are_deterministic() {
    let model = script(
        "steps:\n  - text: a\n  - { thinking: hm, text: so, tool_calls: [{ name: x, args: { y: 1 } }, { name: z, id: own }, { name: z }] }",
    );
    let first = ask(&model, after(1)).await.unwrap();
    assert_eq!(first, ask(&model, after(1)).await.unwrap());
    assert_eq!(first.stop_reason.as_deref(), Some("tool_use"));
    let parts = serde_json::to_value(&first.parts).unwrap();
    assert_eq!(
        parts,
        json!([
            { "type": "thinking", "text": "hm" },
            { "type": "text", "text": "so" },
            { "type": "tool_call", "call_id": "call-1-0", "tool": "x", "args": { "y": 1 } },
            { "type": "tool_call", "call_id": "own", "tool": "z", "args": {} },
            { "type": "tool_call", "call_id": "call-1-2", "tool": "z", "args": {} },
        ])
    );
}

#[tokio::test]
async fn last_tool_result_is_inserted() {
    let model = script(
        "steps: [{ text: 'It said: ${last_tool_result}', tool_calls: [{ name: t, args: { a: ['${last_tool_result}'] } }] }]",
    );
    let request = history(vec![tool_result("first"), tool_result("second")]);
    let answer = ask(&model, request).await.unwrap();
    assert_eq!(text(&answer), "It said: second");
    let Some(Part::ToolCall { args, .. }) = answer.parts.last() else {
        panic!("{answer:?}");
    };
    assert_eq!(*args, json!({ "a": ["second"] }));
    let answer = ask(&model, after(0)).await.unwrap();
    assert_eq!(text(&answer), "It said: ");
}

#[tokio::test(start_paused = true)]
async fn deltas_arrive_in_chunks_with_delays() {
    let model = script(
        "steps: [{ thinking: hmm, text: grüße an uns, delay_ms: 300, chunk_chars: 5, chunk_ms: 20 }]",
    );
    let received: Arc<Mutex<Vec<Delta>>> = Arc::default();
    let ear = Arc::clone(&received);
    let begun = Instant::now();
    let deltas: Deltas = Arc::new(move |delta| ear.lock().unwrap().push(delta));
    model.call(after(0), deltas).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(300 + 3 * 20));
    let expected = [
        Delta::Thinking("hmm".into()),
        Delta::Text("grüße".into()),
        Delta::Text(" an u".into()),
        Delta::Text("ns".into()),
    ];
    assert_eq!(*received.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_emits_nothing_more() {
    let model = script("steps: [{ text: abc, chunk_chars: 1, chunk_ms: 1000 }]");
    let received: Arc<Mutex<Vec<Delta>>> = Arc::default();
    let ear = Arc::clone(&received);
    let deltas: Deltas = Arc::new(move |delta| ear.lock().unwrap().push(delta));
    let call = timeout(Duration::from_millis(1500), model.call(after(0), deltas));
    assert!(call.await.is_err());
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(received.lock().unwrap().len(), 2);
    assert_eq!(Arc::strong_count(&received), 1);
}

#[tokio::test]
async fn errors_are_simulated() {
    let model = script(
        "steps:
  - error: overloaded
  - { error: rate_limited, retry_after_ms: 7 }
  - error: context_overflow
  - { error: stream_cut, text: half a w }
  - error: invalid_request",
    );
    let mut errors = Vec::new();
    for step in 0..5 {
        errors.push(ask(&model, after(step)).await.unwrap_err());
    }
    assert!(matches!(errors[0], ModelError::Overloaded { .. }));
    let retry = Some(Duration::from_millis(7));
    assert!(
        matches!(&errors[1], ModelError::RateLimited { retry_after, .. } if *retry_after == retry)
    );
    assert!(matches!(errors[2], ModelError::ContextOverflow(_)));
    assert!(matches!(errors[3], ModelError::Connection(_)));
    assert!(matches!(errors[4], ModelError::Refused(_)));
}

#[tokio::test]
async fn error_with_times_ends_after_that_many_calls() {
    let model = script("steps: [{ error: overloaded, times: 2, then: { text: third try } }]");
    for _ in 0..2 {
        assert!(ask(&model, after(0)).await.is_err());
    }
    for _ in 0..2 {
        assert_eq!(text(&ask(&model, after(0)).await.unwrap()), "third try");
    }
}

#[tokio::test]
async fn usage_is_reported_and_priced() {
    let model = script(
        "price: { input: 3, output: 15 }\nsteps: [{ text: a, usage: { input: 1000, output: 10 } }, { text: four }]",
    );
    let usage = ask(&model, after(0)).await.unwrap().usage;
    assert_eq!(
        (usage.turns, usage.input_tokens, usage.output_tokens),
        (1, 1000, 10)
    );
    assert_eq!(usage.micro_dollars, 3150);
    let guessed = ask(&model, after(1)).await.unwrap().usage;
    assert_eq!((guessed.input_tokens, guessed.output_tokens), (2, 1));
}

#[tokio::test]
async fn summary_is_scripted_or_has_all_headings() {
    let summary = |request: ModelRequest| ModelRequest {
        for_summary: true,
        ..request
    };
    let own = script("steps: []\non_summary: '## Goal …'");
    let answer = ask(&own, summary(after(3))).await.unwrap();
    assert_eq!(text(&answer), "## Goal …");
    let several = script("steps: []\non_summary: [first, second]");
    for (before, completion) in [(0, "first"), (1, "second"), (2, "second")] {
        let mut request = summary(after(3));
        request.previous_compactions = before;
        assert_eq!(text(&ask(&several, request).await.unwrap()), completion);
    }
    let answer = ask(&script("steps: []"), summary(after(1))).await.unwrap();
    for heading in [
        "Goal",
        "Constraints & Preferences",
        "Progress",
        "Key Decisions",
        "Next Steps",
        "Critical Context",
        "Relevant Files",
    ] {
        assert!(
            text(&answer).contains(&format!("## {heading}\n")),
            "{heading}"
        );
    }
}

#[tokio::test]
async fn changed_script_files_are_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.yaml");
    std::fs::write(
        &path,
        "steps: [{ error: overloaded, times: 1, then: { text: a } }]",
    )
    .unwrap();
    let models = Catalogue::new(dir.path());
    let get = || models.get("scripted:demo.yaml").unwrap();
    assert!(get().call(after(0), discard_deltas()).await.is_err());
    // The failure count is kept while the file is unchanged.
    let answer = get().call(after(0), discard_deltas()).await.unwrap();
    assert_eq!(text(&answer), "a");
    std::fs::write(&path, "steps: [{ text: b }]").unwrap();
    let answer = get().call(after(0), discard_deltas()).await.unwrap();
    assert_eq!(text(&answer), "b");
}

#[test]
fn unknown_name_suggests_similar_ones() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("demo.yaml"), "steps: [").unwrap();
    let script: Script = "steps: []".parse().unwrap();
    let models = Catalogue::new(dir.path()).with("scripted:memory", script);
    let why = |name: &str| models.get(name).err().unwrap();
    assert!(why("scripted:dmo.yaml").ends_with("did you mean `scripted:demo.yaml`?"));
    assert!(why("scripted:memori").ends_with("did you mean `scripted:memory`?"));
    assert!(why("script:memory").ends_with("did you mean `scripted:memory`?"));
    assert!(why("gpt").contains("`gpt`"));
    assert!(why("scripted:demo.yaml").contains("line 1"));
    assert!(models.get("scripted:.").is_err());
    assert!(models.get("").is_err());
    assert_eq!(models.default_name(), "scripted:memory");
}
