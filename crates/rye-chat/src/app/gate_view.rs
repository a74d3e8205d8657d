//! Renders a gate in the live region of the chat.

use lillux::{QUOTE_PREFIX, sanitize};
use rye_engine::arguments::is_editable;
use rye_engine::policy::{RISK, Risk};
use rye_engine::protocol::{ActionId, CHANGE_SET, Gate, GateKind};
use rye_engine::tool::CHANGES;
use rye_engine::tool_provider::COMPONENTS;
use serde_json::{Map, Value};

use super::gates::{call_arguments, changes_since_approval, choices, wants_text_answer};
use super::{App, GateInput};
use crate::block::diff_lines;
use crate::pane::Pane;
use crate::text::{BOLD, CONTINUATION, CYAN, DIM, GREEN, Line, PLAIN, RED, YELLOW};

/// Lines of the body that must be visible before the gate can be answered.
const MIN_BODY_LINES: usize = 3;
/// Quoted lines, such as a command, that must be visible before the gate can be answered.
const MIN_QUOTED_LINES: usize = 2;

impl App {
    /// The gate in at most `room` lines, at most `most` of them for its body. Empty if the
    /// title, the start of the body and the answers do not fit.
    pub(crate) fn gate_lines(&self, width: usize, most: usize, room: usize) -> Vec<Line> {
        let Some(pending) = self.gate() else {
            return Vec::new();
        };
        let gate = &pending.gate;
        let kind = match gate.kind {
            GateKind::Approval => "approve?",
            GateKind::Question => "question",
            GateKind::CredentialRequest => "secret needed",
        };
        let head = Line::new("◆ ", YELLOW).with(kind, YELLOW).with("  ", PLAIN);
        let head = head.with(&gate.title, BOLD);
        let head = head.with(&self.location(gate), DIM);
        let mut lines = head.wrap(width, &Line::new(CONTINUATION, DIM));
        let mut answers = self.answer_lines(gate, width);
        let more = self.gates.len() - 1;
        if more > 0 {
            answers.push(Line::new(&format!("  {more} more pending: /gates"), DIM));
        }
        let Some(spare) = room.checked_sub(lines.len() + answers.len()) else {
            return Vec::new();
        };
        let body = body(gate, width);
        // Instead of a line that says "1 more line", show the line.
        let all = body.lines.len() <= most.saturating_add(1).min(spare);
        let shown = if all {
            body.lines.len()
        } else {
            most.min(spare.saturating_sub(1))
        };
        // While the user edits the arguments, the input shows them.
        if shown < body.min_lines() && !self.is_editing_arguments() || (!all && spare == 0) {
            return Vec::new();
        }
        let hidden = body.lines.len() - shown;
        lines.extend(body.lines.into_iter().take(shown));
        if hidden > 0 {
            lines.push(Line::new(&format!("  … {hidden} more lines: ?"), DIM));
        }
        lines.extend(answers);
        lines
    }

    /// Where the gate comes from, if it is not the current thread.
    fn location(&self, gate: &Gate) -> String {
        let is_origin = |pane: &&Pane| pane.id.as_ref() == Some(&gate.origin.thread);
        match self.panes.iter().find(is_origin) {
            Some(pane) if pane.key == self.pane().key => String::new(),
            Some(pane) => format!("  in thread {}", pane.key),
            None => "  in a task".to_owned(),
        }
    }

    /// The possible answers; an answer is only broken if it does not fit on a line of its own.
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
        let hint = |text: &str| Line::new(text, CYAN);
        match &self.gate_input {
            Some(GateInput::Arguments(id)) if *id == gate.id => {
                let what = if gate.context.contains_key(CHANGE_SET) {
                    "Enter: apply these changes and discard the others"
                } else {
                    "Enter: approve with these arguments"
                };
                return vec![hint(what), hint("Esc: cancel")];
            }
            Some(GateInput::Reason(id)) if *id == gate.id => {
                return vec![
                    hint("Enter: deny"),
                    hint("type a reason for the agent"),
                    hint("Esc: cancel"),
                ];
            }
            _ => {}
        }
        if wants_text_answer(gate) {
            return vec![hint("type the answer and press Enter")];
        }
        let answer = |key: char, style, label: &str| {
            let line = Line::new(key.encode_utf8(&mut [0; 4]), style);
            line.with(&format!(" {label}"), PLAIN)
        };
        let mut answers = Vec::new();
        for choice in choices(gate) {
            let style = match choice.action {
                ActionId::Deny => RED,
                ActionId::Approve => GREEN,
                _ => CYAN,
            };
            answers.push(answer(choice.key, style, &choice.label));
        }
        if changes_since_approval(gate).is_some() {
            answers.push(answer('d', CYAN, "what changed"));
        }
        if is_editable(&gate.context) {
            answers.push(answer('e', CYAN, "edit arguments"));
        }
        if gate.context.contains_key(CHANGE_SET) {
            answers.push(answer('f', CYAN, "choose files"));
        }
        answers.push(answer('?', CYAN, "more"));
        if !self.editor.is_empty() && self.gate_input.is_none() {
            answers.push(Line::new("(press Tab first: you are typing)", DIM));
        }
        answers
    }
}

/// The body of a gate.
struct Body {
    lines: Vec<Line>,
    /// Index of the first quoted line.
    first_quoted: Option<usize>,
}

impl Body {
    /// How many lines must be visible before the gate can be answered.
    fn min_lines(&self) -> usize {
        let first = self.first_quoted.map_or(0, |at| at + MIN_QUOTED_LINES);
        first.max(MIN_BODY_LINES).min(self.lines.len())
    }
}

/// Everything the user must know to decide. Text that the agent wrote is quoted behind a bar.
fn body(gate: &Gate, width: usize) -> Body {
    let args = make_visible(call_arguments(gate));
    let room = width.saturating_sub(QUOTE_PREFIX.chars().count());
    let diff = diff_lines(&gate.origin.tool, &args, room, usize::MAX);
    let mut parts: Vec<_> = gate.body.lines().collect();
    if !diff.is_empty() {
        // The diff replaces the arguments, which come last.
        let arguments = parts.iter().position(|part| quoted(part) == Some("{"));
        parts.truncate(arguments.unwrap_or(parts.len()));
    }
    // Do not repeat a quoted line that the title shows completely.
    let in_title = |part: &&str| quoted(part).is_some_and(|part| ends_with_word(&gate.title, part));
    if parts.iter().filter(|part| quoted(part).is_some()).count() == 1
        && parts.last().is_some_and(in_title)
    {
        parts.pop();
    }
    let risk = gate.context.get(RISK);
    let risk_line = risk.map(|risk| {
        let risk: Option<Risk> = serde_json::from_value(risk.clone()).ok();
        let style = match risk {
            Some(Risk::Low | Risk::Medium) => GREEN,
            Some(Risk::High | Risk::Critical) | None => RED,
        };
        (Risk::gate_line(risk), style)
    });
    let (mut lines, mut first_quoted) = (Vec::new(), None);
    for part in parts {
        let style = match &risk_line {
            Some((line, style)) if line == part => *style,
            _ => PLAIN,
        };
        let line = match quoted(part) {
            Some(text) => {
                first_quoted.get_or_insert(lines.len());
                Line::plain("  ").with(QUOTE_PREFIX, DIM).with(text, PLAIN)
            }
            None => Line::plain("  ").with(part, style),
        };
        lines.extend(line.wrap(width, &Line::new(CONTINUATION, DIM)));
    }
    for change in diff {
        first_quoted.get_or_insert(lines.len());
        let mut line = Line::plain("  ").with(QUOTE_PREFIX.trim_end(), DIM);
        line.extend(change);
        lines.push(line);
    }
    Body {
        lines,
        first_quoted,
    }
}

/// The text of a quoted line.
fn quoted(part: &str) -> Option<&str> {
    part.strip_prefix(QUOTE_PREFIX)
}

/// Whether a text ends with `word`, on a word boundary.
fn ends_with_word(text: &str, word: &str) -> bool {
    let before = text.strip_suffix(word.trim());
    before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
}

/// Replaces invisible characters in all strings of the arguments.
fn make_visible(args: &Value) -> Value {
    match args {
        Value::String(text) => sanitize(text).into(),
        Value::Array(all) => all.iter().map(make_visible).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, it)| (name.clone(), make_visible(it)))
                .collect()
        }
        other => other.clone(),
    }
}

/// The changes since the last approval; `None` if there are none.
pub(super) fn changes(gate: &Gate) -> Option<Vec<Line>> {
    let diff = changes_since_approval(gate)?;
    let head = Line::new("◆ ", YELLOW).with("changed since the last approval", BOLD);
    let mut lines = vec![head];
    for line in sanitize(diff).lines() {
        let mut quoted_line = Line::plain("  ").with(QUOTE_PREFIX, DIM);
        quoted_line.extend(crate::highlight::diff_line(line));
        lines.push(quoted_line);
    }
    Some(lines)
}

/// The context without what is shown elsewhere, or is only for programs.
fn shown_context(gate: &Gate) -> Map<String, Value> {
    let mut context = gate.context.clone();
    context.remove(CHANGES);
    let components = context.get_mut(COMPONENTS).and_then(Value::as_array_mut);
    for component in components.into_iter().flatten() {
        if let Some(fields) = component.as_object_mut() {
            fields.remove("source");
        }
    }
    context
}

/// Everything that is known about a gate, including its context.
pub(super) fn details(gate: &Gate) -> Vec<Line> {
    let mut lines = vec![Line::new("◆ ", YELLOW).with(&gate.title, BOLD)];
    lines.extend(body(gate, 10_000).lines);
    let context = serde_json::to_string_pretty(&shown_context(gate)).unwrap_or_default();
    for line in context.lines() {
        let mut quoted_line = Line::plain("  ").with(QUOTE_PREFIX, DIM);
        quoted_line.extend(crate::highlight::line("json", &sanitize(line)));
        lines.push(quoted_line);
    }
    lines.push(Line::new(&format!("  {}", gate.id.short()), DIM));
    lines
}
