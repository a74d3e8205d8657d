//! Model failover: calls the model again, or another one.

use rye_protocol::{EventKind, Phase, Usage};

use super::Step;

impl Step<'_> {
    /// Switches to the model of the prompt's role, before the first call.
    pub(super) fn switch_model(&mut self, model: String) {
        self.machine.live.model = false;
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.model = model;
            // The reserved call was not made.
            turn.reserved = Usage::default();
        }
    }

    /// A model call failed. Commits the retry and, if it is another one, the model to use from now
    /// on; [`advance`](Step::advance) then makes the call as it does after a restart.
    pub(super) fn on_model_retry(&mut self, event: EventKind) {
        self.machine.live.model = false;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        if let EventKind::ModelSwitched { to, .. } = &event {
            turn.model.clone_from(to);
        }
        self.emit(event);
    }
}
