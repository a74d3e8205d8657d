//! A history summed up: read, planned, and given to a model to sum up. Nothing is written
//! here; what comes of it goes through the machine as all else does.

use std::sync::Arc;

use rye_protocol::{
    CompactionReason, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, Gate, PromptStatus,
    QueuedPrompt, Usage,
};
use tokio_util::task::AbortOnDropHandle;

use super::effects::broken;
use super::unharmed::unharmed;
use super::{Mail, Runner, patiently};
use crate::compaction::plan::{self, Head, Plan, plan};
use crate::compaction::summary::{self, Again};
use crate::compaction::{Settings, View};
use crate::machine::{Compacted, Input, Kept, Windows};
use crate::model::{Model, ModelError};
use crate::store::StoreError;
use crate::text::without_middle;
use crate::transcript::Transcript;

/// What came of asking for a history to be summed up.
#[derive(Debug, Clone, PartialEq)]
pub enum Compaction {
    /// It was: the entry with the sum, and the tokens before and after.
    Done {
        /// The entry.
        entry: EntryId,
        /// Tokens before.
        before: u64,
        /// Tokens after.
        after: u64,
    },
    /// Output of old calls is left out, of so many.
    Pruned(usize),
    /// There is nothing to sum up.
    Nothing,
    /// It could not be, and is as it was.
    Failed(ErrorInfo),
}

type Outcome = Result<Box<Compacted>, (ErrorInfo, Usage)>;

impl Runner {
    pub(super) async fn compact(
        &mut self,
        why: CompactionReason,
        model: &str,
    ) -> Result<(), StoreError> {
        self.generation += 1;
        let generation = self.generation;
        let path = self.path().await?;
        let settings = &self.shared.compaction;
        let before = self.machine.thread.tokens;
        let usable = self.usable(model).unwrap_or(u64::MAX);
        let own = self.own.clone();
        match plan(&path, why, before, usable, settings) {
            Plan::Nothing if why == CompactionReason::Overflow => {
                let message = "what is said last does not fit by itself; ask for less at \
                               once, or choose a model with a larger window";
                let error = ErrorInfo::new(ErrorCode::ContextOverflow, message);
                let _ = own.send(Mail::Compacted(generation, Err((error, Usage::default()))));
            }
            Plan::Nothing => {
                let nothing = Compacted {
                    tokens: before,
                    ..Compacted::default()
                };
                let _ = own.send(Mail::Compacted(generation, Ok(Box::new(nothing))));
            }
            Plan::Prune(entries) => {
                let pruned = pruned(path, &entries, before, settings);
                let _ = own.send(Mail::Compacted(generation, Ok(Box::new(pruned))));
            }
            Plan::Summarise(mut head) => {
                head.verbatim.extend(self.waiting().await?);
                let model = settings.model.as_deref().unwrap_or(model).to_owned();
                let model = match self.admitted(&model, &path) {
                    Ok(model) => model,
                    Err(error) => {
                        let failed = Err((error, Usage::default()));
                        let _ = own.send(Mail::Compacted(generation, failed));
                        return Ok(());
                    }
                };
                let work = Work {
                    path,
                    head: *head,
                    why,
                    before,
                    settings: Arc::clone(settings),
                };
                let redactor = self.shared.redactor.clone();
                let task = tokio::spawn(async move {
                    let outcome = match unharmed(work.sum_up(&*model)).await {
                        Ok(outcome) => outcome,
                        Err(why) => Err((broken(&redactor.redact(&why)), Usage::default())),
                    };
                    let _ = own.send(Mail::Compacted(generation, outcome));
                });
                self.model = Some(AbortOnDropHandle::new(task));
            }
        }
        Ok(())
    }

    /// The model that sums up, if it may be asked.
    fn admitted(&self, name: &str, path: &[Entry]) -> Result<Arc<dyn Model>, ErrorInfo> {
        let model = self.shared.models.get(name);
        let model = model.map_err(|why| ErrorInfo::new(ErrorCode::UnknownModel, why))?;
        let reserve = Usage {
            turns: 1,
            input_tokens: Transcript::of(path).tokens(),
            ..Usage::default()
        };
        let (thread, now) = (&self.machine.thread.id, self.shared.clock.now());
        let admitted = self.shared.budget.admit(thread, reserve, now);
        admitted.map_err(|limit| {
            let message = format!("the limit of {limit} is reached");
            ErrorInfo::new(ErrorCode::Limit, message)
        })?;
        Ok(model)
    }

    /// What waits, for a prompt's turn or for a person: it must not fade.
    async fn waiting(&self) -> Result<Vec<String>, StoreError> {
        let shared = &self.shared;
        let session = &shared.lease.session;
        let gates = patiently(|| shared.store.pending_gates(Some(session))).await?;
        let gate = |gate: &Gate| format!("Waits for a person's decision: {}", gate.title);
        let most = shared.compaction.keep_chars;
        let prompt = |prompt: &Kept<QueuedPrompt>| {
            let text = without_middle(prompt.content.trim(), most, None);
            format!("Waits to be asked next, word for word:\n{text}")
        };
        let prompts = self.machine.prompts.iter();
        let prompts = prompts.filter(|prompt| prompt.status == PromptStatus::Waiting);
        Ok(gates.iter().map(gate).chain(prompts.map(prompt)).collect())
    }

    /// From the first entry to the last.
    pub(super) async fn path(&self) -> Result<Vec<Entry>, StoreError> {
        let shared = &self.shared;
        match &self.machine.thread.leaf {
            Some(leaf) => {
                let session = &shared.lease.session;
                patiently(|| shared.store.path(session, leaf)).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// It was summed up, or not: whoever asked for it is told.
    pub(super) async fn compacted(&mut self, outcome: Outcome) -> Result<(), StoreError> {
        self.model = None;
        let mut told = match &outcome {
            Err((error, _)) => Compaction::Failed(error.clone()),
            Ok(done) if done.sum.is_some() => Compaction::Nothing,
            Ok(done) if done.pruned.is_empty() => Compaction::Nothing,
            Ok(done) => Compaction::Pruned(done.pruned.len()),
        };
        let sum = outcome.as_ref().ok().and_then(|done| done.sum.clone());
        self.step(Input::Compacted(outcome)).await?;
        let summed_up = sum.zip(self.machine.thread.leaf.clone());
        if let Some((
            EntryKind::Compaction {
                tokens_before,
                tokens_after,
                ..
            },
            entry,
        )) = summed_up
        {
            told = Compaction::Done {
                entry,
                before: tokens_before,
                after: tokens_after,
            };
        }
        for asked in self.asked.drain(..) {
            let _ = asked.send(told.clone());
        }
        Ok(())
    }

    /// Takes the last sum back that stands. None if there is none, or if a turn is under way.
    pub(super) async fn undo_compaction(&mut self) -> Result<Option<EntryId>, StoreError> {
        let thread = &self.machine.thread;
        if thread.turn.is_some() || thread.compaction.is_some() {
            return Ok(None);
        }
        let mut path = self.path().await?;
        let Some(sum) = View::new(&path).summary().map(|sum| sum.id.clone()) else {
            return Ok(None);
        };
        if let Some(last) = path.last().cloned() {
            let compaction = sum.clone();
            path.push(Entry {
                id: EntryId::new(),
                kind: EntryKind::CompactionUndone { compaction },
                ..last
            });
        }
        let tokens = Transcript::of(&path).tokens();
        let compaction = sum.clone();
        self.try_step(Input::UndoCompaction { compaction, tokens })
            .await?;
        Ok(Some(sum))
    }
}

impl Windows for Runner {
    fn usable(&self, name: &str) -> Option<u64> {
        let known = self.windows.lock();
        let mut known = known.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(usable) = known.get(name) {
            return Some(*usable);
        }
        let info = self.shared.models.get(name).ok()?.info();
        let settings = &self.shared.compaction;
        let usable = settings.usable_tokens(info.context_window, info.max_output);
        known.insert(name.to_owned(), usable);
        Some(usable)
    }
}

/// Entries with their output left out.
fn pruned(path: Vec<Entry>, entries: &[EntryId], before: u64, settings: &Settings) -> Compacted {
    let all = path.into_iter();
    let pruned: Vec<_> = all.filter(|entry| entries.contains(&entry.id)).collect();
    let tokens = |entries: &[Entry]| -> u64 { entries.iter().map(crate::tokens::of_entry).sum() };
    let was = tokens(&pruned);
    let pruned: Vec<_> = pruned.iter().map(|it| plan::elided(it, settings)).collect();
    let saved = was.saturating_sub(tokens(&pruned));
    Compacted {
        tokens: before.saturating_sub(saved),
        pruned,
        ..Compacted::default()
    }
}

/// A history that is being summed up.
struct Work {
    path: Vec<Entry>,
    head: Head,
    why: CompactionReason,
    /// Tokens of the context, as far as the model has said.
    before: u64,
    settings: Arc<Settings>,
}

impl Work {
    /// Has it summed up, and once more if that was no good.
    async fn sum_up(mut self, model: &dyn Model) -> Outcome {
        let (mut usage, mut again) = (Usage::default(), None);
        loop {
            let request = summary::request(&self.path, &self.head, &self.settings, again.as_ref());
            let (why, next) = match model.call(request, Arc::new(|_| {})).await {
                Err(error) => {
                    usage.turns += 1;
                    let next = match error {
                        ModelError::ContextOverflow(_) => Again::Shorter,
                        _ => Again::Same,
                    };
                    (error.to_string(), next)
                }
                Ok(answer) => {
                    usage = usage.plus(answer.usage);
                    let text =
                        rye_protocol::Message::new(rye_protocol::Role::Assistant, answer.parts);
                    match self.sum(&text.content()) {
                        Ok((sum, tokens)) => {
                            return Ok(Box::new(Compacted {
                                sum: Some(sum),
                                tokens,
                                usage,
                                ..Compacted::default()
                            }));
                        }
                        Err(why) => (format!("the summary is no good: {why}"), Again::Wrong(why)),
                    }
                }
            };
            if again.is_some() {
                let message = format!("{why}; the history is as it was");
                return Err((ErrorInfo::new(ErrorCode::Model, message), usage));
            }
            again = Some(next);
        }
    }

    /// The sum as it is written down, and the tokens of the context with it; or what is
    /// wrong with it.
    fn sum(&mut self, summary: &str) -> Result<(EntryKind, u64), String> {
        if let Some(wrong) = summary::wrong(summary) {
            return Err(wrong);
        }
        let shown = Transcript::of(&self.path).tokens();
        let head = &self.head;
        let kind = |tokens_before, tokens_after| EntryKind::Compaction {
            summary: summary.to_owned(),
            covered: head.covered.clone(),
            tokens_before,
            tokens_after,
            files_read: head.files_read.clone(),
            files_modified: head.files_modified.clone(),
            preserved: head.verbatim.clone(),
            without_media: self.why == CompactionReason::Overflow,
        };
        let Some(last) = self.path.last().cloned() else {
            return Err("there is nothing to sum up".to_owned());
        };
        self.path.push(Entry {
            id: EntryId::new(),
            kind: kind(0, 0),
            ..last
        });
        let now = Transcript::of(&self.path).tokens();
        self.path.pop();
        if now >= shown {
            return Err("it is no shorter than what it sums up".to_owned());
        }
        let before = self.before.max(shown);
        let after = before.saturating_sub(shown - now);
        Ok((kind(before, after), after))
    }
}
