//! The tool `glob`: finds files by a pattern of their paths.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::tool;
use super::tree::{Pattern, join, normalize, relative_to, split, walk};
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Default number of results.
const DEFAULT_LIMIT: usize = 200;
/// Maximum number of results.
const MAX_LIMIT: usize = 2000;
/// Time limit.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Finds files by a pattern of their paths.
pub fn glob() -> impl Tool {
    let description = "Finds files by a pattern: `*.rs` by name at any depth, \
        `src/**/*.{ts,tsx}` by path. The most recently changed come first. Skips hidden \
        files and files that .gitignore and .ignore exclude.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "minLength": 1, "description": "`*` and `?` match parts of a name, `**` any directories, `{a,b}` either." },
            "path": { "type": "string", "description": "Directory to search. Default: the workspace." },
            "sort": { "enum": ["newest", "path"], "description": "Order. Default: newest." },
            "hidden": { "type": "boolean", "description": "Include hidden files." },
            "ignored": { "type": "boolean", "description": "Include files that .gitignore or .ignore exclude." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Maximum number of results. Default: 200." },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let def = ToolDef::new("glob", description, parameters).effect(EffectClass::Pure);
    tool(def, run)
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

async fn run(args: Args, context: ToolContext) -> Result<ToolOutput, ToolError> {
    // Walk only the directory that the pattern names.
    let (dir, rest) = split(&args.pattern);
    // A name after a directory does not match at any depth.
    let is_name = dir.is_empty() || rest.contains('/');
    let prefix = if is_name { "" } else { "./" };
    let pattern = Pattern::new(&format!("{prefix}{rest}"))?;
    let root = normalize(&join(&args.path, dir));
    let hidden = args.hidden || pattern.hidden;
    let walked = walk(&*context.sandbox, &root, hidden, args.ignored, TIMEOUT).await?;
    let mut files = walked.files;
    files.retain(|file| pattern.matches(relative_to(&file.path, &root)));
    if args.sort == Sort::Newest {
        files.sort_by(|a, b| {
            b.modified
                .cmp(&a.modified)
                .then_with(|| a.path.cmp(&b.path))
        });
    }
    let (found, limit) = (files.len(), args.limit.unwrap_or(DEFAULT_LIMIT));
    files.truncate(limit);
    let mut lines: Vec<_> = files.into_iter().map(|file| file.path).collect();
    if found == 0 {
        lines.push("[no matching files]".to_owned());
    }
    if found > limit {
        lines.push(format!(
            "[{limit} of {found}: narrow the pattern, or raise the limit]"
        ));
    }
    if !walked.is_complete {
        lines.push("[too many files; not all were searched: give a path]".to_owned());
    }
    Ok(ToolOutput::new(
        lines.join("\n"),
        json!({ "found": found, "complete": walked.is_complete }),
    ))
}
