//! Files, written.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{failed, parse};
use crate::store::Later;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Writes a file, whole. Twice is as good as once.
#[derive(Debug)]
pub struct Write {
    def: ToolDef,
}

impl Default for Write {
    fn default() -> Self {
        let description = "Writes a text file, whole: what it held before is gone. Makes the \
            folders that it needs.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
                "content": { "type": "string", "description": "All of what it is to hold." },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("write", description, parameters).effect(Effect::Idempotent),
        }
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

    fn run(&self, args: Value, context: ToolContext) -> Later<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args { path, content } = parse(args)?;
            let written = context.sandbox.write(&path, content.as_bytes()).await;
            written.map_err(failed)?;
            Ok(ToolOutput::text(format!(
                "{} bytes are in {path}",
                content.len()
            )))
        })
    }
}
