//! Files, read.

mod kind;
mod missing;
mod page;

use lillux::Hash;
use serde::Deserialize;
use serde_json::{Value, json};

use self::kind::{Kind, dimensions};
use super::{failed, parse};
use crate::BoxFuture;
use crate::attachment::{self, MAX_IMAGE_BYTES};
use crate::blob::SCHEME;
use crate::sandbox::FileInfo;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

pub(crate) use kind::image as image_type;
pub(super) use kind::is_binary;
pub(super) use missing::explain;

/// How many names of a folder are told where the model does not say.
const NAMES: usize = 1000;

/// Reads a text file, or some lines of it; an image, to be seen; the names in a folder; and
/// what was kept of long output.
#[derive(Debug)]
pub struct Read {
    def: ToolDef,
}

impl Default for Read {
    fn default() -> Self {
        let description = "Reads a text file, from its start or from a line on: each line is \
            shown with its number and a tab before it, which are not in the file. What is too \
            long ends with a note that says how to read on. Shows an image, lists a folder, \
            and reads what was left out of long output (`blob:…`).";
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "description": "The file, relative to the workspace; or `blob:` and a hash." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line, from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines; else 2000." },
                "column": { "type": "integer", "minimum": 1, "description": "Reads the one line at `offset` from this byte on: for lines that are too long." },
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
    column: Option<usize>,
}

impl Tool for Read {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            if let Some(hash) = args.path.strip_prefix(SCHEME) {
                let bytes = blob(hash, &context).await?;
                return show(&args, &bytes);
            }
            let sandbox = &*context.sandbox;
            let about = match sandbox.stat(&args.path).await {
                Ok(about) => about,
                Err(error) => return Err(explain(sandbox, &args.path, error).await),
            };
            if about.is_dir {
                let files = sandbox.list(&args.path).await.map_err(failed)?;
                return folder(&args, &files);
            }
            let bytes = sandbox.read(&args.path).await;
            let bytes = bytes.map_err(|error| {
                ToolError::failed(format!("{error}; look at parts of it with `bash`"))
            });
            show(&args, &bytes?)
        })
    }
}

async fn blob(hash: &str, context: &ToolContext) -> Result<Vec<u8>, ToolError> {
    let wrong = |error: &dyn std::fmt::Display| ToolError::failed(error.to_string());
    let hash: Hash = hash.parse().map_err(|error| wrong(&error))?;
    let store = context.blobs();
    let store = store.ok_or_else(|| wrong(&"nothing is kept here: there is no blob store"))?;
    let bytes = store.get(&hash).await.map_err(|error| wrong(&error))?;
    bytes.ok_or_else(|| wrong(&format_args!("there is no {SCHEME}{hash}")))
}

fn show(args: &Args, bytes: &[u8]) -> Result<ToolOutput, ToolError> {
    let (path, length) = (&args.path, bytes.len());
    let about = |what: String, data: Value| ToolOutput {
        text: format!("[{path} is {what}]"),
        data,
        attachments: Vec::new(),
    };
    match Kind::of(bytes) {
        Kind::Text { text, notes } => lines(args, &text, &notes).map_err(ToolError::failed),
        Kind::Image { mime_type, size } => {
            let size = dimensions(size);
            let data = json!({ "mime_type": mime_type, "bytes": length });
            let what = format!("an image: {mime_type}{size}, {length} bytes");
            if length > MAX_IMAGE_BYTES {
                let what =
                    format!("{what}, too many to be shown ({MAX_IMAGE_BYTES}): make it smaller");
                return Ok(about(what, data));
            }
            let mut output = about(what, data);
            let name = path.rsplit('/').next().unwrap_or(path);
            let image = attachment::inline_image(name, mime_type, bytes);
            output.attachments.push(image);
            Ok(output)
        }
        Kind::Binary(known) => {
            let known = known.map(|known| format!(" ({known})")).unwrap_or_default();
            let what = format!(
                "not a text{known}: {length} bytes, sha256 {}",
                Hash::digest(bytes)
            );
            Ok(about(what, json!({ "binary": true, "bytes": length })))
        }
    }
}

fn lines(args: &Args, text: &str, notes: &[&str]) -> Result<ToolOutput, String> {
    if text.is_empty() {
        return Ok(ToolOutput::text("[the file is empty]"));
    }
    let first = args.offset.unwrap_or(1);
    let mut shown = match args.column {
        Some(column) => page::column(text, first, column)?,
        None => page::lines(text, first, args.limit.unwrap_or(page::LINES))?,
    };
    for note in notes {
        shown = format!("{shown}\n[{note}]");
    }
    Ok(ToolOutput {
        text: shown,
        data: json!({ "lines": text.lines().count() }),
        attachments: Vec::new(),
    })
}

/// The names in a folder.
fn folder(args: &Args, files: &[FileInfo]) -> Result<ToolOutput, ToolError> {
    let (path, total) = (&args.path, files.len());
    if total == 0 {
        return Ok(ToolOutput::text(format!("[{path} is an empty folder]")));
    }
    let (first, limit) = (args.offset.unwrap_or(1), args.limit.unwrap_or(NAMES));
    if first > total {
        let message = format!("there is no name {first}: the folder has {total}");
        return Err(ToolError::failed(message));
    }
    let page: Vec<_> = files.iter().skip(first - 1).take(limit).collect();
    let mut lines = vec![format!("[{path} is a folder]")];
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
            "[names {first} to {last} of {total}; read on with offset {next}]"
        ));
    }
    Ok(ToolOutput {
        text: lines.join("\n"),
        data: json!({ "folder": true, "names": total }),
        attachments: Vec::new(),
    })
}
