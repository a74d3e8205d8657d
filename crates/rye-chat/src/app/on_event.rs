//! Applies engine events to the app.

use rye_engine::ThreadView;
use rye_engine::arguments::ARGUMENTS;
use rye_engine::protocol::{Entry, Event, EventKind, GateId, QueuedPrompt, StatusKind, ThreadId};
use serde_json::Value;

use super::App;
use crate::block::Block;
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
        if let EventKind::Lagged { .. } = event.kind {
            return self.panes.iter_mut().for_each(Pane::mark_lagged);
        }
        let of_event = |pane: &&mut Pane| pane.id == event.thread;
        if let Some(pane) = self.panes.iter_mut().find(of_event) {
            on_thread_event(pane, &event.kind, entry);
        }
    }

    fn on_thread_started(&mut self, key: &str, id: Option<&ThreadId>) {
        match self.panes.iter_mut().find(|pane| pane.key == key) {
            Some(pane) => pane.id = id.cloned(),
            None => self.panes.push(Pane::new(key, id.cloned())),
        }
        self.completions.threads = self.panes.iter().map(|pane| pane.key.clone()).collect();
    }

    /// Applies an event that concerns a gate of any session. Returns whether it is one.
    pub(crate) fn on_gate_event(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::DecisionGate { gate } => self.add_gate((**gate).clone()),
            EventKind::DecisionGateResolved { gate, resolution } => {
                let denied = resolution.action == "deny";
                let style = if denied { RED } else { GREEN };
                let edited = resolution.value.get(ARGUMENTS);
                let outcome = match resolution.action.as_str() {
                    "approve" if edited.is_some() => "approved with edited arguments",
                    "approve" => "approved",
                    "approve_session" => "approved for this session",
                    "approve_project" => "approved for this project",
                    "deny" => "denied",
                    other => other,
                };
                if let Some(edited) = edited {
                    self.set_call_arguments(gate, edited);
                }
                let outcome = format!("{outcome} by {} ({})", resolution.by, resolution.source);
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

    /// Shows the call of a gate with the arguments that the user edited.
    fn set_call_arguments(&mut self, gate: &GateId, args: &Value) {
        let pending = self.gates.iter().find(|pending| pending.gate.id == *gate);
        let Some(origin) = pending.map(|pending| pending.gate.origin.clone()) else {
            return;
        };
        // The call shown for `call_tool` names the inner tool, not its arguments.
        if origin.tool != "call_tool" {
            let panes = self.panes.iter_mut();
            let mut panes = panes.filter(|pane| pane.id.as_ref() == Some(&origin.thread));
            if let Some(pane) = panes.next() {
                pane.set_call_arguments(&origin.call, args);
            }
        }
    }

    /// Sets the current status of threads.
    pub(crate) fn set_statuses(&mut self, threads: &[ThreadView]) {
        for view in threads {
            let of_thread = |pane: &&mut Pane| pane.id.as_ref() == Some(&view.id);
            if let Some(pane) = self.panes.iter_mut().find(of_thread) {
                pane.status = view.status;
            }
        }
    }

    /// Sets the queued prompts of a thread, as loaded from the store.
    pub(crate) fn set_queue(&mut self, thread: &ThreadId, prompts: &[QueuedPrompt]) {
        let of_thread = |pane: &&mut Pane| pane.id.as_ref() == Some(thread);
        if let Some(pane) = self.panes.iter_mut().find(of_thread) {
            pane.set_queue_prompts(prompts);
        }
    }
}

fn on_thread_event(pane: &mut Pane, kind: &EventKind, entry: Option<&Entry>) {
    match kind {
        EventKind::MessageStart => pane.start_message(),
        EventKind::TextDelta { text } => pane.on_text_delta(text),
        EventKind::ThinkingDelta { text } => pane.on_thinking_delta(text),
        EventKind::ToolCallDelta { tool, text, .. } => pane.on_call_delta(tool, text),
        EventKind::MessageEnd { .. } => {
            if let Some(entry) = entry {
                pane.on_entry(entry);
            }
        }
        EventKind::ToolStart { call, tool } => pane.start_tool(call.clone(), tool.clone()),
        EventKind::ToolOutput { call, text } => pane.on_tool_output(call, text),
        EventKind::TurnEnd { reason, .. } => {
            pane.end_turn(*reason);
            pane.status = StatusKind::Idle;
            pane.queued = pane.queued.saturating_sub(1);
        }
        EventKind::Status { status } => pane.status = *status,
        EventKind::QueueState { running, waiting } => {
            pane.set_queue_state(running.as_ref(), waiting);
            if running.is_some() {
                pane.mark_working();
            }
        }
        EventKind::Error { error } => pane.on_error(error),
        EventKind::Usage { usage } => {
            pane.usage = pane.usage.plus(*usage);
            pane.context_tokens = usage.input_tokens + usage.output_tokens;
        }
        EventKind::ModelRetry {
            model,
            attempts,
            reason,
            ..
        } => {
            pane.start_message();
            pane.add(Block::notice(&format!(
                "retrying {model} (attempt {attempts}): {reason}"
            )));
        }
        EventKind::ModelSwitched { from, to, reason } => {
            pane.add(Block::notice(&format!(
                "switched from {from} to {to}: {reason}"
            )));
        }
        EventKind::CompactionStart => {
            pane.mark_working();
            pane.add(Block::notice("compacting …"));
        }
        EventKind::CompactionEnd {
            error: Some(error), ..
        } => {
            pane.add(Block::Error(format!(
                "compaction failed: {}",
                error.message
            )));
        }
        // An interrupted task starts again with its call; it is announced once.
        EventKind::TaskStart { session } if pane.tasks.insert(session.clone()) => {
            pane.add(Block::notice(&format!("task started: {session}")));
        }
        EventKind::TaskEnd { session } => {
            pane.add(Block::notice(&format!("task ended: {session}")));
        }
        EventKind::Artifact { name, .. } => pane.add(Block::notice(&format!("created {name}"))),
        _ => {}
    }
}
