//! The same, line by line: for terminals that cannot be painted on, for screen readers and
//! for pipes.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_engine::protocol::{GateId, QueueMode};
use rye_engine::{Engine, Session};
use tokio::sync::mpsc;

use crate::app::{App, Effect};
use crate::block::{Block, first_line};
use crate::hear::Ear;
use crate::pane::Pane;
use crate::run::introduce;
use crate::terminal::Terminal;
use crate::text::Line;
use crate::work::{self, Told, Work};
use crate::{Chat, ChatError, Desk};

/// Long ago, for what needs no time to settle: a line is meant.
const SETTLED: Duration = Duration::from_secs(10);

pub(crate) async fn line_by_line(
    chat: Chat,
    engine: &Engine,
    session: Session,
    desk: Arc<dyn Desk>,
) -> Result<(), ChatError> {
    let Chat {
        options, mut app, ..
    } = chat;
    app.plain = true;
    introduce(&mut app, engine, &session, &*desk, &options).await?;
    let (mut work, mut told) = Work::new(engine, &session, Arc::clone(&desk), &options);
    let mut ear = Ear::of(engine, &session).await?;
    ear.look_below(&mut app).await?;
    let mut lines = lines();
    let mut page = Page::new(options.colours);
    let (mut open, mut deciding) = (true, 0);
    loop {
        let rests = deciding == 0 && ear.is_caught_up();
        page.show(&mut app, open && rests)?;
        if !open && rests && is_done(&app) && (app.gate().is_some() || ear.is_over().await?) {
            break;
        }
        tokio::select! {
            biased;
            heard = ear.next() => {
                let Some(heard) = heard? else { break };
                if let Some(thread) = ear.take(heard, &mut app).await? {
                    work.look_at_queue(thread);
                }
            }
            Some(news) = told.recv() => {
                let decided = matches!(news, Told::Answered(_) | Told::NotAnswered(_));
                deciding -= usize::from(decided && deciding > 0);
                waits(&news, &mut app);
                work::take(news, &mut app);
                page.give_back(&mut app);
            }
            line = lines.recv(), if open && ear.is_caught_up() => {
                let Some(line) = line else {
                    open = false;
                    continue;
                };
                page.prompted = false;
                for effect in page.answer(&mut app, &line) {
                    match effect {
                        Effect::Quit => return page.leave(&app),
                        Effect::PaintAnew => {
                            let text = format!("thread {}", app.pane().key);
                            app.tell(Block::told(&text));
                        }
                        other => {
                            deciding += usize::from(matches!(other, Effect::Decide { .. }));
                            work.begin(other, &mut app);
                        }
                    }
                }
            }
        }
    }
    page.leave(&app)
}

/// Whether nothing more can come without somebody who writes.
fn is_done(app: &App) -> bool {
    app.panes.iter().all(is_quiet) || app.gate().is_some()
}

fn is_quiet(pane: &Pane) -> bool {
    !pane.is_busy() && pane.sent == 0
}

/// Says what has to wait: there is no place where it could be seen.
fn waits(news: &Told, app: &mut App) {
    let Told::Queue(thread, items) = news else {
        return;
    };
    let pane = app.panes.iter_mut();
    let mut pane = pane.filter(|pane| pane.id.as_ref() == Some(thread));
    let Some(pane) = pane.next() else {
        return;
    };
    let known: Vec<_> = pane.waiting.iter().map(|item| item.id.clone()).collect();
    for item in items.iter().filter(|item| !known.contains(&item.id)) {
        let text = first_line(&item.content, 200);
        pane.add(Block::told(&format!("waits for its turn: {text}")));
    }
}

/// What is read, a line each.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (send, receive) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

/// What was said, and what was written.
struct Page {
    colours: bool,
    /// Whether somebody sits there, who sees what they write.
    is_terminal: bool,
    /// The gate that was asked about last.
    asked: Option<GateId>,
    /// Whether the place to write is there, and nothing behind it.
    prompted: bool,
    /// What was written here, and need not be said again.
    written: Vec<String>,
}

impl Page {
    fn new(colours: bool) -> Self {
        Self {
            colours,
            is_terminal: io::stdin().is_terminal(),
            asked: None,
            prompted: false,
            written: Vec::new(),
        }
    }

    /// Says what is new, and where to write if that is free.
    fn show(&mut self, app: &mut App, rests: bool) -> io::Result<()> {
        let width = Terminal::size().width;
        let mut lines = self.said(app, width);
        lines.extend(app.take_hint());
        let waiting = app.gate().map(|waiting| waiting.gate.id.clone());
        if waiting.is_some() && waiting != self.asked {
            lines.extend(app.gate_lines(width, usize::MAX));
        }
        let free = waiting.is_some() || is_quiet(app.pane());
        self.asked = waiting;
        let mut out = io::stdout().lock();
        if !lines.is_empty() && std::mem::take(&mut self.prompted) {
            writeln!(out)?;
        }
        for line in lines {
            writeln!(out, "{}", line.ansi(self.colours))?;
        }
        if free && rests && self.is_terminal && !self.prompted {
            write!(out, "> ")?;
            self.prompted = true;
        }
        out.flush()
    }

    /// The lines of what is finished, without what the person wrote here.
    fn said(&mut self, app: &mut App, width: usize) -> Vec<Line> {
        let unfolded = app.unfolded;
        let mut lines = Vec::new();
        for block in app.pane_mut().take_new() {
            let is_known = |it: &String| match block {
                Block::Asked(text) | Block::Command(text) => text == it,
                _ => false,
            };
            match self.written.iter().position(is_known) {
                Some(at) => drop(self.written.remove(at)),
                None => lines.extend(block.lines(width, unfolded)),
            }
        }
        lines
    }

    /// What a line means: an answer at a gate, a command, or a prompt.
    fn answer(&mut self, app: &mut App, line: &str) -> Vec<Effect> {
        if app.is_editing() {
            if line.trim().is_empty() {
                app.leave_arguments();
                self.asked = None;
                return Vec::new();
            }
            app.editor.set(line);
            return app.send(QueueMode::Followup);
        }
        let mut letters = line.trim().chars();
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            let later = Instant::now() + SETTLED;
            if let Some(effects) = app.answer_key(letter, later) {
                if app.is_editing() {
                    let now = app.editor.text().lines().map(Line::plain).collect();
                    app.tell(Block::Told(now));
                    let how = "write other ones, as JSON on one line; an empty line goes back";
                    app.tell(Block::told(how));
                }
                return effects;
            }
        }
        if line.trim().is_empty() {
            return Vec::new();
        }
        if self.is_terminal {
            self.written.push(line.trim().to_owned());
        }
        let effects = app.submit(line, QueueMode::Followup);
        // A line that is not understood stands there to be read.
        app.editor.take();
        effects
    }

    /// What comes back to be written anew is said: there is no place where it could stand.
    fn give_back(&mut self, app: &mut App) {
        if !app.is_editing() && !app.editor.is_empty() {
            let text = app.editor.take();
            self.written.retain(|it| *it != text);
            app.tell(Block::told(&format!("to be written anew: {text}")));
        }
    }

    fn leave(&self, app: &App) -> Result<(), ChatError> {
        let mut out = io::stdout().lock();
        if self.prompted {
            writeln!(out)?;
        }
        let session = &app.facts.session;
        writeln!(out, "it goes on with: rye chat --session {session}")?;
        out.flush()?;
        Ok(())
    }
}
