//! Whoever follows a session while it works: what happens is told, what is asked is answered
//! or passed on.

mod asked;
mod ended;
mod events;
mod gates;
mod leaving;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::meta_tools::DRIFT;
use rye_engine::protocol::{Entry, EntryId, EventKind, Gate, GateId, Millis, StatusKind, ThreadId};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Notice, Prompt, Session};
use serde_json::Value;

use super::engine::{decide, how_to_answer};
use super::entry_line::line;
use super::failure::{Exit, Failure};
use super::gate_words;
use super::page::{DIM, one_line, paint};
use super::printer::Printer;
use asked::{Asked, Meaning};
use ended::Ends;
use events::{asked_below, print_event};
use gates::Gates;
use leaving::Leaving;

pub(crate) use ended::{Bare, Ended};

/// How long after its time a prompt may end.
const GRACE: Duration = Duration::from_secs(5);

/// What a person sees of a session while it works.
pub(crate) struct Follower<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a Session,
    pub(crate) printer: Printer,
    /// Approve without asking: what a prompt that is asked wants, or all that is gone on with.
    pub(crate) yes: bool,
    /// Wait at a gate that nobody here can be asked about.
    pub(crate) waits: bool,
    /// Print each event as a line, as it happens.
    pub(crate) events: bool,
}

/// Whose a gate is, to whoever follows a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// It is asked for the prompt, by itself or by a task below it.
    Own,
    /// It is asked for another prompt of the same thread, and this one waits behind it.
    InTheWay,
    /// It is asked in another thread.
    Other,
}

impl Follower<'_> {
    /// Asks, and follows until nothing more comes of it: a history that is too long by then
    /// is summed up, and an agent that is told to go on afterwards has done so.
    /// What is told begins behind an event.
    pub(crate) async fn ask(&self, prompt: Prompt, after: u64) -> Result<Ended, Failure> {
        // Before it is asked: what is told live is told to whoever listens by then.
        let mut told = after;
        let mut events = self.session.subscribe(after);
        let mut gates = Gates::of(self.engine, self.session.id()).await?;
        gates.leave_out(self.session.id());
        let mut leaving = Leaving::new(self.engine);
        let until = prompt.limits.until;
        let key = prompt.thread.clone();
        let prompt = self.session.prompt(prompt).await?;
        let threads = self.session.threads().into_iter();
        let mut threads = threads.filter(|it| key.as_ref().is_none_or(|key| it.key == *key));
        let thread = threads.next().map(|it| it.id);
        let mut asked = Asked::new(prompt, thread);
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
                // What has happened by then says whose a gate is.
                biased;
                notice = events.next() => notice?.ok_or_else(|| over(self.session))?,
                gate = gates.next() => {
                    let gate = gate?;
                    let whose = self.whose(&gate, &asked).await?;
                    self.at_gate(gate, whose, &mut leaving).await?;
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
                (EventKind::TurnEnd { prompt, reason }, Some(thread)) => {
                    asked.turn_ended(&prompt, reason, thread);
                }
                // After its line.
                (EventKind::DecisionGate { gate }, _) => {
                    if gates.is_first(&gate.id) {
                        let whose = self.whose(&gate, &asked).await?;
                        self.at_gate(*gate, whose, &mut leaving).await?;
                    }
                }
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

    /// Whose a gate is, while a prompt is followed.
    async fn whose(&self, gate: &Gate, asked: &Asked) -> Result<Whose, Failure> {
        let asked_for = self.engine.owning_prompt(gate, self.session.id()).await?;
        Ok(match asked_for {
            Some((_, prompt)) if asked.owns(&prompt) => Whose::Own,
            Some((thread, _)) if asked.is_in(&thread) => Whose::InTheWay,
            _ => Whose::Other,
        })
    }

    /// Follows until nothing is left to do, and all is told that came of it. Gives the prompts
    /// that have ended, in order.
    pub(crate) async fn until_idle(&self, after: u64) -> Result<Vec<Bare>, Failure> {
        let mut ends = Ends::default();
        let mut gates = Gates::of(self.engine, self.session.id()).await?;
        let mut events = self.session.subscribe(after);
        let mut leaving = Leaving::new(self.engine);
        let mut told = after;
        loop {
            let threads = self.session.threads();
            let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
            // A thread is idle before the last it did has been heard of.
            if idle && told >= self.session.last_event().await? {
                return Ok(ends.all());
            }
            if let Some(failure) = leaving.now(self.engine, self.session, told).await? {
                return Err(failure);
            }
            let notice = tokio::select! {
                notice = events.next() => notice?.ok_or_else(|| over(self.session))?,
                gate = gates.next() => {
                    // Whoever goes on with a session goes on with all of it.
                    self.at_gate(gate?, Whose::Own, &mut leaving).await?;
                    continue;
                }
                () = leaving.news() => continue,
            };
            let notice = self.heard(notice).await?;
            told = notice.event.sequence.unwrap_or(told);
            self.change_of_model(&notice.event.kind);
            ends.hear(&notice.event.kind);
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
                reason,
                ..
            } => {
                let wait = Duration::from_millis(*wait_ms).as_secs_f64();
                self.aside(&format!("{model} is asked again in {wait} s: {reason}"));
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.aside(&format!("{to} answers in place of {from}: {reason}"));
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

    async fn at_gate(
        &self,
        gate: Gate,
        whose: Whose,
        leaving: &mut Leaving,
    ) -> Result<(), Failure> {
        let id = &gate.id;
        if self.events && gate.origin.session != *self.session.id() {
            // Those of the session itself are among its events.
            print_event(&asked_below(&gate), None)?;
        }
        if whose == Whose::Other {
            let text = format!("another thread waits for a decision: {}", gate.title);
            self.printer.warn(&text, Some(&how_to_answer(&gate)));
            return Ok(());
        }
        let has = |action: &str| gate.actions.iter().any(|it| it.id == action);
        // To approve whatever is asked for is not to spend whatever is asked for, nor to take
        // whatever a server says.
        let only_a_person = ["limit", DRIFT];
        let named = |key: &&str| gate.context.contains_key(*key);
        let yes = self.yes && whose == Whose::Own;
        if has("approve") && yes && !only_a_person.iter().any(named) {
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
        let waiting = match whose {
            Whose::InTheWay => "it waits behind another prompt, which waits for a decision",
            _ => "it waits for a decision",
        };
        let (text, hint) = (format!("{waiting}: {}", gate.title), how_to_answer(&gate));
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

/// Why a session ends here that was not asked to.
fn over(session: &Session) -> Failure {
    match session.close_reason() {
        StoreError::Fenced(_) | StoreError::NotFound { .. } => {
            Failure::failed("closed", "the session was taken over elsewhere")
        }
        why => why.into(),
    }
}
