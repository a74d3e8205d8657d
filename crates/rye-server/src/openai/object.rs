//! The objects of a response: the response itself and the items of its output.

use rye_engine::protocol::{
    EntryKind, ErrorInfo, Gate, IncompleteReason, Message, Part, PromptId, ResultStatus, Role,
    Session, TurnEnd, Usage,
};
use serde_json::{Value, json};

use crate::api::ITEM_SEPARATOR;
use crate::problem::Problem;

/// Start of the id of a response.
const PREFIX: &str = "resp_";
/// Start of the id of a conversation.
const CONVERSATION_PREFIX: &str = "conv_";

/// The id of a response: the prompt, and the position in the session's events before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseId {
    pub(crate) after: u64,
    pub(crate) prompt: PromptId,
    pub(crate) session: String,
}

impl ResponseId {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let unknown = || Problem::not_found("response", text);
        let rest = text.strip_prefix(PREFIX).ok_or_else(unknown)?;
        let (after, rest) = rest.split_once('_').ok_or_else(unknown)?;
        // Ids of prompts from these endpoints do not contain the separator.
        let (prompt, session) = rest.split_once(ITEM_SEPARATOR).ok_or_else(unknown)?;
        Ok(Self {
            after: u64::from_str_radix(after, 16).map_err(|_| unknown())?,
            prompt: prompt.parse().map_err(|_| unknown())?,
            session: session.to_owned(),
        })
    }
}

impl std::fmt::Display for ResponseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            after,
            prompt,
            session,
        } = self;
        write!(f, "{PREFIX}{after:x}_{prompt}{ITEM_SEPARATOR}{session}")
    }
}

/// The id of a session as a conversation.
pub(crate) fn conversation_id(session: &Session) -> String {
    format!("{CONVERSATION_PREFIX}{}", session.id)
}

/// The id of the session of a conversation.
pub(crate) fn conversation_session(id: &str) -> Result<&str, Problem> {
    let session = id.strip_prefix(CONVERSATION_PREFIX);
    session.ok_or_else(|| Problem::not_found("conversation", id))
}

/// How far a response is.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    Queued,
    Running,
    /// It waits for a decision.
    Gate(Box<Gate>),
    Ended {
        reason: TurnEnd,
        incomplete: Option<IncompleteReason>,
        error: Option<ErrorInfo>,
    },
}

impl Progress {
    fn status(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "in_progress",
            Self::Gate(_) => "incomplete",
            Self::Ended {
                reason, incomplete, ..
            } => match reason {
                TurnEnd::EndTurn | TurnEnd::Merged if incomplete.is_none() => "completed",
                TurnEnd::EndTurn | TurnEnd::Merged | TurnEnd::Limit => "incomplete",
                TurnEnd::Abort | TurnEnd::Withdrawn => "cancelled",
                TurnEnd::Error => "failed",
            },
        }
    }

    /// Whether someone stopped the work.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.status() == "cancelled"
    }

    /// Name of the event that ends a stream.
    pub(crate) fn last_event(&self) -> &'static str {
        match self.status() {
            "completed" => "response.completed",
            "failed" => "response.failed",
            _ => "response.incomplete",
        }
    }

    /// Why the response is incomplete.
    pub(crate) fn incomplete_details(&self, gate_url: impl Fn(&Gate) -> String) -> Value {
        match self {
            Self::Gate(gate) => json!({
                "reason": "decision_required",
                "gate": {
                    "id": gate.id,
                    "title": gate.title,
                    "url": gate_url(gate),
                },
            }),
            Self::Ended {
                incomplete: Some(IncompleteReason::Refused),
                ..
            } => json!({ "reason": "content_filter" }),
            Self::Ended {
                incomplete: Some(IncompleteReason::OutputLimit),
                ..
            } => json!({ "reason": "max_output_tokens" }),
            Self::Ended {
                reason: TurnEnd::Limit,
                ..
            } => json!({ "reason": "limit" }),
            _ => Value::Null,
        }
    }

    /// What went wrong.
    pub(crate) fn error(&self) -> Value {
        match self {
            Self::Ended {
                reason: TurnEnd::Error,
                error,
                ..
            } => {
                let message = error.as_ref().map_or("the turn failed", |it| &*it.message);
                json!({ "code": "server_error", "message": message })
            }
            _ => Value::Null,
        }
    }
}

/// What does not change while a response is made.
#[derive(Debug, Clone)]
pub(crate) struct ResponseInfo {
    pub(crate) id: ResponseId,
    pub(crate) created_at: u64,
    pub(crate) model: String,
    pub(crate) conversation: String,
    pub(crate) previous: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) is_background: bool,
    pub(crate) format: Value,
    pub(crate) metadata: Value,
}

impl ResponseInfo {
    /// The response object.
    pub(crate) fn json(
        &self,
        progress: &Progress,
        output: &[Value],
        usage: Usage,
        gate_url: impl Fn(&Gate) -> String,
    ) -> Value {
        json!({
            "id": self.id.to_string(),
            "object": "response",
            "created_at": self.created_at,
            "status": progress.status(),
            "background": self.is_background,
            "error": progress.error(),
            "incomplete_details": progress.incomplete_details(gate_url),
            "instructions": self.instructions,
            "max_output_tokens": null,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": self.previous,
            "conversation": { "id": self.conversation },
            "reasoning": { "effort": null, "summary": null },
            "store": true,
            "temperature": null,
            "text": { "format": self.format },
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": usage_json(usage),
            "user": null,
            "metadata": self.metadata,
        })
    }
}

/// The usage of a response; null while there is none.
fn usage_json(usage: Usage) -> Value {
    if usage.turns == 0 {
        return Value::Null;
    }
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

/// A message of the output.
pub(crate) fn message_item(id: &str, status: &str, text: Option<&str>) -> Value {
    let content: Vec<_> = text.map(text_part).into_iter().collect();
    json!({
        "id": id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

/// The text of a message.
pub(crate) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call of a tool that ran in Rye.
pub(crate) fn tool_item(id: &str, tool: &str, args: &Value, result: &ToolOutput<'_>) -> Value {
    let (output, error) = match result.status {
        ResultStatus::Success => (json!(result.text), Value::Null),
        _ => (Value::Null, json!(result.text)),
    };
    json!({
        "id": id,
        "type": "mcp_call",
        "server_label": "rye",
        "name": tool,
        "arguments": args.to_string(),
        "output": output,
        "error": error,
        "status": if error.is_null() { "completed" } else { "failed" },
        "approval_request_id": null,
    })
}

/// The result of a tool call.
pub(crate) struct ToolOutput<'a> {
    pub(crate) status: ResultStatus,
    pub(crate) text: &'a str,
}

/// The text that the model wrote for the caller: the structured result, if there is one.
pub(crate) fn answer_text(message: &Message) -> String {
    match &message.result {
        Some(result) => result.to_string(),
        None => message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect(),
    }
}

/// The message in an entry, if it is one of a role.
pub(crate) fn message_of(kind: &EntryKind, role: Role) -> Option<&Message> {
    match kind {
        EntryKind::Message(message) if message.role == role => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_a_response_names_its_prompt() {
        let id = ResponseId {
            after: 26,
            prompt: "key_1-a".parse().unwrap(),
            session: "my.session".to_owned(),
        };
        assert_eq!(ResponseId::parse(&id.to_string()).unwrap(), id);
        let id = ResponseId {
            session: "a@b".to_owned(),
            ..id
        };
        assert_eq!(ResponseId::parse(&id.to_string()).unwrap(), id);
        for text in ["", "resp_", "resp_zz_a@b", "resp_1_a", "msg_1_a@b"] {
            assert!(ResponseId::parse(text).is_err(), "{text}");
        }
    }
}
