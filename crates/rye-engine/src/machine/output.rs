//! What goes out.

use rye_protocol::{Batch, CallId, CompactionReason, Gate, Millis, PromptId};
use serde_json::Value;

use super::Raise;

/// What is to be written, and what is to be done once it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub(crate) batch: Batch,
    pub(crate) effects: Vec<Effect>,
    /// The prompt that was taken in, or that it was added to.
    pub(crate) accepted: Option<PromptId>,
    /// A limit of the session that is to be higher, written with all else.
    pub(crate) raise: Option<Raise>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    CallModel {
        model: String,
    },
    /// Ends what a model is asked, whatever for.
    StopModel,
    Compact {
        why: CompactionReason,
        model: String,
    },
    RunTool {
        call: CallId,
        tool: String,
        args: Value,
    },
    StopTool(CallId),
    /// Tell a tool how its gate ended.
    Reply(CallId, Box<Gate>),
    /// Look again at this moment.
    WakeAt(Millis),
}
