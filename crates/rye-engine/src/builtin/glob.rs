//! Files, found by their paths.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use super::tree::{Pattern, below, join, plain, split, walk};
use crate::BoxFuture;
use crate::sandbox::Sandbox;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How many are told where the model does not say, and at most.
const STANDARD: usize = 200;
const MOST: usize = 2000;
/// How long is looked for them.
const TIME: Duration = Duration::from_secs(20);

/// Finds files by a pattern of their paths.
#[derive(Debug)]
pub struct Glob {
    def: ToolDef,
}

impl Default for Glob {
    fn default() -> Self {
        let description = "Finds files by a pattern: `*.rs` by name at any depth, \
            `src/**/*.{ts,tsx}` by path. The ones that changed last come first. Leaves out \
            hidden files and what .gitignore and .ignore leave out.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "`*` and `?` stand for parts of a name, `**` for any folders, `{a,b}` for either." },
                "path": { "type": "string", "description": "The folder to look in; else the workspace." },
                "sort": { "enum": ["newest", "path"], "description": "By what they are sorted; else the newest first." },
                "hidden": { "type": "boolean", "description": "Also hidden files." },
                "ignored": { "type": "boolean", "description": "Also files that .gitignore or .ignore leave out." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST, "description": "How many at most; else 200." },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("glob", description, parameters).effect(Effect::Pure),
        }
    }
}

#[derive(Deserialize)]
struct Args {
    pattern: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    sort: Sort,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    limit: Option<usize>,
}

#[derive(Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Newest,
    Path,
}

impl Tool for Glob {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move { find(parse(args)?, &*context.sandbox).await })
    }
}

async fn find(args: Args, sandbox: &dyn Sandbox) -> Result<ToolOutput, ToolError> {
    // Only the folder is walked that the pattern names.
    let (folder, rest) = split(&args.pattern);
    // What stands behind a folder is not for any depth.
    let is_name = folder.is_empty() || rest.contains('/');
    let start = if is_name { "" } else { "./" };
    let pattern = Pattern::new(&format!("{start}{rest}"))?;
    let top = plain(&join(&args.path, folder));
    let hidden = args.hidden || pattern.hidden;
    let walked = walk(sandbox, &top, hidden, args.ignored, TIME).await?;
    let mut files = walked.files;
    files.retain(|file| pattern.fits(below(&file.path, &top)));
    if args.sort == Sort::Newest {
        files.sort_by(|a, b| {
            b.modified
                .cmp(&a.modified)
                .then_with(|| a.path.cmp(&b.path))
        });
    }
    let (found, limit) = (files.len(), args.limit.unwrap_or(STANDARD));
    files.truncate(limit);
    let mut lines: Vec<_> = files.into_iter().map(|file| file.path).collect();
    if found == 0 {
        lines.push("[no file fits]".to_owned());
    }
    if found > limit {
        lines.push(format!(
            "[{limit} of {found}: narrow the pattern, or raise the limit]"
        ));
    }
    if !walked.is_complete {
        lines.push("[not all files were looked at, there are too many: give a path]".to_owned());
    }
    Ok(ToolOutput {
        text: lines.join("\n"),
        data: json!({ "found": found, "whole": walked.is_complete }),
        attachments: Vec::new(),
    })
}
