//! Multi-line input editor with the key bindings of shells, undo and prompt history.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::text::{CYAN, DIM, Line, PLAIN};

/// Steps that can be undone.
const MAX_UNDO: usize = 200;

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
        match &mut self.search {
            Some((query, skip)) => (*query, *skip) = (query.clone() + text, 0),
            None => self.replace(0, text),
        }
    }

    /// Replaces the last bytes before the cursor.
    pub(crate) fn replace(&mut self, bytes: usize, with: &str) {
        self.push_undo();
        let from = self.cursor.saturating_sub(bytes);
        self.text.replace_range(from..self.cursor, with);
        self.cursor = from + with.len();
    }

    /// Handles a key that moves the cursor, cuts, pastes or undoes.
    pub(crate) fn on_key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let (code, by_word) = match key.code {
            KeyCode::Char(letter) if control => match letter.to_ascii_lowercase() {
                'a' => (KeyCode::Home, false),
                'e' => (KeyCode::End, false),
                'b' => (KeyCode::Left, false),
                'f' => (KeyCode::Right, false),
                'p' => (KeyCode::Up, false),
                'n' => (KeyCode::Down, false),
                'h' => (KeyCode::Backspace, false),
                'd' => (KeyCode::Delete, false),
                'w' => (KeyCode::Backspace, true),
                letter => (KeyCode::Char(letter), false),
            },
            KeyCode::Char('b') if alt => (KeyCode::Left, true),
            KeyCode::Char('f') if alt => (KeyCode::Right, true),
            KeyCode::Char('d') if alt => (KeyCode::Delete, true),
            KeyCode::Char(_) => return,
            code => (code, control || alt),
        };
        if let Some((query, skip)) = &mut self.search {
            if code == KeyCode::Backspace {
                query.pop();
                *skip = 0;
            }
            return;
        }
        let (left, right) = if by_word {
            (self.word_left(), self.word_right())
        } else {
            (self.left(), self.right())
        };
        match code {
            KeyCode::Left => self.cursor = left,
            KeyCode::Right => self.cursor = right,
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            KeyCode::Backspace => self.remove(left, self.cursor, by_word),
            KeyCode::Delete => self.remove(self.cursor, right, by_word),
            KeyCode::Char('u') => self.remove(self.line_start(), self.cursor, true),
            KeyCode::Char('k') => match self.line_end() {
                end if end == self.cursor => self.remove(self.cursor, right, true),
                end => self.remove(self.cursor, end, true),
            },
            KeyCode::Char('y') => self.replace(0, &self.clipboard.clone()),
            KeyCode::Char('_' | 'z' | '7') => {
                if let Some((text, cursor)) = self.undo_stack.pop() {
                    (self.text, self.cursor) = (text, cursor);
                }
            }
            _ => {}
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

    fn search_match(&self) -> Option<&str> {
        let (query, skip) = self.search.as_ref()?;
        let prompts = self.history.iter().rev().map(String::as_str);
        let mut matches = prompts.filter(|prompt| prompt.contains(query.as_str()));
        matches.nth(*skip)
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
        let word = before.rsplit(char::is_whitespace).next();
        before.len() - word.map_or(0, str::len)
    }

    fn word_right(&self) -> usize {
        let after = self.text[self.cursor..].trim_start();
        let word = after.split(char::is_whitespace).next();
        self.text.len() - after.len() + word.map_or(0, str::len)
    }

    fn line_start(&self) -> usize {
        self.text_before_cursor().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let end = self.text[self.cursor..].find('\n');
        end.map_or(self.text.len(), |end| self.cursor + end)
    }

    fn up(&mut self) {
        match self.line_start().checked_sub(1) {
            Some(end) => {
                let above = self.text[..end].rfind('\n').map_or(0, |at| at + 1);
                self.move_to_line(above);
            }
            None => self.walk_history(|at| at.checked_sub(1)),
        }
    }

    fn down(&mut self) {
        match self.line_end() {
            end if end < self.text.len() => self.move_to_line(end + 1),
            _ => self.walk_history(|at| Some(at + 1)),
        }
    }

    /// Moves to the same column of the line that starts at `start`.
    fn move_to_line(&mut self, start: usize) {
        let column = self.text[self.line_start()..self.cursor].chars().count();
        let line = self.text[start..].split('\n').next().unwrap_or_default();
        let at = line.char_indices().nth(column);
        self.cursor = start + at.map_or(line.len(), |(at, _)| at);
    }

    /// Shows another prompt of the history; the draft comes after the last one.
    fn walk_history(&mut self, step: impl FnOnce(usize) -> Option<usize>) {
        let end = self.history.len();
        let from = self.history_index.unwrap_or(end);
        let Some(to) = step(from).filter(|to| *to <= end) else {
            return;
        };
        if from == end {
            self.draft = std::mem::take(&mut self.text);
        }
        let prompt = self.history.get(to).cloned();
        self.text = prompt.unwrap_or_else(|| std::mem::take(&mut self.draft));
        self.cursor = self.text.len();
        self.history_index = (to < end).then_some(to);
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
        let mut start = 0;
        for part in self.text.split('\n') {
            for piece in split_at_width(part, room) {
                let margin = if lines.is_empty() {
                    Line::new(mark, CYAN)
                } else {
                    Line::plain(&" ".repeat(indent))
                };
                if (start..=start + piece.len()).contains(&self.cursor) {
                    let before = Line::plain(&self.text[start..self.cursor]);
                    cursor = (lines.len(), indent + before.width());
                }
                lines.push(margin.with(piece, PLAIN));
                start += piece.len();
            }
            start += 1;
        }
        let height = height.max(1);
        let top = (cursor.0 + 1).saturating_sub(height);
        let lines = lines.into_iter().skip(top).take(height).collect();
        (lines, (cursor.0 - top, cursor.1))
    }
}

/// Whether a character is drawn together with the one before it.
fn is_combining(letter: char) -> bool {
    letter.width() == Some(0)
}

/// A line in pieces no wider than `width`.
fn split_at_width(line: &str, width: usize) -> Vec<&str> {
    let (mut pieces, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, letter) in line.char_indices() {
        let wide = if letter == '\t' {
            4
        } else {
            letter.width().unwrap_or(0)
        };
        if used + wide > width && at > start {
            pieces.push(&line[start..at]);
            (start, used) = (at, 0);
        }
        used += wide;
    }
    pieces.push(&line[start..]);
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

    /// Presses keys, such as `^w` (Ctrl-W), `M-b` (Alt-B) and `Up`.
    fn press(editor: &mut Editor, keys: &str) {
        for key in keys.split_whitespace() {
            let letter = |text: &str| KeyCode::Char(text.chars().next().unwrap());
            let (code, modifiers) = match key {
                "Left" => (KeyCode::Left, KeyModifiers::NONE),
                "Up" => (KeyCode::Up, KeyModifiers::NONE),
                "Down" => (KeyCode::Down, KeyModifiers::NONE),
                "Backspace" => (KeyCode::Backspace, KeyModifiers::NONE),
                "Delete" => (KeyCode::Delete, KeyModifiers::NONE),
                key => match key.strip_prefix('^') {
                    Some(key) => (letter(key), KeyModifiers::CONTROL),
                    None => (letter(key.strip_prefix("M-").unwrap()), KeyModifiers::ALT),
                },
            };
            editor.on_key(KeyEvent::new(code, modifiers));
        }
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
    fn keys_edit_as_in_a_shell() {
        let table = [
            ("one two", "^w", "one |"),
            ("one two", "^a M-f", "one| two"),
            ("one two", "M-b ^u", "|two"),
            ("one two", "^a ^k ^y ^y", "one twoone two|"),
            ("a\nb", "^p ^e ^k", "a|b"),
            ("long\nb", "Up", "l|ong\nb"),
            ("ab\ncd", "^a Left ^b", "a|b\ncd"),
            ("e\u{301}x", "Left Backspace", "|x"),
            ("漢字", "^h", "漢|"),
            ("one", "^w ^z", "one|"),
            ("ab", "^a Delete", "|b"),
            ("one two", "^a M-d", "| two"),
            ("", "Backspace Left ^d ^w", "|"),
        ];
        for (text, keys, expected) in table {
            let mut editor = Editor::default();
            editor.insert(text);
            press(&mut editor, keys);
            assert_eq!(with_cursor(&editor), expected, "{text:?} {keys:?}");
        }
    }

    #[test]
    fn moving_through_the_history_restores_the_draft() {
        let mut editor = with_history(&["first", "second"]);
        editor.insert("draft");
        let mut walk = Vec::new();
        for key in ["Up", "Up", "Up", "Down", "Down", "Down"] {
            press(&mut editor, key);
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
        editor.insert("testx");
        press(&mut editor, "Backspace");
        editor.end_search(true);
        assert_eq!(editor.text(), "cargo test");
    }

    const KEYS: [&str; 16] = [
        "^b",
        "^f",
        "M-b",
        "M-f",
        "^a",
        "^e",
        "Up",
        "Down",
        "Backspace",
        "Delete",
        "^w",
        "M-d",
        "^u",
        "^k",
        "^y",
        "^z",
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
                match KEYS.get(which) {
                    Some(key) => press(&mut editor, key),
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
