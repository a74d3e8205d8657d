//! The tool `edit`: replaces text in a file.

mod apply;
mod document;
mod nearest;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use tokio::sync::Mutex;

use self::apply::{Change, apply};
pub(super) use self::document::Document;
use super::{Checks, approval, counted, parse, placeholder_guard, read};
use rye_engine::BoxFuture;
use rye_engine::arguments::annotate;
use rye_engine::sandbox::Sandbox;
use rye_engine::text::truncate_middle;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Maximum size of the diff in the result, in bytes.
const MAX_DIFF: usize = 8000;
/// Time limit for computing a minimal diff.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum size of a file for which a diff is computed, in bytes.
const MAX_DIFFED_FILE: usize = 4 * 1024 * 1024;

/// Replaces texts in a file. Each must occur exactly once; either all are replaced or none.
///
/// An interrupted edit is never repeated automatically, because the file does not always show
/// whether the edit was made: the new text may contain the old one. The model checks the file instead.
#[derive(Debug)]
pub(super) struct Edit {
    def: ToolDef,
    write_lock: Arc<Mutex<()>>,
    checks: Arc<Checks>,
}

impl Edit {
    /// Creates the tool. It holds the lock while it reads and writes, so that no change is lost.
    pub(super) fn new(write_lock: Arc<Mutex<()>>, checks: Arc<Checks>) -> Self {
        let description = "Replaces text in a file. `old` must match exactly, including whitespace, \
            and occur once unless `all` is set. For several replacements in one file, give \
            `edits`: they are applied in order, all or none. Line endings are preserved. \
            Returns the diff.";
        let text = |description: &str| json!({ "type": "string", "description": description });
        let (old, new) = (
            text("Text to replace, without line numbers."),
            text("New text."),
        );
        let all = json!({ "type": "boolean", "description": "Replace all occurrences." });
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace." },
                "old": old,
                "new": new,
                "all": all,
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "description": "Several replacements, instead of `old` and `new`.",
                    "items": {
                        "type": "object",
                        "properties": { "old": old, "new": new, "all": all },
                        "required": ["old", "new"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let mut def = ToolDef::new("edit", description, parameters).effect(EffectClass::AtMostOnce);
        def.exclusive = true;
        Self {
            def,
            write_lock,
            checks,
        }
    }
}

#[derive(Deserialize)]
struct Args {
    path: String,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    edits: Vec<Change>,
}

impl Args {
    fn changes(&mut self) -> Result<Vec<Change>, ToolError> {
        let edits = std::mem::take(&mut self.edits);
        match (self.old.take(), self.new.take(), edits.is_empty()) {
            (Some(old), Some(new), true) => {
                let all = self.all;
                Ok(vec![Change { old, new, all }])
            }
            (None, None, false) => Ok(edits),
            _ => {
                let message = "give either `old` and `new`, or `edits`";
                let error = ErrorInfo::new(ErrorCode::InvalidArguments, message);
                Err(ToolError(error))
            }
        }
    }
}

impl Tool for Edit {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, sandbox: &dyn Sandbox) -> bool {
        approval::may_need_approval(sandbox)
    }

    fn run(
        &self,
        args: Value,
        mut context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let raw_args = args;
            let mut args: Args = parse(raw_args.clone())?;
            let mut changes = args.changes()?;
            let path = &args.path;
            let permitted = approval::approve_write(&self.def, path, &raw_args, &context).await?;
            if let Some(edited) = &permitted.edited {
                args = parse(edited.args.clone())?;
                changes = args.changes()?;
            }
            let path = &args.path;
            context.sandbox = approval::sandbox_for_write(path, &context).await?;
            let baseline = self.checks.before(&[path], &context).await;
            let sandbox = &*context.sandbox;
            let guard = self.write_lock.lock().await;
            let bytes = match sandbox.read(path).await {
                Ok(bytes) => bytes,
                Err(error) => return Err(read::not_found_error(sandbox, path, error).await),
            };
            let document = Document::parse(&bytes).filter(|_| !read::is_binary(&bytes));
            let document = document.ok_or_else(|| {
                let message = format!("{path} is not UTF-8 text and cannot be edited");
                ToolError::failed(message)
            })?;
            let applied = apply(&document, &changes);
            let fail = |why: String| ToolError::failed(format!("{path}: {why}"));
            let (new_document, replacements) = applied.map_err(|why| {
                let placeholder_error = |change: &Change| {
                    placeholder_guard::placeholder_error(
                        &context.redactor,
                        &document.text,
                        &change.old,
                    )
                };
                fail(changes.iter().find_map(placeholder_error).unwrap_or(why))
            })?;
            placeholder_guard::check_secrets_kept(
                &context.redactor,
                &document.text,
                &new_document.text,
            )
            .map_err(fail)?;
            approval::mark_started(&self.def, &context).await?;
            permitted
                .write(path, &new_document.bytes(), &context)
                .await?;
            drop(guard);
            let mut output = report(path, &document.text, &new_document.text, replacements);
            self.checks.add_new(baseline, &mut output, &context).await;
            Ok(annotate(permitted.edited.as_ref(), output))
        })
    }
}

/// The result with the diff.
fn report(path: &str, before: &str, after: &str, replacements: usize) -> ToolOutput {
    let mut text = format!("{path}: {}", counted(replacements, "replacement"));
    let mut data = json!({ "replacements": replacements });
    if let Some(FileDiff {
        unified,
        added,
        removed,
    }) = FileDiff::new(path, before, after)
    {
        text = format!("{text}\n{}", unified.trim_end());
        data = json!({ "replacements": replacements, "added": added, "removed": removed, "diff": unified });
    }
    ToolOutput::new(text, data)
}

/// The change of a file for the model.
pub(super) struct FileDiff {
    /// The unified diff. The middle of a long one is omitted.
    pub(super) unified: String,
    /// Number of added lines.
    pub(super) added: usize,
    /// Number of removed lines.
    pub(super) removed: usize,
}

impl FileDiff {
    /// Compares two texts, unless they are too long.
    pub(super) fn new(path: &str, before: &str, after: &str) -> Option<Self> {
        if before.len().max(after.len()) > MAX_DIFFED_FILE {
            return None;
        }
        let diff = TextDiff::configure()
            .timeout(DIFF_TIMEOUT)
            .diff_lines(before, after);
        let count = |tag| diff.iter_all_changes().filter(|it| it.tag() == tag).count();
        let mut unified = diff.unified_diff();
        let unified = unified.context_radius(3).header(path, path).to_string();
        Some(Self {
            unified: truncate_middle(&unified, MAX_DIFF, None),
            added: count(ChangeTag::Insert),
            removed: count(ChangeTag::Delete),
        })
    }
}
