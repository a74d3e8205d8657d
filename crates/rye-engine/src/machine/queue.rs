//! What waits: prompts one after the other, in front of others, or together.

use std::sync::Arc;

use rye_protocol::{
    Author, EntryKind, EventKind, ItemStatus, Message, Op, Part, QueueItem, QueueItemId, QueueMode,
    Role,
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
    pub(super) fn queue(&mut self, mut item: QueueItem) {
        let last = self.machine.items.last();
        item.order = last.map_or(MIDDLE, |last| last.order.max(MIDDLE) + 1);
        if item.mode == QueueMode::Collect {
            return self.collect(item);
        }
        self.put(item);
    }

    /// A prompt before all others.
    pub(super) fn queue_first(&mut self, mut item: QueueItem) {
        let first = self.machine.items.iter().map(|item| item.order).min();
        item.order = first.map_or(MIDDLE, |first| first.saturating_sub(1));
        self.put(item);
    }

    fn put(&mut self, item: QueueItem) {
        self.out.accepted = Some(item.id.clone());
        let item = Kept::new(item);
        self.out.batch.push(Op::PutItem(item.share()));
        self.machine.items.push(item);
        self.machine.items.sort_by_key(|item| item.order);
        self.tell_queue();
    }

    fn collect(&mut self, mut item: QueueItem) {
        let (now, window) = (self.env.now, self.env.collect);
        let open = |it: &&mut Kept<QueueItem>| {
            it.status == ItemStatus::Waiting && it.collect_until.is_some_and(|until| until > now)
        };
        let Some(open) = self.machine.items.iter_mut().find(open) else {
            item.collect_until = Some(now.after(window));
            let first = json!([said(&item)]);
            item.metadata.insert(COLLECTED.into(), first);
            return self.put(item);
        };
        if let Some(Value::Array(all)) = open.metadata.get_mut(COLLECTED) {
            all.push(said(&item));
            open.content = joined(all);
        }
        open.attachments.append(&mut item.attachments);
        let open = open.clone();
        self.out.accepted = Some(open.id.clone());
        // It may have been posted: then it must not wait for itself as well.
        item.status = ItemStatus::Done;
        item.metadata.insert("collected_in".into(), json!(open.id));
        self.out.batch.push(Op::PutItem(Arc::new(item)));
        self.out.batch.push(Op::PutItem(open.share()));
        self.tell_queue();
    }

    /// No window ends later than one that began now: where it would, the clock was put back
    /// while no host was there.
    pub(super) fn shorten_windows(&mut self) {
        let latest = self.env.now.after(self.env.collect);
        let late =
            |item: &&mut Kept<QueueItem>| item.collect_until.is_some_and(|until| until > latest);
        for item in self.machine.items.iter_mut().filter(late) {
            item.collect_until = Some(latest);
            self.out.batch.push(Op::PutItem(item.share()));
        }
    }

    /// Takes a prompt out that has not begun.
    pub(super) fn withdraw(&mut self, id: &QueueItemId) {
        let Some(mut item) = self.machine.waiting(id).cloned() else {
            return;
        };
        self.machine.items.retain(|it| it.id != *id);
        item.status = ItemStatus::Aborted;
        self.out.batch.push(Op::PutItem(item.share()));
        self.tell_queue();
    }

    /// Forgets what waits.
    pub(super) fn clear_queue(&mut self) {
        for mut item in std::mem::take(&mut self.machine.items) {
            item.status = ItemStatus::Aborted;
            self.out.batch.push(Op::PutItem(item.share()));
        }
        self.tell_queue();
    }

    /// Begins a prompt that waits.
    pub(super) fn begin(&mut self, at: usize) {
        let item = &mut self.machine.items[at];
        item.status = ItemStatus::Running;
        item.collect_until = None;
        // The role that holds is written with it: the thread may get another meanwhile.
        if item.role.is_none() {
            item.role = ThreadSettings::of(&self.machine.thread).role;
        }
        let item = item.clone();
        let turn = turn(&item, &self.machine.thread, self.env.model);
        self.machine.thread.turn = Some(turn);
        let mut parts = vec![Part::Text {
            text: item.content.clone(),
        }];
        parts.extend(item.attachments.iter().cloned());
        let mut message = Message::of(Role::User, parts);
        if let Some(author) = &item.author {
            message.metadata.insert("author".into(), json!(author));
        }
        if item.metadata.contains_key(CONTINUE) {
            message.metadata.insert(CONTINUE.into(), json!(true));
        }
        self.append(EntryKind::Message(message));
        // One that is put twice in a batch is what it was put as last.
        self.out
            .batch
            .ops
            .retain(|op| !matches!(op, Op::PutItem(put) if put.id == item.id));
        self.out.batch.push(Op::PutItem(item.share()));
        self.tell_queue();
    }

    fn tell_queue(&mut self) {
        let running = self
            .machine
            .thread
            .turn
            .as_ref()
            .map(|turn| turn.item.clone());
        let waiting = self.machine.items.iter();
        let waiting = waiting.filter(|item| item.status == ItemStatus::Waiting);
        let waiting = waiting.map(|item| item.id.clone()).collect();
        // Told once for a batch, as it is at its end.
        let is_queue = |op: &Op| matches!(op, Op::Event(_, kind) if matches!(**kind, EventKind::QueueState { .. }));
        self.out.batch.ops.retain(|op| !is_queue(op));
        self.tell(EventKind::QueueState { running, waiting });
    }
}

/// A prompt among others.
fn said(item: &QueueItem) -> Value {
    json!({ "author": item.author, "content": item.content })
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
