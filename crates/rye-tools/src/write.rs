//! The tool `write`: writes a complete file.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Checks, approval, counted, parse, placeholder_guard, sandbox_error};
use lillux::redact::REDACTED;
use rye_engine::BoxFuture;
use rye_engine::arguments::annotate;
use rye_engine::sandbox::SandboxError;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Writes a complete file. Repeating a call has no further effect.
#[derive(Debug)]
pub(super) struct Write {
    def: ToolDef,
    lock: Arc<Mutex<()>>,
    checks: Arc<Checks>,
}

impl Write {
    /// Creates the tool. It holds the lock while it writes.
    pub(super) fn new(lock: Arc<Mutex<()>>, checks: Arc<Checks>) -> Self {
        let description = "Writes a complete text file and replaces an existing one. Creates missing \
            directories. To change a part of a file, use `edit`.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace." },
                "content": { "type": "string", "description": "Complete content of the file." },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        });
        let mut def =
            ToolDef::new("write", description, parameters).effect(EffectClass::Idempotent);
        def.exclusive = true;
        Self { def, lock, checks }
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
        mut context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args {
                mut path,
                mut content,
            } = parse(args.clone())?;
            let permitted = approval::approve_write(&self.def, &path, &args, &context).await?;
            if let Some(edited) = &permitted.edited {
                Args { path, content } = parse(edited.args.clone())?;
            }
            context.sandbox = approval::sandbox_for_write(&path, &context).await?;
            let baseline = self.checks.before(&[&path], &context).await;
            let guard = self.lock.lock().await;
            let previous_size = match context.sandbox.stat(&path).await {
                Ok(info) => Some(info.size),
                Err(SandboxError::NotFound(_)) => None,
                Err(error) => return Err(sandbox_error(error)),
            };
            if previous_size.is_some() && content.contains(REDACTED) {
                let existing = context.sandbox.read(&path).await.map_err(sandbox_error)?;
                let existing = String::from_utf8_lossy(&existing);
                let checked =
                    placeholder_guard::check_secrets_kept(&context.redactor, &existing, &content);
                checked.map_err(|why| ToolError::failed(format!("{path}: {why}")))?;
            }
            let bytes = content.as_bytes();
            permitted.write(&path, bytes, &context).await?;
            drop(guard);
            let mut output = report(&path, &content, previous_size);
            self.checks.add_new(baseline, &mut output, &context).await;
            Ok(annotate(permitted.edited.as_ref(), output))
        })
    }
}

fn report(path: &str, content: &str, previous_size: Option<u64>) -> ToolOutput {
    let (lines, bytes) = (content.lines().count(), content.len());
    let what = match previous_size {
        None => "created".to_owned(),
        Some(size) => format!("overwritten; was {size} bytes"),
    };
    ToolOutput::new(
        format!(
            "{path}: {}, {} ({what})",
            counted(lines, "line"),
            counted(bytes, "byte")
        ),
        json!({ "created": previous_size.is_none(), "lines": lines, "bytes": bytes }),
    )
}
