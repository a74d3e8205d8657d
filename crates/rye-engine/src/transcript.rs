//! A history as a model reads it: every call has its result, and nothing else is said
//! between the two.

use std::sync::Arc;

use rye_protocol::{Entry, EntryKind, Message, Part, ResultStatus, Role};

/// The messages of a path, from the first entry to the last.
pub fn messages(path: &[Entry]) -> Vec<Arc<Message>> {
    let mut transcript = Transcript::default();
    for entry in path {
        transcript.push(entry);
    }
    transcript.messages
}

/// A history that grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    messages: Vec<Arc<Message>>,
}

impl Transcript {
    pub(crate) fn of(path: &[Entry]) -> Self {
        let messages = messages(path);
        Self { messages }
    }

    /// Adds what an entry says, if it says something to a model.
    pub(crate) fn push(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Message(message) if is_spoken(message) => {
                self.messages.push(Arc::new(message.clone()));
            }
            EntryKind::Compaction { summary, .. } => {
                self.messages.clear();
                let summary = Message::text(Role::User, summary.clone());
                self.messages.push(Arc::new(summary));
            }
            EntryKind::BranchSummary { summary, .. } => {
                let summary = Message::text(Role::User, summary.clone());
                self.messages.push(Arc::new(summary));
            }
            EntryKind::Message(_) | EntryKind::DecisionGate { .. } => {}
        }
    }

    /// All of it. A call without a result, which is only there if something is wrong with
    /// the record, gets one: no provider takes a history without.
    pub(crate) fn messages(&self) -> Vec<Arc<Message>> {
        let mut all = Vec::with_capacity(self.messages.len());
        let mut rest = self.messages.iter().peekable();
        while let Some(message) = rest.next() {
            all.push(Arc::clone(message));
            let mut open: Vec<_> = calls(message).collect();
            if open.is_empty() {
                continue;
            }
            while let Some(result) = rest.next_if(|next| next.role == Role::Tool) {
                open.retain(|(call, _)| results(result).all(|other| other != *call));
                all.push(Arc::clone(result));
            }
            for (call_id, tool) in open {
                all.push(Arc::new(Message::of(
                    Role::Tool,
                    vec![Part::ToolResult {
                        call_id: call_id.clone(),
                        tool: tool.to_owned(),
                        status: ResultStatus::Interrupted,
                        text: "there is no result".to_owned(),
                        data: serde_json::Value::Null,
                        error: None,
                        elided: false,
                    }],
                )));
            }
        }
        all
    }
}

/// Whether there is something in it for a model: an error of the host alone is not.
fn is_spoken(message: &Message) -> bool {
    let is_error = |part: &Part| matches!(part, Part::Error { .. });
    !message.parts.iter().all(is_error)
}

fn calls(message: &Message) -> impl Iterator<Item = (&rye_protocol::CallId, &str)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolCall { call_id, tool, .. } => Some((call_id, tool.as_str())),
        _ => None,
    })
}

fn results(message: &Message) -> impl Iterator<Item = &rye_protocol::CallId> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    })
}
