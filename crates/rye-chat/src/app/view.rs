//! What is painted at the bottom: what is being said, what runs, what is asked, what waits,
//! where one writes, and how things stand.

use rye_engine::protocol::{CallId, StatusKind};

use super::{App, Waiting};
use crate::block::{Block, difference, output, summary};
use crate::markdown;
use crate::pane::{Pane, waiting};
use crate::screen::Bottom;
use crate::text::{BOLD, CYAN, DIM, GREEN, Line, PLAIN, Style, YELLOW};

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠹"];
/// How much of a running tool's output is shown when it is unfolded.
const LIVE_OUTPUT: usize = 10;
const QUEUE: usize = 4;
/// How many lines of what a gate is about are shown, also where there is little room.
const GATE: usize = 8;

/// Where there are fewer columns, what is asked is too torn apart to be read.
const NARROWEST: usize = 16;
/// What is said in place of how things stand where a gate has no room.
const TOO_SMALL: &str = "terminal too small to show the question: make it larger";

/// How large the terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl App {
    /// The lines of what is finished and not on the screen yet.
    pub(crate) fn finished(&mut self, width: usize) -> Vec<Line> {
        let unfolded = self.unfolded;
        let pane = self.pane_mut();
        pane.take_new()
            .flat_map(|block| block.lines(width, unfolded))
            .collect()
    }

    /// The end of what is finished, to be painted anew.
    pub(crate) fn last_lines(&mut self, size: Size) -> Vec<Line> {
        let unfolded = self.unfolded;
        let pane = self.pane_mut();
        pane.new = 0;
        let mut blocks = Vec::new();
        let mut count = 0;
        for block in pane.blocks.iter().rev() {
            let lines = block.lines(size.width, unfolded);
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

    pub(crate) fn bottom(&self, size: Size) -> Bottom {
        let width = size.width.saturating_sub(1).max(1);
        let room = size.height.saturating_sub(1).max(1);
        let (written, (row, column)) = self.editor.lines("› ", size.width, (room / 3).max(1));
        let last = match &self.hint {
            Some(hint) => vec![hint.clone()],
            None => self.status(width, (room / 5).clamp(1, 3)),
        };
        let last: Vec<_> = last.into_iter().map(|line| line.cut(width)).collect();
        let menu = self.menu_lines(width, room / 3);
        let ask = |others: usize| {
            if size.width < NARROWEST {
                return Vec::new();
            }
            let left = room.saturating_sub(written.len() + last.len() + others);
            self.gate_lines(width, GATE.max(room / 2), left)
        };
        // Where there is little room, what is asked comes before a menu and an empty line.
        let (mut asked, mut below) = (ask(menu.len() + 1), menu);
        if asked.is_empty() && self.gate().is_some() {
            asked = ask(0);
            below.clear();
        }
        let waiting = self.gate().map(|waiting| &waiting.gate.id);
        let asks = waiting.filter(|_| !asked.is_empty()).cloned();
        if waiting.is_some() && asks.is_none() {
            let most = room.saturating_sub(written.len()).max(1);
            let lines = Line::new(TOO_SMALL, YELLOW).wrap(width, &Line::default());
            below.extend(lines.into_iter().take(most));
        } else {
            below.extend(last);
        }

        let mut above = self.live_lines(width);
        let queue = self.queue_lines(width);
        let left = room.saturating_sub(written.len() + below.len() + 1);
        let queue = cut_to(queue, left.saturating_sub(asked.len()));
        let live = left.saturating_sub(asked.len() + queue.len());
        let too_many = above.len().saturating_sub(live);
        above.drain(..too_many);
        above.extend(asked);
        above.extend(queue);
        if room > written.len() + below.len() + above.len() {
            above.push(Line::default());
        }
        let cursor = (above.len() + row, column.min(size.width.saturating_sub(1)));
        let lines = above.into_iter().chain(written).chain(below);
        let lines: Vec<_> = lines.map(|line| line.cut(size.width)).collect();
        Bottom {
            lines,
            cursor,
            asks,
        }
    }

    /// What is being said and done.
    fn live_lines(&self, width: usize) -> Vec<Line> {
        let pane = self.pane();
        let mut lines = Vec::new();
        let thinking = pane.stream.thinking.trim();
        if !thinking.is_empty() {
            lines.extend(Block::Thought(thinking.to_owned()).lines(width, self.unfolded));
        }
        let rest = pane.stream.rest();
        if !rest.trim().is_empty() {
            lines.push(Line::default());
            lines.extend(markdown::render(rest, width));
        }
        if let Some((tool, size)) = &pane.stream.call {
            let text = format!("{} writes a call of {tool} ({size} bytes)", self.spinner());
            lines.push(Line::new(&text, DIM));
        }
        // What is asked about is shown there.
        let asked = self.gate().map(|waiting| &waiting.gate.origin);
        let asked = asked.filter(|origin| Some(&origin.thread) == pane.id.as_ref());
        let is_asked = |call: &CallId| asked.is_some_and(|origin| origin.call == *call);
        let others = pane.running.iter();
        for running in others.filter(|it| self.unfolded || !is_asked(&it.call)) {
            let mark = if self.is_alive() {
                self.spinner()
            } else {
                "·"
            };
            let mut line = Line::new(mark, YELLOW).with(" ", PLAIN);
            line.push(&running.tool, BOLD);
            line.push(
                &format!(" {}", summary(&running.tool, &running.args)),
                PLAIN,
            );
            let size = match running.lines {
                _ if self.unfolded => String::new(),
                0 => String::new(),
                1 => "  1 line: Ctrl-O".to_owned(),
                count => format!("  {count} lines: Ctrl-O"),
            };
            let mut line = line.cut(width.saturating_sub(size.len()));
            line.push(&size, DIM);
            lines.push(line.cut(width));
            if self.unfolded {
                lines.extend(difference(&running.tool, &running.args, width, LIVE_OUTPUT));
                lines.extend(output(&running.output, width, LIVE_OUTPUT));
            }
        }
        lines
    }

    fn queue_lines(&self, width: usize) -> Vec<Line> {
        let pane = self.pane();
        if pane.waiting.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![Line::new("waits (/queue edit N, /queue rm N):", DIM)];
        lines.extend(waiting(&pane.waiting, QUEUE));
        lines.into_iter().map(|line| line.cut(width)).collect()
    }

    fn menu_lines(&self, width: usize, most: usize) -> Vec<Line> {
        let Some(menu) = &self.menu else {
            return Vec::new();
        };
        let most = most.max(1);
        let from = (menu.chosen + 1).saturating_sub(most);
        let choices = menu.choices.iter().enumerate().skip(from).take(most);
        let names = choices.clone().map(|(_, (choice, _))| choice.trim_end());
        let longest = names.map(|name| Line::plain(name).width()).max();
        let lines = choices.map(|(number, (choice, what))| {
            let chosen = number == menu.chosen;
            let (mark, style) = if chosen {
                ("▸ ", CYAN)
            } else {
                ("  ", PLAIN)
            };
            let line = Line::new(mark, style).with(choice.trim_end(), style);
            let pad = longest.unwrap_or(0) + 4 - line.width();
            let what = format!("{}{what}", " ".repeat(pad));
            line.with(what.trim_end(), DIM).cut(width)
        });
        lines.collect()
    }

    fn spinner(&self) -> &'static str {
        SPINNER[self.beat % SPINNER.len()]
    }

    /// How things stand, in a line; where it is narrow, in more, but at most so many.
    fn status(&self, width: usize, most: usize) -> Vec<Line> {
        let pane = self.pane();
        let dim = |text: &str| Line::new(text, DIM);
        let mut parts = vec![dim(&self.facts.model)];
        if pane.context > 0 {
            parts.push(dim(&share(pane.context, self.facts.window)));
        }
        if pane.used.micro_dollars > 0 {
            parts.push(dim(&dollars(pane.used.micro_dollars)));
        }
        parts.push(dim(&self.facts.sandbox));
        if self.panes.len() > 1 {
            let mut threads = Line::default();
            for (other, number) in self.panes.iter().zip(0..) {
                let bold = number == self.current;
                let before = if number == 0 { "" } else { " " };
                let text = format!("{before}{}{}", self.mark(other), other.key);
                threads.push(&text, Style { bold, ..DIM });
            }
            parts.push(threads);
        }
        if width > 60 && !pane.is_busy() && self.editor.is_empty() && self.gates.is_empty() {
            parts.push(dim("/help"));
        }
        let mut lines = vec![self.doing(pane)];
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

    /// The state of a thread, as a mark.
    pub(crate) fn mark(&self, pane: &Pane) -> &'static str {
        let asks = |waiting: &Waiting| Some(&waiting.gate.origin.thread) == pane.id.as_ref();
        match pane.status {
            _ if self.gates.iter().any(asks) => "◆",
            StatusKind::Idle => "○",
            StatusKind::BlockedOnDecisionGate => "◆",
            _ => "●",
        }
    }

    fn doing(&self, pane: &Pane) -> Line {
        if !self.ready {
            return Line::new("opening …", DIM);
        }
        let (what, style) = match pane.status {
            _ if self.gate().is_some() => return Line::new("waits for you", YELLOW),
            StatusKind::Idle if pane.sent + pane.queued > 0 => ("waits", CYAN),
            StatusKind::Idle => return Line::new("ready", GREEN),
            StatusKind::BlockedOnDecisionGate => return Line::new("waits for you", YELLOW),
            StatusKind::Queued => ("waits", CYAN),
            StatusKind::Thinking => ("thinks", CYAN),
            StatusKind::ToolCalling => ("works", CYAN),
            StatusKind::Streaming => ("speaks", CYAN),
        };
        let line = Line::new(&format!("{} {what}", self.spinner()), style);
        line.with(" (Esc ends it)", DIM)
    }
}

/// The first of many lines, where not all fit; the last stays.
fn cut_to(mut lines: Vec<Line>, most: usize) -> Vec<Line> {
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

/// Tokens, and how much of the window they are.
fn share(tokens: u64, window: Option<u64>) -> String {
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

pub(crate) fn dollars(micro: u64) -> String {
    match micro {
        0 => "$0".to_owned(),
        1..10_000 => format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100),
        _ => format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000),
    }
}
