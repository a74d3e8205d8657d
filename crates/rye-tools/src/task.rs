//! The tool `task`: delegates work to a child session.

use rye_protocol::{ErrorCode, ErrorInfo, PromptId, TurnEnd};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool;
use rye_engine::Prompt;
use rye_engine::result::schema_error;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

#[derive(Deserialize)]
struct Args {
    prompt: String,
    role: Option<String>,
    model: Option<String>,
    schema: Option<Value>,
    #[serde(default)]
    background: bool,
}

/// Delegates work to a child session and waits for its answer, or to a thread in the background.
pub fn task() -> impl Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "prompt": {
                "type": "string",
                "description": "Complete instructions: the other agent does not see this conversation."
            },
            "role": { "type": "string", "minLength": 1, "description": "Role of the other agent, a file in `.ai/roles/`." },
            "model": { "type": "string", "description": "Model to use. Default: the current model." },
            "schema": { "type": "object", "description": "JSON Schema of the result, which the other agent then returns instead of text." },
            "background": { "type": "boolean", "description": "Returns at once; the task works in a thread of its own. Read its result with `thread_read`." }
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
    tool(def, run)
}

async fn run(args: Args, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let Args {
        prompt,
        role,
        model,
        schema,
        background,
    } = args;
    if let Some(why) = schema.as_ref().and_then(schema_error) {
        let message = format!("`schema` is not a valid JSON Schema: {why}");
        return Err(ToolError(ErrorInfo::new(
            ErrorCode::InvalidArguments,
            message,
        )));
    }
    if background {
        let prompt = Prompt {
            role,
            model,
            schema,
            ..Prompt::from(prompt)
        };
        let key = context.prompt_in_background(prompt).await?;
        let text = format!(
            "The task works in the thread `{key}`. `thread_read` with this `thread`, `wait` and \
             `limit` 1 returns its answer."
        );
        return Ok(ToolOutput::new(text, json!({ "thread": key })));
    }
    let child = context.child(model).await?;
    let id = child.session().id().clone();
    let store_error = |error: rye_engine::store::StoreError| ToolError::failed(error.to_string());
    // A task has one prompt, whose id is that of the child session.
    let prompt_id = PromptId::from(id.clone());
    let prompt = Prompt {
        role,
        schema,
        ..Prompt::from(prompt)
    };
    let answer = child.prompt(prompt_id, prompt).await;
    let answer = answer.map_err(store_error)?;
    child.close().await.map_err(store_error)?;
    match answer.reason {
        TurnEnd::EndTurn => Ok(match answer.result {
            Some(result) => {
                let data = json!({ "session": id, "result": result });
                ToolOutput::new(result.to_string(), data)
            }
            None => ToolOutput::new(answer.text, json!({ "session": id })),
        }),
        TurnEnd::Limit => Err(task_error(
            ErrorCode::Limit,
            answer,
            "the task reached a limit",
        )),
        TurnEnd::Abort | TurnEnd::Withdrawn | TurnEnd::Merged => Err(task_error(
            ErrorCode::Denied,
            answer,
            "the task was aborted",
        )),
        TurnEnd::Error => Err(task_error(ErrorCode::ToolFailed, answer, "the task failed")),
    }
}

fn task_error(code: ErrorCode, answer: rye_engine::Answer, default: &str) -> ToolError {
    let error = answer.error.map(|error| error.message);
    let mut message = error.unwrap_or_else(|| default.to_owned());
    if !answer.text.is_empty() {
        message = format!("{message}. Its last output: {}", answer.text);
    }
    ToolError(ErrorInfo::new(code, message))
}
