//! A terminal in which people and agents talk.
//!
//! [`Chat::begin`] paints the place to write at once, before there is an engine, so that
//! nobody waits to write; [`Chat::talk`] then talks with a session of it. What is finished
//! scrolls up into the terminal's own memory; below it is a part that is painted anew as
//! things happen. On a terminal that cannot be painted on, and for people who have the
//! screen read to them, the same is said line by line.
//!
//! All of it stands on the engine's public interface. What a chat needs beside it, [`Desk`]
//! says.

mod answers;
mod app;
mod attach;
mod block;
mod command;
mod complete;
mod editor;
mod hear;
mod highlight;
mod history;
mod input;
mod markdown;
mod pane;
mod plain;
mod run;
mod say;
mod screen;
mod terminal;
mod text;
mod watch;
mod work;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rye_engine::store::{Later, StoreError};
use rye_engine::{Engine, Session};

use app::{App, Facts};
use screen::Screen;
use terminal::Terminal;
use watch::Watch;

pub use input::NotText;
pub use watch::ignored_signals;

/// What a chat is like.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The thread that is shown first.
    pub thread: String,
    /// The model, where the person has named one.
    pub model: Option<String>,
    /// Where tools work, as people call it; empty for where they did before.
    pub sandbox: String,
    /// The folder whose files are completed.
    pub workspace: PathBuf,
    /// The file with what people wrote before.
    pub history: Option<PathBuf>,
    /// Whether to paint in colours.
    pub colours: bool,
    /// Line by line, whatever the terminal can do.
    pub plain: bool,
    /// Line by line and on standard error: standard output is for something else.
    pub aside: bool,
    /// Who decides at gates.
    pub person: String,
    /// What to say at the beginning.
    pub greeting: Vec<String>,
}

/// What a chat asks its host for, since the engine does not know it.
pub trait Desk: Send + Sync {
    /// The names of the models there are.
    fn models(&self) -> Vec<String>;

    /// The name of the model that answers where none is named.
    fn default_model(&self) -> String;

    /// How many tokens a model reads at most.
    fn window(&self, model: &str) -> Option<u64>;

    /// Runs a command of the host, as `session verify ID`, and gives what it prints.
    fn command(&self, words: Vec<String>) -> Later<'static, Result<String, String>>;
}

/// Why a chat ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
    /// The session cannot be.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was to be read is no text.
    #[error("standard input is no UTF-8 text: line {}, byte {}", .0.line, .0.byte)]
    NotText(NotText),
}

/// A chat that has begun.
pub struct Chat {
    options: Options,
    app: App,
    screen: Screen,
    /// None where it is said line by line.
    terminal: Option<Terminal>,
    watch: Watch,
    begun: SystemTime,
}

impl Chat {
    /// Takes the terminal, and paints where to write. It starts a thread: who forks does so
    /// before.
    pub fn begin(options: Options) -> Result<Self, ChatError> {
        let facts = Facts {
            session: String::new(),
            sandbox: options.sandbox.clone(),
            model: options.model.clone().unwrap_or_default(),
            window: None,
            workspace: options.workspace.clone(),
        };
        let app = App::new(facts, &options.thread);
        let mut screen = Screen::new(options.colours);
        let watch = Watch::begin(options.aside)?;
        let terminal = if options.plain || options.aside || !Terminal::is_there() {
            None
        } else {
            let terminal = Terminal::open(watch.clone())?;
            let first = app.bottom(Terminal::size());
            Terminal::send(&screen.paint(&[], &first))?;
            watch.last_words(screen.below());
            Some(terminal)
        };
        Ok(Self {
            options,
            app,
            screen,
            terminal,
            watch,
            begun: SystemTime::now(),
        })
    }

    /// Says something at the beginning.
    pub fn greet(&mut self, lines: Vec<String>) {
        self.options.greeting = lines;
    }

    /// Talks until the person leaves. The session goes on being written down; it is not
    /// closed here.
    pub async fn talk(
        self,
        engine: &Engine,
        session: Session,
        desk: Arc<dyn Desk>,
    ) -> Result<(), ChatError> {
        match self.terminal {
            Some(_) => run::painted(self, engine, session, desk).await,
            None => plain::line_by_line(self, engine, session, desk).await,
        }
    }
}
