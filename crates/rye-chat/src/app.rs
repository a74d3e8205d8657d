//! The state of a chat. What comes in changes it, and says what is to be done; nothing here
//! waits, reads or writes.

mod gate_view;
mod gates;
mod keys;
mod news;
mod view;

use std::time::{Duration, Instant};

use rye_engine::protocol::{Gate, GateId, QueueItemId, QueueMode};
use serde_json::Value;

use crate::block::Block;
use crate::command::Command;
use crate::complete::{self, Known, Menu};
use crate::editor::Editor;
use crate::pane::Pane;
use crate::text::Line;

pub(crate) use view::{Size, dollars};

/// How long a gate is on the screen before a letter answers it: what was being typed when
/// it came was not meant for it.
pub(crate) const SETTLES: Duration = Duration::from_millis(400);

/// What is to be done.
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
        action: String,
        value: Value,
    },
    Command(Command),
    /// Write in the person's own editor.
    EditOutside,
    /// Forget what is on the screen, and paint the thread that is shown.
    PaintAnew,
    Quit,
}

/// What is known of the session from outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) session: String,
    pub(crate) sandbox: String,
    pub(crate) model: String,
    /// How many tokens the model reads at most.
    pub(crate) window: Option<u64>,
    pub(crate) workspace: std::path::PathBuf,
}

/// A gate that waits.
pub(crate) struct Waiting {
    pub(crate) gate: Gate,
    /// From when on what is said may answer it: none before it could be read.
    from: Option<Instant>,
    /// Whether it was answered here, and nobody has heard of it yet.
    answered: bool,
}

/// What is being written besides a prompt.
#[derive(Debug, Clone, PartialEq)]
enum Writing {
    Prompt,
    /// Other arguments for what a gate asks about, and what was being written before.
    Arguments(GateId, String),
}

/// All there is to see.
pub(crate) struct App {
    pub(crate) facts: Facts,
    pub(crate) editor: Editor,
    pub(crate) panes: Vec<Pane>,
    pub(crate) current: usize,
    pub(crate) gates: Vec<Waiting>,
    pub(crate) known: Known,
    /// Whether what tools give is unfolded.
    pub(crate) unfolded: bool,
    /// Whether the session is there yet.
    pub(crate) ready: bool,
    /// Whether it is said line by line: there are no keys but Enter.
    pub(crate) plain: bool,
    menu: Option<Menu>,
    writing: Writing,
    /// Something small to say, until the next key.
    hint: Option<Line>,
    /// Whether leaving was asked for once.
    leaving: bool,
    /// Which of several pictures the spinner shows.
    pub(crate) beat: usize,
}

impl App {
    pub(crate) fn new(facts: Facts, thread: &str) -> Self {
        Self {
            facts,
            editor: Editor::default(),
            panes: vec![Pane::new(thread, None)],
            current: 0,
            gates: Vec::new(),
            known: Known::default(),
            unfolded: false,
            ready: false,
            plain: false,
            menu: None,
            writing: Writing::Prompt,
            hint: None,
            leaving: false,
            beat: 0,
        }
    }

    pub(crate) fn pane(&self) -> &Pane {
        &self.panes[self.current]
    }

    pub(crate) fn pane_mut(&mut self) -> &mut Pane {
        &mut self.panes[self.current]
    }

    /// Whether anything moves on the screen by itself.
    pub(crate) fn is_alive(&self) -> bool {
        let pane = self.pane();
        !self.ready || (pane.is_busy() && self.gate().is_none())
    }

    /// Says something in the thread that is shown.
    pub(crate) fn tell(&mut self, block: Block) {
        self.pane_mut().add(block);
    }

    pub(crate) fn hint(&mut self, text: &str) {
        self.hint = Some(Line::new(text, crate::text::YELLOW));
    }

    /// Goes to a thread, which is made if it is new.
    pub(crate) fn go_to(&mut self, key: &str) -> Vec<Effect> {
        let found = self.panes.iter().position(|pane| pane.key == key);
        self.current = found.unwrap_or_else(|| {
            self.panes.push(Pane::new(key, None));
            self.panes.len() - 1
        });
        vec![Effect::PaintAnew]
    }

    /// A prompt of a thread is written down, or will not be.
    pub(crate) fn sent(&mut self, thread: &str, item: Option<QueueItemId>) {
        let Some(pane) = self.panes.iter_mut().find(|pane| pane.key == thread) else {
            return;
        };
        match item {
            Some(item) => pane.written(item),
            None => pane.sent = pane.sent.saturating_sub(1),
        }
    }

    /// What was written could not be sent: it comes back to where it was written.
    pub(crate) fn give_back(&mut self, text: &str) {
        if self.editor.is_empty() {
            self.editor.set(text);
        } else {
            self.editor.remember(text);
            self.hint("what was not asked is one key up");
        }
    }

    /// Something small to say, once.
    pub(crate) fn take_hint(&mut self) -> Option<Line> {
        self.hint.take()
    }

    /// What was typed or pasted.
    pub(crate) fn typed(&mut self, text: &str) {
        self.hint = None;
        self.leaving = false;
        self.editor.insert(text);
        self.look_up();
    }

    /// Sends what is written.
    pub(crate) fn send(&mut self, mode: Option<QueueMode>, now: Instant) -> Vec<Effect> {
        self.menu = None;
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if let Writing::Arguments(gate, draft) = &self.writing {
            let (gate, draft) = (gate.clone(), draft.clone());
            return self.send_arguments(gate, &draft);
        }
        let text = self.editor.take();
        self.submit(&text, mode, now)
    }

    /// A line that a person has finished.
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
                Err(why) => {
                    self.hint(&why);
                    self.editor.set(text);
                    Vec::new()
                }
            };
        }
        if let Some(answer) = self.answer(text, now) {
            return vec![answer];
        }
        let pane = self.pane_mut();
        pane.sent += 1;
        let thread = pane.key.clone();
        let text = text.to_owned();
        vec![Effect::Prompt { thread, text, mode }]
    }

    fn command(&mut self, command: Command, text: &str) -> Vec<Effect> {
        match command {
            Command::Quit => vec![Effect::Quit],
            Command::Thread(key) => self.go_to(&key),
            Command::Steer(text) => {
                let pane = self.pane_mut();
                pane.sent += 1;
                let thread = pane.key.clone();
                let mode = Some(QueueMode::Steer);
                vec![Effect::Prompt { thread, text, mode }]
            }
            other => {
                self.tell(Block::Command(text.trim().to_owned()));
                vec![Effect::Command(other)]
            }
        }
    }

    /// What the word at the cursor could become.
    fn look_up(&mut self) {
        self.menu = match self.writing {
            Writing::Prompt if !self.editor.is_searching() => {
                complete::menu(self.editor.before(), &self.known)
            }
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests;
