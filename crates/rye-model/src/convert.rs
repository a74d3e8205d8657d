//! Normalises a history for all providers: alternating user and assistant turns,
//! starting and ending with the user, with every tool call answered in the next turn.
//!
//! Provider-specific conversion follows; this module covers what they have in common,
//! so that every model can continue a history that another one wrote.

use std::borrow::Cow;
use std::collections::HashSet;

use rye_engine::model::ModelRequest;
use rye_protocol::{CallId, Message, Part, ResultStatus, Role};
use serde_json::Value;

use crate::api::Target;

/// Maximum length of a call id that all providers accept.
const MAX_ID_LEN: usize = 40;
/// Maximum length of a tool name that all providers accept.
const MAX_NAME_LEN: usize = 64;

/// One turn of the normalised history.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn<'a> {
    User {
        /// One result per call of the previous turn, in the same order.
        results: Vec<CallResult<'a>>,
        content: Vec<Block<'a>>,
    },
    /// Not empty; thinking blocks are never last.
    Assistant(Vec<AssistantBlock<'a>>),
}

/// Content of a user turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Block<'a> {
    /// Text that is not blank.
    Text(Cow<'a, str>),
    Image(Image<'a>),
}

/// An image, in base64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Image<'a> {
    pub(crate) mime_type: &'a str,
    pub(crate) data: &'a str,
}

/// Content of an assistant turn.
#[derive(Debug, PartialEq)]
pub(crate) enum AssistantBlock<'a> {
    /// Text that is not blank.
    Text(Cow<'a, str>),
    /// Reasoning of the receiving model itself.
    Thought {
        text: &'a str,
        signature: Option<&'a str>,
    },
    Call {
        id: Cow<'a, str>,
        tool: Cow<'a, str>,
        /// Always an object.
        args: Cow<'a, Value>,
    },
}

/// The result of a tool call.
#[derive(Debug, PartialEq)]
pub(crate) struct CallResult<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) text: Cow<'a, str>,
    pub(crate) failed: bool,
    pub(crate) images: Vec<Image<'a>>,
}

impl Image<'_> {
    /// The image as a `data:` URL.
    pub(crate) fn data_url(self) -> String {
        format!("data:{};base64,{}", self.mime_type, self.data)
    }
}

/// Converts the history of a request to turns.
pub(crate) fn turns<'a>(request: &'a ModelRequest, recipient: &Target) -> Vec<Turn<'a>> {
    let mut turns = Turns::default();
    let mut rest = request.messages.iter().peekable();
    while let Some(message) = rest.next() {
        match message.role {
            // Results of a known call are consumed together with the call.
            Role::Tool => {}
            Role::User | Role::System => {
                turns.user(user_blocks(&message.parts, recipient).collect());
            }
            Role::Assistant => {
                let pending = turns.assistant(message, recipient);
                let mut outcomes: Vec<Option<CallResult<'a>>> =
                    pending.iter().map(|_| None).collect();
                while let Some(answer) = rest.next_if(|next| next.role == Role::Tool) {
                    assign_results(answer, &pending, &mut outcomes, recipient);
                }
                turns.results(pending, outcomes);
            }
        }
    }
    turns.finish()
}

/// A call that still needs its result.
struct PendingCall<'a> {
    call: &'a CallId,
    id: Cow<'a, str>,
    tool: Cow<'a, str>,
}

#[derive(Default)]
struct Turns<'a> {
    all: Vec<Turn<'a>>,
    ids: HashSet<Cow<'a, str>>,
}

impl<'a> Turns<'a> {
    fn user(&mut self, mut blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            return;
        }
        match self.all.last_mut() {
            Some(Turn::User { content, .. }) => content.append(&mut blocks),
            _ => self.all.push(Turn::User {
                results: Vec::new(),
                content: blocks,
            }),
        }
    }

    /// Adds an assistant message and returns its calls.
    fn assistant(&mut self, message: &'a Message, recipient: &Target) -> Vec<PendingCall<'a>> {
        let is_own = message.model.as_deref() == Some(&*recipient.name);
        let (mut blocks, mut pending) = (Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } if !is_blank(text) => {
                    blocks.push(AssistantBlock::Text(text.into()));
                }
                Part::Thinking { text, signature } if is_own => {
                    blocks.push(AssistantBlock::Thought {
                        text,
                        signature: signature.as_deref(),
                    });
                }
                Part::Thinking { text, .. } if !is_blank(text) => {
                    let text = format!("<thinking>\n{}\n</thinking>", text.trim());
                    blocks.push(AssistantBlock::Text(text.into()));
                }
                Part::ToolCall {
                    call_id,
                    tool,
                    args,
                } => {
                    let (id, tool) = (self.id(call_id), tool_name(tool));
                    blocks.push(AssistantBlock::Call {
                        id: id.clone(),
                        tool: tool.clone(),
                        args: to_object(args),
                    });
                    let call = call_id;
                    pending.push(PendingCall { call, id, tool });
                }
                _ => {}
            }
        }
        // Providers reject reasoning that is not followed by content.
        let is_thought = |it: &AssistantBlock<'_>| matches!(it, AssistantBlock::Thought { .. });
        while blocks.pop_if(|last| is_thought(last)).is_some() {}
        if blocks.is_empty() {
            return pending;
        }
        match self.all.last() {
            None => self.user(vec![Block::Text("(earlier messages omitted)".into())]),
            Some(Turn::Assistant(_)) => self.user(vec![Block::Text("Continue.".into())]),
            Some(Turn::User { .. }) => {}
        }
        self.all.push(Turn::Assistant(blocks));
        pending
    }

    fn results(&mut self, pending: Vec<PendingCall<'a>>, outcomes: Vec<Option<CallResult<'a>>>) {
        if pending.is_empty() {
            return;
        }
        let results = pending.into_iter().zip(outcomes).map(|(pending, outcome)| {
            outcome.unwrap_or_else(|| CallResult {
                id: pending.id,
                tool: pending.tool,
                text: "no result available".into(),
                failed: true,
                images: Vec::new(),
            })
        });
        self.all.push(Turn::User {
            results: results.collect(),
            content: Vec::new(),
        });
    }

    /// A call id that all providers accept and that is unique in the history.
    fn id(&mut self, call: &'a CallId) -> Cow<'a, str> {
        let text = call.as_str();
        if text.len() <= MAX_ID_LEN && text.chars().all(is_plain) && self.ids.insert(text.into()) {
            return text.into();
        }
        let plain: Vec<char> = call.as_str().chars().map(sanitize_char).collect();
        let tail = |length: usize| plain[plain.len().saturating_sub(length)..].iter();
        let mut id: String = tail(MAX_ID_LEN).collect();
        let mut number = 1;
        while !self.ids.insert(id.clone().into()) {
            number += 1;
            let suffix = format!("-{number}");
            id = tail(MAX_ID_LEN - suffix.len()).collect();
            id.push_str(&suffix);
        }
        id.into()
    }

    fn finish(mut self) -> Vec<Turn<'a>> {
        if !matches!(self.all.last(), Some(Turn::User { .. })) {
            self.user(vec![Block::Text("Continue.".into())]);
        }
        self.all
    }
}

/// Assigns the results of a message to their calls. The first result of a call wins.
fn assign_results<'a>(
    message: &'a Message,
    pending: &[PendingCall<'a>],
    outcomes: &mut [Option<CallResult<'a>>],
    recipient: &Target,
) {
    let mut last = None;
    for part in &message.parts {
        match part {
            Part::ToolResult {
                call_id,
                status,
                text,
                elided,
                ..
            } => {
                let matches = |(at, pending): &(usize, &PendingCall<'_>)| {
                    pending.call == call_id && outcomes[*at].is_none()
                };
                last = pending.iter().enumerate().find(matches).map(|(at, _)| at);
                let Some(at) = last else { continue };
                outcomes[at] = Some(CallResult {
                    id: pending[at].id.clone(),
                    tool: pending[at].tool.clone(),
                    text: match text.as_str() {
                        blank if is_blank(blank) && *elided => "(omitted to save space)".into(),
                        blank if is_blank(blank) => "(no output)".into(),
                        text => text.into(),
                    },
                    failed: *status != ResultStatus::Success,
                    images: Vec::new(),
                });
            }
            Part::Attachment { .. } => {
                let outcome = last.and_then(|at: usize| outcomes[at].as_mut());
                let Some(outcome) = outcome else { continue };
                for block in user_blocks(std::slice::from_ref(part), recipient) {
                    match block {
                        Block::Image(image) => outcome.images.push(image),
                        Block::Text(text) => {
                            let both = format!("{}\n{text}", outcome.text);
                            outcome.text = both.into();
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// The parts of a message that a model receives as user content.
fn user_blocks<'a>(parts: &'a [Part], recipient: &Target) -> impl Iterator<Item = Block<'a>> {
    parts.iter().filter_map(move |part| match part {
        Part::Text { text } if !is_blank(text) => Some(Block::Text(text.into())),
        Part::Attachment {
            name,
            mime_type,
            source,
        } => Some(attachment(name, mime_type, source, recipient)),
        _ => None,
    })
}

fn attachment<'a>(
    name: &str,
    mime_type: &'a str,
    source: &'a str,
    recipient: &Target,
) -> Block<'a> {
    let inline = source
        .strip_prefix("data:")
        .and_then(|it| it.split_once(','));
    let placeholder = |why: &str| Block::Text(format!("[{name} ({mime_type}): {why}]").into());
    match inline {
        Some((media_type, data))
            if media_type.ends_with(";base64") && mime_type.starts_with("image/") =>
        {
            if recipient.info.images {
                Block::Image(Image { mime_type, data })
            } else {
                placeholder("image not shown: this model does not accept images")
            }
        }
        Some((media_type, text))
            if mime_type.starts_with("text/") && !media_type.ends_with(";base64") =>
        {
            Block::Text(format!("[{name}]\n{text}").into())
        }
        _ => placeholder("file; use a tool to read it"),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

fn sanitize_char(character: char) -> char {
    if is_plain(character) { character } else { '_' }
}

/// A tool name that all providers accept: a model may have called a tool that does not
/// exist.
fn tool_name(tool: &str) -> Cow<'_, str> {
    let is_valid = (1..=MAX_NAME_LEN).contains(&tool.len()) && tool.chars().all(is_plain);
    if is_valid {
        return tool.into();
    }
    let plain: String = tool.chars().map(sanitize_char).take(MAX_NAME_LEN).collect();
    if plain.is_empty() {
        "unknown".into()
    } else {
        plain.into()
    }
}

/// Converts arguments to an object, including those that were invalid JSON.
fn to_object(args: &Value) -> Cow<'_, Value> {
    match args {
        Value::Object(_) => Cow::Borrowed(args),
        Value::Null => Cow::Owned(Value::Object(serde_json::Map::new())),
        other => Cow::Owned(serde_json::json!({ "not_an_object": other })),
    }
}
