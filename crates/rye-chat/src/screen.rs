//! Terminal output: finished lines scroll into the scrollback, and the live region below them
//! is repainted. Only changed lines are sent, in one synchronised update.

use std::fmt::Write as _;

use rye_engine::protocol::GateId;

use crate::text::Line;
use crate::theme::Theme;

/// The part of the screen that is repainted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveRegion {
    pub(crate) lines: Vec<Line>,
    /// Row and column of the cursor.
    pub(crate) cursor: (usize, usize),
    /// The gate whose question and answers are completely visible.
    pub(crate) readable_gate: Option<GateId>,
}

/// What the terminal shows, as far as this process painted it.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    theme: Theme,
    /// Lines of the live region.
    shown: Vec<String>,
    /// Row of the cursor in the live region.
    row: usize,
    /// Number of finished lines.
    finished: usize,
}

impl Screen {
    pub(crate) fn new(theme: Theme) -> Self {
        Self {
            theme,
            ..Self::default()
        }
    }

    /// Output that appends `above` to the finished lines and paints `region` below them.
    pub(crate) fn paint(&mut self, above: &[Line], region: &LiveRegion) -> String {
        let wanted: Vec<_> = region.lines.iter().map(|it| it.ansi(self.theme)).collect();
        let mut out = String::from("\x1b[?2026h\x1b[?25l");
        if self.row > 0 {
            let _ = write!(out, "\x1b[{}A", self.row);
        }
        out.push('\r');
        let before = self.shown.len();
        if !above.is_empty() {
            // Line by line: some terminals move a screen that is cleared from the top into
            // the scrollback.
            self.shown.clear();
            for line in above {
                let _ = write!(out, "\x1b[2K{}\r\n", line.ansi(self.theme));
            }
            self.finished += above.len();
        }
        for (line, number) in wanted.iter().zip(0..) {
            if number > 0 {
                out += "\r\n";
            }
            if self.shown.get(number) != Some(line) {
                let _ = write!(out, "\x1b[2K{line}");
            }
        }
        let mut at = wanted.len().saturating_sub(1);
        if before > above.len() + wanted.len() {
            out += if wanted.is_empty() {
                "\x1b[J"
            } else {
                "\r\n\x1b[J"
            };
            at += usize::from(!wanted.is_empty());
        }
        let (row, column) = region.cursor;
        if at > row {
            let _ = write!(out, "\x1b[{}A", at - row);
        }
        out.push('\r');
        if column > 0 {
            let _ = write!(out, "\x1b[{column}C");
        }
        out += "\x1b[?25h\x1b[?2026l";
        self.shown = wanted;
        self.row = row;
        out
    }

    /// Output that clears a screen of `height` lines.
    pub(crate) fn clear(&mut self, height: usize) -> String {
        let is_ours = self.finished + self.shown.len() >= height;
        self.shown.clear();
        self.row = 0;
        if !is_ours {
            // The screen has output of other programs, which most terminals move into the
            // scrollback when the whole screen is cleared.
            return "\x1b[H\x1b[2J".to_owned();
        }
        let lines = vec!["\x1b[2K"; height];
        format!("\x1b[H{}\x1b[H", lines.join("\r\n"))
    }

    /// Output that moves the cursor below the live region and ends it.
    pub(crate) fn finish(&mut self) -> String {
        let down = self.move_below();
        self.shown.clear();
        self.row = 0;
        down
    }

    /// Output that moves the cursor below the live region.
    pub(crate) fn move_below(&self) -> String {
        let below = self.shown.len().saturating_sub(self.row + 1);
        "\r\n".repeat(below + usize::from(!self.shown.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(input: &str) -> LiveRegion {
        let lines = ["answer", "", input, "ready"].map(Line::plain).to_vec();
        LiveRegion {
            lines,
            cursor: (2, input.len()),
            readable_gate: None,
        }
    }

    #[test]
    fn only_changed_lines_are_sent_and_finished_lines_once() {
        let mut screen = Screen::new(Theme::None);
        let first = screen.paint(&[], &region("a"));
        assert!(first.contains("answer") && first.contains("ready"));
        let typed = screen.paint(&[], &region("ab"));
        assert!(typed.contains("\x1b[2Kab"), "{typed:?}");
        assert!(!typed.contains("answer") && !typed.contains("ready"));
        let finished = screen.paint(&[Line::plain("done")], &region("ab"));
        assert_eq!(finished.matches("done").count(), 1);
        assert!(!screen.paint(&[], &region("ab")).contains("done"));
    }
}
