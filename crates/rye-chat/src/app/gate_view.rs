//! What a gate asks, in lines.

use lillux::{BAR, visible};
use rye_engine::arguments::is_editable;
use rye_engine::protocol::{Gate, GateKind};
use serde_json::Value;

use super::gates::{asked_with, choices, is_free};
use super::{App, Writing};
use crate::block::difference;
use crate::pane::Pane;
use crate::text::{BOLD, CYAN, DIM, GOES_ON, GREEN, Line, PLAIN, RED, YELLOW};

/// How many lines of what there is to know are seen before anybody can say yes.
const SEEN: usize = 3;
/// The same of what others wrote, such as a command.
const SEEN_BEHIND_BAR: usize = 2;

impl App {
    /// What is asked, in at most so many lines, and at most `most` of them on what there is to
    /// know. None where the question, the first of what there is to know and the answers have
    /// no room.
    pub(crate) fn gate_lines(&self, width: usize, most: usize, room: usize) -> Vec<Line> {
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
        let mut answers = self.answer_lines(gate, width);
        let more = self.gates.len() - 1;
        if more > 0 {
            answers.push(Line::new(&format!("  {more} more wait: /gates"), DIM));
        }
        let Some(spare) = room.checked_sub(lines.len() + answers.len()) else {
            return Vec::new();
        };
        let body = body(gate, width);
        // A line that says that there is one more is no better than the line.
        let all = body.lines.len() <= most.saturating_add(1).min(spare);
        let shown = if all {
            body.lines.len()
        } else {
            most.min(spare.saturating_sub(1))
        };
        // What would run with other arguments stands where they are written.
        if shown < body.least() && !self.is_editing() || (!all && spare == 0) {
            return Vec::new();
        }
        let left_out = body.lines.len() - shown;
        lines.extend(body.lines.into_iter().take(shown));
        if left_out > 0 {
            lines.push(Line::new(&format!("  … {left_out} more lines: m"), DIM));
        }
        lines.extend(answers);
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

/// All that a person must know.
struct Body {
    lines: Vec<Line>,
    /// The first of what stands behind a bar.
    bar: Option<usize>,
}

impl Body {
    /// How many of its lines must be seen before there is an answer.
    fn least(&self) -> usize {
        let first = self.bar.map_or(0, |at| at + SEEN_BEHIND_BAR);
        first.max(SEEN).min(self.lines.len())
    }
}

/// All that a person must know, in lines. What somebody else wrote stands behind a bar.
fn body(gate: &Gate, width: usize) -> Body {
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
    let (mut lines, mut bar) = (Vec::new(), None);
    for part in parts {
        let style = match part.split_once(": ") {
            Some(("risk", "low" | "medium")) => GREEN,
            Some(("risk", _)) => RED,
            _ => PLAIN,
        };
        let line = match quoted(part) {
            Some(text) => {
                bar.get_or_insert(lines.len());
                Line::plain("  ").with(BAR, DIM).with(text, PLAIN)
            }
            None => Line::plain("  ").with(part, style),
        };
        lines.extend(line.wrap(width, &Line::new(GOES_ON, DIM)));
    }
    for change in difference {
        bar.get_or_insert(lines.len());
        let mut line = Line::plain("  ").with(BAR.trim_end(), DIM);
        line.extend(change);
        lines.push(line);
    }
    Body { lines, bar }
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
pub(super) fn whole(gate: &Gate) -> Vec<Line> {
    let mut lines = vec![Line::new("◆ ", YELLOW).with(&gate.title, BOLD)];
    lines.extend(body(gate, 10_000).lines);
    let context = serde_json::to_string_pretty(&gate.context).unwrap_or_default();
    for line in context.lines() {
        let mut whole = Line::plain("  ").with(BAR, DIM);
        whole.extend(crate::highlight::line("json", &visible(line)));
        lines.push(whole);
    }
    lines.push(Line::new(&format!("  {}", gate.id), DIM));
    lines
}
