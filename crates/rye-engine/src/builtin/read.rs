//! Files, read.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{failed, parse};
use crate::sandbox::{Sandbox, SandboxError};
use crate::store::Later;
use crate::text::floor;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How many lines are read where the model does not say.
const LINES: usize = 2000;
/// How much of a line is shown.
const LINE: usize = 2000;
/// How much is shown in all.
const SHOWN: usize = 60_000;
/// How many names of a folder are told.
const NAMES: usize = 50;

/// Reads a text file, or some lines of it.
#[derive(Debug)]
pub struct Read {
    def: ToolDef,
}

impl Default for Read {
    fn default() -> Self {
        let description = "Reads a text file, from its start or from a line on. What is too \
            long ends with a note that says how to read on.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line, from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines; else 2000." },
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("read", description, parameters).effect(Effect::Pure),
        }
    }
}

#[derive(Deserialize)]
struct Args {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl Tool for Read {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, args: Value, context: ToolContext) -> Later<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let sandbox = &*context.sandbox;
            let bytes = match sandbox.read(&args.path).await {
                Ok(bytes) => bytes,
                Err(error) => return Err(explain(sandbox, &args.path, error).await),
            };
            let length = bytes.len();
            let text = String::from_utf8(bytes)
                .ok()
                .filter(|text| !text.contains('\0'))
                .ok_or_else(|| {
                    let path = &args.path;
                    ToolError::failed(format!("{path} is not a text: {length} bytes"))
                })?;
            let (first, limit) = (args.offset.unwrap_or(1), args.limit.unwrap_or(LINES));
            page(&text, first, limit).map_err(ToolError::failed)
        })
    }
}

/// Some lines of a text, and how to read on if there are more.
fn page(text: &str, first: usize, limit: usize) -> Result<ToolOutput, String> {
    let total = text.lines().count();
    if total == 0 {
        return Ok(ToolOutput::text("[the file is empty]"));
    }
    if first > total {
        return Err(format!("there is no line {first}: the file has {total}"));
    }
    let mut shown = String::new();
    let mut next = first;
    for line in text.lines().skip(first - 1).take(limit) {
        if next > first {
            shown.push('\n');
        }
        if line.len() > LINE {
            let end = floor(line, LINE);
            shown.push_str(&line[..end]);
            let left_out = line.len() - end;
            let _ = write!(shown, " … [{left_out} more bytes in this line]");
        } else {
            shown.push_str(line);
        }
        next += 1;
        if shown.len() > SHOWN {
            break;
        }
    }
    if next <= total {
        let last = next - 1;
        let _ = write!(
            shown,
            "\n[lines {first} to {last} of {total}; read on with offset {next}]"
        );
    }
    Ok(ToolOutput::text(shown))
}

/// Why a file cannot be read, with what there is instead.
async fn explain(sandbox: &dyn Sandbox, path: &str, error: SandboxError) -> ToolError {
    let folder = match &error {
        SandboxError::NotFound(_) => path.trim_end_matches('/').rsplit_once('/'),
        _ => Some((path, "")),
    };
    let (folder, name) = folder.unwrap_or(("", path));
    let Ok(files) = sandbox.list(folder).await else {
        return failed(error);
    };
    let names = files.iter().map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let end = if file.is_folder { "/" } else { "" };
        format!("{name}{end}")
    });
    let mut names: Vec<_> = names.collect();
    let what = if matches!(error, SandboxError::NotFound(_)) {
        names.sort_by_key(|other| strsim::osa_distance(name, other));
        names.truncate(5);
        format!("{error}; near it there are: ")
    } else {
        format!("{error}, with: ")
    };
    if names.is_empty() {
        return failed(error);
    }
    let left_out = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    if left_out > 0 {
        names.push(format!("and {left_out} more"));
    }
    ToolError::failed(what + &names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_to_read_on() {
        let text = |first, limit| page("a\nb\nc\n", first, limit).unwrap().text;
        assert_eq!(text(1, 10), "a\nb\nc");
        assert_eq!(text(2, 1), "b\n[lines 2 to 2 of 3; read on with offset 3]");
        assert_eq!(text(3, 1), "c");
        let error = page("a\n", 2, 1).unwrap_err();
        assert_eq!(error, "there is no line 2: the file has 1");
        assert_eq!(page("", 1, 1).unwrap().text, "[the file is empty]");
    }

    #[test]
    fn long_lines_and_long_files_are_cut() {
        let line = page(&"ü".repeat(LINE), 1, 1).unwrap().text;
        assert!(
            line.ends_with("ü … [2000 more bytes in this line]"),
            "{line}"
        );
        let file = page(&"1234567\n".repeat(20_000), 1, usize::MAX)
            .unwrap()
            .text;
        assert!(file.len() < SHOWN + 100);
        assert!(
            file.ends_with("of 20000; read on with offset 7502]"),
            "{}",
            &file[SHOWN..]
        );
    }
}
