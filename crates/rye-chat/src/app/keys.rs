//! Key bindings.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rye_engine::protocol::QueueMode;

use super::{App, DRAFT_SAVED, Effect};
use crate::block::Block;

impl App {
    /// Handles a key.
    pub(crate) fn on_key(&mut self, key: KeyEvent, now: Instant) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.hint = None;
        let quit_pending = std::mem::take(&mut self.quit_pending);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let effects = match key.code {
            KeyCode::Enter if alt || shift || control => self.new_line(),
            KeyCode::Char('\r' | '\n') if alt => self.new_line(),
            KeyCode::Enter => self.enter(now),
            KeyCode::Esc => self.escape(),
            KeyCode::Tab => self.tab(),
            KeyCode::BackTab => self.select_completion(false),
            KeyCode::Up if self.menu.is_some() => return self.select_completion(false),
            KeyCode::Down if self.menu.is_some() => return self.select_completion(true),
            KeyCode::Char(letter) if control => self.control(letter, key, quit_pending, now),
            KeyCode::Char(letter) if !alt => {
                if let Some(effects) = self.on_gate_key(letter, now) {
                    return effects;
                }
                self.editor.insert(letter.encode_utf8(&mut [0; 4]));
                Vec::new()
            }
            _ => self.edit(key),
        };
        if !matches!(key.code, KeyCode::Esc | KeyCode::Tab | KeyCode::BackTab) {
            self.update_menu();
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
        if self.editor.text_before_cursor().ends_with('\\') {
            self.editor.replace(1, "\n");
            return Vec::new();
        }
        // Complete a partial command before sending it.
        if self.editor.text().starts_with('/') && !self.editor.text().contains(' ') {
            self.accept_completion();
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
        if self.is_editing_arguments() {
            self.cancel_arguments();
            return Vec::new();
        }
        self.abort()
    }

    /// Stops editing the arguments of a call.
    pub(crate) fn cancel_arguments(&mut self) {
        self.edited_gate = None;
        self.editor.set_text("");
    }

    fn abort(&mut self) -> Vec<Effect> {
        if !self.pane().is_busy() {
            return Vec::new();
        }
        let thread = self.pane().key.clone();
        vec![Effect::Abort { thread }]
    }

    /// Completes a word; with a gate and nothing to complete, saves the draft so that keys
    /// answer the gate.
    fn tab(&mut self) -> Vec<Effect> {
        if self.menu.is_some() {
            self.accept_completion();
            self.update_menu();
        } else if self.gate().is_some() && !self.editor.is_empty() {
            self.editor.take_text();
            self.set_hint(DRAFT_SAVED);
        }
        Vec::new()
    }

    fn accept_completion(&mut self) {
        if let Some(menu) = self.menu.take()
            && let Some((choice, _)) = menu.choices.get(menu.selected)
        {
            self.editor.replace(menu.replaced_bytes, choice);
        }
    }

    fn select_completion(&mut self, down: bool) -> Vec<Effect> {
        if let Some(menu) = &mut self.menu {
            let count = menu.choices.len();
            let step = if down { 1 } else { count - 1 };
            menu.selected = (menu.selected + step) % count;
        }
        Vec::new()
    }

    fn control(
        &mut self,
        letter: char,
        key: KeyEvent,
        quit_pending: bool,
        now: Instant,
    ) -> Vec<Effect> {
        match letter.to_ascii_lowercase() {
            'c' => self.interrupt(quit_pending, now),
            'd' if self.editor.is_empty() => vec![Effect::Quit],
            's' => self.send(Some(QueueMode::Steer), now),
            'j' => self.new_line(),
            'g' => vec![Effect::OpenEditor],
            'l' => vec![Effect::Redraw],
            'o' => self.toggle_expanded(),
            'r' => {
                self.editor.start_search();
                Vec::new()
            }
            't' => {
                let next = (self.current + 1) % self.panes.len();
                let key = self.panes[next].key.clone();
                self.switch_thread(&key)
            }
            _ => self.edit(key),
        }
    }

    fn edit(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.editor.on_key(key);
        Vec::new()
    }

    /// Ctrl-C that arrives as a signal.
    pub(crate) fn on_interrupt(&mut self, now: Instant) -> Vec<Effect> {
        self.hint = None;
        let quit_pending = std::mem::take(&mut self.quit_pending);
        self.interrupt(quit_pending, now)
    }

    /// Forgets an earlier Ctrl-C, because the user did something else.
    pub(crate) fn cancel_quit(&mut self) {
        self.quit_pending = false;
    }

    /// Ctrl-C: stops the innermost activity.
    fn interrupt(&mut self, quit_pending: bool, now: Instant) -> Vec<Effect> {
        if self.editor.is_searching() || self.is_editing_arguments() {
            return self.escape();
        }
        let has_draft = !self.editor.text().trim().is_empty();
        match (self.pane().is_busy(), has_draft) {
            (true, true) if !self.editor.text().trim_start().starts_with('/') => {
                self.send(Some(QueueMode::Steer), now)
            }
            (true, false) if !quit_pending => {
                self.quit_pending = true;
                self.abort()
            }
            (_, true) => {
                self.editor.take_text();
                self.set_hint(DRAFT_SAVED);
                Vec::new()
            }
            _ if quit_pending => vec![Effect::Quit],
            _ => {
                self.quit_pending = true;
                self.set_hint("press Ctrl-C again to quit; the session is kept");
                Vec::new()
            }
        }
    }

    fn toggle_expanded(&mut self) -> Vec<Effect> {
        self.expanded = !self.expanded;
        if self.expanded
            && self.pane().running.is_empty()
            && let Some(call) = self.pane().last_finished_call().cloned()
        {
            self.add_block(Block::ExpandedCall(call));
        }
        Vec::new()
    }
}
