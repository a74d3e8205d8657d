//! Assembles the messages that a model sees from the entries of a history. Every call is followed
//! directly by its result, and call ids that a provider has used twice are made unique.

use std::collections::HashSet;
use std::sync::Arc;

use rye_protocol::{CallId, Entry, EntryKind, Message, Part, ResultStatus, Role};

use crate::compaction::view::{View, VisibleEntry};
use crate::tokens;

/// The messages of a path, which is ordered from the first entry to the last.
pub fn messages(path: &[Entry]) -> Vec<Arc<Message>> {
    Arc::unwrap_or_clone(Transcript::new(path).messages())
}

/// A growing list of messages. Readers share it; it is copied only if it grows while they use it.
///
/// A call without a result, which a damaged record may have, gets a placeholder result, and a
/// result without a call is dropped, because providers reject such histories.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    messages: Arc<Vec<Arc<Message>>>,
    /// Calls of the last message that have no result yet, with their tools.
    open: Vec<(CallId, String)>,
    /// Estimated number of tokens.
    tokens: u64,
    /// Number of answers that a summary replaces.
    compacted_answers: usize,
    /// Ids of all calls of the path, including those covered by compactions.
    ids: HashSet<CallId>,
}

impl Transcript {
    /// Builds the transcript of a path.
    pub(crate) fn new(path: &[Entry]) -> Self {
        let mut transcript = Self::default();
        for entry in path {
            transcript.note_calls(entry);
        }
        let view = View::new(path);
        transcript.compacted_answers = view.covered_answers();
        for visible in view.visible() {
            match visible {
                VisibleEntry::Summary(message) => transcript.add(*message),
                VisibleEntry::Entry {
                    entry,
                    without_media,
                } => transcript.add_entry(entry, without_media),
            }
        }
        transcript
    }

    /// Adds an entry. Returns false for a compaction, which changes earlier messages: then the
    /// transcript must be rebuilt from the path.
    pub(crate) fn push(&mut self, entry: &Entry) -> bool {
        let is_compaction = matches!(
            entry.kind,
            EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
        );
        if !is_compaction {
            self.note_calls(entry);
            self.add_entry(entry, false);
        }
        !is_compaction
    }

    fn note_calls(&mut self, entry: &Entry) {
        if let EntryKind::Message(message) = &entry.kind {
            self.ids
                .extend(calls(message).map(|(call, _)| call.clone()));
        }
    }

    /// Gives each call of an answer a unique id. Approvals and tasks are identified by the call id,
    /// so a reused id would inherit them.
    pub(crate) fn dedupe_call_ids(&self, answer: &mut [Part]) {
        let mut used = HashSet::new();
        for part in answer {
            if let Part::ToolCall { call_id, .. } = part {
                *call_id = unused_id(call_id, |id| self.ids.contains(id) || used.contains(id));
                used.insert(call_id.clone());
            }
        }
    }

    /// The unique id that [`Self::dedupe_call_ids`] gives to a call.
    pub(crate) fn unique_call_id(&self, call: &CallId) -> CallId {
        unused_id(call, |id| self.ids.contains(id))
    }

    fn add_entry(&mut self, entry: &Entry, without_media: bool) {
        match &entry.kind {
            EntryKind::Message(message) => {
                let mut message = message.clone();
                // Errors of the host are not shown to models.
                let is_error = |part: &Part| matches!(part, Part::Error { .. });
                message.parts.retain(|part| !is_error(part));
                for part in &mut message.parts {
                    elide(part, without_media);
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
            | EntryKind::DecisionGate { .. }
            | EntryKind::Run { .. } => {}
        }
    }

    /// Number of answers that a summary replaces.
    pub(crate) fn compacted_answers(&self) -> usize {
        self.compacted_answers
    }

    /// Estimated number of tokens.
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
            all.extend(self.open.drain(..).map(missing_result));
            let calls = calls(&message).map(|(call, tool)| (call.clone(), tool.to_owned()));
            self.open.extend(calls);
        }
        self.tokens = self
            .tokens
            .saturating_add(tokens::estimate_message(&message));
        all.push(Arc::new(message));
    }

    /// All messages, with placeholder results for open calls.
    pub(crate) fn messages(&self) -> Arc<Vec<Arc<Message>>> {
        let mut messages = Arc::clone(&self.messages);
        if !self.open.is_empty() {
            Arc::make_mut(&mut messages).extend(self.open.iter().cloned().map(missing_result));
        }
        messages
    }
}

/// The id, or the first unused one of `ID-2`, `ID-3` and so on.
fn unused_id(id: &CallId, is_used: impl Fn(&CallId) -> bool) -> CallId {
    if !is_used(id) {
        return id.clone();
    }
    // Ends if the id becomes too long.
    let mut others = (2u64..).map_while(|nth| format!("{id}-{nth}").parse().ok());
    others
        .find(|other| !is_used(other))
        .unwrap_or_else(CallId::new)
}

/// The placeholder result of a call without a result.
fn missing_result((call_id, tool): (CallId, String)) -> Arc<Message> {
    Arc::new(Message::new(
        Role::Tool,
        vec![Part::ToolResult {
            call_id,
            tool,
            status: ResultStatus::Interrupted,
            text: "no result".to_owned(),
            data: serde_json::Value::Null,
            error: None,
            elided: false,
        }],
    ))
}

/// Removes pruned output and omitted media from a part.
fn elide(part: &mut Part, without_media: bool) {
    match part {
        Part::ToolResult {
            text, elided: true, ..
        } => text.clear(),
        Part::Attachment {
            name, mime_type, ..
        } if without_media => {
            let text = format!("[{name}, {mime_type}, omitted to save space]");
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
