//! What waits: prompts one after the other, in front of others, or together.

use std::sync::Arc;

use rye_protocol::{
    Author, EntryKind, EventKind, Message, Op, Part, PromptId, PromptStatus, QueueMode,
    QueuedPrompt, Role,
};
use serde_json::{Value, json};

use super::Step;
use super::kept::Kept;
use super::turn::turn;
use crate::compaction::CONTINUE;
use crate::engine::ThreadSettings;

/// The place of a first prompt: there is room before it for those that steer.
const MIDDLE: u64 = 1 << 40;

/// Where the prompts of a collected one are kept.
const COLLECTED: &str = "collected";

impl Step<'_> {
    /// A prompt at the end of the queue, or into the one that is being collected.
    pub(super) fn queue(&mut self, mut prompt: QueuedPrompt) {
        let last = self.machine.prompts.last();
        prompt.order = last.map_or(MIDDLE, |last| last.order.max(MIDDLE) + 1);
        if prompt.mode == QueueMode::Collect {
            return self.collect(prompt);
        }
        self.put(prompt);
    }

    /// A prompt before all others.
    pub(super) fn queue_first(&mut self, mut prompt: QueuedPrompt) {
        let first = self.machine.prompts.iter().map(|prompt| prompt.order).min();
        prompt.order = first.map_or(MIDDLE, |first| first.saturating_sub(1));
        self.put(prompt);
    }

    fn put(&mut self, prompt: QueuedPrompt) {
        self.out.accepted = Some(prompt.id.clone());
        let prompt = Kept::new(prompt);
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.machine.prompts.push(prompt);
        self.machine.prompts.sort_by_key(|prompt| prompt.order);
        self.tell_queue();
    }

    fn collect(&mut self, mut prompt: QueuedPrompt) {
        let (now, window) = (self.env.now, self.env.collect);
        let open = |it: &&mut Kept<QueuedPrompt>| {
            it.status == PromptStatus::Waiting && it.collect_until.is_some_and(|until| until > now)
        };
        let Some(open) = self.machine.prompts.iter_mut().find(open) else {
            prompt.collect_until = Some(now.after(window));
            let first = json!([said(&prompt)]);
            prompt.metadata.insert(COLLECTED.into(), first);
            return self.put(prompt);
        };
        if let Some(Value::Array(all)) = open.metadata.get_mut(COLLECTED) {
            all.push(said(&prompt));
            open.content = joined(all);
        }
        open.attachments.append(&mut prompt.attachments);
        let open = open.clone();
        self.out.accepted = Some(open.id.clone());
        // It may have been posted: then it must not wait for itself as well.
        prompt.status = PromptStatus::Done;
        prompt
            .metadata
            .insert("collected_in".into(), json!(open.id));
        self.out.batch.push(Op::PutPrompt(Arc::new(prompt)));
        self.out.batch.push(Op::PutPrompt(open.share()));
        self.tell_queue();
    }

    /// No window ends later than one that began now: where it would, the clock was put back
    /// while no host was there.
    pub(super) fn shorten_windows(&mut self) {
        let latest = self.env.now.after(self.env.collect);
        let late = |prompt: &&mut Kept<QueuedPrompt>| {
            prompt.collect_until.is_some_and(|until| until > latest)
        };
        for prompt in self.machine.prompts.iter_mut().filter(late) {
            prompt.collect_until = Some(latest);
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
    }

    /// Takes a prompt out that has not begun.
    pub(super) fn withdraw(&mut self, id: &PromptId) {
        let Some(mut prompt) = self.machine.waiting(id).cloned() else {
            return;
        };
        self.machine.prompts.retain(|it| it.id != *id);
        prompt.status = PromptStatus::Aborted;
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.tell_queue();
    }

    /// Forgets what waits.
    pub(super) fn clear_queue(&mut self) {
        for mut prompt in std::mem::take(&mut self.machine.prompts) {
            prompt.status = PromptStatus::Aborted;
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
        self.tell_queue();
    }

    /// Begins a prompt that waits.
    pub(super) fn begin(&mut self, at: usize) {
        let prompt = &mut self.machine.prompts[at];
        prompt.status = PromptStatus::Running;
        prompt.collect_until = None;
        // The role that holds is written with it: the thread may get another meanwhile.
        if prompt.role.is_none() {
            prompt.role = ThreadSettings::from_thread(&self.machine.thread).role;
        }
        let prompt = prompt.clone();
        let turn = turn(&prompt, &self.machine.thread, self.env.model);
        self.machine.thread.turn = Some(turn);
        let mut parts = vec![Part::Text {
            text: prompt.content.clone(),
        }];
        parts.extend(prompt.attachments.iter().cloned());
        let mut message = Message::new(Role::User, parts);
        if let Some(author) = &prompt.author {
            message.metadata.insert("author".into(), json!(author));
        }
        if prompt.metadata.contains_key(CONTINUE) {
            message.metadata.insert(CONTINUE.into(), json!(true));
        }
        self.append(EntryKind::Message(message));
        // One that is put twice in a batch is what it was put as last.
        self.out
            .batch
            .ops
            .retain(|op| !matches!(op, Op::PutPrompt(put) if put.id == prompt.id));
        self.out.batch.push(Op::PutPrompt(prompt.share()));
        self.tell_queue();
    }

    fn tell_queue(&mut self) {
        let running = self
            .machine
            .thread
            .turn
            .as_ref()
            .map(|turn| turn.prompt.clone());
        let waiting = self.machine.prompts.iter();
        let waiting = waiting.filter(|prompt| prompt.status == PromptStatus::Waiting);
        let waiting = waiting.map(|prompt| prompt.id.clone()).collect();
        // Told once for a batch, as it is at its end.
        let is_queue = |op: &Op| matches!(op, Op::Event(_, kind) if matches!(**kind, EventKind::QueueState { .. }));
        self.out.batch.ops.retain(|op| !is_queue(op));
        self.tell(EventKind::QueueState { running, waiting });
    }
}

/// A prompt among others.
fn said(prompt: &QueuedPrompt) -> Value {
    json!({ "author": prompt.author, "content": prompt.content })
}

/// Prompts as one, each with who asked and where.
fn joined(all: &[Value]) -> String {
    let one = |said: &Value| {
        let content = said["content"].as_str().unwrap_or_default();
        let author: Option<Author> = serde_json::from_value(said["author"].clone()).ok();
        match author {
            Some(Author {
                name,
                channel: Some(channel),
            }) => {
                format!("[{name} in {channel}]\n{content}")
            }
            Some(Author { name, .. }) => format!("[{name}]\n{content}"),
            None => content.to_owned(),
        }
    };
    all.iter().map(one).collect::<Vec<_>>().join("\n\n")
}
