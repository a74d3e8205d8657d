//! Terminal chat with an agent, built on the engine's public API.
//!
//! [`Chat::start`] paints the prompt before the engine is open, so that the user can type at
//! once; [`Chat::run`] then attaches the chat to a session. Finished output scrolls into the
//! terminal's own scrollback; only the live region below it is repainted. If the terminal
//! cannot be painted on, or with [`Options::plain`], the chat prints line by line instead.
//!
//! [`ChatHost`] is what the embedding program provides: models and commands the engine does
//! not know.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use rye_chat::{Chat, ChatError, ChatHost, Options};
//! use rye_engine::{Engine, Session};
//!
//! async fn chat(
//!     engine: &Engine,
//!     session: Session,
//!     host: Arc<dyn ChatHost>,
//! ) -> Result<(), ChatError> {
//!     let options = Options {
//!         thread: "default".to_owned(),
//!         user: "ada".to_owned(),
//!         ..Options::default()
//!     };
//!     let last_session = Chat::start(options)?.run(engine, session, host).await?;
//!     println!("{last_session}");
//!     Ok(())
//! }
//! ```

mod app;
mod attachments;
mod block;
mod command;
mod command_output;
mod completion;
mod editor;
mod effects;
mod external;
mod highlight;
mod history;
mod host;
mod input;
mod interactive;
mod markdown;
mod pane;
mod plain;
mod screen;
mod session_events;
mod session_list;
mod share;
mod shell;
mod signals;
mod terminal;
mod text;
mod theme;
mod welcome;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rye_engine::protocol::SessionId;
use rye_engine::store::StoreError;
use rye_engine::{Engine, Session};

use app::{App, SessionInfo};
use block::Block;
use effects::EffectRunner;
use screen::Screen;
use session_events::SessionEvents;
use signals::SignalHandler;
use terminal::Terminal;

pub use host::{ChangeSummary, ChatHost, FileChange, FileConflict, UndoError, UndoSummary};
pub use input::InvalidUtf8;
pub use signals::ignored_signals;
pub use theme::Theme;

/// Settings of a chat.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Key of the thread to show first.
    pub thread: String,
    /// Model that the user named, if any.
    pub model: Option<String>,
    /// Sandbox kind for the status line; empty to show the one stored in the session.
    pub sandbox: String,
    /// Directory whose files `@` completes.
    pub workspace: PathBuf,
    /// File with the prompts of earlier chats.
    pub history: Option<PathBuf>,
    /// Which colours to use.
    pub theme: Theme,
    /// When to alert a user who looks elsewhere.
    pub notify: Notify,
    /// Print line by line even if the terminal can be painted on.
    pub plain: bool,
    /// Print line by line to standard error, to keep standard output for the caller.
    pub stderr: bool,
    /// Name recorded with decisions at gates.
    pub user: String,
}

/// When the chat rings the bell and shows a desktop notification, because it waits for the user
/// or the agent is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Notify {
    /// If the terminal says that it has no focus
    #[default]
    Unfocused,
    /// Whether it has the focus or not
    Always,
    /// Neither bell nor notification
    Never,
}

/// Why a chat failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// Reading from or writing to the terminal failed.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
    /// The session could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A line of piped input is not text.
    #[error("standard input is not valid UTF-8: line {}, byte {}", .0.line, .0.byte)]
    InvalidUtf8(InvalidUtf8),
}

/// A chat that has taken over the terminal.
pub struct Chat {
    options: Options,
    app: App,
    screen: Screen,
    /// `None` if the chat prints line by line.
    terminal: Option<Terminal>,
    signals: SignalHandler,
    started: SystemTime,
    /// Notices to show below the first screen.
    greeting: Vec<String>,
}

impl Chat {
    /// Takes over the terminal and paints the prompt.
    ///
    /// This starts a signal-handling thread: fork, if you must, before calling it.
    pub fn start(options: Options) -> Result<Self, ChatError> {
        let info = SessionInfo {
            session: String::new(),
            sandbox: options.sandbox.clone(),
            model: options.model.clone().unwrap_or_default(),
            context_window: None,
            workspace: options.workspace.clone(),
            ..SessionInfo::default()
        };
        let mut app = App::new(info, &options.thread);
        let mut screen = Screen::new(options.theme);
        let signals = SignalHandler::install(options.stderr)?;
        let terminal = if options.plain || options.stderr || !Terminal::is_available() {
            None
        } else {
            let terminal = Terminal::open(signals.clone())?;
            let region = app.live_region(Terminal::size());
            Terminal::send(&screen.paint(&[], &region))?;
            signals.set_exit_message(screen.move_below());
            Some(terminal)
        };
        app.plain = terminal.is_none();
        Ok(Self {
            options,
            app,
            screen,
            terminal,
            signals,
            started: SystemTime::now(),
            greeting: Vec::new(),
        })
    }

    /// Sets the notices to show first.
    pub fn set_greeting(&mut self, lines: &[String]) {
        self.greeting = lines.to_vec();
    }

    /// Runs the chat until the user quits, and returns the session that was shown last. It stays
    /// open.
    pub async fn run(
        mut self,
        engine: &Engine,
        session: Session,
        host: Arc<dyn ChatHost>,
    ) -> Result<SessionId, ChatError> {
        let greeting = std::mem::take(&mut self.greeting);
        self.app
            .load_session_info(engine, &session, &*host, greeting)
            .await?;
        let id = session.id().clone();
        let (runner, updates) = EffectRunner::new(engine, &session, host, &self.options);
        let events = SessionEvents::subscribe(engine, &session, updates).await?;
        if let Some(terminal) = self.terminal.take() {
            return Box::pin(interactive::run(self, terminal, runner, events)).await;
        }
        plain::run(self, runner, events).await?;
        Ok(id)
    }
}

impl App {
    /// Completes what the app knows about the session, and shows the first screen.
    pub(crate) async fn load_session_info(
        &mut self,
        engine: &Engine,
        session: &Session,
        host: &dyn ChatHost,
        greeting: Vec<String>,
    ) -> Result<(), StoreError> {
        let app = self;
        app.ready = true;
        app.info.session = session.id().to_string();
        app.info.confinement = Some(session.sandbox().confinement());
        app.info.sandbox = session.sandbox().kind().to_string();
        app.background = session.background_commands();
        let mut forked_at = None;
        if let Some(data) = engine.session_data(session.id()).await? {
            forked_at = data.forked_from.map(|point| point.entry);
            app.info.title = data.title;
            app.info.review = data.sandbox.is_some_and(|it| it.review);
            if let (true, Some(model)) = (app.info.model.is_empty(), data.model) {
                app.info.model = model;
            }
        }
        if app.info.model.is_empty() {
            app.info.model = host.default_model();
        }
        app.info.context_window = host.context_window(&app.info.model);
        app.completions.models = effects::choices(host.models().into_iter());
        if !app.plain {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let first = welcome::block(&app.info, home.as_deref());
            app.add_block(first);
        }
        if let Some(last) = forked_at {
            app.show_inherited(&engine.history(session.id()).await?, &last);
        }
        for line in greeting {
            app.add_block(Block::notice(&line));
        }
        Ok(())
    }
}
