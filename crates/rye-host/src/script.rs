//! A session as a script: what its model said, to be said again by `scripted:FILE`.

use std::fmt::Write as _;

use rye_engine::protocol::{Archive, EntryKind, EventKind, Message, Part, Role, Usage};
use serde_json::{Value, json};

/// The answers of a session's thread, as a script. None if it has no such thread.
pub fn script(archive: &Archive, thread: &str) -> Option<String> {
    let thread = archive.threads.iter().find(|it| it.key == thread)?;
    let path = crate::replay::path(archive, thread);
    let events = archive.events.iter();
    let own = events.filter(|event| event.thread.as_ref() == Some(&thread.id));
    let mut usage = own.filter_map(|event| match &event.kind {
        EventKind::Usage { usage } => Some(*usage),
        _ => None,
    });
    let mut text = format!(
        "# What was said in session {}.\nsteps:\n",
        archive.session.id
    );
    let mut summary = None;
    for entry in &path {
        match &entry.kind {
            EntryKind::Message(message) if message.role == Role::Assistant => {
                if let Some(step) = step(message, &mut usage) {
                    // JSON is YAML.
                    let _ = writeln!(text, "  - {step}");
                }
            }
            EntryKind::Compaction { summary: sum, .. } => summary = Some(sum),
            _ => {}
        }
    }
    if let Some(summary) = summary {
        let _ = writeln!(text, "on_summary: {}", json!(summary));
    }
    Some(text)
}

fn step(message: &Message, usage: &mut impl Iterator<Item = Usage>) -> Option<Value> {
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text: more } => text.push_str(more),
            Part::Thinking { text: more, .. } => thinking.push_str(more),
            Part::ToolCall {
                call_id,
                tool,
                args,
            } => calls.push(json!({ "name": tool, "args": args, "id": call_id })),
            _ => {}
        }
    }
    if text.is_empty() && thinking.is_empty() && calls.is_empty() {
        return None;
    }
    let mut step = json!({});
    if !thinking.is_empty() {
        step["thinking"] = json!(thinking);
    }
    if !text.is_empty() {
        step["text"] = json!(text);
    }
    if !calls.is_empty() {
        step["tool_calls"] = json!(calls);
    }
    if let Some(usage) = usage.next() {
        step["usage"] = json!({
            "input": usage.input_tokens,
            "cached": usage.cached_tokens,
            "output": usage.output_tokens,
        });
    }
    Some(step)
}
