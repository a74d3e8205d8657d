//! A model that could not answer: it is asked again, or another one is.

use rye_protocol::{EventKind, Phase};

use super::Step;

impl Step<'_> {
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
