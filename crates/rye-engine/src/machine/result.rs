//! A prompt that wants a structured result: an answer without one is asked for once more.

use rye_protocol::{EntryKind, ErrorCode, ErrorInfo, Message, Role, TurnEnd};
use serde_json::json;

use super::Step;
use crate::result::{self, RESULT, RETRY, SCHEMA};

impl Step<'_> {
    /// Puts the result that a prompt wants beside the answer. In words what is wrong, if it
    /// wants one that is not there.
    pub(super) fn result_of(&self, message: &mut Message) -> Option<String> {
        let schema = self.running()?.metadata.get(SCHEMA)?;
        match result::find(&message.content(), schema) {
            Ok(value) => {
                message.metadata.insert(RESULT.to_owned(), value);
                None
            }
            Err(wrong) => Some(wrong),
        }
    }

    /// Tells the model what is wrong with its result, once; then the prompt has failed.
    pub(super) fn no_result(&mut self, wrong: &str) {
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.correction_requested {
            let message = format!("the result is no good, twice: {wrong}");
            let error = ErrorInfo::new(ErrorCode::InvalidResult, message);
            return self.fail(error, TurnEnd::Error);
        }
        turn.correction_requested = true;
        let text = format!(
            "Your result could not be used: {wrong}. Give your whole answer again, with a \
             result that fits."
        );
        let mut message = Message::text(Role::User, text);
        message.metadata.insert(RETRY.to_owned(), json!(true));
        self.append(EntryKind::Message(message));
    }
}
