//! The tool `apply_patch`: changes several files with one patch.

mod hunks;
mod parse;

use std::fmt::Write as _;
use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::parse::{ChangeKind, FileChange};
use super::approval::{self, ApprovedWrite};
use super::edit::{Document, FileDiff};
use super::{Checks, parse as parse_args, placeholder_guard, read, sandbox_error};
use rye_engine::BoxFuture;
use rye_engine::arguments::EditedArguments;
use rye_engine::model::ModelFamily;
use rye_engine::sandbox::{Sandbox, SandboxError};
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Applies a patch: all changes, or none if one of them does not fit. Like `edit`, an interrupted
/// call is never repeated automatically.
pub(super) struct ApplyPatch {
    def: ToolDef,
    write_lock: Arc<Mutex<()>>,
    checks: Arc<Checks>,
}

impl ApplyPatch {
    /// Creates the tool. It holds the lock while it reads and writes, so that no change is lost.
    pub(super) fn new(write_lock: Arc<Mutex<()>>, checks: Arc<Checks>) -> Self {
        let description = "Applies a patch to files: all changes or none. The patch starts with \
            `*** Begin Patch` and ends with `*** End Patch`. Sections: `*** Add File: PATH` with \
            `+` lines; `*** Update File: PATH`, optionally `*** Move to: PATH`, with hunks of \
            ` `, `-` and `+` lines after `@@` or `@@ LINE-ABOVE`; `*** Delete File: PATH`. Give \
            three lines of context. Returns the diff.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "input": { "type": "string", "minLength": 1, "description": "The patch." },
            },
            "required": ["input"],
            "additionalProperties": false,
        });
        let mut def =
            ToolDef::new("apply_patch", description, parameters).effect(EffectClass::AtMostOnce);
        def.exclusive = true;
        def.family = Some(ModelFamily::OpenAi);
        // It does what `edit` and `write` do.
        def.policy_tool = Some("edit".to_owned());
        Self {
            def,
            write_lock,
            checks,
        }
    }
}

#[derive(Deserialize)]
struct Args {
    input: String,
}

/// An approved change of a file.
struct Permitted {
    change: FileChange,
    write: ApprovedWrite,
    /// The approved target of a move.
    moved: Option<(String, ApprovedWrite)>,
    /// With a sandbox that also shows the file.
    context: ToolContext,
}

/// A change that fits, with the content before and after.
struct Applied<'a> {
    permitted: &'a Permitted,
    before: Option<Document>,
    after: Option<Document>,
}

impl Tool for ApplyPatch {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, sandbox: &dyn Sandbox) -> bool {
        approval::may_need_approval(sandbox)
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args { input } = parse_args(args)?;
            let changes = parse::parse(&input).map_err(invalid)?;
            let mut permitted = Vec::new();
            for change in changes {
                permitted.push(self.permit(change, &context).await?);
            }
            let paths: Vec<_> = permitted.iter().map(Permitted::path_after).collect();
            let baseline = self.checks.before(&paths, &context).await;
            let guard = self.write_lock.lock().await;
            let mut applied = Vec::new();
            for one in &permitted {
                let result = prepare(one).await;
                applied.push(result.map_err(|error| none_applied(error, permitted.len()))?);
            }
            approval::mark_started(&self.def, &context).await?;
            for (done, one) in applied.iter().enumerate() {
                let written = write(one).await;
                written.map_err(|error| partly_applied(error, &applied[..done]))?;
            }
            drop(guard);
            let mut output = report(&applied);
            self.checks.add_new(baseline, &mut output, &context).await;
            Ok(output)
        })
    }
}

impl Permitted {
    /// Path of the file after the change.
    fn path_after(&self) -> &str {
        match &self.moved {
            Some((to, _)) => to,
            None => &self.change.path,
        }
    }
}

impl ApplyPatch {
    /// Waits for approval of a change, if it is needed. The person may edit it.
    async fn permit(
        &self,
        change: FileChange,
        context: &ToolContext,
    ) -> Result<Permitted, ToolError> {
        let args = json!({ "input": change.text });
        let write = approval::approve_write(&self.def, &change.path, &args, context).await?;
        let change = match &write.edited {
            Some(edited) => edited_change(&change, edited)?,
            None => change,
        };
        let mut moved = None;
        if let ChangeKind::Update {
            move_to: Some(to), ..
        } = &change.kind
        {
            let args = json!({ "input": change.text, "to": to });
            let target = approval::approve_write(&self.def, to, &args, context).await?;
            if target.edited.is_some() {
                return Err(invalid("the target of a move cannot be edited".to_owned()));
            }
            moved = Some((to.clone(), target));
        }
        let mut context = context.clone();
        context.sandbox = approval::sandbox_for_write(&change.path, &context).await?;
        Ok(Permitted {
            change,
            write,
            moved,
            context,
        })
    }
}

/// The change that a person wrote instead. It must be about the same file, whose approval it is.
fn edited_change(change: &FileChange, edited: &EditedArguments) -> Result<FileChange, ToolError> {
    let Args { input } = parse_args(edited.args.clone())?;
    let mut changes = parse::parse(&input).map_err(invalid)?;
    match (changes.pop(), changes.is_empty()) {
        (Some(own), true) if own.path == change.path => Ok(own),
        _ => Err(invalid(format!(
            "the edited patch must change only {}",
            change.path
        ))),
    }
}

/// Reads the file and applies the change in memory.
async fn prepare(permitted: &Permitted) -> Result<Applied<'_>, ToolError> {
    let Permitted {
        change, context, ..
    } = permitted;
    let path = &change.path;
    let fail = |why: String| ToolError::failed(format!("{path}: {why}"));
    let sandbox = &*context.sandbox;
    if let ChangeKind::Add(text) = &change.kind {
        match sandbox.stat(path).await {
            Err(SandboxError::NotFound(_)) => {}
            Err(error) => return Err(sandbox_error(error)),
            Ok(_) => return Err(fail("the file exists: update it instead".to_owned())),
        }
        return Ok(Applied {
            permitted,
            before: None,
            after: Document::parse(text.as_bytes()),
        });
    }
    let bytes = match sandbox.read(path).await {
        Ok(bytes) => bytes,
        Err(error) => return Err(read::not_found_error(sandbox, path, error).await),
    };
    let document = Document::parse(&bytes).filter(|_| !read::is_binary(&bytes));
    let (document, after) = match &change.kind {
        ChangeKind::Update { hunks, .. } => {
            let document = document.ok_or_else(|| fail("the file is not UTF-8 text".to_owned()))?;
            let text = hunks::apply(&document.text, hunks).map_err(fail)?;
            let after = document.with_text(text);
            (Some(document), Some(after))
        }
        ChangeKind::Add(_) | ChangeKind::Delete => (document, None),
    };
    if let (Some(before), Some(after)) = (&document, &after) {
        let redactor = &context.redactor;
        placeholder_guard::check_secrets_kept(redactor, &before.text, &after.text).map_err(fail)?;
    }
    if let Some((to, _)) = &permitted.moved
        && to != path
        && sandbox.stat(to).await.is_ok()
    {
        return Err(fail(format!("cannot move it: {to} exists")));
    }
    Ok(Applied {
        permitted,
        before: document,
        after,
    })
}

/// Performs a change.
async fn write(applied: &Applied<'_>) -> Result<(), ToolError> {
    let Permitted {
        change,
        write,
        moved,
        context,
    } = applied.permitted;
    if let Some(after) = &applied.after {
        match moved {
            Some((to, target)) => target.write(to, &after.bytes(), context).await?,
            None => write.write(&change.path, &after.bytes(), context).await?,
        }
    }
    let is_elsewhere = moved.as_ref().is_some_and(|(to, _)| *to != change.path);
    if applied.after.is_none() || is_elsewhere {
        context.keep_removed(&change.path).await?;
        let removed = context.sandbox.rm(&change.path).await;
        removed.map_err(sandbox_error)?;
    }
    Ok(())
}

fn invalid(message: String) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::InvalidArguments, message))
}

fn none_applied(mut error: ToolError, count: usize) -> ToolError {
    if count > 1 {
        error.0.message += "\nNo change was applied.";
    }
    error
}

fn partly_applied(mut error: ToolError, done: &[Applied<'_>]) -> ToolError {
    let paths: Vec<_> = done.iter().map(|it| &*it.permitted.change.path).collect();
    if !paths.is_empty() {
        let message = &mut error.0.message;
        let _ = write!(message, "\nAlready applied: {}", paths.join(", "));
    }
    error
}

/// The result with the diff of each file.
fn report(applied: &[Applied<'_>]) -> ToolOutput {
    let (mut lines, mut diffs, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for one in applied {
        let change = &one.permitted.change;
        let text = |document: &Option<Document>| {
            document
                .as_ref()
                .map(|it| it.text.clone())
                .unwrap_or_default()
        };
        let (before, after) = (text(&one.before), text(&one.after));
        let (kind, path) = match (&change.kind, &one.permitted.moved) {
            (ChangeKind::Add(_), _) => ("added", &change.path),
            (ChangeKind::Delete, _) => ("deleted", &change.path),
            (ChangeKind::Update { .. }, Some((to, _))) => ("moved", to),
            (ChangeKind::Update { .. }, None) => ("updated", &change.path),
        };
        let mut file = json!({ "path": path, "kind": kind });
        lines.push(match &one.permitted.moved {
            Some(_) => format!("{kind} {} to {path}", change.path),
            None => format!("{kind} {path}"),
        });
        if let Some(diff) = FileDiff::new(path, &before, &after) {
            file["added"] = json!(diff.added);
            file["removed"] = json!(diff.removed);
            // The model wrote the added files, and deleted ones are gone.
            if one.before.is_some() && one.after.is_some() {
                lines.push(diff.unified.trim_end().to_owned());
            }
            diffs.push(diff.unified);
        }
        files.push(file);
    }
    ToolOutput::new(
        lines.join("\n"),
        json!({ "files": files, "diff": diffs.concat() }),
    )
}
