//! Whoever follows a session while it works: what happens is told, what is asked is answered
//! or passed on.

mod asked;
mod gates;
mod leaving;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::bridge::DRIFT;
use rye_engine::protocol::{
    Entry, EntryId, ErrorInfo, Event, EventKind, Gate, GateId, Incomplete, Millis, StatusKind,
    ThreadId, TurnEnd,
};
use rye_engine::{Engine, Notice, Prompt, Session};
use serde_json::{Value, json};

use super::engine::{decide, how_to_answer};
use super::entry_line::line;
use super::failure::{Exit, Failure};
use super::gate_words;
use super::page::{DIM, one_line, paint};
use super::printer::Printer;
use asked::{Asked, Meaning};
use gates::Gates;
use leaving::Leaving;

/// How long after its time a prompt may end.
const GRACE: Duration = Duration::from_secs(5);

/// What a person sees of a session while it works.
pub(crate) struct Follower<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a Session,
    pub(crate) printer: Printer,
    /// Approve without asking.
    pub(crate) yes: bool,
    /// Wait at a gate that nobody here can be asked about.
    pub(crate) waits: bool,
    /// Print each event as a line, as it happens.
    pub(crate) events: bool,
}

/// How a prompt ended.
pub(crate) struct Ended {
    pub(crate) reason: TurnEnd,
    /// What the model answered; also in the turns that followed by themselves.
    pub(crate) text: String,
    /// Why the model stopped, in its own words.
    pub(crate) stop_reason: Option<String>,
    /// Why that is not all there was to say, if it is not.
    pub(crate) incomplete: Option<Incomplete>,
    /// The result, where one was wanted and it fits.
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<ErrorInfo>,
}

impl Follower<'_> {
    /// Asks, and follows until nothing more comes of it: a history that is too long by then
    /// is summed up, and an agent that is told to go on afterwards has done so.
    pub(crate) async fn ask(&self, prompt: Prompt) -> Result<Ended, Failure> {
        // Before it is asked: what is told live is told to whoever listens by then.
        let mut told = self.session.last_event().await?;
        let mut events = self.session.subscribe(told);
        let mut gates = Gates::of(self.engine, self.session.id()).await?;
        gates.leave_out(self.session.id());
        let mut leaving = Leaving::new(self.engine);
        let until = prompt.limits.until;
        let mut asked = Asked::new(self.session.prompt(prompt).await?);
        // The last event there was when its thread was found to do nothing.
        let mut last = None;
        loop {
            if let Some((reason, thread)) = asked.ended() {
                if last.is_none() && self.does_nothing(thread) {
                    last = Some(self.session.last_event().await?);
                }
                if last.is_some_and(|last| told >= last) {
                    return Ok(asked.end(reason));
                }
            }
            if let Some(failure) = leaving.now(self.engine, self.session, told).await? {
                return Err(failure);
            }
            let notice = tokio::select! {
                notice = events.next() => notice?.ok_or_else(taken)?,
                gate = gates.next() => {
                    self.at_gate(gate?, &mut leaving).await?;
                    continue;
                }
                () = leaving.news() => continue,
                () = late(until) => return Err(out_of_time()),
            };
            let notice = self.heard(notice).await?;
            told = notice.event.sequence.unwrap_or(told);
            if let Some(entry) = &notice.entry {
                match asked.written(entry) {
                    Meaning::Aside => self.aside(&line(entry)),
                    Meaning::Nothing => {}
                    Meaning::Other(reason) => return Ok(asked.end(reason)),
                }
            }
            match (notice.event.kind, notice.event.thread) {
                (EventKind::TurnEnd { item, reason }, Some(thread)) => {
                    asked.turn_ended(&item, reason, thread);
                }
                // After its line.
                (EventKind::DecisionGate { gate }, _) => self.at_gate(*gate, &mut leaving).await?,
                (EventKind::Error { error }, _) => {
                    if notice.event.sequence.is_none() && !self.events {
                        // It waits, and somebody may want to know what for.
                        self.printer.warn_always(&error.message, None);
                    }
                    asked.failed(error);
                }
                (other, _) => self.change_of_model(&other),
            }
        }
    }

    /// Whether a thread does nothing; what others have asked may wait for it.
    fn does_nothing(&self, thread: &ThreadId) -> bool {
        let threads = self.session.threads();
        let view = threads.iter().find(|view| view.id == *thread);
        view.is_none_or(|view| matches!(view.status, StatusKind::Idle | StatusKind::Queued))
    }

    /// Follows until nothing is left to do, and all is told that came of it.
    pub(crate) async fn until_idle(&self, after: u64) -> Result<(), Failure> {
        let mut gates = Gates::of(self.engine, self.session.id()).await?;
        let mut events = self.session.subscribe(after);
        let mut leaving = Leaving::new(self.engine);
        let mut told = after;
        loop {
            let threads = self.session.threads();
            let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
            // A thread is idle before the last it did has been heard of.
            if idle && told >= self.session.last_event().await? {
                return Ok(());
            }
            if let Some(failure) = leaving.now(self.engine, self.session, told).await? {
                return Err(failure);
            }
            let notice = tokio::select! {
                notice = events.next() => notice?.ok_or_else(taken)?,
                gate = gates.next() => {
                    self.at_gate(gate?, &mut leaving).await?;
                    continue;
                }
                () = leaving.news() => continue,
            };
            let notice = self.heard(notice).await?;
            told = notice.event.sequence.unwrap_or(told);
            self.change_of_model(&notice.event.kind);
            if let Some(entry) = notice.entry {
                self.aside(&line(&entry));
            }
        }
    }

    /// That a model did not answer, and what is done about it.
    fn change_of_model(&self, kind: &EventKind) {
        match kind {
            EventKind::ModelRetry {
                model,
                wait_ms,
                why,
                ..
            } => {
                let wait = Duration::from_millis(*wait_ms).as_secs_f64();
                self.aside(&format!("{model} is asked again in {wait} s: {why}"));
            }
            EventKind::ModelSwitched { from, to, why } => {
                self.aside(&format!("{to} answers in place of {from}: {why}"));
            }
            _ => {}
        }
    }

    /// An event, printed where that is wanted, with the entry that it tells of.
    async fn heard(&self, mut notice: Notice) -> Result<Notice, Failure> {
        if let (EventKind::MessageEnd { entry }, None) = (&notice.event.kind, &notice.entry) {
            notice.entry = self.read(notice.event.thread.as_ref(), entry).await?;
        }
        if self.events {
            print_event(&notice.event, notice.entry.as_deref())?;
        }
        Ok(notice)
    }

    async fn read(
        &self,
        thread: Option<&ThreadId>,
        id: &EntryId,
    ) -> Result<Option<Arc<Entry>>, Failure> {
        let Some(thread) = thread else {
            return Ok(None);
        };
        let all = self.session.entries(thread, None, usize::MAX).await?;
        let entry = all.into_iter().find(|entry| entry.id == *id);
        Ok(entry.map(Arc::new))
    }

    fn aside(&self, line: &str) {
        if !self.printer.quiet && !self.events {
            self.printer
                .aside(&format!("{}\n", paint(DIM, one_line(line))));
        }
    }

    async fn at_gate(&self, gate: Gate, leaving: &mut Leaving) -> Result<(), Failure> {
        let id = &gate.id;
        if self.events && gate.origin.session != *self.session.id() {
            // Those of the session itself are among its events.
            print_event(&asked_below(&gate), None)?;
        }
        let has = |action: &str| gate.actions.iter().any(|it| it.id == action);
        // To approve whatever is asked for is not to spend whatever is asked for, nor to take
        // whatever a server says.
        let only_a_person = ["limit", DRIFT];
        let named = |key: &&str| gate.context.contains_key(*key);
        if has("approve") && self.yes && !only_a_person.iter().any(named) {
            return self.decide(id, "approve").await;
        }
        let mut waits = self.waits;
        if has("approve") && Printer::can_ask() {
            let width = Printer::width_of_questions();
            let question = gate_words::lines(&gate.title, &gate.body, width).join("\n");
            let printer = self.printer;
            printer.aside(&format!("{question}\n"));
            let asked = tokio::task::spawn_blocking(move || printer.confirm("may it?"));
            let answer = asked.await.map_err(io::Error::other).flatten();
            match answer.map_err(|error| Failure::failed("io", error))? {
                Some(true) => return self.decide(id, "approve").await,
                Some(false) => return self.decide(id, "deny").await,
                // Whoever goes away has not decided.
                None => waits = false,
            }
        }
        let (text, hint) = (
            format!("it waits for a decision: {}", gate.title),
            how_to_answer(&gate),
        );
        if !waits {
            let failure = Failure::new(Exit::Waits, "gate_waits", text);
            let failure = failure.hint(hint).detail("gate", id.as_str());
            leaving.because_of(gate.id, failure);
            return Ok(());
        }
        // Also where nothing else is to be said: else it would wait for ever, and nobody knew.
        self.printer.warn_always(&text, Some(&hint));
        Ok(())
    }

    async fn decide(&self, gate: &GateId, action: &str) -> Result<(), Failure> {
        decide(self.engine, gate, action, Value::Null)
            .await
            .map(drop)
    }
}

/// Waits until it is clear that a prompt does not end in its time, though the engine sees to
/// it: it cannot, while nothing can be written.
async fn late(until: Option<Millis>) {
    match until {
        None => std::future::pending().await,
        Some(until) => {
            let now = u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default();
            tokio::time::sleep(Millis(now).until(until) + GRACE).await;
        }
    }
}

fn out_of_time() -> Failure {
    let message = "its time is up, and its end could not be written down";
    Failure::new(Exit::TimedOut, "limit", message)
}

fn taken() -> Failure {
    Failure::failed("closed", "the session was taken over elsewhere")
}

fn asked_below(gate: &Gate) -> Event {
    Event {
        sequence: None,
        session: gate.origin.session.clone(),
        thread: Some(gate.origin.thread.clone()),
        at: gate.created_at,
        kind: EventKind::DecisionGate {
            gate: Box::new(gate.clone()),
        },
    }
}

/// Prints an event in a line; with the entry that was written, where it tells of one.
fn print_event(event: &Event, entry: Option<&Entry>) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::failed("io", error);
    let mut data = serde_json::to_value(&event.kind).map_err(|error| wrong(&error))?;
    if let Some(data) = data.as_object_mut() {
        data.remove("type");
        if let Some(entry) = entry {
            let written = serde_json::to_value(&entry.kind).map_err(|error| wrong(&error))?;
            data.insert("written".to_owned(), written);
        }
    }
    let mut line = json!({
        "type": event.kind.name(),
        "session": event.session,
        "thread": event.thread,
        "at": event.at,
        "data": data,
    });
    if let Some(number) = event.sequence {
        line["sequence"] = number.into();
    }
    Printer::raw(format!("{line}\n").as_bytes()).map_err(|error| wrong(&error))
}
