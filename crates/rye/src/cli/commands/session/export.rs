//! `rye session export`

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use lillux::Hash;
use lillux::durable::{Draft, Existing, WriteError};
use lillux::keys::{PublicKey, SigningKey};
use rye_engine::Engine;
use rye_engine::blob::{SCHEME, referenced_blobs, required_blobs};
use rye_engine::protocol::{Archive, EventKind};
use rye_host::transfer::{TransferError, Writer};
use serde_json::{Value, json};

use super::proof::{count, failure, trusted};
use crate::cli::args::ExportSessionArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, signing_key, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Printer, Report, Written};

pub(crate) fn export(args: &ExportSessionArgs, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let id = find(engine, &args.session.id).await?;
        let archives = engine.export(&id).await?;
        if args.script {
            return as_script(args, &archives);
        }
        let content = Content {
            engine,
            keys: public_keys(&archives, context)?,
            signer: signing_key(context)?,
            sessions: archives.len(),
        };
        let Some(file) = &args.output else {
            let output = Printer::raw_output().map_err(|error| Failure::failed("io", error))?;
            let (_, exported) = match content.write(output, archives).await {
                // A reader that went away is no failure of ours.
                Err(TransferError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Box::new(Written));
                }
                written => written.map_err(|error| failure(Path::new("-"), &error))?,
            };
            exported.tell(context.printer);
            return Ok(Box::new(Written));
        };
        replaceable(file, SESSIONS, args.force)?;
        let draft = Draft::new(file, 0o600).map_err(WriteError::from)?;
        let written = content.write(draft, archives).await;
        let (draft, exported) = written.map_err(|error| failure(file, &error))?;
        draft.publish(Existing::Replace)?;
        exported.tell(context.printer);
        Ok(Box::new(Exported {
            file: file.clone(),
            ..exported
        }))
    })
}

/// How what is written here begins.
const SESSIONS: &[u8] = b"{\"rye_sessions\":";
const SCRIPT: &[u8] = b"# What was said in session ";

/// Whether a file can be written without loss: it is not there, or is an earlier export.
fn replaceable(file: &Path, begins: &[u8], force: bool) -> Result<(), Failure> {
    let mut start = Vec::new();
    let there = File::open(file).and_then(|it| it.take(100).read_to_end(&mut start));
    if force || there.is_err() || start.is_empty() || start.starts_with(begins) {
        return Ok(());
    }
    let message = format!("{} is there, and is no export", file.display());
    Err(Failure::usage(message).hint("name another file, or replace it with --force"))
}

/// What its model said, to be said again.
fn as_script(args: &ExportSessionArgs, archives: &[Archive]) -> Outcome {
    let first = archives.first();
    let script = first.and_then(|archive| rye_host::script(archive, "default"));
    let script = script.ok_or_else(|| {
        let message = "nothing was said in its thread `default`";
        Failure::failed("not_found", message)
    })?;
    let Some(file) = &args.output else {
        Printer::raw(script.as_bytes()).map_err(|error| Failure::failed("io", error))?;
        return Ok(Box::new(Written));
    };
    replaceable(file, SCRIPT, args.force)?;
    lillux::durable::write(file, script.as_bytes(), 0o600, Existing::Replace)?;
    Ok(Box::new(Exported {
        file: file.clone(),
        next: "rye prompt 'the first prompt' --model scripted:",
        sessions: 1,
        blobs: 0,
        missing: Vec::new(),
    }))
}

/// What goes into a file beside the sessions.
struct Content<'a> {
    engine: &'a Engine,
    keys: Vec<PublicKey>,
    signer: Option<SigningKey>,
    sessions: usize,
}

impl Content<'_> {
    async fn write<W: Write>(
        self,
        out: W,
        archives: Vec<Archive>,
    ) -> Result<(W, Exported), TransferError> {
        let all: BTreeSet<Hash> = archives.iter().flat_map(referenced_blobs).collect();
        let kept: BTreeSet<Hash> = archives
            .iter()
            .flat_map(required_blobs)
            .map(|it| it.0)
            .collect();
        let mut exported = Exported {
            file: PathBuf::new(),
            next: "rye session verify ",
            sessions: self.sessions,
            blobs: 0,
            missing: Vec::new(),
        };
        let mut out = Writer::new(out, archives, &self.keys)?;
        // What is only spoken of goes along with what was kept, if there is any.
        for hash in all.into_iter().filter(|_| !kept.is_empty()) {
            match self.engine.blob(&hash).await {
                Ok(Some(bytes)) => {
                    out.blob(&hash, &bytes)?;
                    exported.blobs += 1;
                }
                Ok(None) | Err(_) if !kept.contains(&hash) => {}
                Ok(None) => exported.missing.push((hash, "it is not there".to_owned())),
                Err(error) => exported.missing.push((hash, error.to_string())),
            }
        }
        Ok((out.end(self.signer.as_ref())?, exported))
    }
}

/// The keys that signed, as far as they are trusted here.
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
    let trusted = names.iter().filter_map(|name| trusted(&trust, name));
    Ok(trusted.collect())
}

struct Exported {
    file: PathBuf,
    /// What to do with the file, which follows.
    next: &'static str,
    sessions: usize,
    blobs: usize,
    /// What a session refers to and is not in the file, and why.
    missing: Vec<(Hash, String)>,
}

impl Exported {
    /// Says what is not in the file.
    fn tell(&self, printer: Printer) {
        for (hash, why) in &self.missing {
            printer.warn(&format!("{SCHEME}{hash} is not exported: {why}"), None);
        }
    }
}

impl Report for Exported {
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
        let with = match self.blobs {
            0 => String::new(),
            blobs => format!(", with {}", count(blobs, "blob", "blobs")),
        };
        page.line(format_args!("written to {}{with}", self.file.display()));
    }

    fn next(&self) -> Option<String> {
        let file = lillux::shell_word(&self.file);
        Some(format!("{}{file}", self.next))
    }
}
