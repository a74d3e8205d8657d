//! Outputs of the state machine.

use rye_protocol::{Batch, CallId, CompactionReason, Gate, Millis, PromptId};
use serde_json::Value;

use super::LimitIncrease;

/// What to commit, and which effects to perform after the commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub(crate) batch: Batch,
    pub(crate) effects: Vec<Effect>,
    /// The accepted prompt, or the collected prompt it was merged into.
    pub(crate) accepted: Option<PromptId>,
    /// A session limit to increase in the same commit.
    pub(crate) increase: Option<LimitIncrease>,
}

/// Work to start or stop after the commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    CallModel {
        model: String,
    },
    /// Aborts the current model call, also one for a summary.
    StopModel,
    Compact {
        reason: CompactionReason,
        model: String,
    },
    RunTool {
        call: CallId,
        tool: String,
        args: Value,
    },
    StopTool(CallId),
    /// Tells a tool how its gate closed.
    Reply(CallId, Box<Gate>),
    /// Sends a tick at this time.
    WakeAt(Millis),
}
