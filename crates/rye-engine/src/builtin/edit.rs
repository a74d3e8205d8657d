//! Files, changed in places.

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
use self::document::Document;
use super::{counted, parse, permission, read, redacted};
use crate::BoxFuture;
use crate::sandbox::Sandbox;
use crate::text::without_middle;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How much of the difference is shown, and how long is looked for a short one.
const SHOWN: usize = 8000;
const TIME: Duration = Duration::from_millis(200);
/// The longest text of which the difference is shown.
const COMPARED: usize = 4 * 1024 * 1024;

/// Replaces texts in a file: each is to be found once, all are replaced or none.
///
/// Whether an edit was made cannot always be seen from the file: what it put there may hold
/// what it looked for. So one that was interrupted is never repeated on its own; the model
/// is told, and looks.
#[derive(Debug)]
pub struct Edit {
    def: ToolDef,
    alone: Arc<Mutex<()>>,
}

impl Edit {
    /// One that reads and writes while it holds this, so that no change is lost.
    pub(super) fn new(alone: Arc<Mutex<()>>) -> Self {
        let description = "Replaces a text in a file by another. `old` must be exactly what \
            stands there, whitespace too, and stand there once, unless `all` is set. For \
            several replacements in one file give `edits`: they are made one after the other, \
            all or none. Line ends are kept. Gives the difference.";
        let text = |description: &str| json!({ "type": "string", "description": description });
        let (old, new) = (
            text("What stands there now, without line numbers."),
            text("What is to stand there."),
        );
        let all = json!({ "type": "boolean", "description": "Replace it wherever it stands." });
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
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
        let mut def = ToolDef::new("edit", description, parameters).effect(Effect::AtMostOnce);
        def.exclusive = true;
        Self { def, alone }
    }
}

impl Default for Edit {
    fn default() -> Self {
        Self::new(Arc::default())
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
        permission::asks(sandbox)
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let given = args;
            let mut args: Args = parse(given.clone())?;
            let mut changes = args.changes()?;
            let path = &args.path;
            let permitted = permission::to_change(&self.def, path, &given, &context).await?;
            if let Some(instead) = &permitted.instead {
                args = parse(instead.args.clone())?;
                changes = args.changes()?;
            }
            let (sandbox, path) = (&*context.sandbox, &args.path);
            let _alone = self.alone.lock().await;
            let bytes = match sandbox.read(path).await {
                Ok(bytes) => bytes,
                Err(error) => return Err(read::explain(sandbox, path, error).await),
            };
            let document = Document::parse(&bytes).filter(|_| !read::is_binary(&bytes));
            let document = document.ok_or_else(|| {
                let message = format!("{path} is no UTF-8 text, which alone can be edited");
                ToolError::failed(message)
            })?;
            let edited = apply(&document, &changes);
            let wrong = |why: String| ToolError::failed(format!("{path}: {why}"));
            let (edited, places) = edited.map_err(|why| {
                let sought =
                    |it: &Change| redacted::sought(&context.redactor, &document.text, &it.old);
                wrong(changes.iter().find_map(sought).unwrap_or(why))
            })?;
            redacted::kept(&context.redactor, &document.text, &edited.text).map_err(wrong)?;
            permission::begins(&self.def, &context).await?;
            permitted.write(path, &edited.bytes(), &context).await?;
            let output = report(path, &document.text, &edited.text, places);
            Ok(match permitted.instead {
                Some(instead) => instead.annotate(output),
                None => output,
            })
        })
    }
}

/// What is different now.
fn report(path: &str, before: &str, after: &str, places: usize) -> ToolOutput {
    let mut text = format!("{path}: changed at {}", counted(places, "place"));
    let mut data = json!({ "places": places });
    if before.len().max(after.len()) <= COMPARED {
        let diff = TextDiff::configure()
            .timeout(TIME)
            .diff_lines(before, after);
        let count = |tag| diff.iter_all_changes().filter(|it| it.tag() == tag).count();
        let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
        let mut unified = diff.unified_diff();
        let unified = unified.context_radius(3).header(path, path).to_string();
        let unified = without_middle(&unified, SHOWN, None);
        text = format!("{text}\n{}", unified.trim_end());
        data = json!({ "places": places, "added": added, "removed": removed, "diff": unified });
    }
    ToolOutput {
        text,
        data,
        attachments: Vec::new(),
    }
}
