//! A thread as the chat shows it: finished blocks, the streaming message, running tools and
//! queued prompts.

mod queue;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use rye_engine::blob::FULL_OUTPUT;
use rye_engine::protocol::{
    CallId, Entry, EntryId, EntryKind, ErrorInfo, EventKind, Message, Part, PromptId, QueuedPrompt,
    ResultStatus, Role, RunEvent, SessionId, StatusKind, Synthetic, ThreadId, TurnEnd, Usage,
};
use serde_json::Value;

use crate::block::{Block, FinishedCall, Plan};
use crate::markdown;

pub(crate) use queue::queue_lines;

/// Finished blocks that are kept to redraw the screen.
const MAX_BLOCKS: usize = 2000;
/// Bytes of a running tool's output that are kept; the history has all of it.
const OUTPUT_TAIL: usize = 16 * 1024;

/// The message that the model is writing.
#[derive(Default)]
pub(crate) struct StreamingMessage {
    pub(crate) text: String,
    pub(crate) thinking: String,
    /// Tool of the call that is being written, and its size in bytes so far.
    pub(crate) call: Option<(String, usize)>,
    /// Bytes of the text that are already shown as blocks.
    finished: usize,
    /// Events were lost, so the text may have gaps.
    lagged: bool,
}

impl StreamingMessage {
    /// The part of the text that is not shown as a block yet.
    pub(crate) fn unfinished(&self) -> &str {
        &self.text[self.finished..]
    }
}

/// A tool call that is running.
pub(crate) struct RunningTool {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) args: Value,
    /// The last part of its output.
    pub(crate) output: String,
    /// Lines printed so far, including those that were dropped from `output`.
    pub(crate) lines: usize,
}

/// State of one thread.
#[derive(Default)]
pub(crate) struct Pane {
    pub(crate) key: String,
    pub(crate) id: Option<ThreadId>,
    pub(crate) status: StatusKind,
    pub(crate) blocks: VecDeque<Block>,
    /// How many of the last blocks are not on the screen yet.
    pub(crate) unpainted: usize,
    pub(crate) stream: StreamingMessage,
    pub(crate) running: Vec<RunningTool>,
    pub(crate) waiting: Vec<QueuedPrompt>,
    /// Ids of the queued prompts in order, from the last event.
    queue_order: Vec<PromptId>,
    /// Number of prompts that wait or run.
    pub(crate) queued: usize,
    /// Number of prompts sent from here that no event has confirmed yet.
    pub(crate) unconfirmed: usize,
    /// Prompts that an event has mentioned.
    confirmed: HashSet<PromptId>,
    /// Prompts that are stored but that no event has mentioned yet.
    stored: HashSet<PromptId>,
    pub(crate) usage: Usage,
    /// Tokens in the model's context.
    pub(crate) context_tokens: u64,
    /// Context tokens before and after each compaction.
    compactions: HashMap<EntryId, (u64, u64)>,
    /// Error shown from the history; the event that reports the same error follows.
    recorded_error: Option<ErrorInfo>,
    calls: HashMap<CallId, Value>,
    /// Output of the user's own commands, for the next prompt.
    pub(crate) notes: Vec<String>,
    /// The agent's plan, while it works on it.
    pub(crate) plan: Option<Plan>,
    /// Child sessions that were announced.
    pub(crate) tasks: HashSet<SessionId>,
}

impl Pane {
    pub(crate) fn new(key: &str, id: Option<ThreadId>) -> Self {
        Self {
            key: key.to_owned(),
            id,
            ..Self::default()
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.status != StatusKind::Idle || self.queued > 0
    }

    /// Marks an idle thread as working: no status event follows if the status is unchanged.
    fn mark_working(&mut self) {
        if self.status == StatusKind::Idle {
            self.status = StatusKind::Thinking;
        }
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.blocks.push_back(block);
        self.unpainted += 1;
        if self.blocks.len() > MAX_BLOCKS && self.blocks.len() > self.unpainted {
            self.blocks.pop_front();
        }
    }

    pub(crate) fn notice(&mut self, text: &str) {
        self.add(Block::notice(text));
    }

    /// Blocks that are not on the screen yet; marks them as painted.
    pub(crate) fn take_unpainted(&mut self) -> impl Iterator<Item = &Block> {
        let from = self.blocks.len() - self.unpainted;
        self.unpainted = 0;
        self.blocks.range(from..)
    }

    /// Applies an event of the thread, with the entry that it refers to.
    pub(crate) fn on_event(&mut self, kind: &EventKind, entry: Option<&Entry>) {
        match kind {
            EventKind::MessageStart => {
                // The thinking before the text has been streamed already.
                self.finish_thinking();
                self.stream = StreamingMessage::default();
            }
            EventKind::TextDelta { text } => self.on_text_delta(text),
            EventKind::ThinkingDelta { text } => self.stream.thinking += text,
            EventKind::ToolCallDelta { tool, text, .. } => self.on_call_delta(tool, text),
            EventKind::MessageEnd { .. } => {
                if let Some(entry) = entry {
                    self.on_entry(entry);
                }
            }
            EventKind::ToolStart { call, tool } => self.start_tool(call, tool),
            EventKind::ToolOutput { call, text } => self.on_tool_output(call, text),
            EventKind::TurnEnd { reason, .. } if reason.ends_turn() => {
                self.end_turn(*reason);
                self.status = StatusKind::Idle;
                self.queued = self.queued.saturating_sub(1);
            }
            EventKind::Status { status } => self.status = *status,
            EventKind::QueueState { running, waiting } => {
                self.set_queue_state(running.as_ref(), waiting);
                if running.is_some() {
                    self.mark_working();
                }
            }
            EventKind::Error { error } => self.on_error(error),
            EventKind::Usage { usage } => {
                self.usage = self.usage.plus(*usage);
                self.context_tokens = usage.input_tokens + usage.output_tokens;
            }
            EventKind::ModelRetry {
                model,
                attempts,
                reason,
                ..
            } => {
                self.stream = StreamingMessage::default();
                self.notice(&format!("retrying {model} (attempt {attempts}): {reason}"));
            }
            EventKind::ModelSwitched { from, to, reason } => {
                self.notice(&format!("switched from {from} to {to}: {reason}"));
            }
            EventKind::CompactionStart => {
                self.mark_working();
                self.notice("compacting …");
            }
            EventKind::CompactionEnd {
                error: Some(error), ..
            } => {
                self.add(Block::Error(format!(
                    "compaction failed: {}",
                    error.message
                )));
            }
            // An interrupted task starts again with its call; it is announced once.
            EventKind::TaskStart { session } if self.tasks.insert(session.clone()) => {
                self.notice(&format!("task started: {session}"));
            }
            EventKind::TaskEnd { session } => {
                self.notice(&format!("task ended: {session}"));
            }
            EventKind::Artifact { name, .. } => self.notice(&format!("created {name}")),
            _ => {}
        }
    }

    fn on_text_delta(&mut self, text: &str) {
        self.finish_thinking();
        self.stream.text += text;
        if self.stream.lagged {
            return;
        }
        let rest = &self.stream.text[self.stream.finished..];
        let stable = markdown::stable_prefix_len(rest);
        if rest[..stable].trim().is_empty() {
            return;
        }
        let text = rest[..stable].to_owned();
        self.stream.finished += stable;
        self.add(Block::Text(text));
    }

    fn finish_thinking(&mut self) {
        let thinking = std::mem::take(&mut self.stream.thinking);
        if !thinking.trim().is_empty() {
            self.add(Block::Thinking(thinking));
        }
    }

    fn on_call_delta(&mut self, tool: &str, text: &str) {
        self.finish_thinking();
        match &mut self.stream.call {
            Some((known, size)) if known == tool => *size += text.len(),
            call => *call = Some((tool.to_owned(), text.len())),
        }
    }

    /// Events were lost, so the streaming message may have gaps.
    pub(crate) fn mark_lagged(&mut self) {
        self.stream.lagged = true;
    }

    fn start_tool(&mut self, call: &CallId, tool: &str) {
        if self.running.iter().any(|running| running.call == *call) {
            return;
        }
        let args = self.calls.get(call).cloned();
        self.running.push(RunningTool {
            call: call.clone(),
            tool: tool.to_owned(),
            args: args.unwrap_or_default(),
            output: String::new(),
            lines: 0,
        });
    }

    fn on_tool_output(&mut self, call: &CallId, text: &str) {
        let running = self.running.iter_mut().find(|it| it.call == *call);
        if let Some(running) = running {
            running.output += text;
            running.lines += text.matches('\n').count();
            if running.output.len() > 2 * OUTPUT_TAIL {
                let from = running.output.len() - OUTPUT_TAIL;
                let from = running.output.ceil_char_boundary(from);
                running.output.drain(..from);
            }
        }
    }

    /// Shows an entry of the history.
    pub(crate) fn on_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Message(message) => match message.role {
                Role::User if message.synthetic == Some(Synthetic::CompactionContinue) => {
                    self.notice(&format!("continuing: {}", message.content()));
                }
                Role::User
                    if matches!(message.synthetic, Some(Synthetic::Review | Synthetic::Undo)) =>
                {
                    self.notice(&message.content());
                }
                Role::User => self.add(Block::Prompt(prompt_text(message))),
                Role::Assistant => self.on_assistant_message(message),
                Role::Tool => self.on_tool_results(message),
                Role::System => self.notice(&message.content()),
            },
            // Shown while it is open; its outcome is shown when it closes.
            EntryKind::DecisionGate { .. } => {}
            EntryKind::Compaction {
                tokens_before,
                tokens_after,
                ..
            } => {
                let sizes = (*tokens_before, *tokens_after);
                self.compactions.insert(entry.id.clone(), sizes);
                self.context_tokens = *tokens_after;
                let text = format!("compacted: {tokens_before} → {tokens_after} tokens");
                self.notice(&text);
            }
            EntryKind::CompactionUndone { compaction } => {
                let (before, after) = self.compactions.remove(compaction).unwrap_or_default();
                self.context_tokens = self.context_tokens.saturating_sub(after) + before;
                self.notice("compaction undone");
            }
            EntryKind::BranchSummary { .. } => self.notice("left a branch"),
            EntryKind::Run { events } => self.notice(&RunEvent::summary(events)),
        }
    }

    fn on_assistant_message(&mut self, message: &Message) {
        let stream = std::mem::take(&mut self.stream);
        let mut text = String::new();
        for part in &message.parts {
            match part {
                Part::Text { text: more } => text += more,
                Part::ToolCall { call_id, args, .. } => {
                    self.calls.insert(call_id.clone(), args.clone());
                }
                // Streamed thinking is already shown.
                Part::Thinking { text, .. } if stream.text.is_empty() && !text.is_empty() => {
                    self.add(Block::Thinking(text.clone()));
                }
                Part::Error { error } => {
                    self.recorded_error = Some(error.clone());
                    self.add(Block::Error(error.message.clone()));
                }
                _ => {}
            }
        }
        let shown = &stream.text[..stream.finished];
        let rest = text.strip_prefix(shown).unwrap_or(&text);
        if !rest.trim().is_empty() {
            self.add(Block::Text(rest.to_owned()));
        }
        if let (Some(incomplete), Some(reason)) = (message.incomplete, &message.stop_reason) {
            self.notice(&format!("{incomplete} ({reason})"));
        }
    }

    /// Shows an error, unless the history has shown it already.
    fn on_error(&mut self, error: &ErrorInfo) {
        if self.recorded_error.take().as_ref() != Some(error) {
            self.add(Block::Error(error.message.clone()));
        }
    }

    fn on_tool_results(&mut self, message: &Message) {
        for part in &message.parts {
            if let Part::ToolResult {
                call_id,
                tool,
                status,
                text,
                data,
                ..
            } = part
            {
                let args = self.calls.remove(call_id).unwrap_or_default();
                if let (Some(plan), ResultStatus::Success) = (Plan::of_call(tool, &args), status) {
                    self.plan = Some(plan);
                }
                self.running.retain(|running| running.call != *call_id);
                self.add(Block::Call(FinishedCall {
                    tool: tool.clone(),
                    args,
                    status: *status,
                    text: text.clone(),
                    diff: diff_of(tool, data),
                    full_output: full_output_of(data),
                }));
            }
        }
    }

    fn end_turn(&mut self, reason: TurnEnd) {
        self.finish_thinking();
        let rest = self.stream.unfinished().trim().to_owned();
        if !rest.is_empty() {
            self.add(Block::Text(rest));
        }
        self.stream = StreamingMessage::default();
        for running in std::mem::take(&mut self.running) {
            self.add(Block::Call(FinishedCall {
                tool: running.tool,
                args: running.args,
                status: ResultStatus::Aborted,
                text: running.output,
                diff: None,
                full_output: None,
            }));
        }
        match reason {
            TurnEnd::EndTurn | TurnEnd::Error | TurnEnd::Withdrawn | TurnEnd::Merged => {}
            TurnEnd::Abort => self.notice("stopped"),
            TurnEnd::Limit => self.notice("stopped at a limit"),
        }
    }

    /// The last block that may hide something.
    pub(crate) fn last_expandable(&self) -> Option<&Block> {
        self.blocks.iter().rev().find(|block| block.is_expandable())
    }

    /// Shows a call with the arguments that the user edited.
    pub(crate) fn set_call_arguments(&mut self, call: &CallId, args: &Value) {
        if let Some(known) = self.calls.get_mut(call) {
            args.clone_into(known);
        }
        let running = self.running.iter_mut().find(|it| it.call == *call);
        if let Some(running) = running {
            args.clone_into(&mut running.args);
        }
    }
}

/// The diff in the result of a tool that changes files.
fn diff_of(tool: &str, data: &Value) -> Option<String> {
    let diff = data.get("diff").and_then(Value::as_str);
    let diff = diff.filter(|diff| !diff.is_empty());
    diff.filter(|_| matches!(tool, "edit" | "write" | "apply_patch"))
        .map(str::to_owned)
}

/// Address of the complete output of a call, if its result has only a part of it.
fn full_output_of(data: &Value) -> Option<String> {
    let address = data.get(FULL_OUTPUT).and_then(Value::as_str);
    address.map(str::to_owned)
}

/// The text of a prompt with the names of its attachments.
fn prompt_text(message: &Message) -> String {
    let mut text = message.content();
    for part in &message.parts {
        if let Part::Attachment { name, .. } = part {
            let _ = write!(text, "\n[{name}]");
        }
    }
    text
}
