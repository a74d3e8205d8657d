//! A prompt that was asked, and what has come of it so far.

use rye_engine::compaction::is_continuation;
use rye_engine::protocol::{
    Entry, EntryKind, ErrorInfo, IncompleteReason, Part, PromptId, Role, ThreadId, TurnEnd,
};
use rye_engine::result::RESULT;
use serde_json::Value;

use super::Ended;

/// What is heard of a prompt, and of the turns that follow it by themselves: an agent whose
/// history was summed up is told to go on, and what it does then belongs to the prompt.
pub(super) struct Asked {
    prompt: PromptId,
    /// Those that it went on from.
    before: Vec<PromptId>,
    /// The thread that it was asked in.
    thread: Option<ThreadId>,
    /// How the turn ended, and in which thread, once it has.
    ended: Option<(TurnEnd, ThreadId)>,
    /// What was said in the turns before.
    earlier: Vec<String>,
    text: String,
    stop_reason: Option<String>,
    incomplete: Option<IncompleteReason>,
    result: Option<Value>,
    error: Option<ErrorInfo>,
}

/// What an entry is to whoever has asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Something on the way, to be told on the side.
    Aside,
    /// What is told at the end, or not theirs.
    Nothing,
    /// Another prompt begins: nothing more comes of this one, which has ended so.
    Other(TurnEnd),
}

impl Asked {
    pub(super) fn new(prompt: PromptId, thread: Option<ThreadId>) -> Self {
        Self {
            prompt,
            before: Vec::new(),
            thread,
            ended: None,
            earlier: Vec::new(),
            text: String::new(),
            stop_reason: None,
            incomplete: None,
            result: None,
            error: None,
        }
    }

    /// Whether something is asked for this prompt.
    pub(super) fn owns(&self, prompt: &PromptId) -> bool {
        self.prompt == *prompt || self.before.contains(prompt)
    }

    /// Whether it was asked in a thread.
    pub(super) fn is_in(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref() == Some(thread)
    }

    /// How the turn ended, and in which thread, if it has.
    pub(super) fn ended(&self) -> Option<(TurnEnd, &ThreadId)> {
        let ended = self.ended.as_ref();
        ended.map(|(reason, thread)| (*reason, thread))
    }

    /// A turn has ended.
    pub(super) fn turn_ended(&mut self, prompt: &PromptId, reason: TurnEnd, thread: ThreadId) {
        if *prompt == self.prompt {
            self.ended = Some((reason, thread));
        }
    }

    /// Something went wrong.
    pub(super) fn failed(&mut self, error: ErrorInfo) {
        if error.ids.prompt.as_ref() == Some(&self.prompt) {
            self.error = Some(error);
        }
    }

    /// An entry was written.
    pub(super) fn written(&mut self, entry: &Entry) -> Meaning {
        let ended = self.ended().filter(|(_, thread)| **thread == entry.thread);
        let after = ended.map(|(reason, _)| reason);
        let own = entry.prompt.as_ref() == Some(&self.prompt);
        match &entry.kind {
            EntryKind::Compaction { .. } if own || after.is_some() => Meaning::Aside,
            EntryKind::Message(message) if message.role == Role::User => {
                match (after, &entry.prompt) {
                    (Some(_), Some(prompt)) if is_continuation(message) => {
                        self.goes_on(prompt.clone());
                        Meaning::Aside
                    }
                    (Some(reason), _) => Meaning::Other(reason),
                    (None, _) => Meaning::Nothing,
                }
            }
            EntryKind::Message(message) if own => {
                let call = |part: &Part| matches!(part, Part::ToolCall { .. });
                if message.role != Role::Assistant || message.parts.iter().any(call) {
                    return Meaning::Aside;
                }
                self.text = message.content();
                self.stop_reason.clone_from(&message.stop_reason);
                self.incomplete = message.incomplete_reason();
                if let Some(result) = message.metadata.get(RESULT) {
                    self.result = Some(result.clone());
                }
                Meaning::Nothing
            }
            _ => Meaning::Nothing,
        }
    }

    fn goes_on(&mut self, prompt: PromptId) {
        self.before
            .push(std::mem::replace(&mut self.prompt, prompt));
        self.ended = None;
        self.error = None;
        let said = std::mem::take(&mut self.text);
        if !said.trim().is_empty() {
            self.earlier.push(said);
        }
    }

    /// What came of it: all that was said, and how the last turn ended.
    pub(super) fn end(self, reason: TurnEnd) -> Ended {
        let mut said = self.earlier;
        if said.is_empty() || !self.text.trim().is_empty() {
            said.push(self.text);
        }
        Ended {
            reason,
            text: said.join("\n\n"),
            stop_reason: self.stop_reason,
            incomplete: self.incomplete,
            result: self.result,
            error: self.error,
        }
    }
}
