//! A history as a model reads it: every call has its result, and nothing else is said
//! between the two.

use std::sync::Arc;

use rye_protocol::{CallId, Entry, EntryKind, Message, Part, ResultStatus, Role};

use crate::compaction::view::{Shown, View};
use crate::tokens;

/// The messages of a path, from the first entry to the last.
pub fn messages(path: &[Entry]) -> Vec<Arc<Message>> {
    Arc::unwrap_or_clone(Transcript::of(path).messages())
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
}

impl Transcript {
    /// What a model reads of a path. The one place where that is said, for a history that
    /// grew here as for one that was read from the record.
    pub(crate) fn of(path: &[Entry]) -> Self {
        let mut transcript = Self::default();
        for shown in View::of(path).shown() {
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
            self.read(entry, false);
        }
        !is_sum
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

/// What is said of a call that has no result.
fn no_result((call_id, tool): (CallId, String)) -> Arc<Message> {
    Arc::new(Message::of(
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
mod tests {
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
            item: None,
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
        Message::of(Role::Tool, vec![part])
    }

    fn error() -> Part {
        let error = ErrorInfo::new(ErrorCode::Model, "it is gone");
        Part::Error { error }
    }

    /// Any message, whether or not it fits what stands before it.
    fn message() -> impl Strategy<Value = Message> {
        let calls = prop::collection::btree_set(0..4u8, 0..4);
        prop_oneof![
            Just(Message::text(Role::User, "go on")),
            (calls, any::<bool>()).prop_map(|(calls, failed)| {
                let failed = failed.then(error);
                let parts = calls.into_iter().map(call).chain(failed);
                Message::of(Role::Assistant, parts.collect())
            }),
            (0..4u8).prop_map(result),
            Just(Message::of(Role::System, vec![error()])),
        ]
    }

    proptest! {
        #[test]
        fn every_call_has_one_result_before_anything_else_is_said(
            path in prop::collection::vec(message().prop_map(entry), 0..20),
        ) {
            let mut open: Vec<CallId> = Vec::new();
            for message in messages(&path) {
                if message.role == Role::Tool {
                    for call in results(&message) {
                        let place = open.iter().position(|other| other == call);
                        prop_assert!(place.is_some(), "{call} has a result and is not open");
                        open.remove(place.unwrap_or_default());
                    }
                } else {
                    prop_assert!(open.is_empty(), "{open:?} have no result");
                    open = calls(&message).map(|(call, _)| call.clone()).collect();
                }
            }
            prop_assert!(open.is_empty(), "{open:?} have no result");
        }

        #[test]
        fn errors_of_the_host_are_not_spoken(
            path in prop::collection::vec(message().prop_map(entry), 0..20),
        ) {
            for message in messages(&path) {
                prop_assert!(!message.parts.is_empty());
                prop_assert!(!message.parts.contains(&error()));
            }
        }
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let said = [
            Message::text(Role::User, "look twice"),
            Message::of(Role::Assistant, vec![call(1), call(2)]),
            result(2),
            result(1),
            Message::text(Role::Assistant, "seen"),
        ];
        let path: Vec<_> = said.iter().cloned().map(entry).collect();
        let heard: Vec<_> = messages(&path).iter().map(|it| (**it).clone()).collect();
        assert_eq!(heard, said);
    }
}
