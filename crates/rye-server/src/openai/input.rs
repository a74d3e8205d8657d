//! What a request says: instructions, earlier messages, and the prompt.

use rye_engine::protocol::Part;
use serde_json::Value;

use super::{invalid, unsupported};
use crate::problem::Problem;

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    System,
    User,
    Assistant,
}

impl Speaker {
    fn label(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::User => "User",
            Self::Assistant => "Assistant",
        }
    }
}

/// A message of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) speaker: Speaker,
    pub(crate) text: String,
    pub(crate) attachments: Vec<Part>,
}

/// The messages of a request, by their purpose.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Instructions for the model.
    pub(crate) system: Option<String>,
    /// Earlier messages.
    pub(crate) history: Vec<Message>,
    /// Text of the new prompt.
    pub(crate) text: String,
    /// Files and images of the new prompt.
    pub(crate) attachments: Vec<Part>,
}

impl Conversation {
    /// Sorts messages: the user's messages at the end are the prompt.
    pub(crate) fn new(messages: Vec<Message>, param: &str) -> Result<Self, Problem> {
        let (system, mut history): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|message| message.speaker == Speaker::System);
        let answered = history
            .iter()
            .rposition(|message| message.speaker == Speaker::Assistant);
        let prompt = history.split_off(answered.map_or(0, |last| last + 1));
        if prompt.is_empty() {
            return Err(invalid(param, "the last message must be one of the user"));
        }
        let join = |messages: &[Message]| {
            let texts: Vec<_> = messages.iter().map(|it| it.text.as_str()).collect();
            texts.join("\n\n")
        };
        Ok(Self {
            system: (!system.is_empty()).then(|| join(&system)),
            text: join(&prompt),
            attachments: prompt.into_iter().flat_map(|it| it.attachments).collect(),
            history,
        })
    }

    /// The prompt for a session that does not have the history.
    pub(crate) fn text_with_history(&self) -> String {
        if self.history.is_empty() {
            return self.text.clone();
        }
        let mut text = "The conversation so far:\n\n".to_owned();
        for message in &self.history {
            text += message.speaker.label();
            text += ": ";
            text += &message.text;
            text += "\n\n";
        }
        text + "The next message of the user:\n\n" + &self.text
    }

    /// All files and images, for a session that does not have the history.
    pub(crate) fn all_attachments(&self) -> Vec<Part> {
        let earlier = self.history.iter().flat_map(|it| &it.attachments);
        earlier.chain(&self.attachments).cloned().collect()
    }
}

/// Parses the messages of `param`, in the form of either endpoint.
pub(crate) fn messages(input: &Value, param: &str) -> Result<Vec<Message>, Problem> {
    match input {
        Value::String(text) => Ok(vec![Message {
            speaker: Speaker::User,
            text: text.clone(),
            attachments: Vec::new(),
        }]),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| message(item, &format!("{param}[{index}]")))
            .collect(),
        _ => Err(invalid(param, "expected a text or a list of messages")),
    }
}

fn message(item: &Value, param: &str) -> Result<Message, Problem> {
    if let Some(kind) = item["type"].as_str().filter(|kind| *kind != "message") {
        let detail = format!("items of the type `{kind}` are not supported; tools run in Rye");
        return Err(unsupported(param, &detail));
    }
    let speaker = match item["role"].as_str() {
        Some("system" | "developer") => Speaker::System,
        Some("user") => Speaker::User,
        Some("assistant") => Speaker::Assistant,
        Some("tool" | "function") => {
            return Err(unsupported(
                param,
                "results of tools are not supported; tools run in Rye",
            ));
        }
        _ => {
            return Err(invalid(
                param,
                "the role must be system, developer, user or assistant",
            ));
        }
    };
    let mut message = Message {
        speaker,
        text: String::new(),
        attachments: Vec::new(),
    };
    match &item["content"] {
        Value::String(text) => message.text.clone_from(text),
        Value::Array(parts) => {
            for (index, part) in parts.iter().enumerate() {
                add_part(&mut message, part, &format!("{param}.content[{index}]"))?;
            }
        }
        // An answer that has tool calls only.
        Value::Null if speaker == Speaker::Assistant => {}
        _ => {
            return Err(invalid(
                param,
                "the content must be a text or a list of parts",
            ));
        }
    }
    Ok(message)
}

fn add_part(message: &mut Message, part: &Value, param: &str) -> Result<(), Problem> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (name, source) = match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => {
            let text = text(&part["text"]).ok_or_else(|| invalid(param, "`text` is missing"))?;
            if !message.text.is_empty() {
                message.text.push('\n');
            }
            message.text += &text;
            return Ok(());
        }
        Some("refusal") => {
            message.text += &text(&part["refusal"]).unwrap_or_default();
            return Ok(());
        }
        Some("input_image") => ("image".to_owned(), text(&part["image_url"])),
        Some("image_url") => ("image".to_owned(), text(&part["image_url"]["url"])),
        Some(kind @ ("input_file" | "file")) => {
            let file = if kind == "file" { &part["file"] } else { part };
            let name = text(&file["filename"]).unwrap_or_else(|| "file".to_owned());
            (name, text(&file["file_data"]))
        }
        kind => {
            let kind = kind.unwrap_or("(none)");
            return Err(unsupported(
                param,
                &format!("parts of the type `{kind}` are not supported"),
            ));
        }
    };
    let detail = "send the content as a `data:` URL in base64";
    let source = source.ok_or_else(|| unsupported(param, detail))?;
    let mime_type = source
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .map(|(mime_type, _)| mime_type.to_owned());
    let mime_type = mime_type.ok_or_else(|| unsupported(param, detail))?;
    message.attachments.push(Part::Attachment {
        name,
        mime_type,
        source,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_after_the_last_answer_are_the_prompt() {
        let input = json!([
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "1"}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "two"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            ]},
            {"role": "user", "content": "three"},
        ]);
        let conversation = Conversation::new(messages(&input, "input").unwrap(), "input").unwrap();
        assert_eq!(conversation.system.as_deref(), Some("Be short."));
        assert_eq!(conversation.text, "two\n\nthree");
        assert_eq!(conversation.attachments.len(), 1);
        assert_eq!(
            conversation.text_with_history(),
            "The conversation so far:\n\nUser: one\n\nAssistant: 1\n\n\
             The next message of the user:\n\ntwo\n\nthree"
        );
    }

    #[test]
    fn other_input_is_refused() {
        for input in [
            json!(5),
            json!([]),
            json!([{"role": "assistant", "content": "x"}]),
            json!([{"role": "robot", "content": "x"}]),
            json!([{"role": "user"}]),
            json!([{"role": "tool", "content": "x"}]),
            json!([{"type": "function_call_output", "output": "x"}]),
            json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
            json!([{"role": "user", "content": [{"type": "input_text"}]}]),
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}]),
        ] {
            let conversation =
                messages(&input, "input").and_then(|it| Conversation::new(it, "input"));
            assert!(conversation.is_err(), "{input}");
        }
    }
}
