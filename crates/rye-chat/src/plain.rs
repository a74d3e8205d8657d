//! The same, line by line: for terminals that cannot be painted on, for screen readers and
//! for pipes.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_engine::protocol::{EventKind, QueueMode};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Session};
use tokio::sync::mpsc;

use crate::app::{App, Effect};
use crate::block::Block;
use crate::pane::Pane;
use crate::run::{Past, introduce};
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
    let (mut work, mut told) = Work::new(engine, &session, Arc::clone(&desk), &options);
    introduce(&mut app, &session, &*desk, &options);
    let mut past = Past::of(engine, &session).await?;
    let mut events = session.subscribe(0);
    let mut lines = lines();
    let mut page = Page {
        colours: options.colours,
        asked: 0,
        prompted: false,
    };
    let (mut open, mut deciding) = (true, 0);
    loop {
        page.show(&mut app, past.is_told())?;
        if !open && deciding == 0 && past.is_told() && is_done(&app) {
            break;
        }
        tokio::select! {
            biased;
            notice = events.next() => {
                let Some(notice) = notice? else {
                    return Err(StoreError::Fenced(session.id().clone()).into());
                };
                let entry = past.entry(&notice).await?;
                app.news(&notice.event, entry.as_deref(), Instant::now());
                if let (EventKind::QueueState { .. }, Some(thread)) = (&notice.event.kind, notice.event.thread) {
                    work.look_at_queue(thread);
                }
            }
            Some(news) = told.recv() => {
                deciding -= usize::from(deciding > 0 && is_decision(&news));
                work::take(news, &mut app);
            }
            line = lines.recv(), if open && past.is_told() => {
                page.prompted = false;
                let Some(line) = line else {
                    open = false;
                    continue;
                };
                for effect in answer(&mut app, &line) {
                    match effect {
                        Effect::Quit => return Ok(()),
                        other => {
                            deciding += usize::from(matches!(other, Effect::Decide { .. }));
                            work.begin(other, &mut app);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether a decision was made, or could not be.
fn is_decision(news: &Told) -> bool {
    matches!(news, Told::Answered(_) | Told::Block(_))
}

/// Whether nothing more can come without somebody who writes.
fn is_done(app: &App) -> bool {
    let quiet = |pane: &Pane| !pane.is_busy() && pane.sent == 0;
    app.panes.iter().all(quiet) || app.gate().is_some()
}

/// What a line means: an answer at a gate, a command, or a prompt.
fn answer(app: &mut App, line: &str) -> Vec<Effect> {
    if app.is_editing() {
        if line.trim().is_empty() {
            app.leave_arguments();
            app.tell(Block::told("back"));
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
    app.submit(line, QueueMode::Followup)
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

struct Page {
    colours: bool,
    /// How many gates were asked about.
    asked: usize,
    prompted: bool,
}

impl Page {
    fn show(&mut self, app: &mut App, told: bool) -> io::Result<()> {
        let width = Terminal::size().width;
        let mut out = io::stdout().lock();
        for line in app.finished(width) {
            writeln!(out, "{}", line.ansi(self.colours))?;
        }
        if let Some(hint) = app.take_hint() {
            writeln!(out, "{}", hint.ansi(self.colours))?;
        }
        let waiting = app.gates.len();
        if waiting > self.asked {
            for line in app.gate_lines(width, usize::MAX) {
                writeln!(out, "{}", line.ansi(self.colours))?;
            }
            self.prompted = false;
        }
        self.asked = waiting;
        let free = !app.pane().is_busy() || app.gate().is_some();
        if free && told && !self.prompted && io::stdin().is_terminal() {
            write!(out, "> ")?;
            self.prompted = true;
        }
        out.flush()
    }
}
