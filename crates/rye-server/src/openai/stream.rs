//! The events of a response, numbered so that a client can resume anywhere.
//!
//! The numbers follow from the record alone: each item of the output has a range of numbers, and
//! the number of a text delta contains the position in the text at which the delta ends. A resumed
//! stream makes the same events again, skips those that the client has, and cuts the delta in which
//! the client stopped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use rye_engine::protocol::{
    CallId, Entry, EventKind, Gate, GateId, Message, Part, PromptId, QueuedPrompt, Role, Session,
    SessionId, TurnEnd, Usage,
};
use serde_json::{Value, json};

use super::object::{
    Progress, ResponseInfo, ToolOutput, answer_text, message_item, message_of, text_part, tool_item,
};
use crate::access::SessionEvents;
use crate::problem::Problem;
use crate::server::App;

/// Size of the range of numbers of an item. The first one is that of the end of the response, if
/// there is no such item yet.
const ITEM_NUMBERS: u64 = 1 << 24;
/// Offset of the number of a delta, to which the position in the text is added.
const FIRST_DELTA: u64 = 3;
/// Offset of the last delta's number at most.
const LAST_DELTA: u64 = ITEM_NUMBERS - 8;

/// Interval at which the gates of running tasks are checked; they are not events of this session.
const TASK_CHECK: Duration = Duration::from_millis(500);

/// An event of a response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResponseEvent {
    pub(crate) name: &'static str,
    /// The event as JSON, with its type and number.
    pub(crate) data: Value,
}

/// A message that the model is writing.
#[derive(Debug, Default)]
struct OpenMessage {
    /// The text so far.
    text: String,
    /// Whether further deltas may not continue the text, because some are missing or the model
    /// started again. The text at the end of the message counts.
    is_broken: bool,
}

/// The events of a response.
pub(crate) struct ResponseStream {
    app: App,
    session: Session,
    pub(crate) info: ResponseInfo,
    prompt: QueuedPrompt,
    /// The prompt whose turn answers this one.
    answering: PromptId,
    events: SessionEvents,
    is_running: bool,
    open: Option<OpenMessage>,
    items: Vec<Value>,
    calls: HashMap<CallId, (String, Value)>,
    tasks: HashSet<SessionId>,
    usage: Usage,
    last_message: Option<Message>,
    progress: Progress,
    is_over: bool,
    /// Gates that were just decided and may still be stored as pending.
    decided: HashSet<GateId>,
    queue: VecDeque<ResponseEvent>,
    /// Number of the last event that the client has.
    starting_after: Option<u64>,
}

impl ResponseStream {
    /// The events of a response after a number; all without one.
    pub(crate) async fn new(
        app: &App,
        session: Session,
        prompt: QueuedPrompt,
        info: ResponseInfo,
        starting_after: Option<u64>,
    ) -> Result<Self, Problem> {
        let after = info.id.after;
        let events = app.sessions.follow(&session.id, after).await?;
        let mut this = Self {
            app: app.clone(),
            session,
            info,
            answering: prompt.id.clone(),
            prompt,
            events,
            is_running: false,
            open: None,
            items: Vec::new(),
            calls: HashMap::new(),
            tasks: HashSet::new(),
            usage: Usage::default(),
            last_message: None,
            progress: Progress::Queued,
            is_over: false,
            decided: HashSet::new(),
            queue: VecDeque::new(),
            starting_after,
        };
        let response = this.response();
        this.push(0, "response.created", json!({ "response": response }));
        this.push(1, "response.in_progress", json!({ "response": response }));
        Ok(this)
    }

    /// The response as it is now.
    pub(crate) fn response(&self) -> Value {
        let gate_url = |gate: &Gate| self.app.gate_url(gate);
        self.info
            .json(&self.progress, &self.items, self.usage, gate_url)
    }

    /// Usage so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Continues after these gates, which were just decided.
    pub(crate) async fn continue_after(&mut self, decided: Vec<GateId>) -> Result<(), Problem> {
        self.decided.extend(decided);
        if matches!(self.progress, Progress::Gate(_)) {
            self.progress = Progress::Running;
            self.is_over = false;
            self.check_gates().await?;
        }
        Ok(())
    }

    /// How far the response is.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The next event; `None` at the end, or when the server shuts down. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<ResponseEvent>, Problem> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over || !self.advance().await? {
                return Ok(None);
            }
        }
    }

    /// Reads what has happened so far, without waiting for more.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Problem> {
        let last = self.app.engine().last_event(&self.session.id).await?;
        while !self.is_over && self.events.last() < last {
            if !self.advance().await? {
                break;
            }
        }
        if !self.is_over {
            self.check_gates().await?;
        }
        self.queue.clear();
        Ok(())
    }

    /// Processes the next event of the session. False if there are no more.
    async fn advance(&mut self) -> Result<bool, Problem> {
        let draining = self.app.draining.clone();
        let check = async {
            // A gate of an earlier prompt can block this one.
            if self.tasks.is_empty() && self.is_running {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(TASK_CHECK).await;
        };
        let notice = tokio::select! {
            biased;
            notice = self.events.next() => notice?,
            () = draining.cancelled() => return Ok(false),
            () = check => {
                self.check_gates().await?;
                return Ok(true);
            }
        };
        let Some(notice) = notice else {
            return Ok(false);
        };
        let is_own_thread = notice.event.thread.as_ref() == Some(&self.prompt.thread);
        if is_own_thread {
            self.apply(&notice.event.kind, notice.entry.as_deref())
                .await?;
        }
        Ok(true)
    }

    /// Ends the stream if the thread or one of its tasks waits for a decision.
    async fn check_gates(&mut self) -> Result<(), Problem> {
        let gates = self
            .app
            .engine()
            .pending_gates_in_tree(&self.session.id)
            .await?;
        let blocks = |gate: &Gate| {
            let is_of_task = gate.origin.session != self.session.id;
            (is_of_task || gate.origin.thread == self.prompt.thread)
                && !self.decided.contains(&gate.id)
        };
        if let Some(gate) = gates.into_iter().find(blocks) {
            self.end(Progress::Gate(Box::new(gate)));
        }
        Ok(())
    }

    async fn apply(&mut self, kind: &EventKind, entry: Option<&Entry>) -> Result<(), Problem> {
        match kind {
            EventKind::QueueState { running, .. } => {
                self.is_running = running.as_ref() == Some(&self.answering);
                if self.is_running {
                    self.progress = Progress::Running;
                }
            }
            EventKind::MessageStart | EventKind::ModelRetry { .. } | EventKind::Lagged { .. } => {
                if let Some(open) = &mut self.open {
                    open.is_broken = true;
                }
            }
            EventKind::TextDelta { text } if self.is_running => self.on_delta(text),
            EventKind::MessageEnd { .. } => {
                if let Some(entry) = entry.filter(|it| it.prompt.as_ref() == Some(&self.answering))
                {
                    self.on_entry(entry);
                }
            }
            EventKind::TaskStart { session } => {
                self.tasks.insert(session.clone());
            }
            EventKind::TaskEnd { session } => {
                self.tasks.remove(session);
            }
            EventKind::Usage { usage } if self.is_running => {
                self.usage = self.usage.plus(*usage);
            }
            EventKind::DecisionGate { gate } => {
                let is_decided = self.decided.contains(&gate.id);
                let gate = self.app.engine().gate(&gate.id).await?;
                let gate = gate.filter(|_| !is_decided);
                if let Some(gate) = gate.filter(|gate| gate.status.is_pending()) {
                    self.end(Progress::Gate(Box::new(gate)));
                }
            }
            EventKind::TurnEnd {
                prompt,
                reason,
                merged_into,
            } if *prompt == self.answering => match merged_into {
                Some(other) => self.answering = other.clone(),
                None => self.on_turn_end(*reason).await?,
            },
            _ => {}
        }
        Ok(())
    }

    async fn on_turn_end(&mut self, reason: TurnEnd) -> Result<(), Problem> {
        let engine = self.app.engine();
        let answer = engine.answer_if_ended(&self.session.id, &self.answering);
        let error = answer.await?.and_then(|answer| answer.error);
        let incomplete = self.last_message.as_ref().and_then(|it| it.incomplete);
        self.end(Progress::Ended {
            reason,
            incomplete,
            error,
        });
        Ok(())
    }

    /// More text of the message that the model is writing.
    fn on_delta(&mut self, text: &str) {
        // Only the end of the message has the structured result.
        if self.prompt.result_schema.is_some() {
            return;
        }
        if self.open.is_none() {
            self.open_message();
        }
        let Some(open) = self.open.as_mut().filter(|open| !open.is_broken) else {
            return;
        };
        let start = open.text.chars().count();
        open.text += text;
        self.push_delta(start, text);
    }

    fn open_message(&mut self) {
        self.open = Some(OpenMessage::default());
        let item = message_item(&self.message_id(), "in_progress", None);
        let index = self.items.len();
        let added = json!({ "output_index": index, "item": item });
        self.push_in_item(1, "response.output_item.added", added);
        let mut added = self.content_position();
        added["part"] = text_part("");
        self.push_in_item(2, "response.content_part.added", added);
    }

    /// Text that starts at a character position of the message.
    fn push_delta(&mut self, start: usize, text: &str) {
        let length = text.chars().count();
        let number = |position: usize| {
            let position = u64::try_from(position).unwrap_or(u64::MAX);
            FIRST_DELTA.saturating_add(position).min(LAST_DELTA)
        };
        let client_has = self.starting_after.unwrap_or(0);
        let first = self.first_number();
        let known = (0..=length)
            .rev()
            .find(|count| first + number(start + count) <= client_has);
        let text: String = text.chars().skip(known.unwrap_or(0)).collect();
        if text.is_empty() {
            return;
        }
        let mut data = self.content_position();
        data["delta"] = text.into();
        data["logprobs"] = json!([]);
        let offset = number(start + length);
        self.push_in_item(offset, "response.output_text.delta", data);
    }

    /// An entry of the turn is stored.
    fn on_entry(&mut self, entry: &Entry) {
        if let Some(message) = message_of(&entry.kind, Role::Assistant) {
            self.on_answer(message);
        }
        if let Some(message) = message_of(&entry.kind, Role::Tool) {
            for part in &message.parts {
                self.on_tool_result(part);
            }
        }
    }

    fn on_answer(&mut self, message: &Message) {
        for part in &message.parts {
            if let Part::ToolCall {
                call_id,
                tool,
                args,
            } = part
            {
                let call = (tool.clone(), args.clone());
                self.calls.insert(call_id.clone(), call);
            }
        }
        let text = answer_text(message);
        if self.open.is_none() && !text.is_empty() {
            self.open_message();
        }
        if let Some(open) = self.open.take() {
            if let Some(rest) = text.strip_prefix(&open.text) {
                self.push_delta(open.text.chars().count(), rest);
            }
            let part = text_part(&text);
            let mut done = self.content_position();
            done["text"] = text.clone().into();
            done["logprobs"] = json!([]);
            self.push_in_item(ITEM_NUMBERS - 4, "response.output_text.done", done);
            let mut done = self.content_position();
            done["part"] = part;
            self.push_in_item(ITEM_NUMBERS - 3, "response.content_part.done", done);
            let status = match (message.incomplete, &message.aborted) {
                (None, None) => "completed",
                _ => "incomplete",
            };
            let item = message_item(&self.message_id(), status, Some(&text));
            self.finish_item(item);
        }
        self.last_message = Some(message.clone());
    }

    fn on_tool_result(&mut self, part: &Part) {
        let Part::ToolResult {
            call_id,
            tool,
            status,
            text,
            ..
        } = part
        else {
            return;
        };
        let (tool, args) = self
            .calls
            .remove(call_id)
            .unwrap_or_else(|| (tool.clone(), Value::Null));
        let id = format!("mcp_{call_id}");
        let output = ToolOutput {
            status: *status,
            text,
        };
        let item = tool_item(&id, &tool, &args, &output);
        let mut added = item.clone();
        added["output"] = Value::Null;
        added["status"] = "in_progress".into();
        let index = self.items.len();
        let position = json!({ "output_index": index, "item_id": id });
        let added = json!({ "output_index": index, "item": added });
        self.push_in_item(1, "response.output_item.added", added);
        self.push_in_item(2, "response.mcp_call.in_progress", position.clone());
        let mut done = position.clone();
        done["arguments"] = args.to_string().into();
        self.push_in_item(3, "response.mcp_call_arguments.done", done);
        let name = match item["error"] {
            Value::Null => "response.mcp_call.completed",
            _ => "response.mcp_call.failed",
        };
        self.push_in_item(4, name, position);
        self.finish_item(item);
    }

    fn finish_item(&mut self, item: Value) {
        let done = json!({ "output_index": self.items.len(), "item": item });
        self.push_in_item(ITEM_NUMBERS - 2, "response.output_item.done", done);
        self.items.push(item);
    }

    fn end(&mut self, progress: Progress) {
        self.progress = progress;
        self.is_over = true;
        let name = self.progress.last_event();
        let response = self.response();
        self.push_in_item(0, name, json!({ "response": response }));
    }

    /// First number of the item that comes next.
    fn first_number(&self) -> u64 {
        let index = u64::try_from(self.items.len()).unwrap_or(u64::MAX);
        index.saturating_add(1).saturating_mul(ITEM_NUMBERS)
    }

    fn push_in_item(&mut self, offset: u64, name: &'static str, data: Value) {
        self.push(self.first_number() + offset, name, data);
    }

    fn push(&mut self, number: u64, name: &'static str, mut data: Value) {
        if self.starting_after.is_some_and(|last| number <= last) {
            return;
        }
        data["type"] = name.into();
        data["sequence_number"] = number.into();
        self.queue.push_back(ResponseEvent { name, data });
    }

    /// Where the text of the message is in the output.
    fn content_position(&self) -> Value {
        json!({
            "item_id": self.message_id(),
            "output_index": self.items.len(),
            "content_index": 0,
        })
    }

    fn message_id(&self) -> String {
        format!("msg_{}_{}", self.prompt.id, self.items.len())
    }
}
