//! Tests of transcripts of arbitrary records.

use proptest::prelude::*;
use rye_protocol::{EntryId, ErrorCode, ErrorInfo, Millis};
use serde_json::Value;

use super::*;

fn entry(message: Message) -> Entry {
    Entry {
        id: EntryId::new(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        prompt: None,
        kind: EntryKind::Message(message),
        created_at: Millis(0),
        hash: String::new(),
    }
}

fn id(call: u8) -> CallId {
    format!("call-{call}").parse().unwrap()
}

fn call(call: u8) -> Part {
    Part::ToolCall {
        call_id: id(call),
        tool: "look".to_owned(),
        args: Value::Null,
    }
}

fn result(call: u8) -> Message {
    let part = Part::ToolResult {
        call_id: id(call),
        tool: "look".to_owned(),
        status: ResultStatus::Success,
        text: "seen".to_owned(),
        data: Value::Null,
        error: None,
        elided: false,
    };
    Message::new(Role::Tool, vec![part])
}

fn error() -> Part {
    let error = ErrorInfo::new(ErrorCode::Model, "it is gone");
    Part::Error { error }
}

/// Any message, whether or not it is valid after the previous one.
fn message() -> impl Strategy<Value = Message> {
    let calls = prop::collection::btree_set(0..4u8, 0..4);
    prop_oneof![
        Just(Message::text(Role::User, "go on")),
        (calls, any::<bool>()).prop_map(|(calls, failed)| {
            let failed = failed.then(error);
            let parts = calls.into_iter().map(call).chain(failed);
            Message::new(Role::Assistant, parts.collect())
        }),
        (0..4u8).prop_map(result),
        Just(Message::new(Role::System, vec![error()])),
    ]
}

proptest! {
    #[test]
    fn every_call_is_followed_by_one_result(
        path in prop::collection::vec(message().prop_map(entry), 0..20),
    ) {
        let mut open: Vec<CallId> = Vec::new();
        for message in messages(&path) {
            if message.role == Role::Tool {
                for call in results(&message) {
                    let index = open.iter().position(|other| other == call);
                    prop_assert!(index.is_some(), "{call} has a result and is not open");
                    open.remove(index.unwrap_or_default());
                }
            } else {
                prop_assert!(open.is_empty(), "{open:?} have no result");
                open = calls(&message).map(|(call, _)| call.clone()).collect();
            }
        }
        prop_assert!(open.is_empty(), "{open:?} have no result");
    }

    #[test]
    fn host_errors_are_not_shown(
        path in prop::collection::vec(message().prop_map(entry), 0..20),
    ) {
        for message in messages(&path) {
            prop_assert!(!message.parts.is_empty());
            prop_assert!(!message.parts.contains(&error()));
        }
    }
}

proptest! {
    #[test]
    fn call_ids_are_unique(
        answers in prop::collection::vec(prop::collection::vec(0..3u8, 0..4), 0..8),
        compacted_after in 0..8usize,
    ) {
        let (mut path, mut live) = (Vec::new(), Transcript::default());
        let mut seen = HashSet::new();
        for (nth, answer) in answers.into_iter().enumerate() {
            if nth == compacted_after {
                path.push(compaction(&path));
                live = Transcript::new(&path);
            }
            let mut parts: Vec<_> = answer.into_iter().map(call).collect();
            let original = parts.first().cloned();
            live.dedupe_call_ids(&mut parts);
            if let (Some(Part::ToolCall { call_id: original, .. }),
                Some(Part::ToolCall { call_id, .. })) = (original, parts.first())
            {
                prop_assert_eq!(&live.unique_call_id(&original), call_id);
            }
            let message = Message::new(Role::Assistant, parts);
            for (call, _) in calls(&message) {
                prop_assert!(seen.insert(call.clone()), "{} is used twice", call);
            }
            let entry = entry(message);
            live.push(&entry);
            path.push(entry);
        }
    }
}

fn compaction(path: &[Entry]) -> Entry {
    let kind = EntryKind::Compaction {
        summary: "all of it".to_owned(),
        covered: path.iter().map(|entry| entry.id.clone()).collect(),
        tokens_before: 0,
        tokens_after: 0,
        files_read: Vec::new(),
        files_modified: Vec::new(),
        preserved: Vec::new(),
        without_media: false,
    };
    Entry {
        kind,
        ..entry(Message::text(Role::User, ""))
    }
}

#[test]
fn used_id_gets_a_suffix_or_is_replaced_if_too_long() {
    let long: CallId = "x".repeat(256).parse().unwrap();
    let mut transcript = Transcript::default();
    transcript.ids.extend([id(1), long.clone()]);
    assert_eq!(transcript.unique_call_id(&id(0)), id(0));
    assert_eq!(transcript.unique_call_id(&id(1)).as_str(), "call-1-2");
    let other = transcript.unique_call_id(&long);
    assert!(other != long && other.as_str().len() < 64);
}

#[test]
fn valid_history_is_unchanged() {
    let expected = [
        Message::text(Role::User, "look twice"),
        Message::new(Role::Assistant, vec![call(1), call(2)]),
        result(2),
        result(1),
        Message::text(Role::Assistant, "seen"),
    ];
    let path: Vec<_> = expected.iter().cloned().map(entry).collect();
    let actual: Vec<_> = messages(&path).iter().map(|it| (**it).clone()).collect();
    assert_eq!(actual, expected);
}
