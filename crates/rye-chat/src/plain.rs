//! The same, line by line: for terminals that cannot be painted on, for screen readers and
//! for pipes.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rye_engine::protocol::GateId;
use rye_engine::{Engine, Session};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::app::{App, Effect, SETTLES};
use crate::block::{Block, first_line};
use crate::hear::Ear;
use crate::input::{Input, Typed};
use crate::pane::Pane;
use crate::run::{goes_on, introduce};
use crate::terminal::Terminal;
use crate::text::Line;
use crate::work::{self, Told, Work};
use crate::{Chat, ChatError, Desk, Options};

pub(crate) async fn line_by_line(
    chat: Chat,
    engine: &Engine,
    session: Session,
    desk: Arc<dyn Desk>,
) -> Result<(), ChatError> {
    let Chat {
        options,
        mut app,
        watch,
        begun,
        ..
    } = chat;
    app.plain = true;
    introduce(&mut app, engine, &session, &*desk, &options).await?;
    let (mut work, mut told) = Work::new(engine, &session, Arc::clone(&desk), &options);
    let mut ear = Ear::of(engine, &session).await?;
    ear.look_below(&mut app).await?;
    let mut page = Page::new(&options, begun);
    watch.last_words(page.last_words(&app));
    // Where nobody sits, it ends as other programs do.
    let mut interrupts = page.input.is_terminal().then(|| watch.interrupts());
    let (mut open, mut deciding, mut wrong) = (true, 0, None);
    loop {
        let rests = deciding == 0 && ear.is_caught_up();
        page.show(&mut app, open && rests)?;
        if !open && rests && is_done(&app) && (app.gate().is_some() || ear.is_over().await?) {
            break;
        }
        let effects = tokio::select! {
            biased;
            Some(()) = next_interrupt(&mut interrupts) => app.interrupted(Instant::now()),
            heard = ear.next() => {
                let Some(heard) = heard? else { break };
                if let Some(thread) = ear.take(heard, &mut app).await? {
                    work.look_at_queue(thread);
                }
                Vec::new()
            }
            Some(news) = told.recv() => {
                let decided = matches!(news, Told::Answered(_) | Told::NotAnswered(_));
                deciding -= usize::from(decided && deciding > 0);
                waits(&news, &mut app);
                work::take(news, &mut app);
                page.give_back(&mut app);
                Vec::new()
            }
            line = page.input.next(), if open && ear.is_caught_up() => match line {
                Some(Typed { at, text: Ok(text) }) => {
                    page.prompted = false;
                    page.answer(&mut app, &text, at)
                }
                Some(Typed { text: Err(why), .. }) if page.input.is_terminal() => {
                    let byte = why.byte;
                    app.tell(Block::Wrong(format!("not sent: it is no UTF-8 text: byte {byte}")));
                    Vec::new()
                }
                // What was sent before is answered.
                Some(Typed { text: Err(why), .. }) => {
                    (open, wrong) = (false, Some(why));
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
    page.leave(&app)?;
    wrong.map_or(Ok(()), |why| Err(ChatError::NotText(why)))
}

async fn next_interrupt(interrupts: &mut Option<UnboundedReceiver<()>>) -> Option<()> {
    match interrupts {
        Some(interrupts) => interrupts.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether nothing more can come without somebody who writes.
fn is_done(app: &App) -> bool {
    let asks = app.gate().is_some();
    app.panes.iter().all(is_quiet) || asks && app.panes.iter().all(Pane::is_known)
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

/// What was said, and what was written.
struct Page {
    colours: bool,
    /// Whether it is said on standard error.
    aside: bool,
    input: Input,
    begun: SystemTime,
    /// The gate that was asked about last.
    asked: Option<GateId>,
    /// Whether the place to write is there, and nothing behind it.
    prompted: bool,
    /// What was written here, and need not be said again.
    written: Vec<String>,
}

impl Page {
    fn new(options: &Options, begun: SystemTime) -> Self {
        Self {
            colours: options.colours,
            aside: options.aside,
            input: Input::open(),
            begun,
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
        let is_new = waiting.is_some() && waiting != self.asked;
        if is_new {
            lines.extend(app.gate_lines(width, usize::MAX, usize::MAX));
        }
        let free = waiting.is_some() || is_quiet(app.pane());
        let ends = !lines.is_empty() && std::mem::take(&mut self.prompted);
        let mut text = if ends { "\n" } else { "" }.to_owned();
        for line in lines {
            text += &line.ansi(self.colours);
            text.push('\n');
        }
        if let (true, Some(gate)) = (is_new, &waiting) {
            // Before it is said: whoever reads it may be quick.
            let from = self.takes_from(app, gate);
            app.shown(gate, from);
        }
        self.say(&text)?;
        self.asked = waiting;
        if free && rests && self.input.is_terminal() && !self.prompted {
            self.say("> ")?;
            self.prompted = true;
        }
        Ok(())
    }

    fn say(&self, text: &str) -> io::Result<()> {
        if self.aside {
            return io::stderr().write_all(text.as_bytes());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// From when on lines may answer a gate that is about to be shown. What is there before is
    /// meant for something else. By a pipe, one that was open when the chat began is known
    /// to whoever wrote what is in it.
    fn takes_from(&self, app: &App, gate: &GateId) -> Instant {
        let asked = app.gate().filter(|waiting| waiting.gate.id == *gate);
        let asked_at = asked.map_or(0, |waiting| waiting.gate.created_at.0);
        let begun = self.begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = self.input.mark();
        match self.input.is_terminal() {
            true => mark + SETTLES,
            false if u128::from(asked_at) < begun.as_millis() => self.input.opened(),
            false => mark,
        }
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

    /// What a line that came at a time means: an answer at a gate, a command, or a prompt.
    fn answer(&mut self, app: &mut App, line: &str, at: Instant) -> Vec<Effect> {
        app.stay();
        if app.is_editing() {
            if line.trim().is_empty() {
                app.leave_arguments();
                self.asked = None;
                return Vec::new();
            }
            app.editor.set(line);
            return app.send(None, at);
        }
        let mut letters = line.trim().chars();
        if let (Some(letter), None) = (letters.next(), letters.next())
            && let Some(effects) = app.answer_key(letter, at)
        {
            if app.is_editing() {
                let now = app.editor.text().lines().map(Line::plain).collect();
                app.tell(Block::Told(now));
                let how = "write other ones, as JSON on one line; an empty line goes back";
                app.tell(Block::told(how));
            }
            return effects;
        }
        if line.trim().is_empty() {
            return Vec::new();
        }
        if self.input.is_terminal() {
            self.written.push(line.trim().to_owned());
        }
        let effects = app.submit(line, None, at);
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
        let before = if self.prompted { "\n" } else { "" };
        self.say(&format!("{before}{}", goes_on(&app.facts.session, "\n")))?;
        Ok(())
    }

    /// What is said where a signal ends it: a terminal may be amid a line.
    fn last_words(&self, app: &App) -> String {
        let before = if self.input.is_terminal() { "\n" } else { "" };
        format!("{before}{}", goes_on(&app.facts.session, "\n"))
    }
}
