//! The tool `task`: delegates work to a child session.

use rye_protocol::{ErrorCode, ErrorInfo, PromptId, TurnEnd};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use rye_engine::BoxFuture;
use rye_engine::Prompt;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Delegates work to a child session and waits for its answer.
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
                    "description": "Complete instructions: the other agent does not see this conversation."
                },
                "model": { "type": "string", "description": "Model to use. Default: the current model." }
            },
            "required": ["prompt"],
            "additionalProperties": false
        });
        let mut def = ToolDef::new(
            "task",
            "Delegates work to another agent with the same tools and files, and waits for its \
             answer. Several tasks can run at once.",
            parameters,
        )
        // A repeated call finds the child session that the first one created.
        .effect(EffectClass::Idempotent);
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
            let store_error =
                |error: rye_engine::store::StoreError| ToolError::failed(error.to_string());
            // A task has one prompt, whose id is that of the child session.
            let prompt_id = PromptId::from(id.clone());
            let answer = child.prompt(prompt_id, Prompt::from(prompt)).await;
            let answer = answer.map_err(store_error)?;
            child.close().await.map_err(store_error)?;
            match answer.reason {
                TurnEnd::EndTurn => Ok(ToolOutput {
                    text: answer.text,
                    data: json!({ "session": id }),
                    attachments: Vec::new(),
                }),
                TurnEnd::Limit => Err(task_error(
                    ErrorCode::Limit,
                    answer,
                    "the task reached a limit",
                )),
                TurnEnd::Abort => Err(task_error(
                    ErrorCode::Denied,
                    answer,
                    "the task was aborted",
                )),
                TurnEnd::Error => Err(task_error(ErrorCode::ToolFailed, answer, "the task failed")),
            }
        })
    }
}

fn task_error(code: ErrorCode, answer: rye_engine::Answer, default: &str) -> ToolError {
    let mut message = answer.error.unwrap_or_else(|| default.to_owned());
    if !answer.text.is_empty() {
        message = format!("{message}. Its last output: {}", answer.text);
    }
    ToolError(ErrorInfo::new(code, message))
}
