//! Follows a session while it runs: reports progress, asks for approval at gates, and detects the
//! end of a prompt.

mod detach;
mod outcome;
mod prompt_tracker;

use std::collections::BTreeSet;
use std::time::Duration;

use rye_engine::protocol::{
    ActionId, CHANGE_SET, Entry, Event, EventKind, Gate, GateId, Millis, SessionId, StatusKind,
    ThreadId,
};
use rye_engine::store::StoreError;
use rye_engine::tool::DRIFT;
use rye_engine::{BoxFuture, Decision, Engine, Prompt, SessionFollower, SessionUpdate};
use serde_json::{Value, json};

use crate::engine::answer_command;
use crate::failure::{Failure, FailureKind};
use detach::Detach;
use outcome::FinishedPrompts;
use prompt_tracker::{EntryRole, PromptTracker};

pub use outcome::{FinishedPrompt, PromptOutcome};

/// How long after its deadline the end of a prompt may take.
const GRACE: Duration = Duration::from_secs(5);

/// The user on whose behalf a session is followed.
pub trait SessionObserver: Sync {
    /// Receives an event, with the entry that it refers to.
    fn event(&self, event: &Event, entry: Option<&Entry>) -> Result<(), Failure>;

    /// Receives a new entry that is not a part of the answer.
    fn entry(&self, entry: &Entry);

    /// Receives the answer while the model generates it. The outcome has the whole text.
    fn answer(&self, _update: AnswerUpdate<'_>) {}

    /// Receives other progress.
    fn progress(&self, text: &str);

    /// Receives a warning. An important one must reach the user even if warnings are unwanted.
    fn warn(&self, text: &str, hint: Option<&str>, is_important: bool);

    /// Asks for approval.
    fn ask<'a>(&'a self, gate: &'a Gate) -> BoxFuture<'a, Result<Approval, Failure>>;
}

/// A part of the answer of the followed prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerUpdate<'a> {
    /// The model begins a message. An unfinished one before it is discarded.
    Start,
    /// More text of the message. Tool calls may follow it, so it may not be the answer.
    Delta(&'a str),
    /// A whole message without tool calls.
    Complete(&'a str),
}

/// How a user answers the request for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// Make the call.
    Approve,
    /// Refuse the call and tell the model.
    Deny,
    /// The user left without an answer.
    Left,
    /// No person can be asked.
    Unavailable,
}

/// Follows a session on behalf of a user, whichever process holds it.
pub struct Follower<'a> {
    /// An engine on the session's store.
    pub engine: &'a Engine,
    /// The session.
    pub session: &'a SessionId,
    /// The user.
    pub observer: &'a dyn SessionObserver,
    /// Name of the interface, for the record of decisions.
    pub source: &'static str,
    /// Name of the user, for the record of decisions.
    pub by: &'a str,
    /// Approve without asking: the gates of the prompt, or of the whole session when resuming.
    pub yes: bool,
    /// Wait at a gate if no person can be asked.
    pub wait: bool,
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
    /// it. Events after number `after` are printed. A prompt whose id was sent before is followed
    /// from its beginning; if it has ended, its outcome is returned.
    pub async fn prompt(&self, prompt: Prompt, after: u64) -> Result<PromptOutcome, Failure> {
        // Subscribe first, because live events are not stored.
        let mut printed = after;
        let start = if prompt.id.is_some() { 0 } else { after };
        let mut updates = self.updates(start).await?;
        let mut seen = BTreeSet::new();
        let mut detach = Detach::new(self.engine);
        let until = prompt.limits.until;
        let key = prompt.thread.clone();
        let prompt = match self.engine.session(self.session) {
            Some(open) => open.prompt(prompt).await?,
            None => self.engine.submit(self.session, prompt).await?,
        };
        let threads = self.engine.threads(self.session).await?.into_iter();
        let mut threads = threads.filter(|it| key.as_ref().is_none_or(|key| it.key == *key));
        let thread = threads.next().map(|it| it.id);
        let mut tracker = PromptTracker::new(prompt, thread);
        // The last event at the time when the thread became idle.
        let mut last = None;
        loop {
            if let Some((reason, thread)) = tracker.end() {
                if last.is_none() && self.is_idle(thread).await? {
                    last = Some(self.engine.last_event(self.session).await?);
                }
                if last.is_some_and(|last| printed >= last) {
                    return Ok(tracker.finish(reason));
                }
            }
            if let Some(failure) = detach.check(self.engine, self.session, printed).await? {
                return Err(failure);
            }
            let update = tokio::select! {
                biased;
                update = next_update(&mut updates) => update?,
                () = detach.changed() => continue,
                () = deadline_passed(until) => return Err(deadline_failure()),
            };
            let notice = match update {
                SessionUpdate::Event(notice) => notice,
                SessionUpdate::PendingGate(gate) => {
                    if seen.insert(gate.id.clone()) {
                        let owner = self.gate_owner(&gate, &tracker).await?;
                        self.handle_gate(*gate, owner, &mut detach).await?;
                    }
                    continue;
                }
                SessionUpdate::TaskGateClosed(_) | SessionUpdate::Lagged => continue,
            };
            let is_old = notice.event.sequence.is_some_and(|it| it <= after);
            if !is_old {
                self.observer
                    .event(&notice.event, notice.entry.as_deref())?;
                printed = notice.event.sequence.unwrap_or(printed);
            }
            if let Some(entry) = &notice.entry {
                match tracker.on_entry(entry) {
                    EntryRole::Progress if !is_old => self.observer.entry(entry),
                    EntryRole::Answer if !is_old => {
                        self.observer.answer(AnswerUpdate::Complete(tracker.text()));
                    }
                    EntryRole::Progress | EntryRole::Answer | EntryRole::Ignored => {}
                    EntryRole::NextPrompt(reason) => return Ok(tracker.finish(reason)),
                }
            }
            match (notice.event.kind, notice.event.thread) {
                (
                    EventKind::TurnEnd {
                        prompt,
                        merged_into: Some(into),
                        ..
                    },
                    _,
                ) => tracker.on_merged(&prompt, into),
                // Another prompt may still run in the thread.
                (EventKind::TurnEnd { prompt, reason, .. }, _)
                    if tracker.owns(&prompt) && !tracker.has_begun() =>
                {
                    return Ok(tracker.finish(reason));
                }
                (EventKind::TurnEnd { prompt, reason, .. }, Some(thread)) => {
                    tracker.on_turn_end(&prompt, reason, thread);
                }
                // After the line of its entry. An old gate that is pending is an update of its own.
                (EventKind::DecisionGate { gate }, _)
                    if !is_old && seen.insert(gate.id.clone()) =>
                {
                    let owner = self.gate_owner(&gate, &tracker).await?;
                    self.handle_gate(*gate, owner, &mut detach).await?;
                }
                (EventKind::Error { error }, _) => {
                    tracker.on_error(error);
                }
                (EventKind::MessageStart, Some(thread)) if tracker.is_running_in(&thread) => {
                    self.observer.answer(AnswerUpdate::Start);
                }
                (EventKind::TextDelta { text }, Some(thread)) if tracker.is_running_in(&thread) => {
                    self.observer.answer(AnswerUpdate::Delta(&text));
                }
                (other, _) if !is_old => self.report_model_change(&other),
                _ => {}
            }
        }
    }

    /// Whether a thread is idle; prompts of others may be queued in it.
    async fn is_idle(&self, thread: &ThreadId) -> Result<bool, Failure> {
        let threads = self.engine.threads(self.session).await?;
        let view = threads.iter().find(|view| view.id == *thread);
        Ok(view.is_none_or(|view| matches!(view.status, StatusKind::Idle | StatusKind::Queued)))
    }

    /// Determines which prompt a gate belongs to.
    async fn gate_owner(&self, gate: &Gate, tracker: &PromptTracker) -> Result<GateOwner, Failure> {
        let owner = self.engine.owning_prompt(gate, self.session).await?;
        Ok(match owner {
            Some((_, prompt)) if tracker.owns(&prompt) => GateOwner::OwnPrompt,
            Some((thread, _)) if tracker.is_in(&thread) => GateOwner::BlockingPrompt,
            _ => GateOwner::OtherThread,
        })
    }

    /// Follows the session until it is idle and all events are printed. Returns the finished
    /// prompts in order.
    pub async fn until_idle(&self, after: u64) -> Result<Vec<FinishedPrompt>, Failure> {
        let mut finished = FinishedPrompts::default();
        let mut updates = self.updates(after).await?;
        let mut seen = BTreeSet::new();
        let mut detach = Detach::new(self.engine);
        let mut printed = after;
        loop {
            let threads = self.engine.threads(self.session).await?;
            let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
            // A thread becomes idle before its last events arrive here.
            if idle && printed >= self.engine.last_event(self.session).await? {
                return Ok(finished.into_vec());
            }
            if let Some(failure) = detach.check(self.engine, self.session, printed).await? {
                return Err(failure);
            }
            let update = tokio::select! {
                biased;
                update = next_update(&mut updates) => update?,
                () = detach.changed() => continue,
            };
            let notice = match update {
                SessionUpdate::Event(notice) => notice,
                // Resuming a session covers all its prompts.
                SessionUpdate::PendingGate(gate) => {
                    if seen.insert(gate.id.clone()) {
                        let owner = GateOwner::OwnPrompt;
                        self.handle_gate(*gate, owner, &mut detach).await?;
                    }
                    continue;
                }
                SessionUpdate::TaskGateClosed(_) | SessionUpdate::Lagged => continue,
            };
            self.observer
                .event(&notice.event, notice.entry.as_deref())?;
            printed = notice.event.sequence.unwrap_or(printed);
            self.report_model_change(&notice.event.kind);
            finished.on_event(&notice.event.kind);
            if let Some(entry) = notice.entry {
                self.observer.entry(&entry);
            }
            if let EventKind::DecisionGate { gate } = notice.event.kind
                && seen.insert(gate.id.clone())
            {
                let owner = GateOwner::OwnPrompt;
                self.handle_gate(*gate, owner, &mut detach).await?;
            }
        }
    }

    async fn updates(&self, after: u64) -> Result<SessionFollower, Failure> {
        Ok(SessionFollower::new(self.engine, self.session, after).await?)
    }

    /// Reports that a model call is retried or another model takes over.
    fn report_model_change(&self, kind: &EventKind) {
        match kind {
            EventKind::ModelRetry {
                model,
                wait_ms,
                reason,
                ..
            } => {
                let wait = Duration::from_millis(*wait_ms).as_secs_f64();
                self.observer
                    .progress(&format!("retrying {model} in {wait} s: {reason}"));
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.observer
                    .progress(&format!("switched from {from} to {to}: {reason}"));
            }
            _ => {}
        }
    }

    async fn handle_gate(
        &self,
        gate: Gate,
        owner: GateOwner,
        detach: &mut Detach,
    ) -> Result<(), Failure> {
        let id = &gate.id;
        if gate.origin.session != *self.session {
            // Gates of the session itself are among its events.
            self.observer.event(&gate_event(&gate), None)?;
        }
        if owner == GateOwner::OtherThread {
            let text = format!("another thread is waiting for a decision: {}", gate.title);
            let hint = answer_command(&gate);
            self.observer.warn(&text, Some(&hint), false);
            return Ok(());
        }
        let is_approval = gate.actions.iter().any(|it| it.id == ActionId::Approve);
        // `--yes` covers neither raised limits, changed definitions of MCP tools nor reviews.
        let needs_person = ["limit", DRIFT, CHANGE_SET];
        let in_context = |key: &&str| gate.context.contains_key(*key);
        let yes = self.yes && owner == GateOwner::OwnPrompt;
        if is_approval && yes && !needs_person.iter().any(in_context) {
            return self.decide(id, ActionId::Approve).await;
        }
        let mut wait = self.wait;
        if is_approval {
            match self.observer.ask(&gate).await? {
                Approval::Approve => return self.decide(id, ActionId::Approve).await,
                Approval::Deny => return self.decide(id, ActionId::Deny).await,
                // End of input is not a decision.
                Approval::Left => wait = false,
                Approval::Unavailable => {}
            }
        }
        let state = match owner {
            GateOwner::BlockingPrompt => "blocked by another prompt that is waiting for a decision",
            _ if is_approval => "waiting for approval",
            _ => "waiting for an answer",
        };
        let choices: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
        let choices = match choices.as_slice() {
            _ if is_approval => String::new(),
            [] | [_] => String::new(),
            all => format!(" (actions: {})", all.join(", ")),
        };
        let text = format!("{state}: {}{choices}", gate.title);
        let hint = answer_command(&gate);
        if !wait {
            let failure = Failure::new(FailureKind::GatePending, "gate_pending", text);
            let failure = failure.hint(hint).detail("gate", id.as_str());
            detach.at_gate(gate.id, failure);
            return Ok(());
        }
        // Otherwise it would seem to hang.
        self.observer.warn(&text, Some(&hint), true);
        Ok(())
    }

    async fn decide(&self, gate: &GateId, action: ActionId) -> Result<(), Failure> {
        let decision = Decision {
            action,
            value: Value::Null,
            by: self.by.to_owned(),
            source: self.source.to_owned(),
        };
        self.engine.decide(gate, decision).await?;
        Ok(())
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
    Failure::new(FailureKind::TimedOut, "limit", message)
}

/// The next update of a session that has not closed.
async fn next_update(updates: &mut SessionFollower) -> Result<SessionUpdate, Failure> {
    match updates.next().await {
        Ok(Some(update)) => Ok(update),
        // The engine shuts down after its followers.
        Ok(None) => std::future::pending().await,
        Err(StoreError::Fenced(_)) => {
            let message = "another process took over the session";
            Err(Failure::failed("closed", message))
        }
        Err(error) => Err(error.into()),
    }
}

/// The event for a gate that a task opened.
fn gate_event(gate: &Gate) -> Event {
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

/// An event as JSON, with the content of the entry it refers to.
pub fn event_json(event: &Event, entry: Option<&Entry>) -> serde_json::Result<Value> {
    let mut data = serde_json::to_value(&event.kind)?;
    if let Some(data) = data.as_object_mut() {
        data.remove("type");
        if let Some(entry) = entry {
            data.insert("content".to_owned(), serde_json::to_value(&entry.kind)?);
        }
    }
    let mut json = json!({
        "type": event.kind.name(),
        "session": event.session,
        "thread": event.thread,
        "at": event.at,
        "data": data,
    });
    if let Some(number) = event.sequence {
        json["sequence"] = number.into();
    }
    Ok(json)
}
