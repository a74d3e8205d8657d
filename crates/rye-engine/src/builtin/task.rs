//! `task`: work given to a session of its own.

use rye_protocol::{ErrorCode, ErrorInfo, PromptId, TurnEnd};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use crate::BoxFuture;
use crate::Prompt;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Gives work to a child session and waits for its answer.
pub struct Task(ToolDef);

#[derive(Deserialize)]
struct Args {
    prompt: String,
    model: Option<String>,
}

impl Default for Task {
    fn default() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "prompt": {
                    "type": "string",
                    "description": "All that the other agent must know: it sees nothing of this conversation."
                },
                "model": { "type": "string", "description": "Which model does it; else the one that is asked now." }
            },
            "required": ["prompt"],
            "additionalProperties": false
        });
        let mut def = ToolDef::new(
            "task",
            "Gives a piece of work to another agent with the same tools and files, and waits for \
             its answer. Several can work at once.",
            parameters,
        )
        // Run again, it finds the session that it made.
        .effect(Effect::Idempotent);
        def.is_task = true;
        Self(def)
    }
}

impl Tool for Task {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args { prompt, model } = parse(args)?;
            let child = context.child(model).await?;
            let id = child.session().id().clone();
            let store = |error: crate::store::StoreError| ToolError::failed(error.to_string());
            // A task is one prompt, which is named after it.
            let prompt_id = PromptId::from(id.clone());
            let answer = child.prompt(prompt_id, Prompt::from(prompt)).await;
            let answer = answer.map_err(store)?;
            child.close().await.map_err(store)?;
            match answer.reason {
                TurnEnd::EndTurn => Ok(ToolOutput {
                    text: answer.text,
                    data: json!({ "session": id }),
                    attachments: Vec::new(),
                }),
                TurnEnd::Limit => Err(failed(ErrorCode::Limit, answer, "it reached a limit")),
                TurnEnd::Abort => Err(failed(ErrorCode::Denied, answer, "somebody ended it")),
                TurnEnd::Error => Err(failed(ErrorCode::ToolFailed, answer, "it failed")),
            }
        })
    }
}

fn failed(code: ErrorCode, answer: crate::Answer, what: &str) -> ToolError {
    let mut message = answer.error.unwrap_or_else(|| what.to_owned());
    if !answer.text.is_empty() {
        message = format!("{message}. It had said: {}", answer.text);
    }
    ToolError(ErrorInfo::new(code, message))
}
