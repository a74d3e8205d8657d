//! A history as a model reads it: every call has its result, and nothing else is said
//! between the two.

use std::collections::HashSet;
use std::sync::Arc;

use rye_protocol::{CallId, Entry, EntryKind, Message, Part, ResultStatus, Role};

use crate::compaction::view::{Shown, View};
use crate::tokens;

/// The messages of a path, from the first entry to the last.
pub fn messages(path: &[Entry]) -> Vec<Arc<Message>> {
    Arc::unwrap_or_clone(Transcript::new(path).messages())
}

/// A history that grows. Whoever is asked gets it as it is, however long: it is shared, and
/// only copied if it grows while somebody has it.
///
/// A call without a result, which is only there if something is wrong with the record, gets
/// one, and a result without its call is left out: no provider takes a history otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    messages: Arc<Vec<Arc<Message>>>,
    /// Calls of the last answer that have no result yet, and their tools.
    open: Vec<(CallId, String)>,
    /// How many tokens it has, about.
    tokens: u64,
    /// The ids of all calls of the path, those too that a sum stands for.
    ids: HashSet<CallId>,
}

impl Transcript {
    /// What a model reads of a path. The one place where that is said, for a history that
    /// grew here as for one that was read from the record.
    pub(crate) fn new(path: &[Entry]) -> Self {
        let mut transcript = Self::default();
        for entry in path {
            transcript.note_calls(entry);
        }
        for shown in View::new(path).shown() {
            match shown {
                Shown::Sum(message) => transcript.add(message),
                Shown::Entry {
                    entry,
                    without_media,
                } => transcript.read(entry, without_media),
            }
        }
        transcript
    }

    /// Adds what an entry says, if it says something to a model. Whether it does: a sum
    /// changes what stands before it, and then the path must be read again.
    pub(crate) fn push(&mut self, entry: &Entry) -> bool {
        let is_sum = matches!(
            entry.kind,
            EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
        );
        if !is_sum {
            self.note_calls(entry);
            self.read(entry, false);
        }
        !is_sum
    }

    fn note_calls(&mut self, entry: &Entry) {
        if let EntryKind::Message(message) = &entry.kind {
            self.ids
                .extend(calls(message).map(|(call, _)| call.clone()));
        }
    }

    /// Gives each call of an answer an id that no call before it has. What a person approves,
    /// what a task has said, is that of a call: of one that is named as an earlier one is, it
    /// would be taken for its own.
    pub(crate) fn dedupe_call_ids(&self, answer: &mut [Part]) {
        let mut own = HashSet::new();
        for part in answer {
            if let Part::ToolCall { call_id, .. } = part {
                *call_id = unused(call_id, |id| self.ids.contains(id) || own.contains(id));
                own.insert(call_id.clone());
            }
        }
    }

    /// The id that a call has once it is told apart.
    pub(crate) fn own_id(&self, call: &CallId) -> CallId {
        unused(call, |id| self.ids.contains(id))
    }

    fn read(&mut self, entry: &Entry, without_media: bool) {
        match &entry.kind {
            EntryKind::Message(message) => {
                let mut message = message.clone();
                // What went wrong with the host is nothing to a model.
                let is_error = |part: &Part| matches!(part, Part::Error { .. });
                message.parts.retain(|part| !is_error(part));
                for part in &mut message.parts {
                    leave_out(part, without_media);
                }
                if !message.parts.is_empty() {
                    self.add(message);
                }
            }
            EntryKind::BranchSummary { summary, .. } => {
                self.add(Message::text(Role::User, summary.clone()));
            }
            EntryKind::Compaction { .. }
            | EntryKind::CompactionUndone { .. }
            | EntryKind::DecisionGate { .. } => {}
        }
    }

    /// How many tokens it has, about.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    fn add(&mut self, message: Message) {
        let all = Arc::make_mut(&mut self.messages);
        if message.role == Role::Tool {
            let before = self.open.len();
            let open = |(call, _): &(CallId, String)| results(&message).all(|it| it != call);
            self.open.retain(open);
            if self.open.len() == before {
                return;
            }
        } else {
            all.extend(self.open.drain(..).map(no_result));
            let calls = calls(&message).map(|(call, tool)| (call.clone(), tool.to_owned()));
            self.open.extend(calls);
        }
        self.tokens = self.tokens.saturating_add(tokens::of_message(&message));
        all.push(Arc::new(message));
    }

    /// All of it.
    pub(crate) fn messages(&self) -> Arc<Vec<Arc<Message>>> {
        let mut messages = Arc::clone(&self.messages);
        if !self.open.is_empty() {
            Arc::make_mut(&mut messages).extend(self.open.iter().cloned().map(no_result));
        }
        messages
    }
}

/// An id, or, where that is used, the first of `ID-2`, `ID-3` and so on that is not.
fn unused(id: &CallId, is_used: impl Fn(&CallId) -> bool) -> CallId {
    if !is_used(id) {
        return id.clone();
    }
    // What is too long with a number is no id.
    let mut others = (2u64..).map_while(|nth| format!("{id}-{nth}").parse().ok());
    others
        .find(|other| !is_used(other))
        .unwrap_or_else(CallId::new)
}

/// What is said of a call that has no result.
fn no_result((call_id, tool): (CallId, String)) -> Arc<Message> {
    Arc::new(Message::new(
        Role::Tool,
        vec![Part::ToolResult {
            call_id,
            tool,
            status: ResultStatus::Interrupted,
            text: "there is no result".to_owned(),
            data: serde_json::Value::Null,
            error: None,
            elided: false,
        }],
    ))
}

/// Leaves out of a part what is not to be read any more.
fn leave_out(part: &mut Part, without_media: bool) {
    match part {
        Part::ToolResult {
            text, elided: true, ..
        } => text.clear(),
        Part::Attachment {
            name, mime_type, ..
        } if without_media => {
            let text = format!("[{name}, {mime_type}, is left out to save room]");
            *part = Part::Text { text };
        }
        _ => {}
    }
}

fn calls(message: &Message) -> impl Iterator<Item = (&CallId, &str)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolCall { call_id, tool, .. } => Some((call_id, tool.as_str())),
        _ => None,
    })
}

fn results(message: &Message) -> impl Iterator<Item = &CallId> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
