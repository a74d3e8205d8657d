//! Key bindings.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rye_engine::protocol::QueueMode;

use super::{App, DRAFT_SAVED, Effect};

impl App {
    /// Handles a key.
    pub(crate) fn on_key(&mut self, key: KeyEvent, now: Instant) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.hint = None;
        let quit_pending = std::mem::take(&mut self.quit_pending);
        let edit_pending = std::mem::take(&mut self.edit_pending);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let effects = match key.code {
            KeyCode::Enter if alt || shift || control => self.new_line(),
            KeyCode::Char('\r' | '\n') if alt => self.new_line(),
            KeyCode::Enter => self.enter(now),
            KeyCode::Esc => self.escape(edit_pending),
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
        if self.completes_on_enter() {
            self.accept_completion();
        }
        self.send(None, now)
    }

    /// Whether Enter completes what is typed before it sends it: a partial command, and an
    /// argument that can only be one of those in the menu. The name of a thread may be a new one.
    fn completes_on_enter(&self) -> bool {
        let text = self.editor.text();
        let Some(menu) = self.menu.as_ref().filter(|_| text.starts_with('/')) else {
            return false;
        };
        match text.split_once(' ') {
            None => true,
            Some((_, "")) => menu.is_moved || self.is_picking,
            Some(("/thread" | "/threads", _)) => menu.is_moved,
            Some((_, argument)) => {
                menu.is_moved || menu.choices.iter().all(|choice| choice.text != argument)
            }
        }
    }

    fn escape(&mut self, edit_pending: bool) -> Vec<Effect> {
        if self.editor.is_searching() {
            self.editor.end_search(false);
            return Vec::new();
        }
        if self.menu.take().is_some() {
            if std::mem::take(&mut self.is_picking) {
                self.editor.set_text("");
            }
            return Vec::new();
        }
        if self.gate_input.is_some() {
            self.cancel_gate_input();
            return Vec::new();
        }
        if self.shell.as_ref().is_some_and(|shell| shell.handle.kill()) {
            return Vec::new();
        }
        if self.pane().is_busy() {
            return self.abort();
        }
        if !self.editor.is_empty() || !self.ready {
            return Vec::new();
        }
        if edit_pending {
            return vec![Effect::EditLastPrompt];
        }
        self.edit_pending = true;
        self.set_hint("press Esc again to edit the last prompt in a fork");
        Vec::new()
    }

    /// Empties the input, which is for a prompt again.
    pub(crate) fn cancel_gate_input(&mut self) {
        self.gate_input = None;
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
        } else if self.gate_input.is_none() && self.gate().is_some() && !self.editor.is_empty() {
            self.editor.take_text();
            self.set_hint(DRAFT_SAVED);
        }
        Vec::new()
    }

    fn accept_completion(&mut self) {
        if let Some(menu) = self.menu.take()
            && let Some(choice) = menu.choices.get(menu.selected)
        {
            self.editor.replace(menu.replaced_bytes, &choice.text);
        }
    }

    fn select_completion(&mut self, down: bool) -> Vec<Effect> {
        if let Some(menu) = &mut self.menu {
            let count = menu.choices.len();
            let step = if down { 1 } else { count - 1 };
            menu.selected = (menu.selected + step) % count;
            menu.is_moved = true;
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
        if self.editor.is_searching() || self.gate_input.is_some() {
            return self.escape(false);
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
        let last = self.pane().last_expandable();
        match last.filter(|_| self.expanded && self.pane().running.is_empty()) {
            Some(block) => vec![Effect::Expand(Box::new(block.clone()))],
            None => Vec::new(),
        }
    }
}
