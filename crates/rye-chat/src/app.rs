//! State of the chat: a pure state machine. Input changes it and returns the [`Effect`]s to
//! perform; nothing here waits, reads or writes.

mod gate_view;
mod gates;
mod keys;
mod on_event;
mod view;

use std::time::{Duration, Instant};

use rye_engine::protocol::{ActionId, Gate, GateId, PromptId, QueueMode};
use serde_json::Value;

use crate::block::Block;
use crate::command::Command;
use crate::completion::{self, Completions, Menu};
use crate::editor::Editor;
use crate::pane::Pane;
use crate::text::Line;

pub(crate) use view::{Size, dollars};

/// How long a gate must be on the screen before a key answers it: keys pressed earlier were
/// not meant for it.
pub(crate) const GATE_GRACE: Duration = Duration::from_millis(400);

/// Hint that a draft was moved to the prompt history.
const DRAFT_SAVED: &str = "draft saved: press Up to restore it";

/// What the event loop has to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    Prompt {
        thread: String,
        text: String,
        mode: Option<QueueMode>,
    },
    Abort {
        thread: String,
    },
    Decide {
        gate: GateId,
        action: ActionId,
        value: Value,
    },
    Command(Command),
    /// Open the draft in the user's editor.
    OpenEditor,
    /// Clear the screen and paint the current thread.
    Redraw,
    Quit,
}

/// Session data for the status line.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionInfo {
    pub(crate) session: String,
    pub(crate) sandbox: String,
    pub(crate) model: String,
    /// Context window of the model, in tokens.
    pub(crate) context_window: Option<u64>,
    pub(crate) workspace: std::path::PathBuf,
}

/// A gate that waits for a decision.
pub(crate) struct PendingGate {
    pub(crate) gate: Gate,
    /// When input may first answer it; `None` while it is not readable on the screen.
    answerable_from: Option<Instant>,
    /// Answered here; the closing event has not arrived yet.
    answered: bool,
}

/// State of the chat.
#[derive(Default)]
pub(crate) struct App {
    pub(crate) info: SessionInfo,
    pub(crate) editor: Editor,
    pub(crate) panes: Vec<Pane>,
    pub(crate) current: usize,
    pub(crate) gates: Vec<PendingGate>,
    pub(crate) completions: Completions,
    /// Tool output is expanded.
    pub(crate) expanded: bool,
    /// The session is open.
    pub(crate) ready: bool,
    /// The chat prints line by line, and Enter is the only key.
    pub(crate) plain: bool,
    /// Number of decisions that are being stored.
    pub(crate) deciding: usize,
    /// Whether the last answer to a gate was refused. The gate is then shown again.
    pub(crate) is_answer_refused: bool,
    menu: Option<Menu>,
    /// The gate whose arguments the input edits instead of a prompt.
    edited_gate: Option<GateId>,
    /// Shown in place of the status line until the next key.
    hint: Option<Line>,
    /// Ctrl-C was pressed once; a second one quits.
    quit_pending: bool,
    pub(crate) spinner_frame: usize,
}

impl App {
    pub(crate) fn new(info: SessionInfo, thread: &str) -> Self {
        Self {
            info,
            panes: vec![Pane::new(thread, None)],
            ..Self::default()
        }
    }

    pub(crate) fn pane(&self) -> &Pane {
        &self.panes[self.current]
    }

    pub(crate) fn pane_mut(&mut self) -> &mut Pane {
        &mut self.panes[self.current]
    }

    /// Whether the spinner turns.
    pub(crate) fn is_animated(&self) -> bool {
        let pane = self.pane();
        !self.ready || (pane.is_busy() && self.gate().is_none())
    }

    /// Adds a block to the current thread.
    pub(crate) fn add_block(&mut self, block: Block) {
        self.pane_mut().add(block);
    }

    pub(crate) fn set_hint(&mut self, text: &str) {
        self.hint = Some(Line::new(text, crate::text::YELLOW));
    }

    /// Shows a thread, and creates its pane if it is new.
    pub(crate) fn switch_thread(&mut self, key: &str) -> Vec<Effect> {
        let found = self.panes.iter().position(|pane| pane.key == key);
        self.current = found.unwrap_or_else(|| {
            self.panes.push(Pane::new(key, None));
            self.panes.len() - 1
        });
        vec![Effect::Redraw]
    }

    /// A prompt of the thread with this key was queued.
    pub(crate) fn on_prompt_sent(&mut self, thread: &str, prompt: PromptId) {
        if let Some(pane) = self.panes.iter_mut().find(|pane| pane.key == thread) {
            pane.on_prompt_queued(prompt);
        }
    }

    /// A prompt could not be sent; its text returns to the input.
    pub(crate) fn on_prompt_failed(&mut self, thread: &str, text: &str, error: &str) {
        if let Some(pane) = self.panes.iter_mut().find(|pane| pane.key == thread) {
            pane.unconfirmed = pane.unconfirmed.saturating_sub(1);
        }
        self.add_block(Block::Error(format!("not sent: {error}")));
        self.restore_draft(text);
    }

    /// Returns an unsent text to the input, or to the history if the input is in use.
    pub(crate) fn restore_draft(&mut self, text: &str) {
        if self.editor.is_empty() {
            self.editor.set_text(text);
        } else {
            self.editor.add_to_history(text);
            self.set_hint("unsent prompt saved: press Up to restore it");
        }
    }

    pub(crate) fn take_hint(&mut self) -> Option<Line> {
        self.hint.take()
    }

    /// Inserts pasted text.
    pub(crate) fn insert_text(&mut self, text: &str) {
        self.hint = None;
        self.quit_pending = false;
        self.editor.insert(text);
        self.update_menu();
    }

    /// Sends the text of the input.
    pub(crate) fn send(&mut self, mode: Option<QueueMode>, now: Instant) -> Vec<Effect> {
        self.menu = None;
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if let Some(gate) = self.edited_gate.clone() {
            return self.send_arguments(gate);
        }
        let text = self.editor.take_text();
        self.submit(&text, mode, now)
    }

    /// Handles a finished text: a command, an answer to a gate, or a prompt.
    pub(crate) fn submit(
        &mut self,
        text: &str,
        mode: Option<QueueMode>,
        now: Instant,
    ) -> Vec<Effect> {
        if let Some(line) = text.trim_start().strip_prefix('/')
            && !line.starts_with('/')
            && !text.trim().contains('\n')
        {
            return match Command::parse(text) {
                Ok(command) => self.command(command, text),
                Err(error) => {
                    self.set_hint(&error);
                    self.editor.set_text(text);
                    Vec::new()
                }
            };
        }
        if let Some(decision) = self.text_answer(text, now) {
            return vec![decision];
        }
        vec![self.prompt(text.to_owned(), mode)]
    }

    fn command(&mut self, command: Command, text: &str) -> Vec<Effect> {
        match command {
            Command::Quit => vec![Effect::Quit],
            Command::Thread(key) => self.switch_thread(&key),
            Command::Steer(text) => vec![self.prompt(text, Some(QueueMode::Steer))],
            other => {
                self.add_block(Block::Command(text.trim().to_owned()));
                vec![Effect::Command(other)]
            }
        }
    }

    fn prompt(&mut self, text: String, mode: Option<QueueMode>) -> Effect {
        let pane = self.pane_mut();
        pane.unconfirmed += 1;
        let thread = pane.key.clone();
        Effect::Prompt { thread, text, mode }
    }

    /// Updates the completion menu for the word at the cursor.
    fn update_menu(&mut self) {
        let edits_prompt = !self.is_editing_arguments() && !self.editor.is_searching();
        let before = self.editor.text_before_cursor();
        let menu = || completion::menu(before, &self.completions);
        self.menu = edits_prompt.then(menu).flatten();
    }
}

#[cfg(test)]
mod tests;
