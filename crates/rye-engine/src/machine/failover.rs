//! A model that could not answer: it is asked again, or another one is.

use rye_protocol::{EventKind, Phase, Usage};

use super::Step;

impl Step<'_> {
    /// The role of the prompt wants another model; nobody was asked yet.
    pub(super) fn choose(&mut self, model: String) {
        self.machine.live.model = false;
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.model = model;
            // The call that was to be made was not.
            turn.reserved = Usage::default();
        }
    }

    /// The call has ended without an answer. What is done about it is written down, also
    /// which model answers from here on; then the call is made as after a restart.
    pub(super) fn again(&mut self, told: EventKind) {
        self.machine.live.model = false;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        if let EventKind::ModelSwitched { to, .. } = &told {
            turn.model.clone_from(to);
        }
        self.tell(told);
    }
}
