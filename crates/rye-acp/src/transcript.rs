//! What the editor has been shown of a thread, and the updates that show the rest.
//!
//! The text of a message arrives twice: as deltas while the model writes, and as a whole once it is
//! stored. Only what the deltas did not show is sent then.

use std::collections::HashMap;
use std::path::PathBuf;

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, Diff, ImageContent, MessageId, Meta, Plan, PlanEntryStatus,
    ResourceLink, SessionUpdate, Terminal, TextContent, ToolCall, ToolCallContent, ToolCallId,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use rye_engine::protocol::{CallId, Entry, EntryId, EntryKind, Message, Part, ResultStatus, Role};
use serde_json::{Value, json};

use crate::tool_call::{self, Request, fenced, is_command, text_content};

/// Maximum length of the output that is sent while a command runs, in bytes. The result has more.
const MAX_LIVE_OUTPUT: usize = 16 * 1024;

/// The transcript of a thread in the editor.
pub(crate) struct Transcript {
    workspace: PathBuf,
    /// Whether the editor shows the output of commands that it did not start in a terminal.
    has_terminals: bool,
    message: Streamed,
    thought: Streamed,
    calls: HashMap<CallId, ShownCall>,
    plan: Option<Plan>,
}

/// The part of a message that was sent.
#[derive(Default)]
struct Streamed {
    id: Option<MessageId>,
    text: String,
}

impl Streamed {
    /// Sends more of the text.
    fn append(&mut self, text: &str) -> ContentChunk {
        self.text.push_str(text);
        let id = self.id.get_or_insert_with(new_message_id);
        chunk(text).message_id(id.clone())
    }

    /// Sends what is missing of the whole text, and starts a new message.
    fn complete(&mut self, text: &str) -> Option<ContentChunk> {
        let sent = std::mem::take(self);
        match text.strip_prefix(&*sent.text) {
            Some("") => None,
            Some(rest) => {
                let id = sent.id.unwrap_or_else(new_message_id);
                Some(chunk(rest).message_id(id))
            }
            // Deltas were lost, or the model started again.
            None => Some(chunk(text).message_id(new_message_id())),
        }
    }
}

/// A tool call that the editor shows.
struct ShownCall {
    tool: String,
    args: Value,
    /// The end of the output so far.
    output: String,
    /// Whether the output has grown since it was sent.
    has_new_output: bool,
    /// Whether a terminal shows the output.
    has_terminal: bool,
    /// What the call has changed in files.
    diffs: Vec<Diff>,
}

impl Transcript {
    pub(crate) fn new(workspace: PathBuf, has_terminals: bool) -> Self {
        Self {
            workspace,
            has_terminals,
            message: Streamed::default(),
            thought: Streamed::default(),
            calls: HashMap::new(),
            plan: None,
        }
    }

    /// The last plan, for people.
    pub(crate) fn plan_text(&self) -> String {
        let Some(plan) = &self.plan else {
            return "There is no plan.".to_owned();
        };
        let entries = plan.entries.iter().map(|entry| {
            let mark = match entry.status {
                PlanEntryStatus::Completed => "[x]",
                PlanEntryStatus::InProgress => "[ ] (now)",
                _ => "[ ]",
            };
            format!("- {mark} {}\n", entry.content)
        });
        entries.collect()
    }

    pub(crate) fn workspace(&self) -> &PathBuf {
        &self.workspace
    }

    /// The model starts a message.
    pub(crate) fn on_message_start(&mut self) {
        self.message = Streamed::default();
    }

    /// The model writes a part of its answer.
    pub(crate) fn on_text(&mut self, text: &str) -> SessionUpdate {
        SessionUpdate::AgentMessageChunk(self.message.append(text))
    }

    /// The model writes a part of its reasoning.
    pub(crate) fn on_thinking(&mut self, text: &str) -> SessionUpdate {
        SessionUpdate::AgentThoughtChunk(self.thought.append(text))
    }

    /// The model writes a tool call. Its arguments are not complete.
    pub(crate) fn on_call_delta(&mut self, id: &CallId, tool: &str) -> Option<SessionUpdate> {
        if self.calls.contains_key(id) || !tool_call::is_shown(tool) {
            return None;
        }
        self.calls.insert(id.clone(), ShownCall::new(tool));
        let call = ToolCall::new(call_id(id), tool)
            .name(tool)
            .kind(tool_call::kind(tool));
        Some(SessionUpdate::ToolCall(call))
    }

    /// The model call failed and is repeated: what it wrote is void.
    pub(crate) fn on_retry(&mut self) -> Vec<SessionUpdate> {
        self.message = Streamed::default();
        self.thought = Streamed::default();
        let is_draft = |call: &ShownCall| call.args.is_null();
        let drafts = self.calls.extract_if(|_, call| is_draft(call));
        let failed = drafts.map(|(id, _)| {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call_id(&id), fields))
        });
        failed.collect()
    }

    /// A tool call has started.
    pub(crate) fn on_call_start(&self, id: &CallId) -> Option<SessionUpdate> {
        self.calls.get(id)?;
        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        let update = ToolCallUpdate::new(call_id(id), fields);
        Some(SessionUpdate::ToolCallUpdate(update))
    }

    /// A running tool has printed something. A terminal shows it at once; otherwise it is sent with
    /// [`take_output`](Self::take_output).
    pub(crate) fn on_output(&mut self, id: &CallId, text: &str) -> Option<SessionUpdate> {
        let call = self.calls.get_mut(id)?;
        call.output.push_str(text);
        let excess = call.output.len().saturating_sub(MAX_LIVE_OUTPUT);
        if excess > 0 {
            let start = call.output.ceil_char_boundary(excess);
            call.output.drain(..start);
        }
        if call.has_terminal {
            return Some(terminal_output(id, text));
        }
        call.has_new_output = true;
        None
    }

    /// Whether there is output to send.
    pub(crate) fn has_output(&self) -> bool {
        self.calls.values().any(|call| call.has_new_output)
    }

    /// The new output of running tools.
    pub(crate) fn take_output(&mut self) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        for (id, call) in &mut self.calls {
            if std::mem::take(&mut call.has_new_output) {
                let text = text_content(&fenced(&call.output, "console"));
                let fields = ToolCallUpdateFields::new().content(vec![text]);
                let update = ToolCallUpdate::new(call_id(id), fields);
                updates.push(SessionUpdate::ToolCallUpdate(update));
            }
        }
        updates
    }

    /// A tool call has changed files, or is about to.
    pub(crate) fn on_diffs(&mut self, id: &CallId, diffs: Vec<Diff>) -> Option<SessionUpdate> {
        let call = self.calls.get_mut(id)?;
        for diff in diffs {
            call.diffs.retain(|known| known.path != diff.path);
            call.diffs.push(diff);
        }
        let locations = call.diffs.iter();
        let locations = locations.map(|diff| ToolCallLocation::new(&*diff.path));
        let mut fields = ToolCallUpdateFields::new().locations(locations.collect::<Vec<_>>());
        if !call.has_terminal {
            fields = fields.content(call.diff_content());
        }
        let update = ToolCallUpdate::new(call_id(id), fields);
        Some(SessionUpdate::ToolCallUpdate(update))
    }

    /// A call that the editor shows, with its arguments.
    pub(crate) fn request(&self, id: &CallId) -> Option<Request<'_>> {
        let call = self.calls.get(id)?;
        Some(Request {
            tool: &call.tool,
            args: &call.args,
            workspace: &self.workspace,
        })
    }

    /// A new entry. `is_prompt_known` tells whether the editor has sent the prompt itself.
    pub(crate) fn on_entry(&mut self, entry: &Entry, is_prompt_known: bool) -> Vec<SessionUpdate> {
        let EntryKind::Message(message) = &entry.kind else {
            return Vec::new();
        };
        match message.role {
            Role::User if is_prompt_known || message.synthetic.is_some() => Vec::new(),
            Role::User => user_chunks(&entry.id, message),
            Role::Assistant => self.on_answer(message),
            Role::Tool => self.on_results(message),
            Role::System => Vec::new(),
        }
    }

    fn on_answer(&mut self, message: &Message) -> Vec<SessionUpdate> {
        let (mut text, mut thinking) = (String::new(), String::new());
        for part in &message.parts {
            match part {
                Part::Text { text: more } => text.push_str(more),
                Part::Thinking { text: more, .. } => thinking.push_str(more),
                _ => {}
            }
        }
        let thought = self.thought.complete(&thinking);
        let answer = self.message.complete(&text);
        let mut updates: Vec<_> = thought
            .map(SessionUpdate::AgentThoughtChunk)
            .into_iter()
            .chain(answer.map(SessionUpdate::AgentMessageChunk))
            .collect();
        for part in &message.parts {
            if let Part::ToolCall {
                call_id,
                tool,
                args,
            } = part
            {
                updates.push(self.on_call(call_id, tool, args));
            }
        }
        updates
    }

    /// The model has requested a call.
    fn on_call(&mut self, id: &CallId, tool: &str, args: &Value) -> SessionUpdate {
        let request = Request {
            tool,
            args,
            workspace: &self.workspace,
        };
        if let Some(plan) = request.plan() {
            self.plan = Some(plan.clone());
            return SessionUpdate::Plan(plan);
        }
        let mut content = request.preview();
        let mut meta = None;
        let has_terminal = self.has_terminals && is_command(tool);
        if has_terminal {
            let terminal = Terminal::new(id.as_str().to_owned());
            content.push(ToolCallContent::Terminal(terminal));
            let info = json!({ "terminal_id": id, "cwd": self.workspace });
            meta = Some(terminal_meta("terminal_info", info));
        }
        let call = ToolCall::new(call_id(id), request.title())
            .name(tool)
            .kind(request.kind())
            .locations(request.locations())
            .raw_input(args.clone())
            .content(content)
            .meta(meta);
        let shown = ShownCall {
            args: args.clone(),
            has_terminal,
            ..ShownCall::new(tool)
        };
        match self.calls.insert(id.clone(), shown) {
            // The editor shows it since its first delta.
            Some(_) => {
                let meta = call.meta.clone();
                SessionUpdate::ToolCallUpdate(ToolCallUpdate::from(call).meta(meta))
            }
            None => SessionUpdate::ToolCall(call),
        }
    }

    fn on_results(&mut self, message: &Message) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        let mut parts = message.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let Part::ToolResult {
                call_id,
                tool,
                status,
                text,
                data,
                ..
            } = part
            else {
                continue;
            };
            let mut images = Vec::new();
            while let Some(part) = parts.next_if(|part| matches!(part, Part::Attachment { .. })) {
                images.extend(attachment(part));
            }
            updates.extend(self.on_result(call_id, tool, *status, text, data, images));
        }
        updates
    }

    fn on_result(
        &mut self,
        id: &CallId,
        tool: &str,
        status: ResultStatus,
        text: &str,
        data: &Value,
        images: Vec<ContentBlock>,
    ) -> Vec<SessionUpdate> {
        let Some(call) = self.calls.get_mut(id).filter(|_| tool_call::is_shown(tool)) else {
            return Vec::new();
        };
        let mut updates = Vec::new();
        let (is_success, mut meta) = (status == ResultStatus::Success, None);
        let mut fields = ToolCallUpdateFields::new().status(if is_success {
            ToolCallStatus::Completed
        } else {
            ToolCallStatus::Failed
        });
        call.has_new_output = false;
        if call.has_terminal {
            if call.output.is_empty() {
                updates.push(terminal_output(id, text));
            }
            let code = data.get("exit_code").cloned().unwrap_or_default();
            let exit = json!({ "terminal_id": id, "exit_code": code, "signal": null });
            meta = Some(terminal_meta("terminal_exit", exit));
        } else {
            let mut content = call.diff_content();
            if content.is_empty() || !is_success || !is_edit(tool) {
                content.push(tool_call::result(tool, text));
            }
            content.extend(images.into_iter().map(ToolCallContent::from));
            fields = fields.content(content);
        }
        if !data.is_null() {
            fields = fields.raw_output(data.clone());
        }
        let update = ToolCallUpdate::new(call_id(id), fields).meta(meta);
        updates.push(SessionUpdate::ToolCallUpdate(update));
        // The output is not needed any more; that the call is shown is.
        call.output = String::new();
        updates
    }
}

impl ShownCall {
    fn new(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            args: Value::Null,
            output: String::new(),
            has_new_output: false,
            has_terminal: false,
            diffs: Vec::new(),
        }
    }

    fn diff_content(&self) -> Vec<ToolCallContent> {
        let diffs = self.diffs.iter().cloned();
        diffs.map(ToolCallContent::Diff).collect()
    }
}

/// Whether the result of a tool says nothing that its diff does not.
fn is_edit(tool: &str) -> bool {
    matches!(tool, "write" | "edit" | "apply_patch")
}

/// A text of the agent that is not part of the history.
pub(crate) fn note(text: &str) -> SessionUpdate {
    let text = format!("{text}\n\n");
    SessionUpdate::AgentMessageChunk(chunk(&text).message_id(new_message_id()))
}

pub(crate) fn call_id(id: &CallId) -> ToolCallId {
    ToolCallId::new(id.as_str())
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

fn new_message_id() -> MessageId {
    MessageId::new(EntryId::new().as_str())
}

/// A prompt that the editor did not send.
fn user_chunks(id: &EntryId, message: &Message) -> Vec<SessionUpdate> {
    let blocks = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(ContentBlock::Text(TextContent::new(text.clone()))),
        part => attachment(part),
    });
    let chunk = |block| ContentChunk::new(block).message_id(MessageId::new(id.as_str()));
    blocks
        .map(|block| SessionUpdate::UserMessageChunk(chunk(block)))
        .collect()
}

/// An image, or the name of another file.
fn attachment(part: &Part) -> Option<ContentBlock> {
    let Part::Attachment {
        name,
        mime_type,
        source,
    } = part
    else {
        return None;
    };
    let data = source.strip_prefix("data:");
    let data = data.and_then(|data| data.split_once(";base64,"));
    Some(match data {
        Some((_, data)) if mime_type.starts_with("image/") => {
            ContentBlock::Image(ImageContent::new(data, mime_type.clone()))
        }
        _ => ContentBlock::ResourceLink(
            ResourceLink::new(name.clone(), source.clone()).mime_type(mime_type.clone()),
        ),
    })
}

/// Output for a terminal that the editor shows.
fn terminal_output(id: &CallId, text: &str) -> SessionUpdate {
    let output = json!({ "terminal_id": id, "data": text });
    let update = ToolCallUpdate::new(call_id(id), ToolCallUpdateFields::new());
    let update = update.meta(terminal_meta("terminal_output", output));
    SessionUpdate::ToolCallUpdate(update)
}

fn terminal_meta(key: &str, value: Value) -> Meta {
    [(key.to_owned(), value)].into_iter().collect()
}
