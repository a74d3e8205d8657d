//! How prompts ended, and what that is to whoever has asked.

use std::collections::BTreeMap;

use rye_engine::protocol::{
    ErrorCode, ErrorInfo, EventKind, IncompleteReason, PromptId, SessionId, TurnEnd,
};
use serde_json::Value;

use crate::cli::failure::{Exit, Failure};

/// How a prompt ended.
pub(crate) struct Ended {
    pub(crate) reason: TurnEnd,
    /// What the model answered; also in the turns that followed by themselves.
    pub(crate) text: String,
    /// Why the model stopped, in its own words.
    pub(crate) stop_reason: Option<String>,
    /// Why that is not all there was to say, if it is not.
    pub(crate) incomplete: Option<IncompleteReason>,
    /// The result, where one was wanted and it fits.
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<ErrorInfo>,
}

impl Ended {
    /// Why it was not answered, if it was not.
    pub(crate) fn failure(&self, session: &SessionId, is_late: bool) -> Option<Failure> {
        failure(self.reason, self.error.as_ref(), session, is_late)
    }
}

/// That a prompt ended, whatever was said.
pub(crate) struct Bare {
    pub(crate) prompt: PromptId,
    reason: TurnEnd,
    error: Option<ErrorInfo>,
}

impl Bare {
    /// Why it was not answered, if it was not.
    pub(crate) fn failure(&self, session: &SessionId, is_late: bool) -> Option<Failure> {
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
        TurnEnd::EndTurn => return None,
        TurnEnd::Abort => (Exit::Aborted, "aborted", "somebody ended it"),
        TurnEnd::Limit if is_late => (Exit::TimedOut, "limit", "its time is up"),
        TurnEnd::Limit => (Exit::Limit, "limit", "a limit was reached"),
        TurnEnd::Error => match error.map(|error| error.code) {
            Some(ErrorCode::InvalidResult) => {
                (Exit::Unfit, "invalid_result", "the result does not fit")
            }
            _ => (Exit::Failed, "error", "it could not be answered"),
        },
    };
    let message = match error {
        Some(error) => error.message.clone(),
        None => message.to_owned(),
    };
    let failure = Failure::new(exit, code, message);
    Some(failure.hint(format!("rye session show {session}")))
}

/// What is heard of the ends of prompts.
#[derive(Default)]
pub(super) struct Ends {
    errors: BTreeMap<PromptId, ErrorInfo>,
    ended: Vec<Bare>,
}

impl Ends {
    pub(super) fn hear(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Error { error } => {
                if let Some(prompt) = &error.ids.prompt {
                    self.errors.insert(prompt.clone(), error.clone());
                }
            }
            EventKind::TurnEnd { prompt, reason } => self.ended.push(Bare {
                prompt: prompt.clone(),
                reason: *reason,
                error: self.errors.remove(prompt),
            }),
            _ => {}
        }
    }

    /// Those that have ended, in order.
    pub(super) fn all(self) -> Vec<Bare> {
        self.ended
    }
}
