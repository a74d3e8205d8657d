//! `rye session export`: writes a session and its blobs to a file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lillux::durable::{AtomicFile, IfExists, WriteError};
use rye_engine::blob::SCHEME;
use rye_engine::protocol::{Archive, SessionId};
use rye_host::SCRIPT_HEADER;
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::find_session;
use rye_host::session_check::transfer_failure;
use rye_host::transfer::{self, TransferError, WrittenBlobs, public_keys};
use serde_json::{Value, json};

use super::verify::count;
use crate::cli::args::ExportSessionArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};

pub(crate) fn export(args: &ExportSessionArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let id = find_session(engine, &args.session.id).await?;
        let archives = engine.export(&id).await?;
        if args.script {
            return export_script(args, &id, &archives);
        }
        let keys = public_keys(&archives, context)?;
        let signer = context.signing_key()?.map(AsRef::as_ref);
        let sessions = archives.len();
        let Some(file) = &args.output else {
            let output = Printer::raw_output().map_err(|error| Failure::failed("io", error))?;
            let (_, blobs) = match transfer::export(output, archives, &keys, signer, engine).await {
                // A broken pipe is not an error.
                Err(TransferError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Box::new(AlreadyPrinted));
                }
                written => written.map_err(|error| transfer_failure(Path::new("-"), &error))?,
            };
            warn_missing(&blobs, context.printer);
            return Ok(Box::new(AlreadyPrinted));
        };
        check_overwrite(args, &id, file, SESSIONS_PREFIX)?;
        let draft = AtomicFile::new(file, 0o600).map_err(WriteError::from)?;
        let written = transfer::export(draft, archives, &keys, signer, engine).await;
        let (draft, blobs) = written.map_err(|error| transfer_failure(file, &error))?;
        draft.publish(IfExists::Replace)?;
        warn_missing(&blobs, context.printer);
        Ok(Box::new(ExportReport {
            file: file.clone(),
            next: "rye session verify ",
            sessions,
            blobs,
        }))
    })
}

/// First bytes of an exported file, by which an earlier export is recognised.
const SESSIONS_PREFIX: &[u8] = b"{\"rye_sessions\":";

/// Refuses to overwrite a file that is not an earlier export.
fn check_overwrite(
    args: &ExportSessionArgs,
    id: &SessionId,
    file: &Path,
    prefix: &[u8],
) -> Result<(), Failure> {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|it| it.take(100).read_to_end(&mut start));
    if args.force || read.is_err() || start.is_empty() || start.starts_with(prefix) {
        return Ok(());
    }
    let message = format!("{} exists and is not an export", file.display());
    let hint = format!(
        "rye session export {} --output {}{} --force",
        id.short(),
        lillux::shell_word(file),
        if args.script { " --script" } else { "" }
    );
    Err(Failure::usage(message).hint(hint))
}

/// Writes the model's answers as a script.
fn export_script(args: &ExportSessionArgs, id: &SessionId, archives: &[Archive]) -> Outcome {
    let first = archives.first();
    let script = first.and_then(|archive| rye_host::model_script(archive, "default"));
    let script = script.ok_or_else(|| {
        let message = "the thread `default` of the session is empty";
        Failure::failed("not_found", message)
    })?;
    let Some(file) = &args.output else {
        Printer::raw(script.as_bytes()).map_err(|error| Failure::failed("io", error))?;
        return Ok(Box::new(AlreadyPrinted));
    };
    check_overwrite(args, id, file, SCRIPT_HEADER.as_bytes())?;
    lillux::durable::write(file, script.as_bytes(), 0o600, IfExists::Replace)?;
    Ok(Box::new(ExportReport {
        file: file.clone(),
        next: "rye prompt 'say hello' --model scripted:",
        sessions: 1,
        blobs: WrittenBlobs::default(),
    }))
}

struct ExportReport {
    file: PathBuf,
    /// Prefix of the next command, to which the file is appended.
    next: &'static str,
    sessions: usize,
    blobs: WrittenBlobs,
}

/// Warns about blobs that are not in the file.
fn warn_missing(blobs: &WrittenBlobs, printer: Printer) {
    for (hash, why) in &blobs.missing {
        printer.warn(&format!("{SCHEME}{hash} was not exported: {why}"), None);
    }
}

impl Report for ExportReport {
    fn json(&self) -> Value {
        let missing: Vec<_> = self.blobs.missing.iter().map(|(hash, _)| hash).collect();
        json!({
            "file": self.file,
            "sessions": self.sessions,
            "blobs": self.blobs.written,
            "missing_blobs": missing,
        })
    }

    fn show(&self, page: &mut Page) {
        let blobs = match self.blobs.written {
            0 => String::new(),
            blobs => format!(", with {}", count(blobs, "blob", "blobs")),
        };
        page.line(format_args!("exported to {}{blobs}", self.file.display()));
    }

    fn next_command(&self) -> Option<String> {
        let file = lillux::shell_word(&self.file);
        Some(format!("{}{file}", self.next))
    }
}
