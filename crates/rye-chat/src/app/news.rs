//! What the engine tells.

use rye_engine::ThreadView;
use rye_engine::arguments::ARGUMENTS;
use rye_engine::protocol::{Entry, Event, EventKind, GateId, QueueItem, StatusKind, ThreadId};
use serde_json::Value;

use super::App;
use crate::block::Block;
use crate::pane::Pane;
use crate::text::{DIM, GREEN, RED};

impl App {
    /// Something happened; with the entry that was written, if one was.
    pub(crate) fn news(&mut self, event: &Event, entry: Option<&Entry>) {
        if let EventKind::ThreadStart { key } = &event.kind {
            return self.thread_started(key, event.thread.as_ref());
        }
        if self.gate_news(&event.kind) {
            return;
        }
        if let EventKind::Lagged { .. } = event.kind {
            return self.panes.iter_mut().for_each(Pane::missed);
        }
        let known = |pane: &&mut Pane| pane.id == event.thread;
        if let Some(pane) = self.panes.iter_mut().find(known) {
            of_thread(pane, &event.kind, entry);
        }
    }

    fn thread_started(&mut self, key: &str, id: Option<&ThreadId>) {
        match self.panes.iter_mut().find(|pane| pane.key == key) {
            Some(pane) => pane.id = id.cloned(),
            None => self.panes.push(Pane::new(key, id.cloned())),
        }
        self.known.threads = self.panes.iter().map(|pane| pane.key.clone()).collect();
    }

    /// Of a gate, in whichever session.
    pub(crate) fn gate_news(&mut self, kind: &EventKind) -> bool {
        match kind {
            EventKind::DecisionGate { gate } => self.ask((**gate).clone()),
            EventKind::DecisionGateResolved { gate, resolution } => {
                let denied = resolution.action == "deny";
                let style = if denied { RED } else { GREEN };
                let others = resolution.value.get(ARGUMENTS);
                let how = match resolution.action.as_str() {
                    "approve" if others.is_some() => "approved with other arguments",
                    "approve" => "approved",
                    "approve_session" => "approved for this session",
                    "approve_project" => "approved for this project",
                    "deny" => "denied",
                    other => other,
                };
                if let Some(others) = others {
                    self.runs_with(gate, others);
                }
                let by = format!("{how} by {} ({})", resolution.by, resolution.source);
                self.gate_ended(gate, &by, style);
            }
            EventKind::DecisionGateExpired { gate } => self.gate_ended(gate, "too late", DIM),
            EventKind::DecisionGateWithdrawn { gate, reason } => {
                self.gate_ended(gate, &format!("not asked any more: {reason}"), DIM);
            }
            _ => return false,
        }
        true
    }

    /// What a gate asked about runs with other arguments.
    fn runs_with(&mut self, gate: &GateId, args: &Value) {
        let about = self.gates.iter().find(|waiting| waiting.gate.id == *gate);
        let Some(origin) = about.map(|waiting| waiting.gate.origin.clone()) else {
            return;
        };
        // Of one that is called through another, the name is what is shown.
        if origin.tool != "call_tool" {
            let panes = self.panes.iter_mut();
            let mut own = panes.filter(|pane| pane.id.as_ref() == Some(&origin.thread));
            if let Some(pane) = own.next() {
                pane.runs_with(&origin.call, args);
            }
        }
    }

    /// What threads are doing, now.
    pub(crate) fn statuses(&mut self, threads: &[ThreadView]) {
        for view in threads {
            let own = |pane: &&mut Pane| pane.id.as_ref() == Some(&view.id);
            if let Some(pane) = self.panes.iter_mut().find(own) {
                pane.status = view.status;
            }
        }
    }

    /// What waited for a thread when it was looked up.
    pub(crate) fn queue(&mut self, thread: &ThreadId, found: &[QueueItem]) {
        let known = |pane: &&mut Pane| pane.id.as_ref() == Some(thread);
        if let Some(pane) = self.panes.iter_mut().find(known) {
            pane.found(found);
        }
    }
}

fn of_thread(pane: &mut Pane, kind: &EventKind, entry: Option<&Entry>) {
    match kind {
        EventKind::MessageStart => pane.begin_message(),
        EventKind::TextDelta { text } => pane.words(text),
        EventKind::ThinkingDelta { text } => pane.thought(text),
        EventKind::ToolCallDelta { tool, text, .. } => pane.writes_call(tool, text),
        EventKind::MessageEnd { .. } => {
            if let Some(entry) = entry {
                pane.entry(entry);
            }
        }
        EventKind::ToolStart { call, tool } => pane.begin_tool(call.clone(), tool.clone()),
        EventKind::ToolOutput { call, text } => pane.tool_prints(call, text),
        EventKind::TurnEnd { reason, .. } => {
            pane.end_turn(*reason);
            pane.status = StatusKind::Idle;
            pane.queued = pane.queued.saturating_sub(1);
        }
        EventKind::Status { status } => pane.status = *status,
        EventKind::QueueState { running, waiting } => {
            pane.queue(running.as_ref(), waiting);
            if running.is_some() {
                pane.thinks();
            }
        }
        EventKind::Error { error } => pane.goes_wrong(&error.message),
        EventKind::Usage { usage } => {
            pane.used = pane.used.plus(*usage);
            pane.context = usage.input_tokens + usage.output_tokens;
        }
        EventKind::ModelRetry {
            model, tries, why, ..
        } => {
            pane.begin_message();
            pane.add(Block::told(&format!(
                "{model} is asked again ({tries}): {why}"
            )));
        }
        EventKind::ModelSwitched { from, to, why } => {
            pane.add(Block::told(&format!(
                "{to} answers in place of {from}: {why}"
            )));
        }
        EventKind::CompactionStart => {
            pane.thinks();
            pane.add(Block::told("summing up …"));
        }
        EventKind::CompactionEnd {
            error: Some(error), ..
        } => {
            pane.add(Block::Wrong(format!(
                "could not be summed up: {}",
                error.message
            )));
        }
        // One that was interrupted begins again with its call.
        EventKind::TaskStart { session } if pane.tasks.insert(session.clone()) => {
            pane.add(Block::told(&format!("a task begins: {session}")));
        }
        EventKind::TaskEnd { session } => {
            pane.add(Block::told(&format!("the task has ended: {session}")));
        }
        EventKind::Artifact { name, .. } => pane.add(Block::told(&format!("made {name}"))),
        _ => {}
    }
}
