//! Outcomes of prompts, and the failures they become.

use std::collections::BTreeMap;

use rye_engine::protocol::{
    ErrorCode, ErrorInfo, EventKind, IncompleteReason, PromptId, SessionId, TurnEnd,
};
use serde_json::Value;

use crate::failure::{Failure, FailureKind};

/// The outcome of a prompt that was followed.
pub struct PromptOutcome {
    /// How the last turn ended.
    pub reason: TurnEnd,
    /// The model's answer, including those of automatic continuation turns.
    pub text: String,
    /// The model's stop reason, as the provider reported it.
    pub stop_reason: Option<String>,
    /// Why the answer is incomplete, if it is.
    pub incomplete: Option<IncompleteReason>,
    /// The structured result, if one was requested.
    pub result: Option<Value>,
    /// The error, if the prompt failed.
    pub error: Option<ErrorInfo>,
}

impl PromptOutcome {
    /// The failure, unless the prompt was answered.
    pub fn failure(&self, session: &SessionId, is_late: bool) -> Option<Failure> {
        failure(self.reason, self.error.as_ref(), session, is_late)
    }
}

/// A prompt that finished, without its answer.
pub struct FinishedPrompt {
    /// The prompt.
    pub prompt: PromptId,
    reason: TurnEnd,
    error: Option<ErrorInfo>,
}

impl FinishedPrompt {
    /// The failure, unless the prompt was answered.
    pub fn failure(&self, session: &SessionId, is_late: bool) -> Option<Failure> {
        failure(self.reason, self.error.as_ref(), session, is_late)
    }
}

fn failure(
    reason: TurnEnd,
    error: Option<&ErrorInfo>,
    session: &SessionId,
    is_late: bool,
) -> Option<Failure> {
    let (exit, code, message) = match reason {
        TurnEnd::EndTurn | TurnEnd::Merged => return None,
        TurnEnd::Withdrawn => (
            FailureKind::Aborted,
            "withdrawn",
            "the prompt was withdrawn from the queue",
        ),
        TurnEnd::Abort => (FailureKind::Aborted, "aborted", "the prompt was aborted"),
        TurnEnd::Limit if is_late => (FailureKind::TimedOut, "limit", "time limit reached"),
        TurnEnd::Limit => (FailureKind::Limit, "limit", "limit reached"),
        TurnEnd::Error => match error.map(|error| error.code) {
            Some(ErrorCode::InvalidResult) => (
                FailureKind::SchemaMismatch,
                "invalid_result",
                "the result does not match the schema",
            ),
            _ => (FailureKind::Failed, "error", "the prompt failed"),
        },
    };
    let message = match error {
        Some(error) => error.message.clone(),
        None => message.to_owned(),
    };
    let failure = Failure::new(exit, code, message);
    Some(failure.hint(format!("rye session show {}", session.short())))
}

/// Collects finished prompts from events.
#[derive(Default)]
pub(super) struct FinishedPrompts {
    errors: BTreeMap<PromptId, ErrorInfo>,
    finished: Vec<FinishedPrompt>,
}

impl FinishedPrompts {
    pub(super) fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Error { error } => {
                if let Some(prompt) = &error.ids.prompt {
                    self.errors.insert(prompt.clone(), error.clone());
                }
            }
            // The turn of the prompt that it was merged into answers both.
            EventKind::TurnEnd {
                reason: TurnEnd::Merged,
                ..
            } => {}
            EventKind::TurnEnd { prompt, reason, .. } => self.finished.push(FinishedPrompt {
                prompt: prompt.clone(),
                reason: *reason,
                error: self.errors.remove(prompt),
            }),
            _ => {}
        }
    }

    /// The finished prompts in order.
    pub(super) fn into_vec(self) -> Vec<FinishedPrompt> {
        self.finished
    }
}
