//! The loop on a terminal that can be painted on.

use std::process::Command as Process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, EventStream};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Session};
use tokio_stream::StreamExt as _;

use crate::app::{App, Effect};
use crate::attach;
use crate::block::Block;
use crate::hear::Ear;
use crate::history::History;
use crate::screen::{Bottom, Screen};
use crate::terminal::Terminal;
use crate::watch::Watch;
use crate::work::{self, LAST_WORDS, Work};
use crate::{Chat, ChatError, Desk, Options};

/// How often the screen is painted at most.
const FRAME: Duration = Duration::from_millis(33);
/// The same where somebody types: what they do is seen at once, whatever else happens.
const KEY_FRAME: Duration = Duration::from_millis(4);
/// How often the spinner turns.
const BEAT: Duration = Duration::from_millis(120);

pub(crate) async fn painted(
    chat: Chat,
    engine: &Engine,
    session: Session,
    desk: Arc<dyn Desk>,
) -> Result<(), ChatError> {
    let Chat {
        options,
        mut app,
        screen,
        terminal,
        watch,
        ..
    } = chat;
    introduce(&mut app, engine, &session, &*desk, &options).await?;
    let (work, mut told) = Work::new(engine, &session, Arc::clone(&desk), &options);
    work::read_later(&options, &work.teller());
    let mut ear = Ear::of(engine, &session).await?;
    ear.look_below(&mut app).await?;
    let mut window = Window {
        app,
        screen,
        terminal,
        watch,
        work,
        history: options.history.as_deref().map(History::at),
        keys: Some(EventStream::new()),
        dirty: true,
        typed: false,
        painted: Instant::now(),
    };
    loop {
        let frame = window.next_frame();
        tokio::select! {
            biased;
            key = next_key(&mut window.keys) => {
                let Some(key) = key else { break };
                if window.input(key?)? {
                    break;
                }
            }
            heard = ear.next() => match heard {
                Ok(Some(heard)) => {
                    if let Some(thread) = ear.take(heard, &mut window.app).await? {
                        window.work.look_at_queue(thread);
                    }
                    window.dirty = true;
                }
                Ok(None) => break,
                Err(error) => {
                    window.leave()?;
                    return Err(error.into());
                }
            },
            Some(news) = told.recv() => {
                work::take(news, &mut window.app);
                window.dirty = true;
            }
            () = frame => window.paint()?,
        }
    }
    window.leave()?;
    // What was just sent is still being written down.
    drop(window);
    let last = async { while told.recv().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, last).await;
    Ok(())
}

async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// Whose session it is, what is known of it, and what is said at the beginning.
pub(crate) async fn introduce(
    app: &mut App,
    engine: &Engine,
    session: &Session,
    desk: &dyn Desk,
    options: &Options,
) -> Result<(), StoreError> {
    app.ready = true;
    app.facts.session = session.id().to_string();
    if let Some(data) = engine.session_data(session.id()).await? {
        if let (true, Some(sandbox)) = (app.facts.sandbox.is_empty(), data.sandbox) {
            app.facts.sandbox = sandbox.kind;
        }
        if let (true, Some(model)) = (app.facts.model.is_empty(), data.model) {
            app.facts.model = model;
        }
    }
    if app.facts.model.is_empty() {
        app.facts.model = desk.default_model();
    }
    app.facts.window = desk.window(&app.facts.model);
    app.known.models = desk.models();
    for line in &options.greeting {
        app.tell(Block::told(line));
    }
    Ok(())
}

/// The app, and the terminal that shows it.
struct Window {
    app: App,
    screen: Screen,
    terminal: Option<Terminal>,
    watch: Watch,
    work: Work,
    history: Option<History>,
    keys: Option<EventStream>,
    dirty: bool,
    /// Whether somebody typed since it was painted.
    typed: bool,
    painted: Instant,
}

impl Window {
    /// When to paint next: soon if something has changed, at the next beat if something
    /// moves, else never.
    fn next_frame(&self) -> impl Future<Output = ()> + use<> {
        let since = self.painted.elapsed();
        let wait = match (self.dirty, self.app.is_alive()) {
            (true, _) if self.typed => Some(KEY_FRAME.saturating_sub(since)),
            (true, _) => Some(FRAME.saturating_sub(since)),
            (false, true) => Some(BEAT.saturating_sub(since)),
            (false, false) => None,
        };
        async move {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        }
    }

    fn paint(&mut self) -> Result<(), ChatError> {
        if !self.dirty {
            self.app.beat += 1;
        }
        let size = Terminal::size();
        let above = self.app.finished(size.width);
        let bottom = self.app.bottom(size);
        Terminal::send(&self.screen.paint(&above, &bottom))?;
        self.is_painted(&bottom);
        Ok(())
    }

    fn paint_anew(&mut self) -> Result<(), ChatError> {
        let size = Terminal::size();
        let above = self.app.last_lines(size);
        let bottom = self.app.bottom(size);
        // As one picture: an empty one in between would flicker.
        let mut out = String::from("\x1b[?2026h");
        out += &self.screen.clear(size.height);
        out += &self.screen.paint(&above, &bottom);
        Terminal::send(&out)?;
        self.is_painted(&bottom);
        Ok(())
    }

    fn is_painted(&mut self, picture: &Bottom) {
        self.dirty = false;
        self.typed = false;
        self.painted = Instant::now();
        self.app.painted(picture, self.painted);
        let words = format!("{}{}", self.screen.below(), self.goes_on());
        self.watch.last_words(words);
    }

    /// What a person does. Whether they leave.
    fn input(&mut self, input: Input) -> Result<bool, ChatError> {
        let effects = match input {
            Input::Key(key) => self.app.key(key, Instant::now()),
            Input::Paste(text) => {
                self.app.typed(&attach::pasted(&text));
                Vec::new()
            }
            Input::Resize(..) => vec![Effect::PaintAnew],
            _ => Vec::new(),
        };
        self.dirty = true;
        self.typed = true;
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::PaintAnew => self.paint_anew()?,
                Effect::EditOutside => self.edit_outside()?,
                other => {
                    self.remember(&other);
                    self.work.begin(other, &mut self.app);
                }
            }
        }
        if self.painted.elapsed() >= KEY_FRAME {
            self.paint()?;
        }
        Ok(false)
    }

    fn remember(&mut self, effect: &Effect) {
        if let (Effect::Prompt { text, .. }, Some(history)) = (effect, &self.history)
            && let Err(error) = history.add(text)
        {
            self.history = None;
            let text = format!("what you write is not remembered: {error}");
            self.app.tell(Block::told(&text));
        }
    }

    /// Lets the person write in their own editor.
    fn edit_outside(&mut self) -> Result<(), ChatError> {
        let editor = editor(|name| std::env::var(name).ok());
        self.keys = None;
        Terminal::send(&self.screen.leave())?;
        let text = self.app.editor.text();
        let written = match &mut self.terminal {
            Some(terminal) => terminal.lend(|| edit_in(&editor, text))?,
            None => edit_in(&editor, text),
        };
        self.keys = Some(EventStream::new());
        match written {
            Ok(text) => self.app.editor.set(text.trim_end()),
            Err(error) => self.app.hint(&format!("{editor}: {error}")),
        }
        self.paint_anew()
    }

    /// Leaves everything as a person can read it.
    fn leave(&mut self) -> Result<(), ChatError> {
        self.paint()?;
        let out = self.screen.leave() + &self.goes_on();
        // Before it is given back: a Ctrl-C that comes then ends this process.
        Terminal::send(&out)?;
        if let Some(terminal) = &mut self.terminal {
            terminal.release();
        }
        Ok(())
    }

    /// How the session goes on.
    fn goes_on(&self) -> String {
        goes_on(&self.app.facts.session, "\r\n")
    }
}

/// How a session goes on, in a line.
pub(crate) fn goes_on(session: &str, end: &str) -> String {
    format!("it goes on with: rye chat --session {session}{end}")
}

/// The editor that a person wants. A variable that is empty says nothing.
fn editor(variable: impl Fn(&str) -> Option<String>) -> String {
    let set = |name: &&str| variable(name).filter(|it| !it.trim().is_empty());
    let editor = ["VISUAL", "EDITOR"].iter().find_map(set);
    editor.unwrap_or_else(|| "vi".to_owned())
}

/// A text, as it is once an editor is through with it.
fn edit_in(editor: &str, text: &str) -> std::io::Result<String> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("prompt.md");
    std::fs::write(&file, text)?;
    // As other programs do: the variable may hold options, too.
    let command = format!("{editor} \"$1\"");
    let status = Process::new("sh")
        .args(["-c", &command, "sh"])
        .arg(&file)
        .status()?;
    // By a signal, or as a shell says that.
    if matches!(status.code(), None | Some(130)) {
        let why = "it was interrupted; what you wrote is as it was";
        return Err(std::io::Error::other(why));
    }
    if !status.success() {
        let why = format!("it ended with {status}; set EDITOR");
        return Err(std::io::Error::other(why));
    }
    std::fs::read_to_string(file)
}
