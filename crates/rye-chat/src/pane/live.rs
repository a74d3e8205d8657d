//! What is only seen while it is being said or done.

use rye_engine::protocol::CallId;
use serde_json::Value;

/// What the model is saying.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) text: String,
    pub(crate) thinking: String,
    /// The call that it is writing, and how much of it there is.
    pub(crate) call: Option<(String, usize)>,
    /// How much of the text is finished.
    pub(super) settled: usize,
    /// Whether something was missed.
    pub(super) broken: bool,
}

impl Stream {
    /// What is still being written.
    pub(crate) fn rest(&self) -> &str {
        &self.text[self.settled..]
    }
}

/// A tool that runs.
pub(crate) struct Running {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) output: String,
    /// How many lines it has printed, also those that are not kept.
    pub(crate) lines: usize,
}
