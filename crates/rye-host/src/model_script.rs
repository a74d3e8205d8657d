//! Exports the answers of a session as a script for `scripted:FILE` models.

use std::fmt::Write as _;

use rye_engine::protocol::{Archive, EventKind, Message, Part, Usage};
use serde_json::{Value, json};

use crate::replay::{StepKind, path, steps};

/// First characters of an exported script, by which one is recognised.
pub const SCRIPT_HEADER: &str = "# rye script of session ";

/// Exports the answers of a thread. Returns none if there is no such thread.
pub fn model_script(archive: &Archive, thread: &str) -> Option<String> {
    let thread = archive.threads.iter().find(|it| it.key == thread)?;
    let mut text = format!("{SCRIPT_HEADER}{}\n", archive.session.id);
    let own = archive.events.iter();
    let mut own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
    let last = own.rfind(|event| matches!(event.kind, EventKind::ContextChanged { .. }));
    if let Some(EventKind::ContextChanged { context }) = last.map(|event| &event.kind) {
        // So that compaction happens at the same points.
        let (window, output) = (context.context_window, context.max_output);
        let _ = writeln!(text, "context_window: {window}\nmax_output: {output}");
    }
    text.push_str("steps:\n");
    let mut summaries = Vec::new();
    for recorded in steps(archive, thread, &path(archive, thread)) {
        let step = match recorded.kind {
            StepKind::Answered(message, usage) => step(&message, Some(usage)),
            StepKind::Aborted(message) => step(&message, None),
            StepKind::Compacted { summary, .. } => {
                summaries.push(summary);
                None
            }
            StepKind::Failed(_) | StepKind::CompactionFailed => None,
        };
        if let Some(step) = step {
            // JSON is valid YAML.
            let _ = writeln!(text, "  - {step}");
        }
    }
    if !summaries.is_empty() {
        text.push_str("on_summary:\n");
    }
    for summary in summaries {
        let _ = writeln!(text, "  - {}", json!(summary));
    }
    Some(text)
}

fn step(message: &Message, usage: Option<Usage>) -> Option<Value> {
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
    if let Some(usage) = usage {
        step["usage"] = json!({
            "input": usage.input_tokens,
            "cached": usage.cached_tokens,
            "output": usage.output_tokens,
        });
    }
    Some(step)
}
