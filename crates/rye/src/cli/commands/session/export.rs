//! `rye session export`: writes a session and its blobs to a file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::durable::{AtomicFile, IfExists, WriteError};
use lillux::keys::{PublicKey, SigningKey};
use rye_engine::Engine;
use rye_engine::blob::{SCHEME, referenced_blobs, required_blobs};
use rye_engine::protocol::{Archive, EventKind, SessionId};
use rye_host::SCRIPT_HEADER;
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::find_session;
use rye_host::transfer::{TransferError, Writer};
use serde_json::{Value, json};

use super::verify::{count, transfer_failure, trusted_key};
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
        let content = Content {
            engine,
            keys: public_keys(&archives, context)?,
            signer: context.signing_key()?.cloned(),
            sessions: archives.len(),
        };
        let Some(file) = &args.output else {
            let output = Printer::raw_output().map_err(|error| Failure::failed("io", error))?;
            let (_, exported) = match content.write(output, archives).await {
                // A broken pipe is not an error.
                Err(TransferError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Box::new(AlreadyPrinted));
                }
                written => written.map_err(|error| transfer_failure(Path::new("-"), &error))?,
            };
            exported.warn_missing(context.printer);
            return Ok(Box::new(AlreadyPrinted));
        };
        check_overwrite(args, &id, file, SESSIONS_PREFIX)?;
        let draft = AtomicFile::new(file, 0o600).map_err(WriteError::from)?;
        let written = content.write(draft, archives).await;
        let (draft, exported) = written.map_err(|error| transfer_failure(file, &error))?;
        draft.publish(IfExists::Replace)?;
        exported.warn_missing(context.printer);
        Ok(Box::new(ExportReport {
            file: file.clone(),
            ..exported
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
        blobs: 0,
        missing: Vec::new(),
    }))
}

/// What to write to a file besides the archives.
struct Content<'a> {
    engine: &'a Engine,
    keys: Vec<PublicKey>,
    signer: Option<Arc<SigningKey>>,
    sessions: usize,
}

impl Content<'_> {
    async fn write<W: Write>(
        self,
        out: W,
        archives: Vec<Archive>,
    ) -> Result<(W, ExportReport), TransferError> {
        let all: BTreeSet<Hash> = archives.iter().flat_map(referenced_blobs).collect();
        let required: BTreeSet<Hash> = archives
            .iter()
            .flat_map(required_blobs)
            .map(|it| it.0)
            .collect();
        let mut exported = ExportReport {
            file: PathBuf::new(),
            next: "rye session verify ",
            sessions: self.sessions,
            blobs: 0,
            missing: Vec::new(),
        };
        let mut out = Writer::new(out, archives, &self.keys)?;
        // Blobs that are only mentioned are included if any blob is required.
        for hash in all.into_iter().filter(|_| !required.is_empty()) {
            match self.engine.blob(&hash).await {
                Ok(Some(bytes)) => {
                    out.write_blob(&hash, &bytes)?;
                    exported.blobs += 1;
                }
                Ok(None) | Err(_) if !required.contains(&hash) => {}
                Ok(None) => exported.missing.push((hash, "not found".to_owned())),
                Err(error) => exported.missing.push((hash, error.to_string())),
            }
        }
        Ok((out.finish(self.signer.as_deref())?, exported))
    }
}

/// The public keys of the signatures, if they are trusted here.
fn public_keys(archives: &[Archive], context: &Context) -> Result<Vec<PublicKey>, Failure> {
    let library = context.library()?;
    let trust = library.trust();
    let events = archives.iter().flat_map(|archive| &archive.events);
    let mut names: Vec<_> = events
        .filter_map(|event| match &event.kind {
            EventKind::Sealed { seal } => Some(seal.key.clone()),
            EventKind::DecisionGateResolved { resolution, .. } => resolution
                .receipt
                .as_ref()
                .map(|receipt| receipt.key.clone()),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    let trusted = names.iter().filter_map(|name| trusted_key(&trust, name));
    Ok(trusted.collect())
}

struct ExportReport {
    file: PathBuf,
    /// Prefix of the next command, to which the file is appended.
    next: &'static str,
    sessions: usize,
    blobs: usize,
    /// Blobs that are required but not in the file, and why.
    missing: Vec<(Hash, String)>,
}

impl ExportReport {
    /// Warns about blobs that are not in the file.
    fn warn_missing(&self, printer: Printer) {
        for (hash, why) in &self.missing {
            printer.warn(&format!("{SCHEME}{hash} was not exported: {why}"), None);
        }
    }
}

impl Report for ExportReport {
    fn json(&self) -> Value {
        let missing: Vec<_> = self.missing.iter().map(|(hash, _)| hash).collect();
        json!({
            "file": self.file,
            "sessions": self.sessions,
            "blobs": self.blobs,
            "missing_blobs": missing,
        })
    }

    fn show(&self, page: &mut Page) {
        let blobs = match self.blobs {
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
