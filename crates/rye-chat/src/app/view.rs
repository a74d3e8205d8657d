//! Renders the live region: the streaming message, running tools, the gate, the queue, the
//! input and the status line.

use rye_engine::protocol::{CallId, StatusKind};

use super::{App, PendingGate};
use crate::block::{Block, call_summary, diff_lines, first_line, output_lines};
use crate::completion::Choice;
use crate::markdown;
use crate::pane::{self, Pane};
use crate::screen::LiveRegion;
use crate::text::{BOLD, CYAN, DIM, GREEN, Line, PLAIN, YELLOW};

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠹"];
/// Lines of a running tool's output that are shown when it is expanded.
const LIVE_OUTPUT_LINES: usize = 10;
/// Queued prompts that are shown.
const QUEUE_LINES: usize = 4;
/// Completions that are visible at once.
const MENU_LINES: usize = 8;
/// Lines of a gate's body that are shown even on a small terminal.
const GATE_LINES: usize = 8;

/// States of threads.
const IDLE: &str = "idle";
const WAITING: &str = "waits for you";

/// On a narrower terminal, a gate is too broken up to be readable.
const MIN_GATE_WIDTH: usize = 16;
/// Replaces the status line if a gate does not fit.
const TOO_SMALL: &str = "terminal too small to show the gate: enlarge it";

/// Size of the terminal in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl App {
    /// The lines of finished blocks that are not on the screen yet.
    pub(crate) fn finished_lines(&mut self, width: usize) -> Vec<Line> {
        let expanded = self.expanded;
        let pane = self.pane_mut();
        pane.take_unpainted()
            .flat_map(|block| block.lines(width, expanded))
            .collect()
    }

    /// The last lines of finished blocks, to redraw the screen.
    pub(crate) fn last_lines(&mut self, size: Size) -> Vec<Line> {
        let expanded = self.expanded;
        let pane = self.pane_mut();
        pane.unpainted = 0;
        let mut blocks = Vec::new();
        let mut count = 0;
        for block in pane.blocks.iter().rev() {
            let lines = block.lines(size.width, expanded);
            count += lines.len();
            blocks.push(lines);
            if count >= size.height {
                break;
            }
        }
        let lines: Vec<_> = blocks.into_iter().rev().flatten().collect();
        let from = lines.len().saturating_sub(size.height);
        lines.into_iter().skip(from).collect()
    }

    pub(crate) fn live_region(&self, size: Size) -> LiveRegion {
        let width = size.width.saturating_sub(1).max(1);
        let room = size.height.saturating_sub(1).max(1);
        let (input, (row, column)) = self.editor.lines("› ", size.width, (room / 3).max(1));
        let status = match &self.hint {
            Some(hint) => vec![hint.clone()],
            None => self.status(width, (room / 5).clamp(1, 3)),
        };
        let status: Vec<_> = status
            .into_iter()
            .map(|line| line.truncate(width))
            .collect();
        let menu = self.menu_lines(width, (room / 3).min(MENU_LINES));
        let gate_lines = |others: usize| {
            if size.width < MIN_GATE_WIDTH {
                return Vec::new();
            }
            let left = room.saturating_sub(input.len() + status.len() + others);
            self.gate_lines(width, GATE_LINES.max(room / 2), left)
        };
        // If space is short, the gate takes precedence over the menu and the blank line.
        let (mut gate, mut below) = (gate_lines(menu.len() + 1), menu);
        if gate.is_empty() && self.gate().is_some() {
            gate = gate_lines(0);
            below.clear();
        }
        let pending = self.gate().map(|pending| &pending.gate.id);
        let readable_gate = pending.filter(|_| !gate.is_empty()).cloned();
        if pending.is_some() && readable_gate.is_none() {
            let most = room.saturating_sub(input.len()).max(1);
            let lines = Line::new(TOO_SMALL, YELLOW).wrap(width, &Line::default());
            below.extend(lines.into_iter().take(most));
        } else {
            below.extend(status);
        }

        let mut above = self.live_lines(width);
        let queue = self.queue_lines(width);
        let left = room.saturating_sub(input.len() + below.len() + 1);
        let queue = truncate_middle(queue, left.saturating_sub(gate.len()));
        let live = left.saturating_sub(gate.len() + queue.len());
        let excess = above.len().saturating_sub(live);
        above.drain(..excess);
        above.extend(gate);
        above.extend(queue);
        if room > input.len() + below.len() + above.len() {
            above.push(Line::default());
        }
        let cursor = (above.len() + row, column.min(size.width.saturating_sub(1)));
        let lines = above.into_iter().chain(input).chain(below);
        let lines: Vec<_> = lines.map(|line| line.truncate(size.width)).collect();
        LiveRegion {
            lines,
            cursor,
            readable_gate,
        }
    }

    /// The streaming message and the running tools.
    fn live_lines(&self, width: usize) -> Vec<Line> {
        let pane = self.pane();
        let mut lines = Vec::new();
        let thinking = pane.stream.thinking.trim();
        if !thinking.is_empty() {
            lines.extend(Block::Thinking(thinking.to_owned()).lines(width, self.expanded));
        }
        let rest = pane.stream.unfinished();
        if !rest.trim().is_empty() {
            lines.push(Line::default());
            lines.extend(markdown::render(rest, width));
        }
        if let Some((tool, size)) = &pane.stream.call {
            let text = format!("{} writing a call to {tool} ({size} bytes)", self.spinner());
            lines.push(Line::new(&text, DIM));
        }
        // The call that the gate asks about is shown in the gate.
        let origin = self.gate().map(|pending| &pending.gate.origin);
        let origin = origin.filter(|origin| Some(&origin.thread) == pane.id.as_ref());
        let is_gated = |call: &CallId| origin.is_some_and(|origin| origin.call == *call);
        let others = pane.running.iter();
        for running in others.filter(|it| self.expanded || !is_gated(&it.call)) {
            let mark = if self.is_animated() {
                self.spinner()
            } else {
                "·"
            };
            let mut line = Line::new(mark, YELLOW).with(" ", PLAIN);
            line.push(&running.tool, BOLD);
            line.push(
                &format!(" {}", call_summary(&running.tool, &running.args)),
                PLAIN,
            );
            let size = match running.lines {
                _ if self.expanded => String::new(),
                0 => String::new(),
                1 => "  1 line: Ctrl-O".to_owned(),
                count => format!("  {count} lines: Ctrl-O"),
            };
            let mut line = line.truncate(width.saturating_sub(size.len()));
            line.push(&size, DIM);
            lines.push(line.truncate(width));
            if self.expanded {
                lines.extend(diff_lines(
                    &running.tool,
                    &running.args,
                    width,
                    LIVE_OUTPUT_LINES,
                ));
                lines.extend(output_lines(&running.output, width, LIVE_OUTPUT_LINES));
            }
        }
        lines
    }

    fn queue_lines(&self, width: usize) -> Vec<Line> {
        let pane = self.pane();
        if pane.waiting.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![Line::new("queue (/queue edit N, /queue rm N):", DIM)];
        lines.extend(pane::queue_lines(&pane.waiting, QUEUE_LINES));
        lines.into_iter().map(|line| line.truncate(width)).collect()
    }

    fn menu_lines(&self, width: usize, most: usize) -> Vec<Line> {
        let Some(menu) = &self.menu else {
            return Vec::new();
        };
        let most = most.max(1);
        let from = (menu.selected + 1).saturating_sub(most);
        let choices = menu.choices.iter().enumerate().skip(from).take(most);
        let names = choices.clone().map(|(_, choice)| choice.text.trim_end());
        let longest = names.map(|name| Line::plain(name).width()).max();
        let lines = choices.map(|(number, Choice { text, description })| {
            let chosen = number == menu.selected;
            let (mark, style) = if chosen {
                ("▸ ", CYAN)
            } else {
                ("  ", PLAIN)
            };
            let line = Line::new(mark, style).with(text.trim_end(), style);
            let pad = longest.unwrap_or(0) + 4 - line.width();
            let description = format!("{}{description}", " ".repeat(pad));
            line.with(description.trim_end(), DIM).truncate(width)
        });
        lines.collect()
    }

    fn spinner(&self) -> &'static str {
        SPINNER[self.spinner_frame % SPINNER.len()]
    }

    /// The status line; on a narrow terminal in up to `most` lines.
    fn status(&self, width: usize, most: usize) -> Vec<Line> {
        let pane = self.pane();
        let dim = |text: &str| Line::new(text, DIM);
        let mut parts = vec![dim(&self.info.model)];
        if pane.context_tokens > 0 {
            parts.push(dim(&token_share(
                pane.context_tokens,
                self.info.context_window,
            )));
        }
        if pane.usage.micro_dollars > 0 {
            parts.push(dim(&dollars(pane.usage.micro_dollars)));
        }
        if let (Some(plan), true) = (&pane.plan, pane.is_busy()) {
            parts.push(dim(&format!("plan {}", plan.progress())));
        }
        if let Some(running) = &self.shell {
            parts.push(dim(&format!("! {}", first_line(&running.line, 20))));
        }
        match self.background.as_slice() {
            [] => {}
            [one] => parts.push(dim(&format!("{} {}", one.id, first_line(&one.command, 20)))),
            several => parts.push(dim(&format!("{} in the background", several.len()))),
        }
        if !pane.notes.is_empty() {
            let count = pane.notes.len();
            parts.push(dim(&format!("{count} output for the next prompt")));
        }
        if let Some(role) = &self.role {
            parts.push(dim(&format!("role {role}")));
        }
        if !pane.waiting.is_empty() {
            parts.push(dim(&format!("{} queued", pane.waiting.len())));
        }
        // Unknown until the session is open.
        if !self.info.sandbox.is_empty() {
            let review = if self.info.review { ", review" } else { "" };
            parts.push(dim(&format!("{}{review}", self.info.sandbox)));
        }
        if let Some(branch) = &self.info.branch {
            parts.push(dim(&format!("git:{branch}")));
        }
        if self.panes.len() > 1 {
            let mut threads = Line::default();
            for (other, number) in self.panes.iter().zip(0..) {
                let style = if number == self.current {
                    DIM.bold()
                } else {
                    DIM
                };
                let before = if number == 0 { "" } else { " " };
                let text = format!("{before}{}{}", self.mark(other), other.key);
                threads.push(&text, style);
            }
            parts.push(threads);
        }
        if width > 60 && !pane.is_busy() && self.editor.is_empty() && self.gates.is_empty() {
            parts.push(dim("/help"));
        }
        let mut lines = vec![self.activity(pane)];
        for part in parts.into_iter().filter(|part| part.width() > 0) {
            let last = lines.len() - 1;
            let fits = lines[last].width() + 3 + part.width() <= width;
            if fits || lines.len() == most {
                lines[last].push(" · ", DIM);
            } else {
                lines.push(Line::plain("  "));
            }
            if let Some(line) = lines.last_mut() {
                line.extend(part);
            }
        }
        lines
    }

    /// The state of a thread as a symbol.
    fn mark(&self, pane: &Pane) -> &'static str {
        match self.state(pane) {
            IDLE => "○",
            WAITING => "◆",
            _ => "●",
        }
    }

    /// The state of a thread in words.
    pub(crate) fn state(&self, pane: &Pane) -> &'static str {
        let is_own = |pending: &PendingGate| Some(&pending.gate.origin.thread) == pane.id.as_ref();
        match pane.status {
            _ if self.gates.iter().any(is_own) => WAITING,
            StatusKind::Idle => IDLE,
            StatusKind::BlockedOnDecisionGate => WAITING,
            _ => "works",
        }
    }

    fn activity(&self, pane: &Pane) -> Line {
        if !self.ready {
            return Line::new("opening …", DIM);
        }
        let (what, style) = match pane.status {
            _ if self.gate().is_some() => return Line::new("waiting for you", YELLOW),
            StatusKind::Idle if pane.unconfirmed + pane.queued > 0 => ("queued", CYAN),
            StatusKind::Idle => return Line::new("ready", GREEN),
            StatusKind::BlockedOnDecisionGate => return Line::new("waiting for you", YELLOW),
            StatusKind::Queued => ("queued", CYAN),
            StatusKind::Thinking => ("thinking", CYAN),
            StatusKind::ToolCalling => ("running tools", CYAN),
            StatusKind::Streaming => ("responding", CYAN),
        };
        let line = Line::new(&format!("{} {what}", self.spinner()), style);
        line.with(" (Esc to stop)", DIM)
    }
}

/// At most `most` of the lines: the first ones and the last one.
fn truncate_middle(mut lines: Vec<Line>, most: usize) -> Vec<Line> {
    if lines.len() <= most {
        return lines;
    }
    let last = lines.pop();
    lines.truncate(most.saturating_sub(1));
    if most > 0 {
        lines.extend(last);
    }
    lines
}

/// A number of tokens and its share of the context window.
fn token_share(tokens: u64, window: Option<u64>) -> String {
    let short = match tokens {
        0..1000 => tokens.to_string(),
        1000..10_000 => format!("{}.{}k", tokens / 1000, tokens % 1000 / 100),
        _ => format!("{}k", tokens / 1000),
    };
    match window.filter(|window| *window > 0) {
        Some(window) => format!("{short} tokens ({} %)", tokens * 100 / window),
        None => format!("{short} tokens"),
    }
}

/// Formats micro-dollars.
pub(crate) fn dollars(micro: u64) -> String {
    match micro {
        0 => "$0".to_owned(),
        1..10_000 => format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100),
        _ => format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000),
    }
}
