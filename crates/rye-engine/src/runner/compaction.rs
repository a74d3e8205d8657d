//! Compaction: plans it, has a model write the summary, and hands the result to the state
//! machine. Nothing is committed here.

use std::sync::Arc;

use rye_protocol::{
    CompactionReason, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, Gate, PromptStatus,
    QueuedPrompt, Usage,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::admission;
use super::catch_panic;
use super::effects::panic_error;
use super::{Runner, ThreadCommand, retry_until_available};
use crate::compaction::plan::{self, Head, Plan, plan};
use crate::compaction::summary::{self, Retry};
use crate::compaction::{Settings, View};
use crate::machine::{CompactionResult, ContextWindows, CowArc, Input};
use crate::model::{Model, ModelError};
use crate::store::StoreError;
use crate::text::truncate_middle;
use crate::transcript::Transcript;

/// Result of a requested compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionOutcome {
    /// The history was summarised.
    Summarised {
        /// The entry with the summary.
        entry: EntryId,
        /// Tokens of the context before.
        tokens_before: u64,
        /// Tokens of the context after.
        tokens_after: u64,
    },
    /// The output of this many old tool calls was pruned.
    Pruned(usize),
    /// There was nothing to compact.
    Nothing,
    /// The compaction failed; the history is unchanged.
    Failed(ErrorInfo),
}

/// Result of undoing a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The summary in this entry no longer counts.
    Undone(EntryId),
    /// The thread has no compaction.
    NothingToUndo,
    /// A turn or another compaction is running; nothing was undone.
    Busy,
}

type Outcome = Result<Box<CompactionResult>, (ErrorInfo, Usage)>;

impl Runner {
    pub(super) async fn compact(
        &mut self,
        reason: CompactionReason,
        model: &str,
    ) -> Result<(), StoreError> {
        self.generation += 1;
        let generation = self.generation;
        let path = self.path().await?;
        let settings = &self.shared.compaction;
        let before = self.machine.thread.tokens;
        let usable = self.usable_tokens(model).unwrap_or(u64::MAX);
        let own = self.command_tx.clone();
        match plan(&path, reason, before, usable, settings) {
            Plan::Nothing if reason == CompactionReason::Overflow => {
                let message = "the last message alone exceeds the context window: shorten it, or \
                               use a model with a larger window";
                let error = ErrorInfo::new(ErrorCode::ContextOverflow, message);
                let _ = own.send(ThreadCommand::CompactionEnded(
                    generation,
                    Err((error, Usage::default())),
                ));
            }
            Plan::Nothing => {
                let nothing = CompactionResult {
                    tokens: before,
                    ..CompactionResult::default()
                };
                let _ = own.send(ThreadCommand::CompactionEnded(
                    generation,
                    Ok(Box::new(nothing)),
                ));
            }
            Plan::Prune(entries) => {
                let pruned = pruned(path, &entries, before, settings);
                let _ = own.send(ThreadCommand::CompactionEnded(
                    generation,
                    Ok(Box::new(pruned)),
                ));
            }
            Plan::Summarise(mut head) => {
                head.verbatim.extend(self.pending_work().await?);
                let model = settings.model.as_deref().unwrap_or(model).to_owned();
                let model = match self.admit_summary_model(&model, &path) {
                    Ok(model) => model,
                    Err(error) => {
                        let failed = Err((error, Usage::default()));
                        let _ = own.send(ThreadCommand::CompactionEnded(generation, failed));
                        return Ok(());
                    }
                };
                let summariser = Summariser {
                    path,
                    head: *head,
                    reason,
                    before,
                    settings: Arc::clone(settings),
                };
                let redactor = self.shared.setup.redactor.clone();
                let admission = self.admission();
                let work = async move {
                    let outcome = match admission::admit(admission.as_ref()).await {
                        Ok(()) => match catch_panic(summariser.summarise(&*model)).await {
                            Ok(outcome) => outcome,
                            Err(panic) => {
                                Err((panic_error(&redactor.redact(&panic)), Usage::default()))
                            }
                        },
                        Err(error) => Err((error, Usage::default())),
                    };
                    let used = match &outcome {
                        Ok(result) => result.usage,
                        Err((_, usage)) => *usage,
                    };
                    admission::record(admission.as_ref(), used).await;
                    let _ = own.send(ThreadCommand::CompactionEnded(generation, outcome));
                };
                let task = tokio::spawn(work.instrument(self.timer.model_span()));
                self.model = Some(AbortOnDropHandle::new(task));
            }
        }
        Ok(())
    }

    /// The model that writes the summary, if the budget admits the call.
    fn admit_summary_model(&self, name: &str, path: &[Entry]) -> Result<Arc<dyn Model>, ErrorInfo> {
        let model = self.shared.setup.models.get(name);
        let model = model.map_err(|reason| ErrorInfo::new(ErrorCode::UnknownModel, reason))?;
        let reserve = Usage {
            turns: 1,
            input_tokens: Transcript::new(path).tokens(),
            ..Usage::default()
        };
        let (thread, now) = (&self.machine.thread.id, self.shared.clock.now());
        let admission = self.shared.budget.admit(thread, reserve, now);
        admission.map_err(|limit| {
            let message = format!("limit reached: {limit}");
            ErrorInfo::new(ErrorCode::Limit, message)
        })?;
        Ok(model)
    }

    /// Pending gates and waiting prompts, which the summary must preserve.
    async fn pending_work(&self) -> Result<Vec<String>, StoreError> {
        let shared = &self.shared;
        let session = &shared.lease.session;
        let gates = retry_until_available(|| shared.store.pending_gates(Some(session))).await?;
        let gate = |gate: &Gate| format!("Waiting for a decision: {}", gate.title);
        let most = shared.compaction.keep_chars;
        let prompt = |prompt: &CowArc<QueuedPrompt>| {
            let text = truncate_middle(prompt.content.trim(), most, None);
            format!("Queued prompt, verbatim:\n{text}")
        };
        let prompts = self.machine.prompts.iter();
        let prompts = prompts.filter(|prompt| prompt.status == PromptStatus::Waiting);
        Ok(gates.iter().map(gate).chain(prompts.map(prompt)).collect())
    }

    /// The thread's entries from the first to the leaf.
    pub(super) async fn path(&self) -> Result<Vec<Entry>, StoreError> {
        let shared = &self.shared;
        match &self.machine.thread.leaf {
            Some(leaf) => {
                let session = &shared.lease.session;
                retry_until_available(|| shared.store.path(session, leaf)).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// Applies the result and replies to the callers that requested the compaction.
    pub(super) async fn on_compaction_ended(&mut self, outcome: Outcome) -> Result<(), StoreError> {
        self.model = None;
        let mut result = match &outcome {
            Err((error, _)) => CompactionOutcome::Failed(error.clone()),
            Ok(done) if done.summary.is_some() => CompactionOutcome::Nothing,
            Ok(done) if done.pruned.is_empty() => CompactionOutcome::Nothing,
            Ok(done) => CompactionOutcome::Pruned(done.pruned.len()),
        };
        let summary = outcome.as_ref().ok().and_then(|done| done.summary.clone());
        self.step(Input::CompactionEnded(outcome)).await?;
        let summarised = summary.zip(self.machine.thread.leaf.clone());
        if let Some((
            EntryKind::Compaction {
                tokens_before,
                tokens_after,
                ..
            },
            entry,
        )) = summarised
        {
            result = CompactionOutcome::Summarised {
                entry,
                tokens_before,
                tokens_after,
            };
        }
        for waiter in self.compaction_waiters.drain(..) {
            let _ = waiter.send(result.clone());
        }
        Ok(())
    }

    /// Undoes the last compaction, unless a turn is running.
    pub(super) async fn undo_compaction(&mut self) -> Result<UndoOutcome, StoreError> {
        let thread = &self.machine.thread;
        if thread.turn.is_some() || thread.compaction.is_some() {
            return Ok(UndoOutcome::Busy);
        }
        let mut path = self.path().await?;
        let Some(id) = View::new(&path).summary().map(|entry| entry.id.clone()) else {
            return Ok(UndoOutcome::NothingToUndo);
        };
        if let Some(last) = path.last().cloned() {
            let compaction = id.clone();
            path.push(Entry {
                id: EntryId::new(),
                kind: EntryKind::CompactionUndone { compaction },
                ..last
            });
        }
        let tokens = Transcript::new(&path).tokens();
        let compaction = id.clone();
        self.try_step(Input::UndoCompaction { compaction, tokens })
            .await?;
        Ok(UndoOutcome::Undone(id))
    }
}

impl ContextWindows for Runner {
    fn usable_tokens(&self, name: &str) -> Option<u64> {
        let mut known = self.usable_tokens.lock();
        if let Some(usable) = known.get(name) {
            return Some(*usable);
        }
        let info = self.shared.setup.models.get(name).ok()?.info();
        let settings = &self.shared.compaction;
        let usable = settings.usable_tokens(info.context_window, info.max_output);
        known.insert(name.to_owned(), usable);
        Some(usable)
    }
}

/// The given entries with their tool output elided.
fn pruned(
    path: Vec<Entry>,
    entries: &[EntryId],
    before: u64,
    settings: &Settings,
) -> CompactionResult {
    let all = path.into_iter();
    let pruned: Vec<_> = all.filter(|entry| entries.contains(&entry.id)).collect();
    let tokens =
        |entries: &[Entry]| -> u64 { entries.iter().map(crate::tokens::estimate_entry).sum() };
    let was = tokens(&pruned);
    let pruned: Vec<_> = pruned.iter().map(|it| plan::elided(it, settings)).collect();
    let saved = was.saturating_sub(tokens(&pruned));
    CompactionResult {
        tokens: before.saturating_sub(saved),
        pruned,
        ..CompactionResult::default()
    }
}

/// A compaction in progress.
struct Summariser {
    path: Vec<Entry>,
    head: Head,
    reason: CompactionReason,
    /// Tokens of the context as the provider counted them.
    before: u64,
    settings: Arc<Settings>,
}

impl Summariser {
    /// Asks the model for a summary, and once more if the first one is unusable.
    async fn summarise(mut self, model: &dyn Model) -> Outcome {
        let (mut usage, mut retry) = (Usage::default(), None);
        loop {
            let request = summary::request(&self.path, &self.head, &self.settings, retry.as_ref());
            let (reason, next) = match model.call(request, Arc::new(|_| {})).await {
                Err(error) => {
                    usage.turns += 1;
                    let next = match error {
                        ModelError::ContextOverflow(_) => Retry::Shorter,
                        _ => Retry::Same,
                    };
                    (error.to_string(), next)
                }
                Ok(answer) => {
                    usage = usage.plus(answer.usage);
                    let text =
                        rye_protocol::Message::new(rye_protocol::Role::Assistant, answer.parts);
                    match self.check_summary(&text.content()) {
                        Ok((summary, tokens)) => {
                            return Ok(Box::new(CompactionResult {
                                summary: Some(summary),
                                tokens,
                                usage,
                                ..CompactionResult::default()
                            }));
                        }
                        Err(reason) => (
                            format!("unusable summary: {reason}"),
                            Retry::Invalid(reason),
                        ),
                    }
                }
            };
            if retry.is_some() {
                let message = format!("{reason}; the history is unchanged");
                return Err((ErrorInfo::new(ErrorCode::Model, message), usage));
            }
            retry = Some(next);
        }
    }

    /// The compaction entry and the tokens of the context with it, or why the summary is unusable.
    fn check_summary(&mut self, summary: &str) -> Result<(EntryKind, u64), String> {
        if let Some(problem) = summary::problem(summary) {
            return Err(problem);
        }
        let shown = Transcript::new(&self.path).tokens();
        let head = &self.head;
        let kind = |tokens_before, tokens_after| EntryKind::Compaction {
            summary: summary.to_owned(),
            covered: head.covered.clone(),
            tokens_before,
            tokens_after,
            files_read: head.files_read.clone(),
            files_modified: head.files_modified.clone(),
            preserved: head.verbatim.clone(),
            without_media: self.reason == CompactionReason::Overflow,
        };
        let Some(last) = self.path.last().cloned() else {
            return Err("there is nothing to summarise".to_owned());
        };
        self.path.push(Entry {
            id: EntryId::new(),
            kind: kind(0, 0),
            ..last
        });
        let now = Transcript::new(&self.path).tokens();
        self.path.pop();
        if now >= shown {
            return Err("the summary is not shorter than the history it replaces".to_owned());
        }
        let before = self.before.max(shown);
        let after = before.saturating_sub(shown - now);
        Ok((kind(before, after), after))
    }
}
