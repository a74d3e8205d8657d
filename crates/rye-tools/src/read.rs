//! The tool `read`: reads files, images, directories and stored output.

mod kind;
mod missing;
mod page;

use lillux::Hash;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use self::kind::Kind;
use super::{approval, parse, sandbox_error, tool};
use rye_engine::attachment::{self, MAX_IMAGE_BYTES};
use rye_engine::blob::SCHEME;
use rye_engine::sandbox::{FileInfo, SandboxError};
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

pub(super) use kind::is_binary;
pub(super) use missing::not_found_error;

/// Default number of directory entries.
const DEFAULT_ENTRIES: usize = 1000;

/// Reads a text file or some of its lines, an image, the entries of a directory, or the stored
/// blob of long output.
pub fn read() -> impl Tool {
    let description = "Reads a text file, from its start or from a given line. Each line is \
        prefixed with its number and a tab, which are not in the file. A long file ends with \
        a note on how to continue. Also shows an image, lists a directory, and reads the \
        omitted part of long output (`blob:…`).";
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace; or `blob:` and a hash." },
            "offset": { "type": "integer", "minimum": 1, "description": "First line, starting at 1." },
            "limit": { "type": "integer", "minimum": 1, "description": "Number of lines. Default: 2000." },
            "column": { "type": "integer", "minimum": 1, "description": "Reads only the line at `offset`, from this byte on, for very long lines." },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let def = ToolDef::new("read", description, parameters).effect(EffectClass::Pure);
    let own = def.clone();
    tool(def, move |args, context| run(own.clone(), args, context))
}

#[derive(Deserialize)]
struct Args {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
    column: Option<usize>,
}

async fn run(
    def: ToolDef,
    raw_args: Value,
    mut context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let args: Args = parse(raw_args.clone())?;
    if let Some(hash) = args.path.strip_prefix(SCHEME) {
        let bytes = read_blob(hash, &context).await?;
        return show_bytes(&args, &bytes);
    }
    let mut stat = context.sandbox.stat(&args.path).await;
    let has_policy = context.sandbox.confinement().enforcement.is_some();
    if has_policy && matches!(stat, Err(SandboxError::Outside(_))) {
        context = approval::approve_read(&def, &args.path, &raw_args, &context).await?;
        stat = context.sandbox.stat(&args.path).await;
    }
    let sandbox = &*context.sandbox;
    let info = match stat {
        Ok(info) => info,
        Err(error) => return Err(not_found_error(sandbox, &args.path, error).await),
    };
    if info.is_dir {
        let files = sandbox.list(&args.path).await.map_err(sandbox_error)?;
        return list_dir(&args, &files);
    }
    let bytes = sandbox.read(&args.path).await;
    let bytes =
        bytes.map_err(|error| ToolError::failed(format!("{error}; read parts of it with `bash`")));
    show_bytes(&args, &bytes?)
}

async fn read_blob(hash: &str, context: &ToolContext) -> Result<Vec<u8>, ToolError> {
    let fail = |error: &dyn std::fmt::Display| ToolError::failed(error.to_string());
    let hash: Hash = hash.parse().map_err(|error| fail(&error))?;
    let store = context.blobs();
    let store = store.ok_or_else(|| fail(&"no blob store is configured"))?;
    let bytes = store.get(&hash).await.map_err(|error| fail(&error))?;
    bytes.ok_or_else(|| fail(&format_args!("{SCHEME}{hash} not found")))
}

fn show_bytes(args: &Args, bytes: &[u8]) -> Result<ToolOutput, ToolError> {
    let (path, length) = (&args.path, bytes.len());
    let describe = |what: String, data: Value| ToolOutput::new(format!("[{path} is {what}]"), data);
    match Kind::detect(bytes) {
        Kind::Text { text, notes } => show_lines(args, &text, &notes).map_err(ToolError::failed),
        Kind::Image { mime_type, size } => {
            let size = size.map_or_else(String::new, |(w, h)| format!(", {w} × {h}"));
            let data = json!({ "mime_type": mime_type, "bytes": length });
            let what = format!("an image: {mime_type}{size}, {length} bytes");
            if length > MAX_IMAGE_BYTES {
                let what = format!(
                    "{what}, too large to show (maximum {MAX_IMAGE_BYTES}): make it smaller"
                );
                return Ok(describe(what, data));
            }
            let mut output = describe(what, data);
            let name = path.rsplit('/').next().unwrap_or(path);
            let image = attachment::inline_image(name, mime_type, bytes);
            output.attachments.push(image);
            Ok(output)
        }
        Kind::Binary(format) => {
            let format = format
                .map(|format| format!(" ({format})"))
                .unwrap_or_default();
            let what = format!(
                "not text{format}: {length} bytes, sha256 {}",
                Hash::digest(bytes)
            );
            Ok(describe(what, json!({ "binary": true, "bytes": length })))
        }
    }
}

fn show_lines(args: &Args, text: &str, notes: &[&str]) -> Result<ToolOutput, String> {
    if text.is_empty() {
        return Ok(ToolOutput::text("[the file is empty]"));
    }
    let first = args.offset.unwrap_or(1);
    let mut shown = match args.column {
        Some(column) => page::column(text, first, column)?,
        None => page::lines(text, first, args.limit.unwrap_or(page::DEFAULT_LINES))?,
    };
    for note in notes {
        shown = format!("{shown}\n[{note}]");
    }
    Ok(ToolOutput::new(
        shown,
        json!({ "lines": text.lines().count() }),
    ))
}

/// Lists the entries of a directory.
fn list_dir(args: &Args, files: &[FileInfo]) -> Result<ToolOutput, ToolError> {
    let (path, total) = (&args.path, files.len());
    if total == 0 {
        return Ok(ToolOutput::text(format!("[{path} is an empty directory]")));
    }
    let (first, limit) = (
        args.offset.unwrap_or(1),
        args.limit.unwrap_or(DEFAULT_ENTRIES),
    );
    if first > total {
        let message = format!("no entry {first}: the directory has {total}");
        return Err(ToolError::failed(message));
    }
    let page: Vec<_> = files.iter().skip(first - 1).take(limit).collect();
    let mut lines = vec![format!("[{path} is a directory]")];
    lines.extend(page.iter().map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if file.is_dir {
            format!("{name}/")
        } else {
            format!("{name} ({} bytes)", file.size)
        }
    }));
    let last = first + page.len() - 1;
    if last < total {
        let next = last + 1;
        lines.push(format!(
            "[entries {first} to {last} of {total}; continue with offset {next}]"
        ));
    }
    Ok(ToolOutput::new(
        lines.join("\n"),
        json!({ "directory": true, "entries": total }),
    ))
}
