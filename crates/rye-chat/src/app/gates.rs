//! Gates, asked and answered where one writes.

use std::time::Instant;

use rye_engine::arguments::{ARGUMENTS, PARAMS, is_editable};
use rye_engine::bridge::APPROVE;
use rye_engine::protocol::{Gate, GateId};
use serde_json::{Value, json};

use super::gate_view::whole;
use super::{App, Effect, SETTLES, Waiting, Writing};
use crate::block::Block;
use crate::screen::Bottom;
use crate::text::{DIM, Line};

/// A key that answers, and what it says.
pub(super) struct Choice {
    pub(super) key: char,
    pub(super) action: String,
    pub(super) label: String,
}

impl App {
    /// The gate that is asked now: the oldest of the thread that is shown, else of any.
    pub(crate) fn gate(&self) -> Option<&Waiting> {
        let thread = self.pane().id.as_ref();
        let own = |waiting: &&Waiting| Some(&waiting.gate.origin.thread) == thread;
        let mut open = self.gates.iter().filter(|waiting| !waiting.answered);
        open.clone().find(own).or_else(|| open.next())
    }

    pub(crate) fn ask(&mut self, gate: Gate) {
        if self.gates.iter().all(|waiting| waiting.gate.id != gate.id) {
            self.gates.push(Waiting {
                gate,
                from: None,
                answered: false,
            });
        }
    }

    /// A picture is on the screen. The gate that can be read in it takes answers soon; what
    /// cannot be read takes none.
    pub(crate) fn painted(&mut self, picture: &Bottom, now: Instant) {
        for waiting in &mut self.gates {
            if picture.asks.as_ref() == Some(&waiting.gate.id) {
                waiting.from.get_or_insert(now + SETTLES);
            } else {
                waiting.from = None;
            }
        }
    }

    /// A gate was shown whole, and takes what comes after this.
    pub(crate) fn shown(&mut self, id: &GateId, from: Instant) {
        let waiting = self.gates.iter_mut().find(|it| it.gate.id == *id);
        if let Some(waiting) = waiting {
            waiting.from = Some(from);
        }
    }

    /// The gate that something which is said now may answer.
    fn takes(&self, now: Instant) -> Option<&Waiting> {
        let takes = |waiting: &&Waiting| waiting.from.is_some_and(|from| now > from);
        self.gate().filter(takes)
    }

    /// What was answered here is written down.
    pub(crate) fn answered(&mut self, id: &GateId) {
        let waiting = self.gates.iter_mut().find(|it| it.gate.id == *id);
        if let Some(waiting) = waiting {
            waiting.answered = true;
        }
    }

    /// A gate has ended, here or elsewhere.
    pub(crate) fn gate_ended(&mut self, id: &GateId, how: &str, style: crate::text::Style) {
        let at = self.gates.iter().position(|waiting| waiting.gate.id == *id);
        let Some(Waiting { gate, .. }) = at.map(|at| self.gates.remove(at)) else {
            return;
        };
        if let Writing::Arguments(gate, draft) = &self.writing
            && gate == id
        {
            let draft = draft.clone();
            self.writing = Writing::Prompt;
            self.editor.set(&draft);
        }
        let line = Line::new("◆ ", style)
            .with(how, style)
            .with(&format!("  {}", gate.title), DIM);
        self.tell(Block::Told(vec![line]));
    }

    /// A letter, where it answers a gate.
    pub(crate) fn answer_key(&mut self, letter: char, now: Instant) -> Option<Vec<Effect>> {
        if !self.editor.is_empty() || self.writing != Writing::Prompt {
            return None;
        }
        let waiting = self.takes(now).filter(|it| !is_free(&it.gate))?;
        let letter = letter.to_ascii_lowercase();
        let id = waiting.gate.id.clone();
        if let Some(choice) = choices(&waiting.gate)
            .into_iter()
            .find(|it| it.key == letter)
        {
            return Some(vec![Effect::Decide {
                gate: id,
                action: choice.action,
                value: Value::Null,
            }]);
        }
        match letter {
            'm' => {
                let told = whole(&waiting.gate);
                self.tell(Block::Gate(told));
            }
            'e' if is_editable(&waiting.gate.context) => {
                let params = asked_with(&waiting.gate);
                let text = serde_json::to_string_pretty(params).unwrap_or_default();
                self.writing = Writing::Arguments(id, String::new());
                self.editor.set(&text);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    /// A line, where it answers a gate that wants words.
    pub(super) fn answer(&self, text: &str, now: Instant) -> Option<Effect> {
        let waiting = self.takes(now)?;
        is_free(&waiting.gate).then(|| Effect::Decide {
            gate: waiting.gate.id.clone(),
            action: "answer".to_owned(),
            value: Value::String(text.to_owned()),
        })
    }

    /// Whether other arguments are being written.
    pub(crate) fn is_editing(&self) -> bool {
        matches!(self.writing, Writing::Arguments(..))
    }

    /// It may, with the arguments that were written.
    pub(super) fn send_arguments(&mut self, gate: GateId, draft: &str) -> Vec<Effect> {
        let wanted: Value = match serde_json::from_str(self.editor.text()) {
            Ok(wanted) => wanted,
            Err(error) => {
                self.hint(&format!("that is no JSON: {error}"));
                return Vec::new();
            }
        };
        self.editor.take();
        self.editor.set(draft);
        self.writing = Writing::Prompt;
        let about = self.gates.iter().find(|waiting| waiting.gate.id == gate);
        let is_same = about.is_some_and(|waiting| *asked_with(&waiting.gate) == wanted);
        let value = if is_same {
            Value::Null
        } else {
            json!({ ARGUMENTS: wanted })
        };
        vec![Effect::Decide {
            gate,
            action: APPROVE.to_owned(),
            value,
        }]
    }
}

/// Whether any words answer it.
pub(super) fn is_free(gate: &Gate) -> bool {
    gate.actions.is_empty()
}

/// The letters that answer a gate.
pub(super) fn choices(gate: &Gate) -> Vec<Choice> {
    let mut taken = vec!['e', 'm'];
    let mut choices = Vec::new();
    for (action, number) in gate.actions.iter().zip(1_u32..) {
        let wanted = match action.id.as_str() {
            "approve" => Some('y'),
            "deny" => Some('n'),
            "approve_session" => Some('a'),
            "approve_project" => Some('p'),
            _ => char::from_digit(number, 10),
        };
        let Some(key) = wanted.filter(|key| !taken.contains(key)) else {
            continue;
        };
        taken.push(key);
        choices.push(Choice {
            key,
            action: action.id.clone(),
            label: match action.id.as_str() {
                "approve" => "yes".to_owned(),
                "deny" => "no".to_owned(),
                "approve_session" => "yes, for this session".to_owned(),
                "approve_project" => "yes, for this project".to_owned(),
                _ => action.label.clone(),
            },
        });
    }
    choices
}

/// What it would run with.
pub(super) fn asked_with(gate: &Gate) -> &Value {
    gate.context.get(PARAMS).unwrap_or(&Value::Null)
}
