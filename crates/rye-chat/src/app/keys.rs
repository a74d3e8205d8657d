//! Keys.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rye_engine::protocol::QueueMode;

use super::{App, Effect, Writing};
use crate::block::Block;
use crate::editor::Edit;

impl App {
    /// A key was pressed.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Instant) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.hint = None;
        let left = std::mem::take(&mut self.leaving);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let effects = match key.code {
            KeyCode::Enter if alt || shift || control => self.new_line(),
            KeyCode::Enter => self.enter(now),
            KeyCode::Esc => self.escape(),
            KeyCode::Tab => self.tab(),
            KeyCode::BackTab => self.choose(false),
            KeyCode::Char(letter) if control => self.control(letter, left, now),
            KeyCode::Char(letter) if alt => self.alternate(letter),
            KeyCode::Char(letter) => {
                if let Some(effects) = self.answer_key(letter, now) {
                    return effects;
                }
                self.editor.insert(letter.encode_utf8(&mut [0; 4]));
                Vec::new()
            }
            KeyCode::Up if self.menu.is_some() => return self.choose(false),
            KeyCode::Down if self.menu.is_some() => return self.choose(true),
            code => {
                if let Some(edit) = movement(code, control || alt) {
                    self.editor.edit(edit);
                }
                Vec::new()
            }
        };
        if !matches!(key.code, KeyCode::Esc | KeyCode::Tab | KeyCode::BackTab) {
            self.look_up();
        }
        effects
    }

    fn new_line(&mut self) -> Vec<Effect> {
        self.editor.insert("\n");
        Vec::new()
    }

    fn enter(&mut self, now: Instant) -> Vec<Effect> {
        if self.editor.is_searching() {
            self.editor.end_search(true);
            return Vec::new();
        }
        if self.editor.before().ends_with('\\') {
            self.editor.replace(1, "\n");
            return Vec::new();
        }
        // A command that is half written is completed first.
        if self.editor.text().starts_with('/') && !self.editor.text().contains(' ') {
            self.accept();
        }
        self.send(None, now)
    }

    fn escape(&mut self) -> Vec<Effect> {
        if self.editor.is_searching() {
            self.editor.end_search(false);
            return Vec::new();
        }
        if self.menu.take().is_some() {
            return Vec::new();
        }
        if self.is_editing() {
            self.leave_arguments();
            return Vec::new();
        }
        self.end_work()
    }

    /// No other arguments after all.
    pub(crate) fn leave_arguments(&mut self) {
        if let Writing::Arguments(_, draft) = &self.writing {
            let draft = draft.clone();
            self.writing = Writing::Prompt;
            self.editor.set(&draft);
        }
    }

    fn end_work(&mut self) -> Vec<Effect> {
        if !self.pane().is_busy() {
            return Vec::new();
        }
        let thread = self.pane().key.clone();
        vec![Effect::Abort { thread }]
    }

    /// Completes; where nothing is to be completed and a gate waits, what is written is put
    /// aside so that letters answer it.
    fn tab(&mut self) -> Vec<Effect> {
        if self.menu.is_some() {
            self.accept();
            self.look_up();
        } else if self.gate().is_some() && !self.editor.is_empty() {
            self.editor.take();
            self.hint("what you wrote is one key up");
        }
        Vec::new()
    }

    fn accept(&mut self) {
        if let Some(menu) = self.menu.take()
            && let Some((choice, _)) = menu.choices.get(menu.chosen)
        {
            self.editor.replace(menu.bytes, choice);
        }
    }

    fn choose(&mut self, down: bool) -> Vec<Effect> {
        if let Some(menu) = &mut self.menu {
            let count = menu.choices.len();
            let step = if down { 1 } else { count - 1 };
            menu.chosen = (menu.chosen + step) % count;
        }
        Vec::new()
    }

    fn control(&mut self, letter: char, left: bool, now: Instant) -> Vec<Effect> {
        match letter.to_ascii_lowercase() {
            'c' => return self.interrupt(left, now),
            'd' if self.editor.is_empty() => return vec![Effect::Quit],
            's' => return self.send(Some(QueueMode::Steer), now),
            'j' => return self.new_line(),
            'g' => return vec![Effect::EditOutside],
            'l' => return vec![Effect::PaintAnew],
            'o' => return self.unfold(),
            'r' => self.editor.search(),
            't' => {
                let next = (self.current + 1) % self.panes.len();
                let key = self.panes[next].key.clone();
                return self.go_to(&key);
            }
            'a' => self.editor.edit(Edit::Start),
            'e' => self.editor.edit(Edit::End),
            'b' => self.editor.edit(Edit::Left),
            'f' => self.editor.edit(Edit::Right),
            'p' => self.editor.edit(Edit::Up),
            'n' => self.editor.edit(Edit::Down),
            'h' => self.editor.edit(Edit::Backspace),
            'd' => self.editor.edit(Edit::Delete),
            'w' => self.editor.edit(Edit::CutWord),
            'u' => self.editor.edit(Edit::CutToStart),
            'k' => self.editor.edit(Edit::CutToEnd),
            'y' => self.editor.edit(Edit::Paste),
            '_' | 'z' | '7' => self.editor.edit(Edit::Undo),
            _ => {}
        }
        Vec::new()
    }

    fn alternate(&mut self, letter: char) -> Vec<Effect> {
        match letter {
            'b' => self.editor.edit(Edit::WordLeft),
            'f' => self.editor.edit(Edit::WordRight),
            'd' => self.editor.edit(Edit::CutWordRight),
            '\r' | '\n' => return self.new_line(),
            _ => {}
        }
        Vec::new()
    }

    /// Ctrl-C, where it comes as a signal.
    pub(crate) fn interrupted(&mut self, now: Instant) -> Vec<Effect> {
        self.hint = None;
        let left = std::mem::take(&mut self.leaving);
        self.interrupt(left, now)
    }

    /// Something else was done than to leave.
    pub(crate) fn stay(&mut self) {
        self.leaving = false;
    }

    /// Ctrl-C: the nearest thing that can be stopped.
    fn interrupt(&mut self, left: bool, now: Instant) -> Vec<Effect> {
        if self.editor.is_searching() || self.is_editing() {
            return self.escape();
        }
        let written = !self.editor.text().trim().is_empty();
        match (self.pane().is_busy(), written) {
            (true, true) if !self.editor.text().starts_with('/') => {
                self.send(Some(QueueMode::Steer), now)
            }
            (true, false) if !left => {
                self.leaving = true;
                self.end_work()
            }
            (_, true) => {
                self.editor.take();
                self.hint("what you wrote is one key up");
                Vec::new()
            }
            _ if left => vec![Effect::Quit],
            _ => {
                self.leaving = true;
                self.hint("Ctrl-C again leaves; the session stays");
                Vec::new()
            }
        }
    }

    fn unfold(&mut self) -> Vec<Effect> {
        self.unfolded = !self.unfolded;
        if self.unfolded
            && self.pane().running.is_empty()
            && let Some(done) = self.pane().last_done().cloned()
        {
            self.tell(Block::Unfolded(done));
        }
        Vec::new()
    }
}

fn movement(code: KeyCode, by_word: bool) -> Option<Edit> {
    Some(match code {
        KeyCode::Left if by_word => Edit::WordLeft,
        KeyCode::Right if by_word => Edit::WordRight,
        KeyCode::Left => Edit::Left,
        KeyCode::Right => Edit::Right,
        KeyCode::Up => Edit::Up,
        KeyCode::Down => Edit::Down,
        KeyCode::Home => Edit::Start,
        KeyCode::End => Edit::End,
        KeyCode::Backspace if by_word => Edit::CutWord,
        KeyCode::Backspace => Edit::Backspace,
        KeyCode::Delete => Edit::Delete,
        _ => return None,
    })
}
