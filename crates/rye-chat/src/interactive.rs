//! Event loop on a terminal that can be painted on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, EventStream};
use rye_engine::protocol::{SessionId, short_id};
use rye_engine::store::StoreError;
use tokio_stream::StreamExt as _;

use crate::app::{App, Effect, OpenRequest, STILL_RUNNING};
use crate::attachments;
use crate::block::Block;
use crate::effects::{EffectRunner, FLUSH_TIMEOUT};
use crate::external;
use crate::history;
use crate::pane::Pane;
use crate::screen::{LiveRegion, Screen};
use crate::session_events::SessionEvents;
use crate::signals::SignalHandler;
use crate::terminal::Terminal;
use crate::text::Line;
use crate::{Chat, ChatError, Notify, Options};

/// Time from the first change to the paint that shows it and all that follow it.
const FRAME: Duration = Duration::from_millis(33);
/// Shortest time between two paints while the user types, so that every key is visible at once.
const KEY_FRAME: Duration = Duration::from_millis(4);
/// Time between two frames of the spinner.
const SPINNER_FRAME: Duration = Duration::from_millis(120);

pub(crate) async fn run(
    chat: Chat,
    terminal: Terminal,
    runner: EffectRunner,
    mut events: SessionEvents,
) -> Result<SessionId, ChatError> {
    if let Some(path) = &chat.options.history {
        runner.load_history(path.clone());
    }
    runner.load_workspace(&chat.app.info);
    let mut ui = InteractiveUi {
        app: chat.app,
        screen: chat.screen,
        terminal,
        signals: chat.signals,
        runner,
        history: chat.options.history.clone(),
        options: chat.options,
        keys: Some(EventStream::new()),
        changed_at: Some(Instant::now()),
        typed: false,
        painted_at: Instant::now(),
    };
    loop {
        let frame = ui.next_frame();
        tokio::select! {
            biased;
            key = next_key(&mut ui.keys) => {
                let Some(key) = key else { break };
                if ui.on_input(key?)? {
                    break;
                }
            }
            event = events.next() => match event {
                Ok(Some(event)) => {
                    events.apply(event, &mut ui.app).await?;
                    if std::mem::take(&mut ui.app.workspace_changed) {
                        ui.runner.load_workspace(&ui.app.info);
                    }
                    ui.changed_at.get_or_insert_with(Instant::now);
                }
                Ok(None) => break,
                Err(error) => {
                    ui.close()?;
                    return Err(error.into());
                }
            },
            () = frame => ui.paint()?,
        }
        ui.notify()?;
        if let Some(request) = ui.app.open_request.take() {
            ui.open(request, &mut events).await;
        }
        if let Some(review) = ui.app.review_request.take() {
            ui.switch_review(review, &mut events).await?;
        }
        if let Some(block) = ui.app.to_expand.take() {
            ui.expand(block)?;
        }
    }
    if let Some(shell) = &ui.app.shell {
        shell.handle.kill();
    }
    ui.close()?;
    let session = ui.runner.session().id().clone();
    // Dropping the runner closes the outbox; wait until it has sent the last prompt.
    drop(ui);
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, events.wait_for_effects()).await;
    Ok(session)
}

async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// The app and the terminal that shows it.
struct InteractiveUi {
    app: App,
    screen: Screen,
    terminal: Terminal,
    signals: SignalHandler,
    runner: EffectRunner,
    history: Option<PathBuf>,
    options: Options,
    keys: Option<EventStream>,
    /// When the first change since the last paint happened.
    changed_at: Option<Instant>,
    /// The user has typed since the last paint.
    typed: bool,
    painted_at: Instant,
}

impl InteractiveUi {
    /// Completes when the next paint is due: soon after a change, at the next spinner frame
    /// while something is animated, otherwise never.
    fn next_frame(&self) -> impl Future<Output = ()> + use<> {
        let due = match self.changed_at {
            Some(_) if self.typed => Some(self.painted_at + KEY_FRAME),
            Some(changed_at) => Some(changed_at + FRAME),
            None => self
                .app
                .is_animated()
                .then(|| self.painted_at + SPINNER_FRAME),
        };
        async move {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        }
    }

    fn paint(&mut self) -> Result<(), ChatError> {
        if self.changed_at.is_none() {
            self.app.spinner_frame += 1;
        }
        let size = Terminal::size();
        let above = self.app.finished_lines(size.width);
        let region = self.app.live_region(size);
        let out = self.screen.paint(&above, &region);
        self.send(&out, &region)
    }

    fn redraw(&mut self) -> Result<(), ChatError> {
        let size = Terminal::size();
        let above = self.app.last_lines(size);
        let region = self.app.live_region(size);
        // One synchronised update: an empty screen in between would flicker.
        let mut out = String::from("\x1b[?2026h");
        out += &self.screen.clear(size.height);
        out += &self.screen.paint(&above, &region);
        self.send(&out, &region)
    }

    fn send(&mut self, out: &str, region: &LiveRegion) -> Result<(), ChatError> {
        let message = format!("{}{}", self.screen.move_below(), self.resume_hint());
        self.signals.set_exit_message(message);
        Terminal::send(out)?;
        self.changed_at = None;
        self.typed = false;
        self.painted_at = Instant::now();
        self.app.on_painted(region, self.painted_at);
        Ok(())
    }

    /// Handles a terminal event. Returns whether the user quits.
    fn on_input(&mut self, input: Input) -> Result<bool, ChatError> {
        let effects = match input {
            Input::Key(key) => self.app.on_key(key, Instant::now()),
            Input::Paste(text) => {
                self.app.insert_text(&attachments::normalize_paste(&text));
                Vec::new()
            }
            Input::Resize(..) => vec![Effect::Redraw],
            Input::FocusGained => {
                self.app.is_focused = Some(true);
                return Ok(false);
            }
            Input::FocusLost => {
                self.app.is_focused = Some(false);
                return Ok(false);
            }
            Input::Mouse(_) => Vec::new(),
        };
        self.changed_at.get_or_insert_with(Instant::now);
        self.typed = true;
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::Redraw => self.redraw()?,
                Effect::OpenEditor => self.open_editor()?,
                other => {
                    self.add_to_history(&other);
                    self.runner.start(other, &mut self.app);
                }
            }
        }
        if self.painted_at.elapsed() >= KEY_FRAME {
            self.paint()?;
        }
        Ok(false)
    }

    /// Alerts a user who looks elsewhere.
    fn notify(&mut self) -> Result<(), ChatError> {
        let Some(text) = self.app.alert.take() else {
            return Ok(());
        };
        let is_wanted = match self.options.notify {
            Notify::Unfocused => self.app.is_focused == Some(false),
            Notify::Always => true,
            Notify::Never => false,
        };
        if is_wanted {
            Terminal::send(&notification(&text, |name| std::env::var(name).ok()))?;
        }
        Ok(())
    }

    /// Shows another session. If it cannot be opened, the chat stays.
    async fn open(&mut self, request: OpenRequest, events: &mut SessionEvents) {
        self.changed_at.get_or_insert_with(Instant::now);
        if self.app.shell.is_some() {
            self.app.set_hint(STILL_RUNNING);
            return;
        }
        let opened = self.runner.open(request.session.as_ref()).await;
        let attached = async {
            let session = opened?;
            let (runner, updates) = self.runner.attach(&session, &self.options);
            let events = SessionEvents::subscribe(runner.engine(), &session, updates).await?;
            Ok::<_, StoreError>((session, runner, events))
        };
        let (session, runner, new_events) = match attached.await {
            Ok(attached) => attached,
            Err(error) => {
                self.app.add_block(Block::Error(error.to_string()));
                return;
            }
        };
        let was_busy = self.app.panes.iter().any(Pane::is_busy) || !self.app.gates.is_empty();
        let previous = std::mem::replace(&mut self.runner, runner);
        let previous_session = previous.session().clone();
        // Dropping it closes the outbox; wait until it has sent the last prompt.
        drop(previous);
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, events.wait_for_effects()).await;
        *events = new_events;
        if !was_busy && previous_session.id() != session.id() {
            // Another process may use it. A session that works continues in the background.
            let _ = previous_session.close().await;
        }
        self.app.reset(&self.options.thread, &request.draft);
        self.app.add_block(Block::Notice(vec![Line::default()]));
        let (engine, host) = (self.runner.engine().clone(), self.runner.host());
        let loaded = self
            .app
            .load_session_info(&engine, &session, &*host, Vec::new());
        if let Err(error) = loaded.await {
            self.app.add_block(Block::Error(error.to_string()));
        }
        self.runner.load_workspace(&self.app.info);
    }

    /// Turns the review mode on or off.
    async fn switch_review(
        &mut self,
        review: bool,
        events: &mut SessionEvents,
    ) -> Result<(), ChatError> {
        self.changed_at.get_or_insert_with(Instant::now);
        let (options, app) = (&self.options, &mut self.app);
        let switched = self.runner.switch_review(review, options, events, app);
        let Err(error) = switched.await else {
            return Ok(());
        };
        self.close()?;
        Err(error.into())
    }

    fn add_to_history(&mut self, effect: &Effect) {
        if let (Effect::Prompt { text, .. }, Some(path)) = (effect, &self.history)
            && let Err(error) = history::append(path, text)
        {
            self.history = None;
            let text = format!("prompt history disabled: {error}");
            self.app.add_block(Block::notice(&text));
        }
    }

    /// Opens the draft in the user's editor.
    fn open_editor(&mut self) -> Result<(), ChatError> {
        let editor = external::editor_command(|name| std::env::var(name).ok());
        self.keys = None;
        Terminal::send(&self.screen.finish())?;
        let text = self.app.editor.text();
        let edited = self
            .terminal
            .suspend_while(|| external::edit(&editor, text))?;
        self.keys = Some(EventStream::new());
        match edited {
            Ok(text) => self.app.editor.set_text(text.trim_end()),
            Err(error) => self.app.set_hint(&format!("{editor}: {error}")),
        }
        self.redraw()
    }

    /// Shows all of a block: below the others, or in the pager if it is longer than the screen.
    fn expand(&mut self, block: Block) -> Result<(), ChatError> {
        let size = Terminal::size();
        let lines = block.all_lines();
        self.changed_at.get_or_insert_with(Instant::now);
        if lines.len() < size.height {
            self.app.add_block(Block::Expanded(Box::new(block)));
            return Ok(());
        }
        // The screen does not change, so that there is nothing to collapse.
        self.app.expanded = false;
        let lines = lines
            .iter()
            .map(|line| line.ansi(self.options.theme) + "\n");
        let text: String = lines.collect();
        let pager = external::pager_command(|name| std::env::var(name).ok());
        self.keys = None;
        Terminal::send(&self.screen.finish())?;
        let shown = self
            .terminal
            .suspend_while(|| external::page(&pager, &text))?;
        self.keys = Some(EventStream::new());
        if let Err(error) = shown {
            self.app.set_hint(&format!("{pager}: {error}"));
        }
        self.redraw()
    }

    /// Paints the last state, prints how to resume, and restores the terminal.
    fn close(&mut self) -> Result<(), ChatError> {
        self.paint()?;
        let out = self.screen.finish() + &self.resume_hint();
        // Before the terminal is restored: from then on Ctrl-C ends the process.
        Terminal::send(&out)?;
        self.terminal.release();
        Ok(())
    }

    fn resume_hint(&self) -> String {
        resume_hint(&self.app.info.session, "\r\n")
    }
}

/// Terminals that show a notification with OSC 777 and ignore OSC 9, by the start of `TERM`.
const OSC_777_TERMINALS: [&str; 2] = ["foot", "rxvt"];

/// The bell, and a desktop notification in the form that the terminal understands.
fn notification(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    // A `;` could start a command of the escape sequence.
    let text = lillux::sanitize_line(text).replace(';', ",");
    let term = variable("TERM").unwrap_or_default();
    let is_listed = OSC_777_TERMINALS.iter().any(|it| term.starts_with(it));
    if is_listed || variable("VTE_VERSION").is_some() {
        return format!("\x1b]777;notify;rye;{text}\x1b\\\x07");
    }
    format!("\x1b]9;rye: {text}\x1b\\\x07")
}

/// A line with the command that resumes a session.
pub(crate) fn resume_hint(session: &str, line_end: &str) -> String {
    format!(
        "resume with: rye chat --session {}{line_end}",
        short_id(session)
    )
}
