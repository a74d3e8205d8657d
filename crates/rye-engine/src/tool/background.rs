//! Commands in the background that a session shows.

use rye_protocol::{BackgroundCommand, Event, EventKind};

use super::ToolContext;
use crate::bus::Notice;
use crate::engine::Session;

impl ToolContext {
    /// Tells the subscribers of the session that a command in the background started, or that it
    /// ended. Secrets in the command line are redacted.
    pub fn report_background(&self, mut command: BackgroundCommand) {
        // A closed session has no subscribers.
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let Some(session) = engine.open_session(&self.session) else {
            return;
        };
        self.redactor.redact_in_place(&mut command.command);
        let shared = session.shared();
        let commands = {
            let mut all = shared.background.lock();
            all.retain(|it| it.id != command.id);
            all.push(command);
            let commands = all.clone();
            all.retain(|it| it.ended.is_none());
            commands
        };
        let event = Event {
            sequence: None,
            session: self.session.clone(),
            thread: Some(self.thread.clone()),
            at: engine.clock.now(),
            kind: EventKind::BackgroundCommands { commands },
        };
        shared.bus.publish(Notice { event, entry: None });
    }
}

impl Session {
    /// The commands of the session that run in the background of this process.
    pub fn background_commands(&self) -> Vec<BackgroundCommand> {
        self.shared().background.lock().clone()
    }
}
