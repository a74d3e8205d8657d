//! Gates, asked and answered where one writes.

use std::time::Instant;

use lillux::{BAR, visible};
use rye_engine::arguments::{ARGUMENTS, PARAMS, is_editable};
use rye_engine::bridge::APPROVE;
use rye_engine::protocol::{Gate, GateId, GateKind};
use serde_json::{Value, json};

use super::{App, Effect, SETTLES, Waiting, Writing};
use crate::block::{Block, difference};
use crate::pane::Pane;
use crate::text::{BOLD, CYAN, DIM, GOES_ON, GREEN, Line, PLAIN, RED, YELLOW};

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

    pub(crate) fn ask(&mut self, gate: Gate, now: Instant) {
        if self.gates.iter().all(|waiting| waiting.gate.id != gate.id) {
            self.gates.push(Waiting {
                gate,
                since: now,
                answered: false,
            });
        }
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
        let waiting = self.gate()?;
        if now.duration_since(waiting.since) < SETTLES || is_free(&waiting.gate) {
            return None;
        }
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
    pub(super) fn answer(&self, text: &str) -> Option<Effect> {
        let waiting = self.gate()?;
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

    /// What is asked, in lines; of what there is to know at most so many.
    pub(crate) fn gate_lines(&self, width: usize, most: usize) -> Vec<Line> {
        let Some(waiting) = self.gate() else {
            return Vec::new();
        };
        let gate = &waiting.gate;
        let kind = match gate.kind {
            GateKind::Approval => "may it?",
            GateKind::Question => "question",
            GateKind::CredentialRequest => "a secret is needed",
        };
        let head = Line::new("◆ ", YELLOW).with(kind, YELLOW).with("  ", PLAIN);
        let head = head.with(&gate.title, BOLD);
        let head = head.with(&self.whereabouts(gate), DIM);
        let mut lines = head.wrap(width, &Line::new(GOES_ON, DIM));
        let body = body(gate, width);
        let left_out = body.len().saturating_sub(most);
        // A line that says that there is one more is no better than the line.
        let left_out = if left_out == 1 { 0 } else { left_out };
        let shown = body.len() - left_out;
        lines.extend(body.into_iter().take(shown));
        if left_out > 0 {
            lines.push(Line::new(&format!("  … {left_out} more lines: m"), DIM));
        }
        lines.extend(self.answer_lines(gate, width));
        let more = self.gates.len() - 1;
        if more > 0 {
            lines.push(Line::new(&format!("  {more} more wait: /gates"), DIM));
        }
        lines
    }

    /// Where it is asked, if that is not the thread that is shown.
    fn whereabouts(&self, gate: &Gate) -> String {
        let is_asked_in = |pane: &&Pane| pane.id.as_ref() == Some(&gate.origin.thread);
        match self.panes.iter().find(is_asked_in) {
            Some(pane) if pane.key == self.pane().key => String::new(),
            Some(pane) => format!("  in thread {}", pane.key),
            None => "  in a task".to_owned(),
        }
    }

    /// What can be answered; no answer is torn apart where another line has room for it.
    fn answer_lines(&self, gate: &Gate, width: usize) -> Vec<Line> {
        let mut lines = vec![Line::plain("  ")];
        for (answer, number) in self.answers(gate).into_iter().zip(0..) {
            let used = lines.last().map_or(0, Line::width);
            if number > 0 && used + 3 + answer.width() > width {
                lines.push(Line::plain("  "));
            } else if let (1.., Some(line)) = (number, lines.last_mut()) {
                line.push("   ", PLAIN);
            }
            if let Some(line) = lines.last_mut() {
                line.extend(answer);
            }
        }
        let indent = Line::plain("  ");
        let lines = lines.into_iter();
        lines.flat_map(|line| line.wrap(width, &indent)).collect()
    }

    fn answers(&self, gate: &Gate) -> Vec<Line> {
        let said = |text: &str| Line::new(text, CYAN);
        if let Writing::Arguments(id, _) = &self.writing
            && *id == gate.id
        {
            return vec![said("Enter: yes, with these arguments"), said("Esc: back")];
        }
        if is_free(gate) {
            return vec![said("write the answer, Enter sends it")];
        }
        let answer = |key: char, style, label: &str| {
            let line = Line::new(key.encode_utf8(&mut [0; 4]), style);
            line.with(&format!(" {label}"), PLAIN)
        };
        let mut answers = Vec::new();
        for choice in choices(gate) {
            let style = match choice.action.as_str() {
                "deny" => RED,
                "approve" => GREEN,
                _ => CYAN,
            };
            answers.push(answer(choice.key, style, &choice.label));
        }
        if is_editable(&gate.context) {
            answers.push(answer('e', CYAN, "edit the arguments"));
        }
        answers.push(answer('m', CYAN, "more"));
        if !self.editor.is_empty() {
            answers.push(Line::new("(Tab, then a letter: you are writing)", DIM));
        }
        answers
    }
}

/// Whether any words answer it.
fn is_free(gate: &Gate) -> bool {
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
fn asked_with(gate: &Gate) -> &Value {
    gate.context.get(PARAMS).unwrap_or(&Value::Null)
}

/// All that a person must know, in lines. What somebody else wrote stands behind a bar.
fn body(gate: &Gate, width: usize) -> Vec<Line> {
    let args = seen(asked_with(gate));
    let room = width.saturating_sub(BAR.chars().count());
    let difference = difference(&gate.origin.tool, &args, room, usize::MAX);
    let mut parts: Vec<_> = gate.body.lines().collect();
    if !difference.is_empty() {
        // It says what the arguments do, which stand below all else.
        let arguments = parts.iter().position(|part| quoted(part) == Some("{"));
        parts.truncate(arguments.unwrap_or(parts.len()));
    }
    // What the title says in full is not said again.
    let command = gate.title.strip_prefix("run: ");
    let said = |part: &&str| quoted(part).is_some_and(|part| Some(part.trim()) == command);
    if parts.iter().filter(|part| quoted(part).is_some()).count() == 1
        && parts.last().is_some_and(said)
    {
        parts.pop();
    }
    let mut lines = Vec::new();
    for part in parts {
        let style = match part.split_once(": ") {
            Some(("risk", "low" | "medium")) => GREEN,
            Some(("risk", _)) => RED,
            _ => PLAIN,
        };
        let line = match quoted(part) {
            Some(text) => Line::plain("  ").with(BAR, DIM).with(text, PLAIN),
            None => Line::plain("  ").with(part, style),
        };
        lines.extend(line.wrap(width, &Line::new(GOES_ON, DIM)));
    }
    for change in difference {
        let mut line = Line::plain("  ").with(BAR.trim_end(), DIM);
        line.extend(change);
        lines.push(line);
    }
    lines
}

/// What stands behind a bar.
fn quoted(part: &str) -> Option<&str> {
    part.strip_prefix(BAR)
}

/// Arguments in whose texts everything can be seen.
fn seen(args: &Value) -> Value {
    match args {
        Value::String(text) => visible(text).into(),
        Value::Array(all) => all.iter().map(seen).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, it)| (name.clone(), seen(it))).collect()
        }
        other => other.clone(),
    }
}

/// Everything that there is to know of it, exactly.
fn whole(gate: &Gate) -> Vec<Line> {
    let mut lines = vec![Line::new("◆ ", YELLOW).with(&gate.title, BOLD)];
    lines.extend(body(gate, 10_000));
    let context = serde_json::to_string_pretty(&gate.context).unwrap_or_default();
    for line in context.lines() {
        let mut whole = Line::plain("  ").with(BAR, DIM);
        whole.extend(crate::highlight::line("json", &visible(line)));
        lines.push(whole);
    }
    lines.push(Line::new(&format!("  {}", gate.id), DIM));
    lines
}
