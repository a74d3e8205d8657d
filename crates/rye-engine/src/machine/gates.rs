//! Decision gates: open, resolve, withdraw and expire.

use lillux::{sanitize, sanitize_line};
use rye_protocol::{
    Action, ActionId, Call, CallId, CallState, EntryKind, ErrorCode, EventKind, Gate, GateId,
    GateKind, GateOrigin, GateStatus, Op, ResultStatus,
};
use serde_json::{Map, Value};

use super::cow_arc::CowArc;
use super::{Effect, Step};
use crate::arguments::{self, PARAMS};
use crate::text::quote_truncated;
use crate::tool::{DecisionRequest, TOOL_ID};
use crate::{audit, tool_provider};

/// Prefix of resume keys of gates that ask whether to repeat an interrupted call.
const RERUN: &str = "rerun:";
/// Maximum length of the arguments shown in a gate, in characters.
const MAX_SHOWN_CHARS: usize = 4000;

impl Step<'_> {
    /// A tool requests a decision; the same request opens one gate.
    pub(super) fn request_decision(&mut self, id: &CallId, request: &DecisionRequest) {
        let Some(gate) = self.build_gate(id, request) else {
            // The turn is over.
            return;
        };
        let waiting = (id.clone(), gate.id.clone());
        self.machine.live.waiting.insert(waiting);
        if let Some(there) = self.machine.gates.get(&gate.id) {
            if there.status.is_pending() {
                self.block(id, gate.id);
            }
            return;
        }
        self.open(id, gate);
    }

    fn build_gate(&mut self, id: &CallId, request: &DecisionRequest) -> Option<Gate> {
        let call = self.machine.call(id)?;
        let (state, tool) = (call.state.clone(), call.tool.clone());
        let thread = &self.machine.thread;
        let prompt = thread.turn.as_ref()?.prompt.clone();
        if state == CallState::Ended {
            return None;
        }
        let key = request.resume_key.clone();
        let now = self.context.now;
        Some(Gate {
            id: GateId::new(&thread.session, &thread.id, &prompt, &key),
            kind: request.kind,
            title: one_line(&request.title),
            body: sanitize(&request.body).into_owned(),
            actions: request.actions.clone(),
            status: GateStatus::Pending,
            origin: GateOrigin {
                session: thread.session.clone(),
                thread: thread.id.clone(),
                prompt,
                call: id.clone(),
                tool,
                resume_key: key,
            },
            expires_at: request.expires_in.map(|time| now.after(time)),
            context: request.context.clone(),
            created_at: now,
        })
    }

    /// Commits the gate, its entry and the event in one batch.
    pub(super) fn open(&mut self, call: &CallId, gate: Gate) {
        self.append(EntryKind::DecisionGate {
            gate: gate.id.clone(),
            title: gate.title.clone(),
            question: Some(audit::question_hash(&gate)),
        });
        let (id, gate) = (gate.id.clone(), CowArc::new(gate));
        self.out.batch.push(Op::PutGate(gate.share()));
        self.emit(EventKind::DecisionGate {
            gate: Box::new(Gate::clone(&gate)),
        });
        self.machine.gates.insert(id.clone(), gate);
        self.block(call, id);
    }

    fn block(&mut self, id: &CallId, gate: GateId) {
        if let Some(call) = self.machine.call(id) {
            call.state = CallState::Blocked { gate };
        }
    }

    /// Applies a gate that was closed in the store.
    pub(super) fn on_gate_closed(&mut self, gate: Gate) {
        if let Some(known) = self.machine.gates.get_mut(&gate.id) {
            *known = CowArc::new(gate);
        }
    }

    /// Continues a call whose gate has closed: tells its tool, or runs the tool again.
    pub(super) fn unblock(&mut self, call: &Call) {
        let CallState::Blocked { gate } = &call.state else {
            return;
        };
        let open = self.machine.gates.get(gate).cloned();
        if let Some(open) = open.filter(|it| it.origin.resume_key.starts_with(RERUN)) {
            return self.rerun(call, &open);
        }
        if self.machine.live.calls.contains(&call.id) {
            if let Some(call) = self.machine.call(&call.id) {
                call.state = CallState::Started;
            }
        } else {
            self.start(call);
        }
    }

    /// Tells waiting tools how their gates closed.
    pub(super) fn reply_to_tools(&mut self) {
        let waiting = std::mem::take(&mut self.machine.live.waiting);
        for (call, gate) in waiting {
            match self.machine.gates.get(&gate) {
                Some(open) if open.status.is_pending() => {
                    self.machine.live.waiting.insert((call, gate));
                }
                Some(ended) => {
                    let ended = Box::new(Gate::clone(ended));
                    self.out.effects.push(Effect::Reply(call, ended));
                }
                None => {}
            }
        }
    }

    /// Withdraws the pending gates that match.
    pub(super) fn withdraw_gates(&mut self, reason: &str, matches: impl Fn(&Gate) -> bool) {
        let at = self.context.now;
        let gates = self.machine.gates.values_mut();
        let pending = gates.filter(|gate| gate.status.is_pending() && matches(gate));
        let mut withdrawn = Vec::new();
        for gate in pending {
            gate.status = GateStatus::Withdrawn {
                reason: reason.to_owned(),
                at,
            };
            withdrawn.push(gate.clone());
        }
        for gate in withdrawn {
            let (id, reason) = (gate.id.clone(), reason.to_owned());
            self.out.batch.push(Op::PutGate(gate.share()));
            self.emit(EventKind::DecisionGateWithdrawn { gate: id, reason });
        }
    }

    /// Closes gates whose deadline has passed.
    pub(super) fn expire_gates(&mut self) {
        let now = self.context.now;
        let late = |gate: &&mut CowArc<Gate>| {
            gate.status.is_pending() && gate.expires_at.is_some_and(|at| at <= now)
        };
        let mut expired = Vec::new();
        for gate in self.machine.gates.values_mut().filter(late) {
            gate.status = GateStatus::Expired { at: now };
            expired.push(gate.clone());
        }
        for gate in expired {
            let id = gate.id.clone();
            self.out.batch.push(Op::PutGate(gate.share()));
            self.emit(EventKind::DecisionGateExpired { gate: id });
        }
    }

    /// Opens a gate that asks whether to repeat an interrupted call.
    pub(super) fn ask_to_repeat(&mut self, call: &Call) {
        let is_own = |gate: &&CowArc<Gate>| {
            gate.origin.call == call.id && gate.origin.resume_key.starts_with(RERUN)
        };
        let repeated = self.machine.gates.values().filter(is_own).count();
        let (tool, params) = self.call_target(call);
        let shown = serde_json::to_string_pretty(&params).unwrap_or_default();
        let shown = quote_truncated(&shown, MAX_SHOWN_CHARS);
        let again = if repeated > 0 {
            "It was repeated and interrupted again.\n"
        } else {
            ""
        };
        let request = DecisionRequest {
            kind: GateKind::Question,
            title: format!("{tool} was interrupted"),
            body: format!("{again}It is unknown whether the call had its effect.\nwith:\n{shown}"),
            actions: vec![
                Action::new(ActionId::RunAgain, "Run it again"),
                Action::new(ActionId::Skip, "Continue without it"),
                Action::new(ActionId::Result, "Enter its result"),
            ],
            resume_key: match repeated {
                0 => format!("{RERUN}{}", call.id),
                more => format!("{RERUN}{}:{more}", call.id),
            },
            expires_in: None,
            context: Map::from_iter([
                (TOOL_ID.to_owned(), Value::String(tool)),
                (PARAMS.to_owned(), params),
            ]),
        };
        if let Some(gate) = self.build_gate(&call.id, &request) {
            self.open(&call.id, gate);
        }
    }

    /// The tool that a call ran and its arguments, including arguments that the approver edited.
    fn call_target(&self, call: &Call) -> (String, Value) {
        let args = self.machine.args.get(&call.id).cloned().unwrap_or_default();
        let (tool, params) = tool_provider::resolve_target(&call.tool, &args);
        let own = self.machine.gates.values();
        let own = own.filter(|gate| gate.origin.call == call.id);
        let edited = own.filter_map(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => {
                let edited = arguments::edited_arguments(&gate.context, resolution)?;
                Some((resolution.at, edited))
            }
            _ => None,
        });
        let params = edited.max_by_key(|(at, _)| *at).map_or(params, |it| it.1);
        (tool.to_owned(), params.clone())
    }

    fn rerun(&mut self, call: &Call, gate: &Gate) {
        let GateStatus::Resolved { resolution } = &gate.status else {
            return self.append_interrupted(call);
        };
        match resolution.action {
            ActionId::RunAgain => self.start(call),
            ActionId::Result => {
                let text = match &resolution.value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let data = resolution.value.clone();
                self.append_result(call, ResultStatus::Success, text, data, None, Vec::new());
            }
            _ => {
                let message = "skipped by the user after an interruption".to_owned();
                self.append_error(call, ResultStatus::Aborted, ErrorCode::Denied, message);
            }
        }
    }
}

/// Joins a title's lines. A title may contain model output, and an extra line could imitate the
/// facts that the gate states about the call.
fn one_line(title: &str) -> String {
    let lines = title.split(['\n', '\r']).map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    sanitize_line(&lines.join(" ⏎ ")).into_owned()
}
