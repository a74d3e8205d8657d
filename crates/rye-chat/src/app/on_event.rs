//! Applies engine events to the app.

use rye_engine::ThreadView;
use rye_engine::arguments::ARGUMENTS;
use rye_engine::protocol::{
    ActionId, BackgroundCommand, Entry, Event, EventKind, GateId, QueuedPrompt, ThreadId,
};
use serde_json::Value;

use super::App;
use super::gates::command_prefix;
use crate::block::{Block, first_line};
use crate::command_output::thread_choices;
use crate::pane::Pane;
use crate::text::{DIM, GREEN, RED};

impl App {
    /// Applies an event of the session, with the entry that it refers to.
    pub(crate) fn on_event(&mut self, event: &Event, entry: Option<&Entry>) {
        if let EventKind::ThreadStart { key } = &event.kind {
            return self.on_thread_started(key, event.thread.as_ref());
        }
        if self.on_gate_event(&event.kind) {
            return;
        }
        if let EventKind::BackgroundCommands { commands } = &event.kind {
            return self.on_background_commands(commands);
        }
        if let EventKind::Lagged { .. } = event.kind {
            return self.panes.iter_mut().for_each(Pane::mark_lagged);
        }
        let mut panes = self.panes.iter_mut();
        if let Some(pane) = panes.find(|pane| pane.id == event.thread) {
            pane.on_event(&event.kind, entry);
        }
        if let EventKind::TurnEnd { reason, .. } = event.kind
            && reason.ends_turn()
        {
            self.workspace_changed = true;
            if !self.panes.iter().any(Pane::is_busy) {
                self.alert = Some("the agent is done".to_owned());
            }
        }
    }

    /// Shows commands that have ended, and keeps those that run for the status line.
    fn on_background_commands(&mut self, commands: &[BackgroundCommand]) {
        for command in commands {
            if let Some(ended) = &command.ended {
                let BackgroundCommand { id, command, .. } = command;
                let text = format!("{id} {ended}: {}", first_line(command, 100));
                self.add_block(Block::notice(&text));
            }
        }
        let running = commands.iter().filter(|it| it.ended.is_none());
        self.background = running.cloned().collect();
    }

    fn pane_of(&mut self, thread: &ThreadId) -> Option<&mut Pane> {
        let mut panes = self.panes.iter_mut();
        panes.find(|pane| pane.id.as_ref() == Some(thread))
    }

    fn on_thread_started(&mut self, key: &str, id: Option<&ThreadId>) {
        match self.panes.iter_mut().find(|pane| pane.key == key) {
            Some(pane) => pane.id = id.cloned(),
            None => self.panes.push(Pane::new(key, id.cloned())),
        }
        self.completions.threads = thread_choices(self);
    }

    /// Applies an event that concerns a gate of any session. Returns whether it is one.
    pub(crate) fn on_gate_event(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::DecisionGate { gate } => {
                self.alert = Some(format!("waiting for you: {}", gate.title));
                self.add_gate((**gate).clone());
            }
            EventKind::DecisionGateResolved { gate, resolution } => {
                let denied = resolution.action == ActionId::Deny;
                let style = if denied { RED } else { GREEN };
                let edited = resolution.value.get(ARGUMENTS);
                let outcome = match &resolution.action {
                    ActionId::Approve if edited.is_some() => "approved with edited arguments",
                    ActionId::Approve => "approved",
                    ActionId::ApproveSession => "approved for this session",
                    ActionId::ApprovePrefix => "approved for commands that start the same way",
                    ActionId::ApproveProject => "approved for this project",
                    ActionId::Deny => "denied",
                    other => other.as_str(),
                };
                if resolution.action.is_approval() && resolution.action != ActionId::Approve {
                    self.note_approval(gate, &resolution.action);
                }
                if let Some(edited) = edited {
                    self.set_call_arguments(gate, edited);
                }
                let outcome = match resolution.action {
                    ActionId::Deny => resolution.denial(),
                    _ => format!("{outcome} by {}", resolution.by),
                };
                let outcome = format!("{outcome} ({})", resolution.source);
                self.close_gate(gate, &outcome, style);
            }
            EventKind::DecisionGateExpired { gate } => self.close_gate(gate, "expired", DIM),
            EventKind::DecisionGateWithdrawn { gate, reason } => {
                self.close_gate(gate, &format!("withdrawn: {reason}"), DIM);
            }
            _ => return false,
        }
        true
    }

    /// Remembers an approval that holds for more than one call, for `/permissions`.
    fn note_approval(&mut self, gate: &GateId, action: &ActionId) {
        let Some(pending) = self.gates.iter().find(|pending| pending.gate.id == *gate) else {
            return;
        };
        let gate = &pending.gate;
        let what = match action {
            ActionId::ApprovePrefix => format!("every `{} …`", command_prefix(gate)),
            ActionId::ApproveProject => format!("{} in this project", gate.title),
            _ => format!("{} in this session", gate.title),
        };
        self.approvals.push(what);
    }

    /// Shows the call of a gate with the arguments that the user edited.
    fn set_call_arguments(&mut self, gate: &GateId, args: &Value) {
        let pending = self.gates.iter().find(|pending| pending.gate.id == *gate);
        let Some(origin) = pending.map(|pending| pending.gate.origin.clone()) else {
            return;
        };
        // The call shown for `call_tool` names the inner tool, not its arguments.
        if origin.tool != "call_tool"
            && let Some(pane) = self.pane_of(&origin.thread)
        {
            pane.set_call_arguments(&origin.call, args);
        }
    }

    /// Sets the current status of threads.
    pub(crate) fn set_statuses(&mut self, threads: &[ThreadView]) {
        for view in threads {
            if let Some(pane) = self.pane_of(&view.id) {
                pane.status = view.status;
            }
        }
    }

    /// Sets the queued prompts of a thread, as loaded from the store.
    pub(crate) fn set_queue(&mut self, thread: &ThreadId, prompts: &[QueuedPrompt]) {
        let plain = self.plain;
        let Some(pane) = self.pane_of(thread) else {
            return;
        };
        if plain {
            // There is no live region that shows the queue.
            let waiting = pane.waiting.clone();
            let is_new = |prompt: &&QueuedPrompt| waiting.iter().all(|it| it.id != prompt.id);
            for prompt in prompts.iter().filter(is_new) {
                let text = first_line(&prompt.content, 200);
                pane.notice(&format!("queued: {text}"));
            }
        }
        pane.set_queue_prompts(prompts);
    }
}
