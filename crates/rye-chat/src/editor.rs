//! Where a person writes: lines, a cursor, the keys that people know from shells and editors,
//! and what they wrote before.

use unicode_width::UnicodeWidthStr as _;

use crate::text::{DIM, Line, PLAIN};

/// A text that is being written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Editor {
    text: String,
    /// Where the cursor is, in bytes.
    at: usize,
    /// What was cut last.
    cut: String,
    /// What was written before, the newest last.
    past: Vec<String>,
    /// Which of it is shown.
    shown: Option<usize>,
    /// What was being written before the past was looked at.
    draft: String,
    /// What is searched for in the past, and how many hits are passed over.
    search: Option<(String, usize)>,
    before: Vec<(String, usize)>,
}

/// How much can be taken back.
const STEPS: usize = 200;

/// What a key does to a text.
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

    /// What is before the cursor.
    pub(crate) fn before(&self) -> &str {
        &self.text[..self.at]
    }

    pub(crate) fn set(&mut self, text: &str) {
        self.keep();
        text.clone_into(&mut self.text);
        self.at = self.text.len();
        self.shown = None;
    }

    /// Takes the text out, and remembers it.
    pub(crate) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.at = 0;
        self.shown = None;
        self.draft.clear();
        self.before.clear();
        self.remember(&text);
        text
    }

    pub(crate) fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.past.last().is_none_or(|last| last != text) {
            self.past.push(text.to_owned());
        }
    }

    /// Puts the past that was read later before the one that is here.
    pub(crate) fn older(&mut self, mut past: Vec<String>) {
        past.append(&mut self.past);
        self.past = past;
    }

    pub(crate) fn insert(&mut self, text: &str) {
        if let Some((wanted, skip)) = &mut self.search {
            wanted.push_str(text);
            *skip = 0;
            return;
        }
        self.keep();
        self.text.insert_str(self.at, text);
        self.at += text.len();
    }

    /// Puts something else in place of the last bytes before the cursor.
    pub(crate) fn replace(&mut self, bytes: usize, with: &str) {
        self.keep();
        let from = self.at.saturating_sub(bytes);
        self.text.replace_range(from..self.at, with);
        self.at = from + with.len();
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        if self.search.is_some() {
            if edit == Edit::Backspace {
                self.search_back();
            }
            return;
        }
        match edit {
            Edit::Left => self.at = self.left(),
            Edit::Right => self.at = self.right(),
            Edit::WordLeft => self.at = self.word_left(),
            Edit::WordRight => self.at = self.word_right(),
            Edit::Start => self.at = self.line_start(),
            Edit::End => self.at = self.line_end(),
            Edit::Up => self.up(),
            Edit::Down => self.down(),
            Edit::Backspace => self.remove(self.left(), self.at, false),
            Edit::Delete => self.remove(self.at, self.right(), false),
            Edit::CutWord => self.remove(self.word_left(), self.at, true),
            Edit::CutWordRight => self.remove(self.at, self.word_right(), true),
            Edit::CutToStart => self.remove(self.line_start(), self.at, true),
            Edit::CutToEnd => {
                let end = match self.line_end() {
                    end if end == self.at => self.right(),
                    end => end,
                };
                self.remove(self.at, end, true);
            }
            Edit::Paste => {
                let cut = self.cut.clone();
                self.insert(&cut);
            }
            Edit::Undo => {
                if let Some((text, at)) = self.before.pop() {
                    (self.text, self.at) = (text, at);
                }
            }
        }
    }

    /// Begins to search the past, or goes on to an older hit.
    pub(crate) fn search(&mut self) {
        match &mut self.search {
            None => self.search = Some((String::new(), 0)),
            Some((_, skip)) => *skip += 1,
        }
    }

    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Ends the search: with what was found, or as it was before.
    pub(crate) fn end_search(&mut self, keep: bool) {
        let hit = self.hit().map(str::to_owned);
        self.search = None;
        if let (true, Some(hit)) = (keep, hit) {
            self.set(&hit);
        }
    }

    fn search_back(&mut self) {
        if let Some((wanted, skip)) = &mut self.search {
            wanted.pop();
            *skip = 0;
        }
    }

    fn hit(&self) -> Option<&str> {
        let (wanted, skip) = self.search.as_ref()?;
        let hits = self.past.iter().rev();
        let mut hits = hits
            .filter(|past| past.contains(wanted.as_str()))
            .skip(*skip);
        hits.next().map(String::as_str)
    }

    fn keep(&mut self) {
        if self.before.len() == STEPS {
            self.before.remove(0);
        }
        self.before.push((self.text.clone(), self.at));
    }

    fn remove(&mut self, from: usize, to: usize, keep: bool) {
        if from == to {
            return;
        }
        self.keep();
        let removed: String = self.text.drain(from..to).collect();
        self.at = from;
        if keep {
            self.cut = removed;
        }
    }

    fn left(&self) -> usize {
        let mut before = self.before().char_indices().rev();
        // What takes no room belongs to the letter before it.
        before
            .find(|(_, letter)| !joins(*letter))
            .map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        let after = &self.text[self.at..];
        let mut letters = after.char_indices().skip(1);
        letters
            .find(|(_, letter)| !joins(*letter))
            .map_or(self.text.len(), |(at, _)| self.at + at)
    }

    fn word_left(&self) -> usize {
        let before = self.before().trim_end();
        let start = before.rfind(char::is_whitespace);
        start.map_or(0, |at| {
            at + before[at..].chars().next().map_or(0, char::len_utf8)
        })
    }

    fn word_right(&self) -> usize {
        let after = &self.text[self.at..];
        let word = after.len() - after.trim_start().len();
        let end = after[word..].find(char::is_whitespace);
        end.map_or(self.text.len(), |end| self.at + word + end)
    }

    fn line_start(&self) -> usize {
        self.before().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let end = self.text[self.at..].find('\n');
        end.map_or(self.text.len(), |end| self.at + end)
    }

    fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.older_one();
        }
        let column = self.text[start..self.at].chars().count();
        let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
        self.at = column_of(&self.text, above, column);
    }

    fn down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.newer_one();
        }
        let column = self.text[self.line_start()..self.at].chars().count();
        self.at = column_of(&self.text, end + 1, column);
    }

    fn older_one(&mut self) {
        let next = match self.shown {
            None => self.past.len().checked_sub(1),
            Some(shown) => shown.checked_sub(1),
        };
        let Some(next) = next else {
            return;
        };
        if self.shown.is_none() {
            self.draft.clone_from(&self.text);
        }
        self.text.clone_from(&self.past[next]);
        self.at = self.text.len();
        self.shown = Some(next);
    }

    fn newer_one(&mut self) {
        let Some(shown) = self.shown else {
            return;
        };
        if let Some(past) = self.past.get(shown + 1) {
            self.text.clone_from(past);
            self.shown = Some(shown + 1);
        } else {
            self.text = std::mem::take(&mut self.draft);
            self.shown = None;
        }
        self.at = self.text.len();
    }

    /// The lines of the text behind a mark, wrapped, at most `height` of them around the
    /// cursor; and where in them the cursor is.
    pub(crate) fn lines(
        &self,
        mark: &str,
        width: usize,
        height: usize,
    ) -> (Vec<Line>, (usize, usize)) {
        if let Some((wanted, _)) = &self.search {
            let found = self.hit().unwrap_or("nothing");
            let first = found.lines().next().unwrap_or_default();
            let line = Line::new(&format!("search: {wanted}"), PLAIN);
            let column = line.width();
            let line = line.with(&format!("  → {first}"), DIM).cut(width);
            return (vec![line], (0, column.min(width.saturating_sub(1))));
        }
        let (mut lines, mut cursor) = (Vec::new(), (0, 0));
        let indent = mark.width();
        let room = width.saturating_sub(indent + 1).max(1);
        let mut from = 0;
        for (part, number) in self.text.split('\n').zip(0..) {
            for (piece, start) in pieces(part, room) {
                let mut line = if number == 0 && lines.is_empty() {
                    Line::new(mark, crate::text::CYAN)
                } else {
                    Line::plain(&" ".repeat(indent))
                };
                line.push(piece, PLAIN);
                let start = from + start;
                if (start..=start + piece.len()).contains(&self.at) {
                    let shown = crate::text::harmless(&self.text[start..self.at]);
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

/// Whether a letter is drawn together with the one before.
fn joins(letter: char) -> bool {
    use unicode_width::UnicodeWidthChar as _;
    letter.width() == Some(0) && !letter.is_control()
}

/// The place of a column in the line that begins at `start`.
fn column_of(text: &str, start: usize, column: usize) -> usize {
    let line = text[start..].split('\n').next().unwrap_or_default();
    let at = line.char_indices().nth(column);
    start + at.map_or(line.len(), |(at, _)| at)
}

/// A line in pieces no wider than `width`, each with where it begins.
fn pieces(line: &str, width: usize) -> Vec<(&str, usize)> {
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

    fn with_past(past: &[&str]) -> Editor {
        let mut editor = Editor::default();
        editor.older(past.iter().map(|it| (*it).to_owned()).collect());
        editor
    }

    /// The text with the cursor in it.
    fn seen(editor: &Editor) -> String {
        format!("{}|{}", editor.before(), &editor.text[editor.at..])
    }

    #[test]
    fn keys_do_what_people_know() {
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
            assert_eq!(seen(&editor), expected, "{text:?} {edits:?}");
        }
    }

    #[test]
    fn the_past_is_walked_through_and_what_was_being_written_comes_back() {
        let mut editor = with_past(&["first", "second"]);
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
    fn the_past_is_searched() {
        let mut editor = with_past(&["cargo test", "cargo build", "ls"]);
        editor.insert("kept");
        editor.search();
        editor.insert("cargo");
        assert_eq!(editor.hit(), Some("cargo build"));
        editor.search();
        assert_eq!(editor.hit(), Some("cargo test"));
        editor.end_search(false);
        assert_eq!(editor.text(), "kept");
        editor.search();
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
        fn any_keys_leave_a_text_with_a_cursor_on_the_screen(
            steps in proptest::collection::vec((0..20_usize, "[a漢\u{301} \\n]{0,4}"), 0..60),
            width in 4..40_usize,
            height in 1..6_usize,
        ) {
            let mut editor = with_past(&["past", "a\nb"]);
            for (which, text) in steps {
                match EDITS.get(which) {
                    Some(edit) => editor.edit(*edit),
                    None => editor.insert(&text),
                }
                prop_assert!(editor.text.is_char_boundary(editor.at));
                let (lines, (row, column)) = editor.lines("> ", width, height);
                prop_assert!(row < lines.len() && lines.len() <= height);
                prop_assert!(column <= width, "{} {:?}", column, lines);
            }
        }
    }
}
