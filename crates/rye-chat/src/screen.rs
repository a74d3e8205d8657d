//! The screen: what is finished scrolls up and stays with the terminal; below it is a part
//! that is painted over and over. Only what has changed is sent, and all at once.

use std::fmt::Write as _;

use rye_engine::protocol::GateId;

use crate::text::Line;

/// What is painted at the bottom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bottom {
    pub(crate) lines: Vec<Line>,
    /// Row and column of the cursor.
    pub(crate) cursor: (usize, usize),
    /// The gate that can be read in it.
    pub(crate) asks: Option<GateId>,
}

/// What the terminal shows.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    colours: bool,
    shown: Vec<String>,
    row: usize,
    /// How many lines are finished.
    finished: usize,
}

impl Screen {
    pub(crate) fn new(colours: bool) -> Self {
        Self {
            colours,
            ..Self::default()
        }
    }

    /// What to send so that `above` is added to what is finished, and `bottom` is below it.
    pub(crate) fn paint(&mut self, above: &[Line], bottom: &Bottom) -> String {
        let wanted: Vec<_> = bottom
            .lines
            .iter()
            .map(|it| it.ansi(self.colours))
            .collect();
        let mut out = String::from("\x1b[?2026h\x1b[?25l");
        if self.row > 0 {
            let _ = write!(out, "\x1b[{}A", self.row);
        }
        out.push('\r');
        let before = self.shown.len();
        if !above.is_empty() {
            // Line by line: what is cleared from the top on, some terminals keep in their
            // memory, as if it had been said.
            self.shown.clear();
            for line in above {
                let _ = write!(out, "\x1b[2K{}\r\n", line.ansi(self.colours));
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
        let (row, column) = bottom.cursor;
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

    /// What to send to begin anew on an empty screen of so many lines.
    pub(crate) fn clear(&mut self, height: usize) -> String {
        let is_ours = self.finished + self.shown.len() >= height;
        self.shown.clear();
        self.row = 0;
        if !is_ours {
            // There is something of others, which most terminals keep in their memory when
            // all is cleared at once.
            return "\x1b[H\x1b[2J".to_owned();
        }
        let lines = vec!["\x1b[2K"; height];
        format!("\x1b[H{}\x1b[H", lines.join("\r\n"))
    }

    /// What to send so that the cursor is below everything.
    pub(crate) fn leave(&mut self) -> String {
        let down = self.below();
        self.shown.clear();
        self.row = 0;
        down
    }

    /// The same, for whoever leaves in its place.
    pub(crate) fn below(&self) -> String {
        let below = self.shown.len().saturating_sub(self.row + 1);
        "\r\n".repeat(below + usize::from(!self.shown.is_empty()))
    }
}
