//! A history as any provider takes it: user and assistant in turn, the user first and
//! last, and every call answered in the very next turn.
//!
//! What providers differ in comes after; here is what they have in common, so that one
//! transcript can be read by all of them, whoever wrote it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use rye_protocol::{CallId, Message, Part, ResultStatus, Role};
use serde_json::Value;

/// The longest id of a call that all providers take.
const LONGEST_ID: usize = 40;
/// The longest name of a tool that all providers take.
const LONGEST_NAME: usize = 64;

/// Who reads the history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'r> {
    /// As `provider/model`: what another one thought and sealed is nothing to it.
    pub(crate) model: &'r str,
    /// Whether it sees images.
    pub(crate) images: bool,
}

/// One side's turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn<'a> {
    User {
        /// One for each call of the turn before, in the same order.
        results: Vec<Outcome<'a>>,
        said: Vec<Block<'a>>,
    },
    /// Not empty, and thoughts are followed by what they led to.
    Assistant(Vec<Spoken<'a>>),
}

/// Something that is shown to a model.
#[derive(Debug, PartialEq)]
pub(crate) enum Block<'a> {
    /// Not blank.
    Text(Cow<'a, str>),
    Image(Image<'a>),
}

/// An image, in base64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Image<'a> {
    pub(crate) mime_type: &'a str,
    pub(crate) data: &'a str,
}

/// Something that a model said.
#[derive(Debug, PartialEq)]
pub(crate) enum Spoken<'a> {
    /// Not blank.
    Text(Cow<'a, str>),
    /// The reader's own.
    Thought {
        text: &'a str,
        signature: Option<&'a str>,
    },
    Call {
        id: Cow<'a, str>,
        tool: Cow<'a, str>,
        /// An object.
        args: Cow<'a, Value>,
    },
}

/// What came of a call.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) tool: Cow<'a, str>,
    pub(crate) text: Cow<'a, str>,
    pub(crate) failed: bool,
    pub(crate) images: Vec<Image<'a>>,
}

/// Puts a history into turns.
pub(crate) fn turns<'a>(messages: &'a [Arc<Message>], reader: Reader<'_>) -> Vec<Turn<'a>> {
    let mut turns = Turns::default();
    let mut rest = messages.iter().peekable();
    while let Some(message) = rest.next() {
        match message.role {
            // Its call is not there, or it would have been taken with it.
            Role::Tool => {}
            Role::User | Role::System => turns.user(shown(&message.parts, reader).collect()),
            Role::Assistant => {
                let asked = turns.assistant(message, reader);
                let mut outcomes: Vec<Option<Outcome<'a>>> = asked.iter().map(|_| None).collect();
                while let Some(answer) = rest.next_if(|next| next.role == Role::Tool) {
                    answers(answer, &asked, &mut outcomes, reader);
                }
                turns.results(asked, outcomes);
            }
        }
    }
    turns.finish()
}

/// A call whose result comes next.
struct Asked<'a> {
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
            Some(Turn::User { said, .. }) => said.append(&mut blocks),
            _ => self.all.push(Turn::User {
                results: Vec::new(),
                said: blocks,
            }),
        }
    }

    /// What the assistant says; gives the calls among it.
    fn assistant(&mut self, message: &'a Message, reader: Reader<'_>) -> Vec<Asked<'a>> {
        let own = message.model.as_deref() == Some(reader.model);
        let (mut spoken, mut asked) = (Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } if !is_blank(text) => {
                    spoken.push(Spoken::Text(text.into()));
                }
                Part::Thinking { text, signature } if own => spoken.push(Spoken::Thought {
                    text,
                    signature: signature.as_deref(),
                }),
                Part::Thinking { text, .. } if !is_blank(text) => {
                    let text = format!("<thinking>\n{}\n</thinking>", text.trim());
                    spoken.push(Spoken::Text(text.into()));
                }
                Part::ToolCall {
                    call_id,
                    tool,
                    args,
                } => {
                    let (id, tool) = (self.id(call_id), name(tool));
                    spoken.push(Spoken::Call {
                        id: id.clone(),
                        tool: tool.clone(),
                        args: object(args),
                    });
                    let call = call_id;
                    asked.push(Asked { call, id, tool });
                }
                _ => {}
            }
        }
        // A thought leads to something; one that does not is taken back by nobody.
        let is_thought = |it: &Spoken<'_>| matches!(it, Spoken::Thought { .. });
        while spoken.pop_if(|last| is_thought(last)).is_some() {}
        if spoken.is_empty() {
            return asked;
        }
        match self.all.last() {
            None => self.user(vec![Block::Text("(what came before is left out)".into())]),
            Some(Turn::Assistant(_)) => self.user(vec![Block::Text("Go on.".into())]),
            Some(Turn::User { .. }) => {}
        }
        self.all.push(Turn::Assistant(spoken));
        asked
    }

    fn results(&mut self, asked: Vec<Asked<'a>>, outcomes: Vec<Option<Outcome<'a>>>) {
        if asked.is_empty() {
            return;
        }
        let results = asked.into_iter().zip(outcomes).map(|(asked, outcome)| {
            outcome.unwrap_or_else(|| Outcome {
                id: asked.id,
                tool: asked.tool,
                text: "there is no result".into(),
                failed: true,
                images: Vec::new(),
            })
        });
        self.all.push(Turn::User {
            results: results.collect(),
            said: Vec::new(),
        });
    }

    /// An id that all providers take and that no other call of the history has.
    fn id(&mut self, call: &'a CallId) -> Cow<'a, str> {
        let text = call.as_str();
        if text.len() <= LONGEST_ID && text.chars().all(is_plain) && self.ids.insert(text.into()) {
            return text.into();
        }
        let plain: Vec<char> = call.as_str().chars().map(plain).collect();
        let tail = |length: usize| plain[plain.len().saturating_sub(length)..].iter();
        let mut id: String = tail(LONGEST_ID).collect();
        let mut number = 1;
        while !self.ids.insert(id.clone().into()) {
            number += 1;
            let suffix = format!("-{number}");
            id = tail(LONGEST_ID - suffix.len()).collect();
            id.push_str(&suffix);
        }
        id.into()
    }

    fn finish(mut self) -> Vec<Turn<'a>> {
        if !matches!(self.all.last(), Some(Turn::User { .. })) {
            self.user(vec![Block::Text("Go on.".into())]);
        }
        self.all
    }
}

/// Puts the results of a message where their calls are. The first one counts.
fn answers<'a>(
    message: &'a Message,
    asked: &[Asked<'a>],
    outcomes: &mut [Option<Outcome<'a>>],
    reader: Reader<'_>,
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
                let is_it = |(at, asked): &(usize, &Asked<'_>)| {
                    asked.call == call_id && outcomes[*at].is_none()
                };
                last = asked.iter().enumerate().find(is_it).map(|(at, _)| at);
                let Some(at) = last else { continue };
                outcomes[at] = Some(Outcome {
                    id: asked[at].id.clone(),
                    tool: asked[at].tool.clone(),
                    text: match text.as_str() {
                        blank if is_blank(blank) && *elided => "(left out to save room)".into(),
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
                for block in shown(std::slice::from_ref(part), reader) {
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

/// What a model is shown of a message's parts.
fn shown<'a>(parts: &'a [Part], reader: Reader<'_>) -> impl Iterator<Item = Block<'a>> {
    parts.iter().filter_map(move |part| match part {
        Part::Text { text } if !is_blank(text) => Some(Block::Text(text.into())),
        Part::Attachment {
            name,
            mime_type,
            source,
        } => Some(attachment(name, mime_type, source, reader)),
        _ => None,
    })
}

fn attachment<'a>(
    name: &str,
    mime_type: &'a str,
    source: &'a str,
    reader: Reader<'_>,
) -> Block<'a> {
    let inline = source
        .strip_prefix("data:")
        .and_then(|it| it.split_once(','));
    let told = |why: &str| Block::Text(format!("[{name} ({mime_type}): {why}]").into());
    match inline {
        Some((about, data)) if about.ends_with(";base64") && mime_type.starts_with("image/") => {
            if reader.images {
                Block::Image(Image { mime_type, data })
            } else {
                told("an image, which this model cannot see")
            }
        }
        Some((about, text)) if mime_type.starts_with("text/") && !about.ends_with(";base64") => {
            Block::Text(format!("[{name}]\n{text}").into())
        }
        _ => told("a file; a tool can read it"),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

fn plain(character: char) -> char {
    if is_plain(character) { character } else { '_' }
}

/// A name that all providers take: a model may have called what does not exist.
fn name(tool: &str) -> Cow<'_, str> {
    let fits = (1..=LONGEST_NAME).contains(&tool.len()) && tool.chars().all(is_plain);
    if fits {
        return tool.into();
    }
    let plain: String = tool.chars().map(plain).take(LONGEST_NAME).collect();
    if plain.is_empty() {
        "unknown".into()
    } else {
        plain.into()
    }
}

/// Arguments are an object, also those that were no JSON when they came.
fn object(args: &Value) -> Cow<'_, Value> {
    match args {
        Value::Object(_) => Cow::Borrowed(args),
        Value::Null => Cow::Owned(Value::Object(serde_json::Map::new())),
        other => Cow::Owned(serde_json::json!({ "not_an_object": other })),
    }
}
