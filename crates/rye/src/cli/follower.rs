//! Follows a session while it runs: prints progress, asks the user at gates, and detects the end
//! of a prompt.

mod detach;
mod events;
mod gates;
mod outcome;
mod prompt_tracker;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{Entry, EntryId, EventKind, Gate, GateId, Millis, StatusKind, ThreadId};
use rye_engine::store::StoreError;
use rye_engine::tool::DRIFT;
use rye_engine::{Engine, Notice, Prompt, Session};
use serde_json::Value;

use super::engine::{answer_command, decide};
use super::entry_line::line;
use super::failure::{Exit, Failure};
use super::gate_render;
use super::page::{DIM, one_line, paint};
use super::printer::Printer;
use detach::Detach;
use events::{gate_event, print_event};
use gates::GateStream;
use outcome::FinishedPrompts;
use prompt_tracker::{EntryRole, PromptTracker};

pub(crate) use outcome::{FinishedPrompt, PromptOutcome};

/// How long after its deadline the end of a prompt may take.
const GRACE: Duration = Duration::from_secs(5);

/// Follows a session on behalf of a user.
pub(crate) struct Follower<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a Session,
    pub(crate) printer: Printer,
    /// Approve without asking: the gates of the prompt, or of the whole session when resuming.
    pub(crate) yes: bool,
    /// Wait at a gate if there is no terminal to ask on.
    pub(crate) wait: bool,
    /// Print each event as a JSON line.
    pub(crate) events: bool,
}

/// Relation of a gate to the prompt that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateOwner {
    /// The prompt itself, or a task of it.
    OwnPrompt,
    /// Another prompt of the same thread, which blocks this one.
    BlockingPrompt,
    /// Another thread.
    OtherThread,
}

impl Follower<'_> {
    /// Sends a prompt and follows it to its end, including a compaction and the continuation after
    /// it. Events after number `after` are printed.
    pub(crate) async fn prompt(
        &self,
        prompt: Prompt,
        after: u64,
    ) -> Result<PromptOutcome, Failure> {
        // Subscribe first, because live events are not stored.
        let mut printed = after;
        let mut events = self.session.subscribe(after);
        let mut gates = GateStream::open(self.engine, self.session.id()).await?;
        gates.exclude(self.session.id());
        let mut detach = Detach::new(self.engine);
        let until = prompt.limits.until;
        let key = prompt.thread.clone();
        let prompt = self.session.prompt(prompt).await?;
        let threads = self.session.threads().into_iter();
        let mut threads = threads.filter(|it| key.as_ref().is_none_or(|key| it.key == *key));
        let thread = threads.next().map(|it| it.id);
        let mut tracker = PromptTracker::new(prompt, thread);
        // The last event at the time when the thread became idle.
        let mut last = None;
        loop {
            if let Some((reason, thread)) = tracker.end() {
                if last.is_none() && self.is_idle(thread) {
                    last = Some(self.session.last_event().await?);
                }
                if last.is_some_and(|last| printed >= last) {
                    return Ok(tracker.finish(reason));
                }
            }
            if let Some(failure) = detach.check(self.engine, self.session, printed).await? {
                return Err(failure);
            }
            let notice = tokio::select! {
                // Earlier events decide who owns a gate.
                biased;
                notice = events.next() => notice?.ok_or_else(|| close_failure(self.session))?,
                gate = gates.next() => {
                    let gate = gate?;
                    let owner = self.gate_owner(&gate, &tracker).await?;
                    self.handle_gate(gate, owner, &mut detach).await?;
                    continue;
                }
                () = detach.changed() => continue,
                () = deadline_passed(until) => return Err(deadline_failure()),
            };
            let notice = self.print_notice(notice).await?;
            printed = notice.event.sequence.unwrap_or(printed);
            if let Some(entry) = &notice.entry {
                match tracker.on_entry(entry) {
                    EntryRole::Progress => self.print_progress(&line(entry)),
                    EntryRole::Ignored => {}
                    EntryRole::NextPrompt(reason) => return Ok(tracker.finish(reason)),
                }
            }
            match (notice.event.kind, notice.event.thread) {
                (EventKind::TurnEnd { prompt, reason }, Some(thread)) => {
                    tracker.on_turn_end(&prompt, reason, thread);
                }
                // After the line of its entry.
                (EventKind::DecisionGate { gate }, _) => {
                    if gates.is_new(&gate.id) {
                        let owner = self.gate_owner(&gate, &tracker).await?;
                        self.handle_gate(*gate, owner, &mut detach).await?;
                    }
                }
                (EventKind::Error { error }, _) => {
                    if notice.event.sequence.is_none() && !self.events {
                        // The engine is waiting, for example for the store.
                        self.printer.warn_always(&error.message, None);
                    }
                    tracker.on_error(error);
                }
                (other, _) => self.print_model_change(&other),
            }
        }
    }

    /// Whether a thread is idle; prompts of others may be queued in it.
    fn is_idle(&self, thread: &ThreadId) -> bool {
        let threads = self.session.threads();
        let view = threads.iter().find(|view| view.id == *thread);
        view.is_none_or(|view| matches!(view.status, StatusKind::Idle | StatusKind::Queued))
    }

    /// Determines which prompt a gate belongs to.
    async fn gate_owner(&self, gate: &Gate, tracker: &PromptTracker) -> Result<GateOwner, Failure> {
        let owner = self.engine.owning_prompt(gate, self.session.id()).await?;
        Ok(match owner {
            Some((_, prompt)) if tracker.owns(&prompt) => GateOwner::OwnPrompt,
            Some((thread, _)) if tracker.is_in(&thread) => GateOwner::BlockingPrompt,
            _ => GateOwner::OtherThread,
        })
    }

    /// Follows the session until it is idle and all events are printed. Returns the finished
    /// prompts in order.
    pub(crate) async fn until_idle(&self, after: u64) -> Result<Vec<FinishedPrompt>, Failure> {
        let mut finished = FinishedPrompts::default();
        let mut gates = GateStream::open(self.engine, self.session.id()).await?;
        let mut events = self.session.subscribe(after);
        let mut detach = Detach::new(self.engine);
        let mut printed = after;
        loop {
            let threads = self.session.threads();
            let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
            // A thread becomes idle before its last events arrive here.
            if idle && printed >= self.session.last_event().await? {
                return Ok(finished.into_vec());
            }
            if let Some(failure) = detach.check(self.engine, self.session, printed).await? {
                return Err(failure);
            }
            let notice = tokio::select! {
                notice = events.next() => notice?.ok_or_else(|| close_failure(self.session))?,
                gate = gates.next() => {
                    // Resuming a session covers all its prompts.
                    self.handle_gate(gate?, GateOwner::OwnPrompt, &mut detach).await?;
                    continue;
                }
                () = detach.changed() => continue,
            };
            let notice = self.print_notice(notice).await?;
            printed = notice.event.sequence.unwrap_or(printed);
            self.print_model_change(&notice.event.kind);
            finished.on_event(&notice.event.kind);
            if let Some(entry) = notice.entry {
                self.print_progress(&line(&entry));
            }
        }
    }

    /// Prints that a model call is retried or another model takes over.
    fn print_model_change(&self, kind: &EventKind) {
        match kind {
            EventKind::ModelRetry {
                model,
                wait_ms,
                reason,
                ..
            } => {
                let wait = Duration::from_millis(*wait_ms).as_secs_f64();
                self.print_progress(&format!("retrying {model} in {wait} s: {reason}"));
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.print_progress(&format!("switched from {from} to {to}: {reason}"));
            }
            _ => {}
        }
    }

    /// Adds the entry to an event that refers to one, and prints the event if events are wanted.
    async fn print_notice(&self, mut notice: Notice) -> Result<Notice, Failure> {
        if let (EventKind::MessageEnd { entry }, None) = (&notice.event.kind, &notice.entry) {
            notice.entry = self.load_entry(notice.event.thread.as_ref(), entry).await?;
        }
        if self.events {
            print_event(&notice.event, notice.entry.as_deref())?;
        }
        Ok(notice)
    }

    async fn load_entry(
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

    fn print_progress(&self, line: &str) {
        if !self.printer.quiet && !self.events {
            self.printer
                .print_stderr(&format!("{}\n", paint(DIM, one_line(line))));
        }
    }

    async fn handle_gate(
        &self,
        gate: Gate,
        owner: GateOwner,
        detach: &mut Detach,
    ) -> Result<(), Failure> {
        let id = &gate.id;
        if self.events && gate.origin.session != *self.session.id() {
            // Gates of the session itself are among its events.
            print_event(&gate_event(&gate), None)?;
        }
        if owner == GateOwner::OtherThread {
            let text = format!("another thread is waiting for a decision: {}", gate.title);
            self.printer.warn(&text, Some(&answer_command(&gate)));
            return Ok(());
        }
        let has = |action: &str| gate.actions.iter().any(|it| it.id == action);
        // `--yes` covers neither raised limits nor changed definitions of MCP tools.
        let needs_person = ["limit", DRIFT];
        let in_context = |key: &&str| gate.context.contains_key(*key);
        let yes = self.yes && owner == GateOwner::OwnPrompt;
        if has("approve") && yes && !needs_person.iter().any(in_context) {
            return self.decide(id, "approve").await;
        }
        let mut wait = self.wait;
        if has("approve") && Printer::can_prompt() {
            let width = Printer::stderr_width();
            let question = gate_render::lines(&gate.title, &gate.body, width).join("\n");
            let printer = self.printer;
            printer.print_stderr(&format!("{question}\n"));
            let answer = tokio::task::spawn_blocking(move || printer.confirm("Approve?"));
            let answer = answer.await.map_err(io::Error::other).flatten();
            match answer.map_err(|error| Failure::failed("io", error))? {
                Some(true) => return self.decide(id, "approve").await,
                Some(false) => return self.decide(id, "deny").await,
                // End of input is not a decision.
                None => wait = false,
            }
        }
        let state = match owner {
            GateOwner::BlockingPrompt => "blocked by another prompt that is waiting for a decision",
            _ if has("approve") => "waiting for approval",
            _ => "waiting for an answer",
        };
        let (text, hint) = (format!("{state}: {}", gate.title), answer_command(&gate));
        if !wait {
            let failure = Failure::new(Exit::GatePending, "gate_pending", text);
            let failure = failure.hint(hint).detail("gate", id.as_str());
            detach.at_gate(gate.id, failure);
            return Ok(());
        }
        // Even with --quiet: otherwise it would seem to hang.
        self.printer.warn_always(&text, Some(&hint));
        Ok(())
    }

    async fn decide(&self, gate: &GateId, action: &str) -> Result<(), Failure> {
        decide(self.engine, gate, action, Value::Null)
            .await
            .map(drop)
    }
}

/// Waits until the deadline of a prompt has clearly passed. Normally the engine ends the prompt
/// in time; it cannot while the store is not writable.
async fn deadline_passed(until: Option<Millis>) {
    match until {
        None => std::future::pending().await,
        Some(until) => {
            let now = u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default();
            tokio::time::sleep(Millis(now).until(until) + GRACE).await;
        }
    }
}

fn deadline_failure() -> Failure {
    let message = "the time limit was reached, and rye could not record the end of the prompt";
    Failure::new(Exit::TimedOut, "limit", message)
}

/// Why the session closed unexpectedly.
fn close_failure(session: &Session) -> Failure {
    match session.close_reason() {
        StoreError::Fenced(_) | StoreError::NotFound { .. } => {
            Failure::failed("closed", "another process took over the session")
        }
        why => why.into(),
    }
}
