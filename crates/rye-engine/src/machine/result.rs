//! Structured results: a prompt that requires one asks the model once to correct its answer.

use rye_protocol::{EntryKind, ErrorCode, ErrorInfo, Message, Role, Synthetic, TurnEnd};

use super::Step;
use crate::result;

impl Step<'_> {
    /// Stores the required result with the answer. Returns what is wrong if it is missing.
    pub(super) fn extract_result(&self, message: &mut Message) -> Option<String> {
        let schema = self.running()?.result_schema.as_ref()?;
        match result::extract(&message.content(), schema) {
            Ok(value) => {
                message.result = Some(value);
                None
            }
            Err(problem) => Some(problem),
        }
    }

    /// Asks the model to correct its result, once; then the turn fails.
    pub(super) fn request_correction(&mut self, problem: &str) {
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.correction_requested {
            let message = format!("invalid result after a correction: {problem}");
            let error = ErrorInfo::new(ErrorCode::InvalidResult, message);
            return self.fail_turn(error, TurnEnd::Error);
        }
        turn.correction_requested = true;
        let text = format!(
            "Your result could not be used: {problem}. Repeat your whole answer with a result \
             that matches the schema."
        );
        let mut message = Message::text(Role::User, text);
        message.synthetic = Some(Synthetic::ResultRetry);
        self.append(EntryKind::Message(message));
    }
}
