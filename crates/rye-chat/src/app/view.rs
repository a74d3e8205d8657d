//! What is painted at the bottom: what is being said, what runs, what is asked, what waits,
//! where one writes, and how things stand.

use rye_engine::protocol::StatusKind;

use super::App;
use crate::block::{Block, difference, output, summary};
use crate::markdown;
use crate::pane::{Pane, waiting};
use crate::screen::Bottom;
use crate::text::{BOLD, CYAN, DIM, GREEN, Line, PLAIN, Style, YELLOW};

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠹"];
/// How much of a running tool's output is shown when it is unfolded.
const LIVE_OUTPUT: usize = 10;
const QUEUE: usize = 4;

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
        let mut below = self.menu_lines(width, room / 3);
        below.push(
            self.hint
                .clone()
                .unwrap_or_else(|| self.status(width))
                .cut(width),
        );

        let mut above = self.live_lines(width);
        let asked = self.gate_lines(width);
        let queue = self.queue_lines(width);
        let left = room.saturating_sub(written.len() + below.len() + 1);
        let asked = cut_to(asked, left);
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
        Bottom { lines, cursor }
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
        for running in &pane.running {
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
            let count = running.output.lines().count();
            if count > 0 && !self.unfolded {
                line.push(&format!("  {count} lines, Ctrl-O shows them"), DIM);
            }
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
        let lines = choices.map(|(number, (choice, what))| {
            let chosen = number == menu.chosen;
            let (mark, style) = if chosen {
                ("▸ ", CYAN)
            } else {
                ("  ", PLAIN)
            };
            let line = Line::new(mark, style).with(choice, style);
            line.with(&format!("  {what}"), DIM).cut(width)
        });
        lines.collect()
    }

    fn spinner(&self) -> &'static str {
        SPINNER[self.beat % SPINNER.len()]
    }

    /// How things stand, in a line.
    fn status(&self, width: usize) -> Line {
        let pane = self.pane();
        let mut line = self.doing(pane);
        let mut parts = vec![self.facts.model.clone()];
        if pane.context > 0 {
            parts.push(share(pane.context, self.facts.window));
        }
        if pane.used.micro_dollars > 0 {
            parts.push(dollars(pane.used.micro_dollars));
        }
        parts.push(self.facts.sandbox.clone());
        for part in parts.iter().filter(|part| !part.is_empty()) {
            line.push(" · ", DIM);
            line.push(part, DIM);
        }
        if self.panes.len() > 1 {
            line.push(" ·", DIM);
            for (other, number) in self.panes.iter().zip(0..) {
                let own = number == self.current;
                let style = if own {
                    Style { bold: true, ..DIM }
                } else {
                    DIM
                };
                line.push(&format!(" {}{}", other.mark(), other.key), style);
            }
        }
        if width > 60 && !pane.is_busy() && self.editor.is_empty() && self.gates.is_empty() {
            line.push(" · /help", DIM);
        }
        line
    }

    fn doing(&self, pane: &Pane) -> Line {
        if !self.ready {
            return Line::new("opening …", DIM);
        }
        let (what, style) = match pane.status {
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
        0..10_000 => format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100),
        _ => format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000),
    }
}
