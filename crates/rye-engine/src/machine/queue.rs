//! The prompt queue: append, steer to the front, collect, withdraw and start.

use std::sync::Arc;

use rye_protocol::{
    Author, CollectedPrompt, EntryKind, EventKind, Message, Op, Part, PromptEnd, PromptId,
    PromptStatus, QueueMode, QueuedPrompt, Role, Synthetic, TurnEnd,
};

use super::Step;
use super::cow_arc::CowArc;
use super::session_change::title;
use super::turn::new_turn;

/// Order of the first prompt; leaves room for steering prompts before it.
const MIDDLE: u64 = 1 << 40;
/// Restored files that are named to the model.
const MAX_RESTORED: usize = 100;

impl Step<'_> {
    /// Appends a prompt to the queue, or merges it into the collected one.
    pub(super) fn queue(&mut self, mut prompt: QueuedPrompt) {
        let last = self.machine.prompts.last();
        prompt.order = last.map_or(MIDDLE, |last| last.order.max(MIDDLE) + 1);
        if prompt.mode == QueueMode::Collect {
            return self.collect(prompt);
        }
        self.push(prompt);
    }

    /// Puts a prompt before all others.
    pub(super) fn queue_first(&mut self, mut prompt: QueuedPrompt) {
        let first = self.machine.prompts.iter().map(|prompt| prompt.order).min();
        prompt.order = first.map_or(MIDDLE, |first| first.saturating_sub(1));
        self.push(prompt);
    }

    fn push(&mut self, prompt: QueuedPrompt) {
        self.out.accepted = Some(prompt.id.clone());
        let prompt = CowArc::new(prompt);
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.machine.prompts.push(prompt);
        self.machine.prompts.sort_by_key(|prompt| prompt.order);
        self.emit_queue_state();
    }

    fn collect(&mut self, mut prompt: QueuedPrompt) {
        let (now, window) = (self.context.now, self.context.collect_window);
        let open = |it: &&mut CowArc<QueuedPrompt>| {
            it.status == PromptStatus::Waiting && it.collect_until.is_some_and(|until| until > now)
        };
        let Some(open) = self.machine.prompts.iter_mut().find(open) else {
            prompt.collect_until = Some(now.after(window));
            prompt.collected = vec![collected_part(&prompt)];
            return self.push(prompt);
        };
        open.collected.push(collected_part(&prompt));
        open.content = join_collected(&open.collected);
        open.attachments.append(&mut prompt.attachments);
        let open = open.clone();
        self.out.accepted = Some(open.id.clone());
        // A posted prompt is stored already and must not wait as well.
        prompt.status = PromptStatus::Done;
        prompt.collected_in = Some(open.id.clone());
        prompt.end = Some(self.end_without_turn(TurnEnd::Merged));
        let merged = EventKind::TurnEnd {
            prompt: prompt.id.clone(),
            reason: TurnEnd::Merged,
            merged_into: Some(open.id.clone()),
        };
        self.out.batch.push(Op::PutPrompt(Arc::new(prompt)));
        self.out.batch.push(Op::PutPrompt(open.share()));
        self.emit(merged);
        self.emit_queue_state();
    }

    /// Shortens collect windows that would end later than one opened now: the clock was set back
    /// while no host ran.
    pub(super) fn shorten_windows(&mut self) {
        let latest = self.context.now.after(self.context.collect_window);
        let late = |prompt: &&mut CowArc<QueuedPrompt>| {
            prompt.collect_until.is_some_and(|until| until > latest)
        };
        for prompt in self.machine.prompts.iter_mut().filter(late) {
            prompt.collect_until = Some(latest);
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
    }

    /// Removes a waiting prompt.
    pub(super) fn withdraw(&mut self, id: &PromptId) {
        let Some(prompt) = self.machine.waiting(id).cloned() else {
            return;
        };
        self.machine.prompts.retain(|it| it.id != *id);
        self.remove_from_queue(prompt, TurnEnd::Withdrawn);
        self.emit_queue_state();
    }

    /// Aborts all waiting prompts.
    pub(super) fn clear_queue(&mut self) {
        for prompt in std::mem::take(&mut self.machine.prompts) {
            self.remove_from_queue(prompt, TurnEnd::Abort);
        }
        self.emit_queue_state();
    }

    /// Ends a prompt that gets no turn.
    fn remove_from_queue(&mut self, mut prompt: CowArc<QueuedPrompt>, reason: TurnEnd) {
        prompt.status = PromptStatus::Aborted;
        prompt.end = Some(self.end_without_turn(reason));
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.emit(EventKind::TurnEnd {
            prompt: prompt.id.clone(),
            reason,
            merged_into: None,
        });
    }

    /// The end of a prompt that gets no turn.
    fn end_without_turn(&self, reason: TurnEnd) -> PromptEnd {
        PromptEnd {
            reason,
            answer: None,
            error: None,
            at: self.context.now,
        }
    }

    /// Starts a waiting prompt's turn.
    pub(super) fn begin(&mut self, at: usize) {
        let prompt = &mut self.machine.prompts[at];
        prompt.status = PromptStatus::Running;
        prompt.collect_until = None;
        // Store the role with the prompt: the thread's role may change during the turn.
        if prompt.role.is_none() {
            prompt.role.clone_from(&self.machine.thread.role);
        }
        let prompt = prompt.clone();
        let turn = new_turn(&prompt, &self.machine.thread, self.context.model);
        self.machine.thread.turn = Some(turn);
        let mut parts = vec![Part::Text {
            text: prompt.content.clone(),
        }];
        parts.extend(prompt.attachments.iter().cloned());
        let mut message = Message::new(Role::User, parts);
        message.author.clone_from(&prompt.author);
        if prompt.compaction_continue {
            message.synthetic = Some(Synthetic::CompactionContinue);
        } else {
            self.out.session.title = title(&prompt.content);
        }
        let entry = self.append(EntryKind::Message(message));
        self.tell_restored();
        // Only the last version of the prompt is committed.
        self.out
            .batch
            .ops
            .retain(|op| !matches!(op, Op::PutPrompt(put) if put.id == prompt.id));
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.emit_queue_state();
        if prompt.review {
            self.review_changes(entry);
        }
    }

    /// Tells the model which of its changes were undone since the last turn.
    fn tell_restored(&mut self) {
        let restored = self.context.restored_files.clone();
        if restored.is_empty() {
            return;
        }
        let mut message = Message::text(Role::User, restored_text(&restored));
        message.synthetic = Some(Synthetic::Undo);
        self.append(EntryKind::Message(message));
        self.out.session.told_restored = restored;
    }

    fn emit_queue_state(&mut self) {
        let running = self
            .machine
            .thread
            .turn
            .as_ref()
            .map(|turn| turn.prompt.clone());
        let waiting = self.machine.prompts.iter();
        let waiting = waiting.filter(|prompt| prompt.status == PromptStatus::Waiting);
        let waiting = waiting.map(|prompt| prompt.id.clone()).collect();
        // Published once per batch, with the final state.
        let is_queue = |op: &Op| matches!(op, Op::Event(_, kind) if matches!(**kind, EventKind::QueueState { .. }));
        self.out.batch.ops.retain(|op| !is_queue(op));
        self.emit(EventKind::QueueState { running, waiting });
    }
}

/// What the model reads about files whose changes were undone.
fn restored_text(paths: &[String]) -> String {
    let listed = paths.iter().take(MAX_RESTORED);
    let listed: Vec<_> = listed.map(|path| format!("- {path}")).collect();
    let more = match paths.len().saturating_sub(MAX_RESTORED) {
        0 => String::new(),
        more => format!("\n- and {more} more"),
    };
    format!(
        "The user undid your changes to these files. They are as they were before; those that you \
         created are gone. Read a file again before you rely on its content.\n{}{more}",
        listed.join("\n")
    )
}

/// A prompt as an element of a collected one.
fn collected_part(prompt: &QueuedPrompt) -> CollectedPrompt {
    CollectedPrompt {
        author: prompt.author.clone(),
        content: prompt.content.clone(),
    }
}

/// The text of a collected prompt, with the author and channel of each part.
fn join_collected(all: &[CollectedPrompt]) -> String {
    let one = |CollectedPrompt { author, content }: &CollectedPrompt| match author {
        Some(Author {
            name,
            channel: Some(channel),
        }) => format!("[{name} in {channel}]\n{content}"),
        Some(Author { name, .. }) => format!("[{name}]\n{content}"),
        None => content.clone(),
    };
    all.iter().map(one).collect::<Vec<_>>().join("\n\n")
}
