//! The checked-in JSON Schema is up to date, and serialised values match it.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use rye_protocol::{
    CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, Event, EventKind, GateId, Message,
    Millis, Part, ResultStatus, Role, SessionId, ThreadId,
};
use serde_json::{Value, json};

#[test]
fn checked_in_schema_is_up_to_date() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/protocol.schema.json"
    );
    let checked_in = std::fs::read_to_string(file).unwrap();
    let checked_in: Value = serde_json::from_str(&checked_in).unwrap();
    assert_eq!(
        checked_in,
        rye_protocol::schema(),
        "the schema is out of date; run: cargo xtask docs"
    );
}

/// A validator for one type.
fn validator(type_name: &str) -> jsonschema::Validator {
    let mut schema = rye_protocol::schema();
    let root = json!({ "$ref": format!("#/$defs/{type_name}"), "$defs": schema["$defs"].take() });
    jsonschema::validator_for(&root).unwrap()
}

fn entry(parts: Vec<Part>) -> Entry {
    Entry {
        id: EntryId::new(),
        session: SessionId::new(),
        thread: ThreadId::new(),
        parent: None,
        prompt: None,
        kind: EntryKind::Message(Message::new(Role::Tool, parts)),
        created_at: Millis(1),
        hash: String::new(),
    }
}

#[test]
fn serialised_values_match_the_schema_and_invalid_ones_do_not() {
    let entries = validator("Entry");
    let call: CallId = "call-1".parse().unwrap();
    let mut error = ErrorInfo::new(ErrorCode::Denied, "no");
    error.ids.call = Some(call.clone());
    error.ids.gate = Some(GateId::from("gate:s:t:i:k".to_owned()));
    let valid = json!(entry(vec![
        Part::Text { text: "hi".into() },
        Part::ToolResult {
            call_id: call,
            tool: "bash".into(),
            status: ResultStatus::Error,
            text: "no".into(),
            data: Value::Null,
            error: Some(error.clone()),
            elided: false,
        },
    ]));
    assert!(entries.is_valid(&valid), "{valid}");
    for (pointer, value) in [
        ("/id", json!("two words")),
        ("/created_at", json!("yesterday")),
        ("/kind/type", json!("massage")),
        ("/kind/role", json!("guest")),
        ("/kind/parts/0/type", json!("texts")),
        ("/kind/parts/1/status", json!("fine")),
        ("/kind/parts/1/error/code", json!("else")),
        ("/kind/parts/1/error/ids/call", json!(7)),
    ] {
        let mut invalid = valid.clone();
        *invalid.pointer_mut(pointer).unwrap() = value;
        assert!(!entries.is_valid(&invalid), "{pointer}");
    }
    let event = json!(Event {
        sequence: Some(1),
        session: SessionId::new(),
        thread: None,
        at: Millis(1),
        kind: EventKind::Error { error },
    });
    assert!(validator("Event").is_valid(&event), "{event}");
    assert!(!entries.is_valid(&event));
}
