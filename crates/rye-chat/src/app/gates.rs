//! Gates in the chat: which one is shown, when it takes answers, and which keys answer it.

use std::time::Instant;

use lillux::sanitize_line;
use rye_engine::arguments::{ARGUMENTS, PARAMS, is_editable};
use rye_engine::protocol::{ActionId, CHANGE_SET, Gate, GateId, GateKind, json};
use rye_engine::tool::{CHANGES, COMMAND_PREFIX, PREFIX};
use serde_json::{Value, json};

use super::gate_view::{changes, details};
use super::{App, Effect, GATE_GRACE, GateInput, PendingGate};
use crate::block::Block;
use crate::screen::LiveRegion;
use crate::text::{DIM, Line};

/// A key that answers a gate.
pub(super) struct Choice {
    pub(super) key: char,
    pub(super) action: ActionId,
    pub(super) label: String,
}

impl App {
    /// The gate to show: the oldest of the current thread, otherwise the oldest of all.
    pub(crate) fn gate(&self) -> Option<&PendingGate> {
        let thread = self.pane().id.as_ref();
        let own = |pending: &&PendingGate| Some(&pending.gate.origin.thread) == thread;
        let mut open = self.gates.iter().filter(|pending| !pending.answered);
        open.clone().find(own).or_else(|| open.next())
    }

    pub(crate) fn add_gate(&mut self, gate: Gate) {
        if self.gates.iter().all(|pending| pending.gate.id != gate.id) {
            self.gates.push(PendingGate {
                gate,
                answerable_from: None,
                answered: false,
            });
        }
    }

    /// The live region was painted. The gate that is readable in it takes answers after the
    /// grace period; all others take none.
    pub(crate) fn on_painted(&mut self, region: &LiveRegion, now: Instant) {
        for pending in &mut self.gates {
            if region.readable_gate.as_ref() == Some(&pending.gate.id) {
                pending.answerable_from.get_or_insert(now + GATE_GRACE);
            } else {
                pending.answerable_from = None;
            }
        }
    }

    /// A gate was printed completely and takes answers that arrive after `answerable_from`.
    pub(crate) fn mark_shown(&mut self, id: &GateId, answerable_from: Instant) {
        for pending in self.gates.iter_mut().filter(|it| it.gate.id == *id) {
            pending.answerable_from = Some(answerable_from);
        }
    }

    /// The shown gate, if input that arrived at `now` may answer it.
    fn answerable_gate(&self, now: Instant) -> Option<&PendingGate> {
        let is_answerable =
            |pending: &&PendingGate| pending.answerable_from.is_some_and(|from| now > from);
        self.gate().filter(is_answerable)
    }

    /// The user's decision is stored.
    pub(crate) fn mark_answered(&mut self, id: &GateId) {
        for pending in self.gates.iter_mut().filter(|it| it.gate.id == *id) {
            pending.answered = true;
        }
    }

    /// Removes a gate that was closed here or elsewhere, and shows the outcome.
    pub(crate) fn close_gate(&mut self, id: &GateId, outcome: &str, style: anstyle::Style) {
        let at = self.gates.iter().position(|pending| pending.gate.id == *id);
        let Some(PendingGate { gate, .. }) = at.map(|at| self.gates.remove(at)) else {
            return;
        };
        if self.gate_input.as_ref().map(GateInput::gate) == Some(id) {
            self.cancel_gate_input();
        }
        let line = Line::new("◆ ", style)
            .with(outcome, style)
            .with(&format!("  {}", gate.title), DIM);
        self.add_block(Block::Notice(vec![line]));
    }

    /// Handles a key if it answers the shown gate; `None` if it does not.
    pub(crate) fn on_gate_key(&mut self, letter: char, now: Instant) -> Option<Vec<Effect>> {
        if !self.editor.is_empty() || self.gate_input.is_some() {
            return None;
        }
        let pending = self
            .answerable_gate(now)
            .filter(|it| !wants_text_answer(&it.gate))?;
        let letter = letter.to_ascii_lowercase();
        let id = pending.gate.id.clone();
        if let Some(choice) = choices(&pending.gate)
            .into_iter()
            .find(|it| it.key == letter)
        {
            // Line by line, the reason is on the same line: see `deny_with_reason`.
            if choice.action == ActionId::Deny && takes_reason(&pending.gate) && !self.plain {
                self.gate_input = Some(GateInput::Reason(id));
                return Some(Vec::new());
            }
            return Some(vec![Effect::Decide {
                gate: id,
                action: choice.action,
                value: Value::Null,
            }]);
        }
        match letter {
            'm' | '?' => {
                let lines = details(&pending.gate);
                self.add_block(Block::GateDetails(lines));
            }
            'd' => {
                let lines = changes(&pending.gate)?;
                self.add_block(Block::GateDetails(lines));
            }
            'f' => {
                let text = selection_text(&pending.gate)?;
                self.gate_input = Some(GateInput::Arguments(id));
                self.editor.set_text(&text);
            }
            'e' if is_editable(&pending.gate.context) => {
                let params = call_arguments(&pending.gate);
                let text = serde_json::to_string_pretty(params).unwrap_or_default();
                self.gate_input = Some(GateInput::Arguments(id));
                self.editor.set_text(&text);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    /// The decision, if the text answers a gate that asks for a text.
    pub(super) fn text_answer(&self, text: &str, now: Instant) -> Option<Effect> {
        let pending = self.answerable_gate(now)?;
        wants_text_answer(&pending.gate).then(|| Effect::Decide {
            gate: pending.gate.id.clone(),
            action: "answer".into(),
            value: Value::String(text.to_owned()),
        })
    }

    /// Whether the user is editing the arguments of a call.
    pub(crate) fn is_editing_arguments(&self) -> bool {
        matches!(self.gate_input, Some(GateInput::Arguments(_)))
    }

    /// The denial, if the line is the key that denies the shown gate followed by a reason.
    pub(crate) fn deny_with_reason(&self, line: &str, now: Instant) -> Option<Effect> {
        let (key, reason) = line.trim().split_once(char::is_whitespace)?;
        let gate = &self.answerable_gate(now)?.gate;
        let deny = choices(gate)
            .into_iter()
            .find(|it| it.action == ActionId::Deny)?;
        let is_denial = takes_reason(gate) && key.chars().eq([deny.key]);
        is_denial.then(|| Effect::Decide {
            gate: gate.id.clone(),
            action: deny.action,
            value: Value::String(reason.trim().to_owned()),
        })
    }

    /// Denies a gate with the reason in the input, if there is one.
    pub(super) fn send_denial(&mut self, gate: GateId) -> Vec<Effect> {
        let reason = self.editor.text().trim().to_owned();
        self.cancel_gate_input();
        vec![Effect::Decide {
            gate,
            action: ActionId::Deny,
            value: match reason.as_str() {
                "" => Value::Null,
                _ => Value::String(reason),
            },
        }]
    }

    /// Approves a gate with the edited arguments.
    pub(super) fn send_arguments(&mut self, gate: GateId) -> Vec<Effect> {
        let edited: Value = match json::parse(self.editor.text()) {
            Ok(edited) => edited,
            Err(error) => {
                self.set_hint(&format!("invalid JSON: {error}"));
                return Vec::new();
            }
        };
        self.editor.take_text();
        self.gate_input = None;
        let pending = self.gates.iter().find(|pending| pending.gate.id == gate);
        let is_review = pending.is_some_and(|it| it.gate.context.contains_key(CHANGE_SET));
        let is_unchanged = pending.is_some_and(|pending| *call_arguments(&pending.gate) == edited);
        let value = if is_review {
            edited
        } else if is_unchanged {
            Value::Null
        } else {
            json!({ ARGUMENTS: edited })
        };
        vec![Effect::Decide {
            gate,
            action: ActionId::Approve,
            value,
        }]
    }
}

/// The selection of all changes of a review as text, from which the user removes paths. `None` if
/// the gate is no review.
fn selection_text(gate: &Gate) -> Option<String> {
    let paths = gate.context.get(CHANGE_SET)?.get("paths");
    // A long change set does not list its paths.
    let selection = match paths {
        Some(paths) => json!({ "only": paths }),
        None => json!({ "except": [] }),
    };
    serde_json::to_string_pretty(&selection).ok()
}

/// The changes of a tool since a person last approved it, as a unified diff.
pub(super) fn changes_since_approval(gate: &Gate) -> Option<&str> {
    gate.context.get(CHANGES).and_then(Value::as_str)
}

/// Whether the gate asks for a text rather than for one of several actions.
pub(super) fn wants_text_answer(gate: &Gate) -> bool {
    gate.actions.is_empty()
}

/// Whether the agent gets the reason of a denial. A limit that is not raised ends its turn, and
/// its changes are reviewed after it.
fn takes_reason(gate: &Gate) -> bool {
    let is_for_the_agent = |key| !gate.context.contains_key(key);
    gate.kind == GateKind::Approval && ["limit", CHANGE_SET].into_iter().all(is_for_the_agent)
}

/// The keys that answer a gate.
pub(super) fn choices(gate: &Gate) -> Vec<Choice> {
    let mut taken = vec!['d', 'e', 'f', 'm', '?'];
    let mut choices = Vec::new();
    for (action, number) in gate.actions.iter().zip(1_u32..) {
        let preferred = match action.id {
            ActionId::Approve => Some('y'),
            ActionId::Deny => Some('n'),
            ActionId::ApproveSession => Some('a'),
            ActionId::ApprovePrefix => Some('c'),
            ActionId::ApproveProject => Some('p'),
            _ => char::from_digit(number, 10),
        };
        let Some(key) = preferred.filter(|key| !taken.contains(key)) else {
            continue;
        };
        taken.push(key);
        choices.push(Choice {
            key,
            action: action.id.clone(),
            label: match action.id {
                ActionId::Approve => "yes".to_owned(),
                ActionId::Deny => "no".to_owned(),
                ActionId::ApproveSession => "yes, for this session".to_owned(),
                ActionId::ApprovePrefix => format!("yes, every `{} …`", command_prefix(gate)),
                ActionId::ApproveProject => "yes, for this project".to_owned(),
                _ => action.label.clone(),
            },
        });
    }
    choices
}

/// The first words of the commands that an approval by prefix covers.
pub(super) fn command_prefix(gate: &Gate) -> String {
    let prefix = gate.context.get(COMMAND_PREFIX);
    let prefix = prefix.and_then(|it| it.get(PREFIX)).and_then(Value::as_str);
    sanitize_line(prefix.unwrap_or_default()).to_string()
}

/// The arguments of the call that a gate asks about.
pub(super) fn call_arguments(gate: &Gate) -> &Value {
    gate.context.get(PARAMS).unwrap_or(&Value::Null)
}
