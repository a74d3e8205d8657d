//! Files, written.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{counted, failed, parse, permission, redacted};
use crate::BoxFuture;
use crate::sandbox::SandboxError;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use lillux::redact::REDACTED;

/// Writes a file, whole. Twice is as good as once.
#[derive(Debug)]
pub struct Write {
    def: ToolDef,
    alone: Arc<Mutex<()>>,
}

impl Write {
    /// One that does not write while others hold this.
    pub(super) fn new(alone: Arc<Mutex<()>>) -> Self {
        let description = "Writes a text file, whole: what it held before is gone. Makes the \
            folders that it needs. To change a part of a file, use `edit`.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
                "content": { "type": "string", "description": "All of what it is to hold." },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        });
        let mut def = ToolDef::new("write", description, parameters).effect(Effect::Idempotent);
        def.exclusive = true;
        Self { def, alone }
    }
}

impl Default for Write {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

#[derive(Deserialize)]
struct Args {
    path: String,
    content: String,
}

impl Tool for Write {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args {
                mut path,
                mut content,
            } = parse(args.clone())?;
            let permitted = permission::to_change(&self.def, &path, &args, &context).await?;
            if let Some(instead) = &permitted.instead {
                Args { path, content } = parse(instead.args.clone())?;
            }
            let _alone = self.alone.lock().await;
            let before = match context.sandbox.stat(&path).await {
                Ok(about) => Some(about.size),
                Err(SandboxError::NotFound(_)) => None,
                Err(error) => return Err(failed(error)),
            };
            if before.is_some() && content.contains(REDACTED) {
                let there = context.sandbox.read(&path).await.map_err(failed)?;
                let there = String::from_utf8_lossy(&there);
                let kept = redacted::kept(&context.redactor, &there, &content);
                kept.map_err(|why| ToolError::failed(format!("{path}: {why}")))?;
            }
            let bytes = content.as_bytes();
            permitted.write(&path, bytes, &context).await?;
            let output = report(&path, &content, before);
            Ok(match permitted.instead {
                Some(instead) => instead.annotate(output),
                None => output,
            })
        })
    }
}

fn report(path: &str, content: &str, before: Option<u64>) -> ToolOutput {
    let (lines, bytes) = (content.lines().count(), content.len());
    let what = match before {
        None => "created".to_owned(),
        Some(before) => format!("overwritten, it had {before} bytes"),
    };
    ToolOutput {
        text: format!(
            "{path}: {}, {} ({what})",
            counted(lines, "line"),
            counted(bytes, "byte")
        ),
        data: json!({ "created": before.is_none(), "lines": lines, "bytes": bytes }),
        attachments: Vec::new(),
    }
}
