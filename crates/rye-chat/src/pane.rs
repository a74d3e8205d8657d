//! A thread, as it is seen: what is finished, what is being said, what runs, what waits.

mod live;
mod queue;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use rye_engine::compaction::is_continuation;
use rye_engine::protocol::{
    CallId, Entry, EntryId, EntryKind, Message, Part, QueueItem, QueueItemId, ResultStatus, Role,
    SessionId, StatusKind, ThreadId, TurnEnd, Usage,
};
use serde_json::Value;

use crate::block::{Block, Done};
use crate::markdown;

use live::{Running, Stream};
pub(crate) use queue::waiting;

/// How many blocks are kept to be painted again.
const KEPT: usize = 2000;
/// How much of what a running tool prints is kept: the rest is in the record.
const TAIL: usize = 16 * 1024;

/// A thread.
pub(crate) struct Pane {
    pub(crate) key: String,
    pub(crate) id: Option<ThreadId>,
    pub(crate) status: StatusKind,
    pub(crate) blocks: VecDeque<Block>,
    /// How many of them are not on the screen yet.
    pub(crate) new: usize,
    pub(crate) stream: Stream,
    pub(crate) running: Vec<Running>,
    pub(crate) waiting: Vec<QueueItem>,
    /// Which prompts wait, as it was told last.
    order: Vec<QueueItemId>,
    /// How many prompts wait or run.
    pub(crate) queued: usize,
    /// How many were sent from here and not heard of since.
    pub(crate) sent: usize,
    /// Prompts that were heard of, and those that were written down but not heard of yet.
    heard: HashSet<QueueItemId>,
    unheard: HashSet<QueueItemId>,
    pub(crate) used: Usage,
    /// How much the model read and wrote last, or would read now.
    pub(crate) context: u64,
    /// What summaries made of that: before, and after.
    sums: HashMap<EntryId, (u64, u64)>,
    /// What the history says that went wrong, until that is told too.
    failed: Option<String>,
    calls: HashMap<CallId, (String, Value)>,
    /// Sessions that were begun below this one.
    pub(crate) tasks: HashSet<SessionId>,
}

impl Pane {
    pub(crate) fn new(key: &str, id: Option<ThreadId>) -> Self {
        Self {
            key: key.to_owned(),
            id,
            status: StatusKind::Idle,
            blocks: VecDeque::new(),
            new: 0,
            stream: Stream::default(),
            running: Vec::new(),
            waiting: Vec::new(),
            order: Vec::new(),
            queued: 0,
            sent: 0,
            heard: HashSet::new(),
            unheard: HashSet::new(),
            used: Usage::default(),
            context: 0,
            sums: HashMap::new(),
            failed: None,
            calls: HashMap::new(),
            tasks: HashSet::new(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.status != StatusKind::Idle || self.queued > 0
    }

    /// It has something to do again. Where it thought before, that it does is not told anew.
    pub(crate) fn thinks(&mut self) {
        if self.status == StatusKind::Idle {
            self.status = StatusKind::Thinking;
        }
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.blocks.push_back(block);
        self.new += 1;
        if self.blocks.len() > KEPT && self.blocks.len() > self.new {
            self.blocks.pop_front();
        }
    }

    /// Those that are not on the screen yet.
    pub(crate) fn take_new(&mut self) -> impl Iterator<Item = &Block> {
        let from = self.blocks.len() - self.new;
        self.new = 0;
        self.blocks.range(from..)
    }

    pub(crate) fn begin_message(&mut self) {
        self.stream = Stream::default();
    }

    pub(crate) fn words(&mut self, text: &str) {
        self.end_thought();
        self.stream.text += text;
        if self.stream.broken {
            return;
        }
        let rest = &self.stream.text[self.stream.settled..];
        let settled = markdown::settled(rest);
        if rest[..settled].trim().is_empty() {
            return;
        }
        let text = rest[..settled].to_owned();
        let goes_on = self.stream.settled > 0;
        self.stream.settled += settled;
        self.add(Block::Said { text, goes_on });
    }

    pub(crate) fn thought(&mut self, text: &str) {
        self.stream.thinking += text;
    }

    fn end_thought(&mut self) {
        let thinking = std::mem::take(&mut self.stream.thinking);
        if !thinking.trim().is_empty() {
            self.add(Block::Thought(thinking));
        }
    }

    pub(crate) fn writes_call(&mut self, tool: &str, text: &str) {
        self.end_thought();
        match &mut self.stream.call {
            Some((known, size)) if known == tool => *size += text.len(),
            call => *call = Some((tool.to_owned(), text.len())),
        }
    }

    /// Something was told that did not come here: what is finished is right, what is being
    /// said may have holes.
    pub(crate) fn missed(&mut self) {
        self.stream.broken = true;
    }

    pub(crate) fn begin_tool(&mut self, call: CallId, tool: String) {
        let args = self
            .calls
            .get(&call)
            .map_or(Value::Null, |(_, args)| args.clone());
        if self.running.iter().all(|running| running.call != call) {
            self.running.push(Running {
                call,
                tool,
                args,
                output: String::new(),
                lines: 0,
            });
        }
    }

    pub(crate) fn tool_prints(&mut self, call: &CallId, text: &str) {
        let running = self.running.iter_mut().find(|it| it.call == *call);
        if let Some(running) = running {
            running.output += text;
            running.lines += text.matches('\n').count();
            if running.output.len() > 2 * TAIL {
                let from = running.output.len() - TAIL;
                let from = running.output.ceil_char_boundary(from);
                running.output.drain(..from);
            }
        }
    }

    /// An entry was written.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Message(message) => match message.role {
                Role::User if is_continuation(message) => {
                    self.add(Block::told(&format!("goes on: {}", message.content())));
                }
                Role::User => self.add(Block::Asked(asked(message))),
                Role::Assistant => self.said(message),
                Role::Tool => self.results(message),
                Role::System => self.add(Block::told(&message.content())),
            },
            // It is asked while it is open, and told of when it has ended.
            EntryKind::DecisionGate { .. } => {}
            EntryKind::Compaction {
                tokens_before,
                tokens_after,
                ..
            } => {
                let sum = (*tokens_before, *tokens_after);
                self.sums.insert(entry.id.clone(), sum);
                self.context = *tokens_after;
                let text = format!("summed up: {tokens_before} tokens became {tokens_after}");
                self.add(Block::told(&text));
            }
            EntryKind::CompactionUndone { compaction } => {
                let (before, after) = self.sums.remove(compaction).unwrap_or_default();
                self.context = self.context.saturating_sub(after) + before;
                self.add(Block::told("the summary was taken back"));
            }
            EntryKind::BranchSummary { .. } => self.add(Block::told("a branch was left")),
        }
    }

    fn said(&mut self, message: &Message) {
        let stream = std::mem::take(&mut self.stream);
        let mut text = String::new();
        for part in &message.parts {
            match part {
                Part::Text { text: more } => text += more,
                Part::ToolCall {
                    call_id,
                    tool,
                    args,
                } => {
                    self.calls
                        .insert(call_id.clone(), (tool.clone(), args.clone()));
                }
                // What was thought live is there already.
                Part::Thinking { text, .. } if stream.text.is_empty() && !text.is_empty() => {
                    self.add(Block::Thought(text.clone()));
                }
                Part::Error { error } => {
                    self.failed = Some(error.message.clone());
                    self.add(Block::Wrong(error.message.clone()));
                }
                _ => {}
            }
        }
        let shown = &stream.text[..stream.settled];
        let (rest, goes_on) = match text.strip_prefix(shown) {
            Some(rest) => (rest, stream.settled > 0),
            None => (text.as_str(), false),
        };
        if !rest.trim().is_empty() {
            self.add(Block::Said {
                text: rest.to_owned(),
                goes_on,
            });
        }
        if let (Some(incomplete), Some(why)) = (message.incomplete(), &message.stop_reason) {
            self.add(Block::told(&format!("{incomplete} ({why})")));
        }
    }

    /// Something went wrong. What the history says is not said again.
    pub(crate) fn goes_wrong(&mut self, why: &str) {
        if self.failed.take().as_deref() != Some(why) {
            self.add(Block::Wrong(why.to_owned()));
        }
    }

    fn results(&mut self, message: &Message) {
        for part in &message.parts {
            if let Part::ToolResult {
                call_id,
                tool,
                status,
                text,
                ..
            } = part
            {
                let (_, args) = self.calls.remove(call_id).unwrap_or_default();
                self.running.retain(|running| running.call != *call_id);
                self.add(Block::Tool(Done {
                    tool: tool.clone(),
                    args,
                    status: *status,
                    text: text.clone(),
                }));
            }
        }
    }

    pub(crate) fn end_turn(&mut self, reason: TurnEnd) {
        self.end_thought();
        let rest = self.stream.rest().trim().to_owned();
        if !rest.is_empty() {
            self.add(Block::Said {
                text: rest,
                goes_on: false,
            });
        }
        self.stream = Stream::default();
        for running in std::mem::take(&mut self.running) {
            self.add(Block::Tool(Done {
                tool: running.tool,
                args: running.args,
                status: ResultStatus::Aborted,
                text: running.output,
            }));
        }
        match reason {
            TurnEnd::EndTurn | TurnEnd::Error => {}
            TurnEnd::Abort => self.add(Block::told("ended")),
            TurnEnd::Limit => self.add(Block::told("a limit was reached")),
        }
    }

    /// The newest call that has ended.
    pub(crate) fn last_done(&self) -> Option<&Done> {
        self.blocks.iter().rev().find_map(|block| match block {
            Block::Tool(done) => Some(done),
            _ => None,
        })
    }

    /// A call runs with other arguments than the model wrote.
    pub(crate) fn runs_with(&mut self, call: &CallId, args: &Value) {
        if let Some((_, known)) = self.calls.get_mut(call) {
            args.clone_into(known);
        }
        let running = self.running.iter_mut().find(|it| it.call == *call);
        if let Some(running) = running {
            args.clone_into(&mut running.args);
        }
    }
}

fn asked(message: &Message) -> String {
    let mut text = message.content();
    for part in &message.parts {
        if let Part::Attachment { name, .. } = part {
            let _ = write!(text, "\n[{name}]");
        }
    }
    text
}
