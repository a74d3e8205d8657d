//! Event loop that prints line by line: for terminals that cannot be painted on, for screen
//! readers and for pipes.

use std::io::{self, Write as _};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rye_engine::protocol::GateId;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::app::{App, Effect, GATE_GRACE};
use crate::block::Block;
use crate::effects::EffectRunner;
use crate::input::{Input, InputLine};
use crate::interactive::resume_hint;
use crate::pane::Pane;
use crate::session_events::SessionEvents;
use crate::terminal::Terminal;
use crate::text::Line;
use crate::theme::Theme;
use crate::{Chat, ChatError};

pub(crate) async fn run(
    chat: Chat,
    mut runner: EffectRunner,
    mut events: SessionEvents,
) -> Result<(), ChatError> {
    let Chat {
        options,
        mut app,
        signals,
        started,
        ..
    } = chat;
    let mut ui = PlainUi {
        theme: options.theme,
        stderr: options.stderr,
        input: Input::open(),
        started,
        shown_gate: None,
        prompted: false,
        echoed: Vec::new(),
    };
    signals.set_exit_message(ui.exit_message(&app));
    // With piped input, Ctrl-C ends the process as usual.
    let is_terminal = ui.input.is_terminal();
    let mut interrupts = is_terminal.then(|| signals.subscribe_interrupts());
    let (mut open, mut invalid) = (true, None);
    loop {
        let settled = app.deciding == 0 && events.is_caught_up();
        ui.print_draft(&mut app);
        ui.show(&mut app, open && settled)?;
        if !open && settled && is_done(&app) && (app.gate().is_some() || events.is_idle().await?) {
            break;
        }
        let effects = tokio::select! {
            biased;
            Some(()) = next_interrupt(&mut interrupts) => app.on_interrupt(Instant::now()),
            event = events.next() => {
                let Some(event) = event? else { break };
                events.apply(event, &mut app).await?;
                Vec::new()
            }
            line = ui.input.next(), if open && events.is_caught_up() => match line {
                Some(InputLine { at, text: Ok(text) }) => {
                    ui.prompted = false;
                    ui.on_line(&mut app, &text, at)
                }
                Some(InputLine { text: Err(error), .. }) if ui.input.is_terminal() => {
                    let byte = error.byte;
                    app.add_block(Block::Error(format!("not sent: invalid UTF-8 at byte {byte}")));
                    Vec::new()
                }
                // Stop reading; the prompts sent so far are still answered.
                Some(InputLine { text: Err(error), .. }) => {
                    (open, invalid) = (false, Some(error));
                    Vec::new()
                }
                None => {
                    open = false;
                    Vec::new()
                }
            }
        };
        for effect in effects {
            match effect {
                Effect::Quit => return ui.close(&app),
                Effect::Redraw => {
                    let text = format!("thread {}", app.pane().key);
                    app.add_block(Block::notice(&text));
                }
                other => runner.start(other, &mut app),
            }
        }
        if let Some(review) = app.review_request.take() {
            let switched = runner.switch_review(review, &options, &mut events, &mut app);
            Box::pin(switched).await?;
        }
    }
    ui.close(&app)?;
    invalid.map_or(Ok(()), |error| Err(ChatError::InvalidUtf8(error)))
}

async fn next_interrupt(interrupts: &mut Option<UnboundedReceiver<()>>) -> Option<()> {
    match interrupts {
        Some(interrupts) => interrupts.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether nothing more happens without further input.
fn is_done(app: &App) -> bool {
    let gate_pending = app.gate().is_some();
    app.panes.iter().all(is_quiet) || gate_pending && app.panes.iter().all(Pane::is_queue_loaded)
}

fn is_quiet(pane: &Pane) -> bool {
    !pane.is_busy() && pane.unconfirmed == 0
}

/// Standard input and the printed output.
struct PlainUi {
    theme: Theme,
    stderr: bool,
    input: Input,
    /// When the chat started.
    started: SystemTime,
    /// Gate that was printed last.
    shown_gate: Option<GateId>,
    /// The output ends with the prompt.
    prompted: bool,
    /// Lines that the terminal has echoed and that need not be printed again.
    echoed: Vec<String>,
}

impl PlainUi {
    /// Prints what is new, and the prompt if the user may type.
    fn show(&mut self, app: &mut App, settled: bool) -> io::Result<()> {
        let width = Terminal::size().width;
        let mut lines = self.new_lines(app, width);
        lines.extend(app.take_hint());
        let gate = app.gate().map(|pending| pending.gate.id.clone());
        let is_refused = std::mem::take(&mut app.is_answer_refused);
        let is_new = gate.is_some() && (is_refused || gate != self.shown_gate);
        if is_new {
            lines.extend(app.gate_lines(width, usize::MAX, usize::MAX));
        }
        let accepts_input = gate.is_some() || is_quiet(app.pane());
        let leaves_prompt = !lines.is_empty() && std::mem::take(&mut self.prompted);
        let mut text = if leaves_prompt { "\n" } else { "" }.to_owned();
        for line in lines {
            text += &line.ansi(self.theme);
            text.push('\n');
        }
        if let (true, Some(gate)) = (is_new, &gate) {
            // Before it is printed, because the answer may come immediately afterwards.
            let from = self.answerable_from(app, gate);
            app.mark_shown(gate, from);
        }
        self.print(&text)?;
        self.shown_gate = gate;
        if accepts_input && settled && self.input.is_terminal() && !self.prompted {
            self.print("> ")?;
            self.prompted = true;
        }
        Ok(())
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if self.stderr {
            return io::stderr().write_all(text.as_bytes());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// The time after which input may answer a gate that is about to be printed. Earlier input
    /// is not meant for it. The exception: piped input may answer a gate that was already open
    /// when the chat started, because the writer of the pipe could know about it.
    fn answerable_from(&self, app: &App, gate: &GateId) -> Instant {
        let gate = app.gate().filter(|pending| pending.gate.id == *gate);
        let created_at = gate.map_or(0, |pending| pending.gate.created_at.0);
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let drained = self.input.drain();
        match self.input.is_terminal() {
            true => drained + GATE_GRACE,
            false if u128::from(created_at) < started.as_millis() => self.input.opened(),
            false => drained,
        }
    }

    /// The lines of new blocks, without those that the terminal has echoed.
    fn new_lines(&mut self, app: &mut App, width: usize) -> Vec<Line> {
        let expanded = app.expanded;
        let mut lines = Vec::new();
        for block in app.pane_mut().take_unpainted() {
            let is_echo = |it: &String| match block {
                Block::Prompt(text) | Block::Command(text) => text == it,
                _ => false,
            };
            match self.echoed.iter().position(is_echo) {
                Some(at) => drop(self.echoed.remove(at)),
                None => lines.extend(block.lines(width, expanded)),
            }
        }
        lines
    }

    /// Handles a line that arrived at `at`: an answer to a gate, a command, or a prompt.
    fn on_line(&mut self, app: &mut App, line: &str, at: Instant) -> Vec<Effect> {
        app.cancel_quit();
        if app.is_editing_arguments() {
            if line.trim().is_empty() {
                app.cancel_gate_input();
                self.shown_gate = None;
                return Vec::new();
            }
            app.editor.set_text(line);
            return app.send(None, at);
        }
        let mut letters = line.trim().chars();
        if let (Some(letter), None) = (letters.next(), letters.next())
            && let Some(effects) = app.on_gate_key(letter, at)
        {
            if app.is_editing_arguments() {
                let current = app.editor.text().lines().map(Line::plain).collect();
                app.add_block(Block::Notice(current));
                let help = "type new arguments as JSON on one line; an empty line cancels";
                app.add_block(Block::notice(help));
            }
            return effects;
        }
        if let Some(denial) = app.deny_with_reason(line, at) {
            return vec![denial];
        }
        if line.trim().is_empty() {
            return Vec::new();
        }
        if self.input.is_terminal() {
            self.echoed.push(line.trim().to_owned());
        }
        let effects = app.submit(line, None, at);
        // A line with an error stays on the screen above; the input starts empty.
        app.editor.take_text();
        effects
    }

    /// Prints a draft that returned to the input, because no input line shows it.
    fn print_draft(&mut self, app: &mut App) {
        if !app.is_editing_arguments() && !app.editor.is_empty() {
            let text = app.editor.take_text();
            self.echoed.retain(|it| *it != text);
            app.add_block(Block::notice(&format!("edit and resend: {text}")));
        }
    }

    fn close(&self, app: &App) -> Result<(), ChatError> {
        let before = if self.prompted { "\n" } else { "" };
        self.print(&format!("{before}{}", resume_hint(&app.info.session, "\n")))?;
        Ok(())
    }

    /// What to print if a signal ends the chat, possibly in the middle of a line.
    fn exit_message(&self, app: &App) -> String {
        let before = if self.input.is_terminal() { "\n" } else { "" };
        format!("{before}{}", resume_hint(&app.info.session, "\n"))
    }
}
