//! Tracks one prompt through the events of its session.

use rye_engine::protocol::{
    Entry, EntryKind, ErrorInfo, IncompleteReason, Part, PromptId, Role, Synthetic, ThreadId,
    TurnEnd,
};
use serde_json::Value;

use super::PromptOutcome;

/// State of a prompt and of its automatic continuations: after a compaction the engine tells the
/// agent to continue, and that turn belongs to the prompt as well.
pub(super) struct PromptTracker {
    prompt: PromptId,
    /// Earlier prompts, of which the current one is the continuation.
    previous: Vec<PromptId>,
    /// Thread of the prompt.
    thread: Option<ThreadId>,
    /// Whether its turn has begun.
    has_begun: bool,
    /// How and in which thread the turn ended, once it has.
    end: Option<(TurnEnd, ThreadId)>,
    /// Answers of previous turns.
    previous_text: Vec<String>,
    text: String,
    stop_reason: Option<String>,
    incomplete: Option<IncompleteReason>,
    result: Option<Value>,
    error: Option<ErrorInfo>,
}

/// What an entry means for the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryRole {
    /// Progress to print.
    Progress,
    /// An answer, which is [`PromptTracker::text`]. The last one is that of the outcome.
    Answer,
    /// Unrelated.
    Ignored,
    /// Another prompt begins, so this one has ended for this reason.
    NextPrompt(TurnEnd),
}

impl PromptTracker {
    pub(super) fn new(prompt: PromptId, thread: Option<ThreadId>) -> Self {
        Self {
            prompt,
            previous: Vec::new(),
            thread,
            has_begun: false,
            end: None,
            previous_text: Vec::new(),
            text: String::new(),
            stop_reason: None,
            incomplete: None,
            result: None,
            error: None,
        }
    }

    /// Whether the id is that of the prompt or of a continuation.
    pub(super) fn owns(&self, prompt: &PromptId) -> bool {
        self.prompt == *prompt || self.previous.contains(prompt)
    }

    /// Whether its turn has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the prompt is in this thread.
    pub(super) fn is_in(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref() == Some(thread)
    }

    /// How and in which thread the turn ended, if it has.
    pub(super) fn end(&self) -> Option<(TurnEnd, &ThreadId)> {
        let end = self.end.as_ref();
        end.map(|(reason, thread)| (*reason, thread))
    }

    /// Whether the prompt is the one that runs in this thread.
    pub(super) fn is_running_in(&self, thread: &ThreadId) -> bool {
        self.has_begun && self.end.is_none() && self.is_in(thread)
    }

    /// The latest answer.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Records the end of a turn.
    pub(super) fn on_turn_end(&mut self, prompt: &PromptId, reason: TurnEnd, thread: ThreadId) {
        if *prompt == self.prompt {
            self.end = Some((reason, thread));
        }
    }

    /// Follows the prompt that this one was merged into.
    pub(super) fn on_merged(&mut self, prompt: &PromptId, into: PromptId) {
        if *prompt == self.prompt {
            self.prompt = into;
        }
    }

    /// Records an error of the prompt.
    pub(super) fn on_error(&mut self, error: ErrorInfo) {
        if error.ids.prompt.as_ref() == Some(&self.prompt) {
            self.error = Some(error);
        }
    }

    /// Processes a new entry of the session.
    pub(super) fn on_entry(&mut self, entry: &Entry) -> EntryRole {
        let end = self.end().filter(|(_, thread)| **thread == entry.thread);
        let ended = end.map(|(reason, _)| reason);
        let own = entry.prompt.as_ref() == Some(&self.prompt);
        match &entry.kind {
            EntryKind::Compaction { .. } if own || ended.is_some() => EntryRole::Progress,
            EntryKind::Message(message) if message.synthetic == Some(Synthetic::Review) => {
                EntryRole::Progress
            }
            EntryKind::Message(message) if message.role == Role::User => {
                match (ended, &entry.prompt) {
                    (Some(_), Some(prompt))
                        if message.synthetic == Some(Synthetic::CompactionContinue) =>
                    {
                        self.continue_with(prompt.clone());
                        EntryRole::Progress
                    }
                    (Some(reason), _) => EntryRole::NextPrompt(reason),
                    (None, _) => {
                        self.has_begun |= own;
                        EntryRole::Ignored
                    }
                }
            }
            EntryKind::Message(message) if own => {
                let call = |part: &Part| matches!(part, Part::ToolCall { .. });
                if message.role != Role::Assistant || message.parts.iter().any(call) {
                    return EntryRole::Progress;
                }
                // Only reports an error; the message before it has the partial answer.
                let is_error = |part: &Part| matches!(part, Part::Error { .. });
                if message.parts.iter().any(is_error) {
                    return EntryRole::Ignored;
                }
                self.text = message.content();
                self.stop_reason.clone_from(&message.stop_reason);
                self.incomplete = message.incomplete;
                if message.result.is_some() {
                    self.result.clone_from(&message.result);
                }
                EntryRole::Answer
            }
            _ => EntryRole::Ignored,
        }
    }

    fn continue_with(&mut self, prompt: PromptId) {
        self.previous
            .push(std::mem::replace(&mut self.prompt, prompt));
        self.end = None;
        self.error = None;
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            self.previous_text.push(text);
        }
    }

    /// The outcome: the answers of all turns, and how the last turn ended.
    pub(super) fn finish(self, reason: TurnEnd) -> PromptOutcome {
        let mut text = self.previous_text;
        if text.is_empty() || !self.text.trim().is_empty() {
            text.push(self.text);
        }
        PromptOutcome {
            reason,
            text: text.join("\n\n"),
            stop_reason: self.stop_reason,
            incomplete: self.incomplete,
            result: self.result,
            error: self.error,
        }
    }
}
