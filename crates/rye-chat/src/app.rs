//! State of the chat: a pure state machine. Input changes it and returns the [`Effect`]s to
//! perform; nothing here waits, reads or writes.

mod gate_view;
mod gates;
mod keys;
mod on_event;
mod view;

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rye_engine::protocol::{
    ActionId, BackgroundCommand, Entry, EntryId, Gate, GateId, PromptId, QueueMode, SessionId,
    Thread,
};
use rye_engine::sandbox::{Confinement, FileAccess};
use serde_json::Value;

use crate::block::Block;
use crate::command::Command;
use crate::completion::{self, Completions, Menu};
use crate::editor::Editor;
use crate::effects::BUSY_REVIEW;
use crate::pane::Pane;
use crate::shell::{self, KillHandle};
use crate::text::Line;

pub(crate) use view::{Size, dollars};

/// How long a gate must be on the screen before a key answers it: keys pressed earlier were
/// not meant for it.
pub(crate) const GATE_GRACE: Duration = Duration::from_millis(400);

/// Hint that only one command of the user runs at a time.
pub(crate) const STILL_RUNNING: &str = "a command is still running: stop it with Esc";

/// A longer pasted text is shown as a mark.
const MAX_PASTED_LINES: usize = 10;
const MAX_PASTED_CHARS: usize = 2000;

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
    /// Run a command of the user.
    Shell(RunningShell),
    /// Return to the last prompt: continue in a fork from before it, with its text as the draft.
    EditLastPrompt,
    /// Show all of a block: in the pager if it is long.
    Expand(Box<Block>),
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
    /// What the sandbox confines; unknown until the session is open.
    pub(crate) confinement: Option<Confinement>,
    /// Whether the session is in review mode.
    pub(crate) review: bool,
    /// The git branch of the workspace.
    pub(crate) branch: Option<String>,
    /// The title of a session that has one.
    pub(crate) title: Option<String>,
}

impl SessionInfo {
    /// Whether the tools work on the files of the workspace on this machine.
    pub(crate) fn shows_workspace(&self) -> bool {
        let files = self.confinement.as_ref().map(|it| it.files);
        files.is_some_and(|files| files != FileAccess::Memory) && self.sandbox != "remote"
    }
}

/// A session to show instead of the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    /// The session; `None` for a new one.
    pub(crate) session: Option<SessionId>,
    /// Text for the input.
    pub(crate) draft: String,
}

/// A command that the user runs with `!`.
#[derive(Debug, Clone)]
pub(crate) struct RunningShell {
    pub(crate) thread: String,
    pub(crate) line: String,
    pub(crate) handle: KillHandle,
}

impl PartialEq for RunningShell {
    fn eq(&self, other: &Self) -> bool {
        (&self.thread, &self.line) == (&other.thread, &other.line)
    }
}

/// A gate that waits for a decision.
pub(crate) struct PendingGate {
    pub(crate) gate: Gate,
    /// When input may first answer it; `None` while it is not readable on the screen.
    answerable_from: Option<Instant>,
    /// Answered here; the closing event has not arrived yet.
    answered: bool,
}

/// A text for a gate that the user types into the input.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GateInput {
    /// New arguments of the call.
    Arguments(GateId),
    /// Why the call is denied.
    Reason(GateId),
}

impl GateInput {
    fn gate(&self) -> &GateId {
        let (Self::Arguments(gate) | Self::Reason(gate)) = self;
        gate
    }
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
    /// What the input is for, if it is not a prompt.
    gate_input: Option<GateInput>,
    /// Shown in place of the status line until the next key.
    hint: Option<Line>,
    /// Ctrl-C was pressed once; a second one quits.
    quit_pending: bool,
    /// Esc was pressed once; a second one returns to the last prompt.
    edit_pending: bool,
    /// The menu was opened by a command without an argument.
    is_picking: bool,
    /// Pasted texts that the input shows as a short mark, with the mark.
    pastes: Vec<(String, String)>,
    /// The command of the user that is running.
    pub(crate) shell: Option<RunningShell>,
    /// Commands of the agent that run in the background.
    pub(crate) background: Vec<BackgroundCommand>,
    /// Role of the next prompts.
    pub(crate) role: Option<String>,
    /// Approvals that hold for more than one call.
    pub(crate) approvals: Vec<String>,
    /// A session that the event loop must open.
    pub(crate) open_request: Option<OpenRequest>,
    /// The review mode that the event loop must switch to.
    pub(crate) review_request: Option<bool>,
    /// A block that the event loop must show completely.
    pub(crate) to_expand: Option<Block>,
    /// Whether the terminal has the focus; `None` if it does not say.
    pub(crate) is_focused: Option<bool>,
    /// What to tell the user who looks elsewhere.
    pub(crate) alert: Option<String>,
    /// A turn has ended, so files of the workspace may have changed.
    pub(crate) workspace_changed: bool,
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

    /// Inserts pasted text; a long one as a mark that stands for it.
    pub(crate) fn insert_text(&mut self, text: &str) {
        self.hint = None;
        self.quit_pending = false;
        self.edit_pending = false;
        let lines = text.lines().count();
        let is_long = lines > MAX_PASTED_LINES || text.chars().count() > MAX_PASTED_CHARS;
        if is_long && self.gate_input.is_none() {
            let number = self.pastes.len() + 1;
            let mark = format!("[pasted text {number}: {lines} lines]");
            self.editor.insert(&mark);
            self.pastes.push((mark, text.to_owned()));
        } else {
            self.editor.insert(text);
        }
        self.update_menu();
    }

    /// A text with the pasted texts in place of their marks.
    pub(crate) fn expand_pastes(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (mark, pasted) in &self.pastes {
            text = text.replace(mark, pasted);
        }
        text
    }

    /// Opens the menu of a command's arguments.
    pub(crate) fn open_picker(&mut self, command: &str) {
        if !self.editor.is_empty() {
            return;
        }
        self.editor.set_text(&format!("/{command} "));
        self.is_picking = true;
        self.update_menu();
        if self.menu.is_none() {
            self.editor.set_text("");
            self.set_hint("there is nothing to choose from");
        }
    }

    /// Shows the history that a fork has in common with the original: no event tells it.
    pub(crate) fn show_inherited(&mut self, threads: &[(Thread, Vec<Entry>)], last: &EntryId) {
        let key = self.pane().key.clone();
        let thread = threads.iter().find(|(thread, _)| thread.key == key);
        let entries = thread.map_or(&[][..], |(_, entries)| entries.as_slice());
        let count = entries.iter().position(|entry| entry.id == *last);
        for entry in entries.iter().take(count.map_or(0, |at| at + 1)) {
            self.pane_mut().on_entry(entry);
        }
    }

    /// Replaces the session that the chat shows. The input and its history stay.
    pub(crate) fn reset(&mut self, thread: &str, draft: &str) {
        let mut editor = std::mem::take(&mut self.editor);
        if !draft.is_empty() {
            // The user may have typed while the session opened.
            editor.set_text(&format!("{draft}{}", editor.text()));
        }
        let info = SessionInfo {
            workspace: self.info.workspace.clone(),
            ..SessionInfo::default()
        };
        let notes = std::mem::take(&mut self.pane_mut().notes);
        *self = Self {
            editor,
            completions: std::mem::take(&mut self.completions),
            expanded: self.expanded,
            pastes: std::mem::take(&mut self.pastes),
            role: self.role.take(),
            is_focused: self.is_focused,
            ..Self::new(info, thread)
        };
        self.pane_mut().notes = notes;
    }

    /// Sends the text of the input.
    pub(crate) fn send(&mut self, mode: Option<QueueMode>, now: Instant) -> Vec<Effect> {
        self.menu = None;
        match self.gate_input.clone() {
            Some(GateInput::Arguments(gate)) => return self.send_arguments(gate),
            Some(GateInput::Reason(gate)) => return self.send_denial(gate),
            None if self.editor.text().trim().is_empty() => return Vec::new(),
            None => {}
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
        if let Some(line) = text.trim().strip_prefix('!')
            && !line.trim().is_empty()
            && !self.plain
            && self.text_answer(text, now).is_none()
        {
            return self.run_shell(line.trim());
        }
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
        let text = self.expand_pastes(text);
        if let Some(decision) = self.text_answer(&text, now) {
            return vec![decision];
        }
        vec![self.prompt(text, mode)]
    }

    /// Starts a command of the user.
    fn run_shell(&mut self, line: &str) -> Vec<Effect> {
        if self.shell.is_some() {
            self.set_hint(STILL_RUNNING);
            self.editor.set_text(&format!("!{line}"));
            return Vec::new();
        }
        let running = RunningShell {
            thread: self.pane().key.clone(),
            line: self.expand_pastes(line),
            handle: KillHandle::default(),
        };
        self.shell = Some(running.clone());
        vec![Effect::Shell(running)]
    }

    /// A command of the user has ended.
    pub(crate) fn on_shell_ended(
        &mut self,
        thread: &str,
        line: &str,
        output: &str,
        status: ExitStatus,
    ) {
        self.shell = None;
        let ending = match status.code() {
            Some(code) => format!("exit code {code}"),
            None => "killed".to_owned(),
        };
        let Some(pane) = self.panes.iter_mut().find(|pane| pane.key == thread) else {
            return;
        };
        pane.notes.push(shell::note(line, output, &ending));
        pane.add(Block::Shell {
            line: line.to_owned(),
            output: output.to_owned(),
            ending: (!status.success()).then_some(ending),
        });
    }

    fn command(&mut self, command: Command, text: &str) -> Vec<Effect> {
        match command {
            Command::Quit => vec![Effect::Quit],
            // A choice that can be made with the keyboard needs no entry in the transcript.
            Command::Model(None)
            | Command::Sessions(None)
            | Command::Role(None)
            | Command::Skill(None)
            | Command::Thread(None)
                if !self.plain =>
            {
                vec![Effect::Command(command)]
            }
            Command::Thread(Some(key)) => self.switch_thread(&key),
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
        let mut parts = std::mem::take(&mut pane.notes);
        parts.push(text);
        let text = parts.join("\n\n");
        Effect::Prompt { thread, text, mode }
    }

    /// Requests another review mode, which only an idle session can have.
    pub(crate) fn request_review(&mut self, review: bool) {
        let is_idle = self.shell.is_none() && self.gates.is_empty() && self.background.is_empty();
        if is_idle && !self.panes.iter().any(Pane::is_busy) {
            self.review_request = Some(review);
        } else {
            self.add_block(Block::Error(BUSY_REVIEW.to_owned()));
        }
    }

    /// Updates the completion menu for the word at the cursor.
    fn update_menu(&mut self) {
        let edits_prompt = self.gate_input.is_none() && !self.editor.is_searching();
        let before = self.editor.text_before_cursor();
        let menu = || completion::menu(before, &self.completions);
        self.menu = edits_prompt.then(menu).flatten();
    }
}

#[cfg(test)]
mod tests;
