//! Property tests: every provider accepts every history. Each call has a result, and each
//! result has a call.

use crate::support::{ALL, image, name, request, signature, target};
use proptest::prelude::*;
use rye_engine::transcript;
use rye_model::{Api, Effort, Thinking};
use rye_protocol::{
    CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, Message, Millis, Part, ResultStatus,
    Role,
};
use serde_json::{Value, json};

fn entry(kind: EntryKind) -> Entry {
    Entry {
        id: EntryId::new(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        prompt: None,
        kind,
        created_at: Millis(0),
        hash: String::new(),
    }
}

fn text() -> impl Strategy<Value = Part> {
    let texts = ["", " \n", "hello", "größe 🎉 \"quoted\"", "a\u{0}b"];
    prop::sample::select(texts.to_vec()).prop_map(|text| Part::Text { text: text.into() })
}

/// Ids as providers and scripts generate them, including duplicates and invalid ones.
fn call_id() -> impl Strategy<Value = CallId> {
    let ids = [
        "toolu_01D7FLrfh4GYq7yT1ULFeyMV",
        "call_1",
        "call-0-0",
        "a.b/c:d|fc_0123",
        "0123456789012345678901234567890123456789-x",
        "0123456789-123456789-123456789-123456789-x",
    ];
    prop::sample::select(ids.to_vec()).prop_map(|id| id.parse().unwrap())
}

fn call() -> impl Strategy<Value = Part> {
    let args = [
        json!({ "place": "Bern" }),
        json!({}),
        Value::Null,
        json!("{\"place\": "),
        json!([1]),
    ];
    let tools = ["weather", "no.such/tool", ""];
    let (args, tools) = (
        prop::sample::select(args.to_vec()),
        prop::sample::select(tools.to_vec()),
    );
    (call_id(), args, tools).prop_map(|(call_id, args, tool)| Part::ToolCall {
        call_id,
        tool: tool.to_owned(),
        args,
    })
}

fn result() -> impl Strategy<Value = Part> {
    let statuses = [
        ResultStatus::Success,
        ResultStatus::Error,
        ResultStatus::Interrupted,
        ResultStatus::Aborted,
    ];
    let (status, text) = (
        prop::sample::select(statuses.to_vec()),
        prop::sample::select(&["", "rain"]),
    );
    (call_id(), status, text, any::<bool>()).prop_map(|(call_id, status, text, elided)| {
        Part::ToolResult {
            call_id,
            tool: "weather".to_owned(),
            status,
            text: text.to_owned(),
            data: Value::Null,
            error: None,
            elided,
        }
    })
}

fn attachment() -> impl Strategy<Value = Part> {
    let file = Part::Attachment {
        name: "a.pdf".to_owned(),
        mime_type: "application/pdf".to_owned(),
        source: "blob:123".to_owned(),
    };
    prop_oneof![Just(image()), Just(file)]
}

fn error() -> Part {
    let error = ErrorInfo::new(ErrorCode::Model, "it is gone");
    Part::Error { error }
}

/// Any provider's answer: signed reasoning, text, calls.
fn answer() -> impl Strategy<Value = Message> {
    let thought = |api: Api| {
        let texts = prop::sample::select(&["", "let me see"]);
        (texts, prop::option::of(0..4_u32)).prop_map(move |(text, number)| Part::Thinking {
            text: text.to_owned(),
            signature: number.map(|number| signature(api, number)),
        })
    };
    let apis = prop::sample::select(&Api::ALL);
    apis.prop_flat_map(move |api| {
        let part = prop_oneof![thought(api), text(), call(), Just(error())];
        prop::collection::vec(part, 0..5).prop_map(move |mut parts| {
            // An answer has no duplicate call ids.
            let mut ids = Vec::new();
            parts.retain(|part| match part {
                Part::ToolCall { call_id, .. } if ids.contains(call_id) => false,
                Part::ToolCall { call_id, .. } => {
                    ids.push(call_id.clone());
                    true
                }
                _ => true,
            });
            crate::support::assistant_message(&name(api), parts)
        })
    })
}

fn message() -> impl Strategy<Value = Message> {
    let user = prop::collection::vec(prop_oneof![text(), attachment()], 0..3);
    let tool = (result(), prop::option::of(attachment()));
    prop_oneof![
        2 => user.prop_map(|parts| Message::new(Role::User, parts)),
        1 => text().prop_map(|part| Message::new(Role::System, vec![part])),
        4 => answer(),
        4 => tool.prop_map(|(result, more)| {
            Message::new(Role::Tool, [result].into_iter().chain(more).collect())
        }),
    ]
}

/// A path of entries, including compacted ones.
fn path() -> impl Strategy<Value = Vec<Entry>> {
    let compaction = Just(EntryKind::Compaction {
        summary: "## Goal\nweather".to_owned(),
        covered: Vec::new(),
        tokens_before: 9,
        tokens_after: 1,
        files_read: Vec::new(),
        files_modified: Vec::new(),
        preserved: vec!["First prompt".to_owned()],
        without_media: false,
    });
    let branch = Just(EntryKind::BranchSummary {
        leaf: EntryId::new(),
        summary: "it rained".to_owned(),
    });
    let kind = prop_oneof![
        12 => message().prop_map(EntryKind::Message),
        1 => compaction,
        1 => branch,
    ];
    prop::collection::vec(kind.prop_map(entry), 0..16)
}

fn thinking() -> impl Strategy<Value = (Option<Thinking>, Option<Effort>)> {
    let thinking = [None, Some(Thinking::Effort), Some(Thinking::Budget)];
    let effort = [None, Some(Effort::Low), Some(Effort::High)];
    (
        prop::sample::select(thinking.to_vec()),
        prop::sample::select(effort.to_vec()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_provider_accepts_every_history(path in path(), (thinking, effort) in thinking()) {
        // As normalised by the engine, and raw.
        let raw = path.iter().filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) => Some(message.clone()),
            _ => None,
        });
        let right = transcript::messages(&path);
        let right = right.iter().map(|message| (**message).clone());
        for messages in [right.collect::<Vec<_>>(), raw.collect()] {
            let request = request(messages);
            for (api, server) in ALL {
                let mut target = target(api);
                (target.thinking, target.effort) = (thinking, effort);
                let body = api.body(&request, &target);
                let body: Value = serde_json::from_slice(&body).unwrap();
                if let Err(why) = server.check(&body) {
                    return Err(TestCaseError::fail(format!("{api:?}: {why}\n{body:#}")));
                }
            }
        }
    }

    #[test]
    fn signed_reasoning_is_not_sent_to_other_models(path in path()) {
        let request = request(transcript::messages(&path).iter().map(|it| (**it).clone()).collect());
        for (api, _) in ALL {
            let body = String::from_utf8(api.body(&request, &target(api))).unwrap();
            let own = name(api);
            let others = request.messages.iter().filter(|it| it.model.as_ref() != Some(&own));
            let has_own_seal = request.messages.iter().any(|it| {
                let sealed = |part: &Part| matches!(part, Part::Thinking { signature: Some(_), .. });
                it.model.as_ref() == Some(&own) && it.parts.iter().any(sealed)
            });
            if !has_own_seal {
                prop_assert!(!body.contains("seal"), "{api:?}: {body}");
            }
            // Reasoning is sent as text instead.
            for part in others.filter(|it| it.role == Role::Assistant).flat_map(|it| &it.parts) {
                if let Part::Thinking { text, .. } = part && !text.is_empty() {
                    prop_assert!(body.contains("<thinking>"), "{api:?}: {body}");
                }
            }
        }
    }

    #[test]
    fn user_text_is_never_lost(path in path()) {
        let messages = transcript::messages(&path);
        let request = request(messages.iter().map(|it| (**it).clone()).collect());
        for (api, _) in ALL {
            let body: Value = serde_json::from_slice(&api.body(&request, &target(api))).unwrap();
            let count = |text_of: &str| body.to_string().matches(text_of).count();
            let completion = request.messages.iter().filter(|it| it.role != Role::Tool);
            let hellos = completion.flat_map(|it| &it.parts);
            let hellos = hellos.filter(|it| **it == Part::Text { text: "hello".into() });
            prop_assert_eq!(count("hello"), hellos.count(), "{:?}: {}", api, body);
        }
    }
}
