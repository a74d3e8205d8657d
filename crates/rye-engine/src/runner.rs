//! What moves a thread.

use rye_protocol::{CallId, GateStatus, ProcessRef};
use tokio::sync::oneshot;

use crate::tool::DecisionRequest;

/// What a tool says to the thread that runs it.
pub(crate) enum Mail {
    Ask {
        call: CallId,
        request: Box<DecisionRequest>,
        reply: oneshot::Sender<GateStatus>,
    },
    Output {
        call: CallId,
        text: String,
    },
    Process {
        call: CallId,
        process: ProcessRef,
    },
}
