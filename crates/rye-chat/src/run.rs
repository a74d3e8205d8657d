//! The loop on a terminal that can be painted on.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, EventStream};
use rye_engine::protocol::{Entry, EntryId, EventKind, ThreadId};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Missed, Notice, Session};
use tokio_stream::StreamExt as _;

use crate::app::{App, Effect};
use crate::attach;
use crate::block::Block;
use crate::history::History;
use crate::screen::Screen;
use crate::terminal::Terminal;
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
    } = chat;
    let (work, mut told) = Work::new(engine, &session, Arc::clone(&desk), &options);
    introduce(&mut app, &session, &*desk, &options);
    work::read_later(&options, &work.teller());
    let mut past = Past::of(engine, &session).await?;
    let mut events = session.subscribe(0);
    let mut feed = engine.feed();
    let mut window = Window {
        app,
        screen,
        terminal,
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
            notice = events.next() => {
                let Some(notice) = notice? else {
                    window.leave()?;
                    return Err(StoreError::Fenced(session.id().clone()).into());
                };
                window.notice(&notice, &mut past).await?;
            }
            notice = feed.next() => match notice {
                // Gates of sessions below this one.
                Ok(Some(notice)) if notice.event.session != *session.id() => {
                    window.dirty |= window.app.gate_news(&notice.event.kind, Instant::now());
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Missed(_)) => {
                    for gate in engine.pending_gates(None).await? {
                        if engine.session(&gate.origin.session).is_some() {
                            window.app.ask(gate, Instant::now());
                        }
                    }
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

/// Whose session it is, and what is said at the beginning.
pub(crate) fn introduce(app: &mut App, session: &Session, desk: &dyn Desk, options: &Options) {
    app.ready = true;
    app.facts.session = session.id().to_string();
    if app.facts.model.is_empty() {
        app.facts.model = desk.default_model();
    }
    app.facts.window = desk.window(&app.facts.model);
    app.known.models = desk.models();
    for line in &options.greeting {
        app.tell(Block::told(line));
    }
}

/// Entries that were written before the chat began.
pub(crate) struct Past {
    session: Session,
    known: HashMap<EntryId, Entry>,
}

impl Past {
    pub(crate) async fn of(engine: &Engine, session: &Session) -> Result<Self, StoreError> {
        let threads = engine.history(session.id()).await?;
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        let known = entries.map(|entry| (entry.id.clone(), entry)).collect();
        let session = session.clone();
        Ok(Self { session, known })
    }

    /// Whether all that was written before has been told.
    pub(crate) fn is_told(&self) -> bool {
        self.known.is_empty()
    }

    /// The entry that an event tells of.
    pub(crate) async fn entry(
        &mut self,
        notice: &Notice,
    ) -> Result<Option<Arc<Entry>>, StoreError> {
        if let Some(entry) = &notice.entry {
            return Ok(Some(Arc::clone(entry)));
        }
        let EventKind::MessageEnd { entry: id } = &notice.event.kind else {
            return Ok(None);
        };
        if let Some(entry) = self.known.remove(id) {
            return Ok(Some(Arc::new(entry)));
        }
        let Some(thread) = &notice.event.thread else {
            return Ok(None);
        };
        let all = self.session.entries(thread, None, usize::MAX).await?;
        Ok(all.into_iter().find(|entry| entry.id == *id).map(Arc::new))
    }
}

/// The app, and the terminal that shows it.
struct Window {
    app: App,
    screen: Screen,
    terminal: Option<Terminal>,
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
        self.dirty = false;
        self.typed = false;
        self.painted = Instant::now();
        Ok(())
    }

    fn paint_anew(&mut self) -> Result<(), ChatError> {
        let size = Terminal::size();
        let above = self.app.last_lines(size);
        let bottom = self.app.bottom(size);
        let mut out = self.screen.clear(size.height);
        out += &self.screen.paint(&above, &bottom);
        Terminal::send(&out)?;
        self.dirty = false;
        self.typed = false;
        self.painted = Instant::now();
        Ok(())
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

    async fn notice(&mut self, notice: &Notice, past: &mut Past) -> Result<(), StoreError> {
        let entry = past.entry(notice).await?;
        self.app
            .news(&notice.event, entry.as_deref(), Instant::now());
        if let (EventKind::QueueState { .. }, Some(thread)) =
            (&notice.event.kind, &notice.event.thread)
        {
            self.look_at_queue(thread, notice);
        }
        self.dirty = true;
        Ok(())
    }

    fn look_at_queue(&mut self, thread: &ThreadId, notice: &Notice) {
        match &notice.event.kind {
            EventKind::QueueState { waiting, .. } if waiting.is_empty() => {
                self.app.queue(thread, Vec::new());
            }
            _ => self.work.look_at_queue(thread.clone()),
        }
    }

    /// Lets the person write in their own editor.
    fn edit_outside(&mut self) -> Result<(), ChatError> {
        let editor = ["VISUAL", "EDITOR"]
            .iter()
            .find_map(|name| std::env::var(name).ok());
        let editor = editor
            .filter(|it| !it.trim().is_empty())
            .unwrap_or_else(|| "vi".to_owned());
        self.keys = None;
        Terminal::send(&self.screen.leave())?;
        if let Some(terminal) = &mut self.terminal {
            terminal.release();
        }
        let written = edit_in(&editor, self.app.editor.text());
        if let Some(terminal) = &mut self.terminal {
            terminal.take()?;
        }
        self.keys = Some(EventStream::new());
        match written {
            Ok(text) => self.app.editor.set(text.trim_end()),
            Err(error) => self.app.hint(&format!("{editor}: {error}; set EDITOR")),
        }
        self.paint_anew()
    }

    /// Leaves everything as a person can read it.
    fn leave(&mut self) -> Result<(), ChatError> {
        self.paint()?;
        let mut out = self.screen.leave();
        if let Some(terminal) = &mut self.terminal {
            terminal.release();
        }
        if !self.app.facts.session.is_empty() {
            let session = &self.app.facts.session;
            let _ = writeln!(out, "it goes on with: rye chat --session {session}");
        }
        Terminal::send(&out)?;
        Ok(())
    }
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
    if !status.success() {
        return Err(std::io::Error::other(format!("it ended with {status}")));
    }
    std::fs::read_to_string(file)
}
