//! Multi-line input editor with the key bindings of shells, undo and prompt history.

use unicode_width::UnicodeWidthStr as _;

use crate::text::{DIM, Line, PLAIN};

/// The text of the input and its editing state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Editor {
    text: String,
    /// Position of the cursor, in bytes.
    cursor: usize,
    /// The text that was cut last.
    clipboard: String,
    /// Earlier prompts, the newest last.
    history: Vec<String>,
    /// Index of the prompt from the history that is shown.
    history_index: Option<usize>,
    /// The text from before the user moved into the history.
    draft: String,
    /// The text searched for in the history, and the number of matches to skip.
    search: Option<(String, usize)>,
    /// Earlier texts and cursor positions.
    undo_stack: Vec<(String, usize)>,
}

/// Steps that can be undone.
const MAX_UNDO: usize = 200;

/// An editing operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    Left,
    Right,
    WordLeft,
    WordRight,
    Start,
    End,
    Up,
    Down,
    Backspace,
    Delete,
    CutWord,
    CutWordRight,
    CutToStart,
    CutToEnd,
    Paste,
    Undo,
}

impl Editor {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn text_before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    pub(crate) fn set_text(&mut self, text: &str) {
        self.push_undo();
        text.clone_into(&mut self.text);
        self.cursor = self.text.len();
        self.history_index = None;
    }

    /// Empties the input and adds its text to the history.
    pub(crate) fn take_text(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.cursor = 0;
        self.history_index = None;
        self.draft.clear();
        self.undo_stack.clear();
        self.add_to_history(&text);
        text
    }

    pub(crate) fn add_to_history(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// Puts prompts loaded from the history file before those of this chat.
    pub(crate) fn prepend_history(&mut self, mut prompts: Vec<String>) {
        prompts.append(&mut self.history);
        self.history = prompts;
    }

    pub(crate) fn insert(&mut self, text: &str) {
        if let Some((query, skip)) = &mut self.search {
            query.push_str(text);
            *skip = 0;
            return;
        }
        self.push_undo();
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Replaces the last bytes before the cursor.
    pub(crate) fn replace(&mut self, bytes: usize, with: &str) {
        self.push_undo();
        let from = self.cursor.saturating_sub(bytes);
        self.text.replace_range(from..self.cursor, with);
        self.cursor = from + with.len();
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        if self.search.is_some() {
            if edit == Edit::Backspace {
                self.shorten_search();
            }
            return;
        }
        match edit {
            Edit::Left => self.cursor = self.left(),
            Edit::Right => self.cursor = self.right(),
            Edit::WordLeft => self.cursor = self.word_left(),
            Edit::WordRight => self.cursor = self.word_right(),
            Edit::Start => self.cursor = self.line_start(),
            Edit::End => self.cursor = self.line_end(),
            Edit::Up => self.up(),
            Edit::Down => self.down(),
            Edit::Backspace => self.remove(self.left(), self.cursor, false),
            Edit::Delete => self.remove(self.cursor, self.right(), false),
            Edit::CutWord => self.remove(self.word_left(), self.cursor, true),
            Edit::CutWordRight => self.remove(self.cursor, self.word_right(), true),
            Edit::CutToStart => self.remove(self.line_start(), self.cursor, true),
            Edit::CutToEnd => {
                let end = match self.line_end() {
                    end if end == self.cursor => self.right(),
                    end => end,
                };
                self.remove(self.cursor, end, true);
            }
            Edit::Paste => {
                let text = self.clipboard.clone();
                self.insert(&text);
            }
            Edit::Undo => {
                if let Some((text, cursor)) = self.undo_stack.pop() {
                    (self.text, self.cursor) = (text, cursor);
                }
            }
        }
    }

    /// Starts a search of the history, or moves to an older match.
    pub(crate) fn start_search(&mut self) {
        match &mut self.search {
            None => self.search = Some((String::new(), 0)),
            Some((_, skip)) => *skip += 1,
        }
    }

    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Ends the search; with `accept`, the match becomes the text.
    pub(crate) fn end_search(&mut self, accept: bool) {
        let found = self.search_match().map(str::to_owned);
        self.search = None;
        if let (true, Some(found)) = (accept, found) {
            self.set_text(&found);
        }
    }

    fn shorten_search(&mut self) {
        if let Some((query, skip)) = &mut self.search {
            query.pop();
            *skip = 0;
        }
    }

    fn search_match(&self) -> Option<&str> {
        let (query, skip) = self.search.as_ref()?;
        let prompts = self.history.iter().rev();
        let mut matches = prompts
            .filter(|prompt| prompt.contains(query.as_str()))
            .skip(*skip);
        matches.next().map(String::as_str)
    }

    fn push_undo(&mut self) {
        if self.undo_stack.len() == MAX_UNDO {
            self.undo_stack.remove(0);
        }
        self.undo_stack.push((self.text.clone(), self.cursor));
    }

    /// Removes a range of bytes, and with `cut` copies it to the clipboard.
    fn remove(&mut self, from: usize, to: usize, cut: bool) {
        if from == to {
            return;
        }
        self.push_undo();
        let removed: String = self.text.drain(from..to).collect();
        self.cursor = from;
        if cut {
            self.clipboard = removed;
        }
    }

    fn left(&self) -> usize {
        let mut before = self.text_before_cursor().char_indices().rev();
        // Combining characters belong to the character before them.
        before
            .find(|(_, letter)| !is_combining(*letter))
            .map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        let after = &self.text[self.cursor..];
        let mut letters = after.char_indices().skip(1);
        letters
            .find(|(_, letter)| !is_combining(*letter))
            .map_or(self.text.len(), |(at, _)| self.cursor + at)
    }

    fn word_left(&self) -> usize {
        let before = self.text_before_cursor().trim_end();
        let start = before.rfind(char::is_whitespace);
        start.map_or(0, |at| {
            at + before[at..].chars().next().map_or(0, char::len_utf8)
        })
    }

    fn word_right(&self) -> usize {
        let after = &self.text[self.cursor..];
        let word = after.len() - after.trim_start().len();
        let end = after[word..].find(char::is_whitespace);
        end.map_or(self.text.len(), |end| self.cursor + word + end)
    }

    fn line_start(&self) -> usize {
        self.text_before_cursor().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let end = self.text[self.cursor..].find('\n');
        end.map_or(self.text.len(), |end| self.cursor + end)
    }

    fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.history_previous();
        }
        let column = self.text[start..self.cursor].chars().count();
        let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
        self.cursor = offset_of_column(&self.text, above, column);
    }

    fn down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.history_next();
        }
        let column = self.text[self.line_start()..self.cursor].chars().count();
        self.cursor = offset_of_column(&self.text, end + 1, column);
    }

    fn history_previous(&mut self) {
        let next = match self.history_index {
            None => self.history.len().checked_sub(1),
            Some(index) => index.checked_sub(1),
        };
        let Some(next) = next else {
            return;
        };
        if self.history_index.is_none() {
            self.draft.clone_from(&self.text);
        }
        self.text.clone_from(&self.history[next]);
        self.cursor = self.text.len();
        self.history_index = Some(next);
    }

    fn history_next(&mut self) {
        let Some(index) = self.history_index else {
            return;
        };
        if let Some(prompt) = self.history.get(index + 1) {
            self.text.clone_from(prompt);
            self.history_index = Some(index + 1);
        } else {
            self.text = std::mem::take(&mut self.draft);
            self.history_index = None;
        }
        self.cursor = self.text.len();
    }

    /// The text after `mark`, wrapped to at most `height` lines around the cursor, and the row
    /// and column of the cursor in them.
    pub(crate) fn lines(
        &self,
        mark: &str,
        width: usize,
        height: usize,
    ) -> (Vec<Line>, (usize, usize)) {
        if let Some((query, _)) = &self.search {
            let found = self.search_match().unwrap_or("no match");
            let first = found.lines().next().unwrap_or_default();
            let line = Line::new(&format!("search: {query}"), PLAIN);
            let column = line.width();
            let line = line.with(&format!("  → {first}"), DIM).truncate(width);
            return (vec![line], (0, column.min(width.saturating_sub(1))));
        }
        let (mut lines, mut cursor) = (Vec::new(), (0, 0));
        let indent = mark.width();
        let room = width.saturating_sub(indent + 1).max(1);
        let mut from = 0;
        for (part, number) in self.text.split('\n').zip(0..) {
            for (piece, start) in split_at_width(part, room) {
                let mut line = if number == 0 && lines.is_empty() {
                    Line::new(mark, crate::text::CYAN)
                } else {
                    Line::plain(&" ".repeat(indent))
                };
                line.push(piece, PLAIN);
                let start = from + start;
                if (start..=start + piece.len()).contains(&self.cursor) {
                    let shown = crate::text::strip_control(&self.text[start..self.cursor]);
                    cursor = (lines.len(), indent + shown.width());
                }
                lines.push(line);
            }
            from += part.len() + 1;
        }
        let top = (cursor.0 + 1).saturating_sub(height.max(1));
        let lines: Vec<_> = lines.into_iter().skip(top).take(height.max(1)).collect();
        (lines, (cursor.0 - top, cursor.1))
    }
}

/// Whether a character is drawn together with the one before it.
fn is_combining(letter: char) -> bool {
    use unicode_width::UnicodeWidthChar as _;
    letter.width() == Some(0) && !letter.is_control()
}

/// Byte offset of a column in the line that starts at `start`.
fn offset_of_column(text: &str, start: usize, column: usize) -> usize {
    let line = text[start..].split('\n').next().unwrap_or_default();
    let at = line.char_indices().nth(column);
    start + at.map_or(line.len(), |(at, _)| at)
}

/// A line in pieces no wider than `width`, each with its byte offset.
fn split_at_width(line: &str, width: usize) -> Vec<(&str, usize)> {
    use unicode_width::UnicodeWidthChar as _;
    let (mut pieces, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, letter) in line.char_indices() {
        let wide = if letter == '\t' {
            4
        } else {
            letter.width().unwrap_or(0)
        };
        if used + wide > width && at > start {
            pieces.push((&line[start..at], start));
            (start, used) = (at, 0);
        }
        used += wide;
    }
    pieces.push((&line[start..], start));
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_history(prompts: &[&str]) -> Editor {
        let mut editor = Editor::default();
        editor.prepend_history(prompts.iter().map(|it| (*it).to_owned()).collect());
        editor
    }

    /// The text with `|` at the cursor.
    fn with_cursor(editor: &Editor) -> String {
        format!(
            "{}|{}",
            editor.text_before_cursor(),
            &editor.text[editor.cursor..]
        )
    }

    #[test]
    fn edits_behave_as_in_a_shell() {
        let table: [(&str, &[Edit], &str); 12] = [
            ("one two", &[Edit::CutWord], "one |"),
            ("one two", &[Edit::Start, Edit::WordRight], "one| two"),
            ("one two", &[Edit::WordLeft, Edit::CutToStart], "|two"),
            (
                "one two",
                &[Edit::Start, Edit::CutToEnd, Edit::Paste, Edit::Paste],
                "one twoone two|",
            ),
            ("a\nb", &[Edit::Up, Edit::End, Edit::CutToEnd], "a|b"),
            ("long\nb", &[Edit::Up], "l|ong\nb"),
            ("ab\ncd", &[Edit::Start, Edit::Left, Edit::Left], "a|b\ncd"),
            ("e\u{301}x", &[Edit::Left, Edit::Backspace], "|x"),
            ("漢字", &[Edit::Backspace], "漢|"),
            ("one", &[Edit::CutWord, Edit::Undo], "one|"),
            ("ab", &[Edit::Start, Edit::Delete], "|b"),
            (
                "",
                &[Edit::Backspace, Edit::Left, Edit::Delete, Edit::CutWord],
                "|",
            ),
        ];
        for (text, edits, expected) in table {
            let mut editor = Editor::default();
            editor.insert(text);
            for edit in edits {
                editor.edit(*edit);
            }
            assert_eq!(with_cursor(&editor), expected, "{text:?} {edits:?}");
        }
    }

    #[test]
    fn moving_through_the_history_restores_the_draft() {
        let mut editor = with_history(&["first", "second"]);
        editor.insert("draft");
        let mut walk = Vec::new();
        for edit in [
            Edit::Up,
            Edit::Up,
            Edit::Up,
            Edit::Down,
            Edit::Down,
            Edit::Down,
        ] {
            editor.edit(edit);
            walk.push(editor.text().to_owned());
        }
        assert_eq!(
            walk,
            ["second", "first", "first", "second", "draft", "draft"]
        );
    }

    #[test]
    fn history_search_finds_older_matches_and_can_be_cancelled() {
        let mut editor = with_history(&["cargo test", "cargo build", "ls"]);
        editor.insert("kept");
        editor.start_search();
        editor.insert("cargo");
        assert_eq!(editor.search_match(), Some("cargo build"));
        editor.start_search();
        assert_eq!(editor.search_match(), Some("cargo test"));
        editor.end_search(false);
        assert_eq!(editor.text(), "kept");
        editor.start_search();
        editor.insert("test");
        editor.end_search(true);
        assert_eq!(editor.text(), "cargo test");
    }

    const EDITS: [Edit; 16] = [
        Edit::Left,
        Edit::Right,
        Edit::WordLeft,
        Edit::WordRight,
        Edit::Start,
        Edit::End,
        Edit::Up,
        Edit::Down,
        Edit::Backspace,
        Edit::Delete,
        Edit::CutWord,
        Edit::CutWordRight,
        Edit::CutToStart,
        Edit::CutToEnd,
        Edit::Paste,
        Edit::Undo,
    ];

    proptest! {
        #[test]
        fn any_edits_keep_the_cursor_on_the_screen(
            steps in proptest::collection::vec((0..20_usize, "[a漢\u{301} \\n]{0,4}"), 0..60),
            width in 4..40_usize,
            height in 1..6_usize,
        ) {
            let mut editor = with_history(&["past", "a\nb"]);
            for (which, text) in steps {
                match EDITS.get(which) {
                    Some(edit) => editor.edit(*edit),
                    None => editor.insert(&text),
                }
                prop_assert!(editor.text.is_char_boundary(editor.cursor));
                let (lines, (row, column)) = editor.lines("> ", width, height);
                prop_assert!(row < lines.len() && lines.len() <= height);
                prop_assert!(column <= width, "{} {:?}", column, lines);
            }
        }
    }
}
