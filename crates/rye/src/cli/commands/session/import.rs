//! `rye session import`: verifies an exported file and imports its sessions and blobs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Seek as _};
use std::path::Path;

use lillux::Hash;
use lillux::keys::PublicKey;
use rye_engine::Engine;
use rye_engine::audit::{BlobStatus, UntrustedDecision};
use rye_engine::protocol::{Archive, SessionId};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::transfer::{self, ExportFile, Reader, TransferError};
use serde_json::{Value, json};

use super::verify::{VerifyReport, count, transfer_failure, trusted_key, verify_file};
use crate::cli::args::ImportSessionArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

/// How many findings of a file are listed.
const MAX_FINDINGS: usize = 10;

pub(crate) fn import(args: &ImportSessionArgs, context: &Context) -> Outcome {
    let bad = |error: TransferError| transfer_failure(&args.file, &error);
    let mut file = seekable(&args.file).map_err(|error| bad(error.into()))?;
    let transfer = transfer::read(BufReader::new(&file)).map_err(bad)?;
    let library = context.library()?;
    let trust = library.trust();
    let verified = verify_file(&args.file, &transfer, |name| trusted_key(&trust, name));
    let findings = verified.describe_findings();
    if !findings.is_empty() && !args.allow_unverified {
        return Err(unverified_failure(&args.file, &verified));
    }
    with_engine(context, EngineOptions::default(), async |engine| {
        check_not_present(engine, &transfer).await?;
        file.rewind().map_err(|error| bad(error.into()))?;
        import_blobs(engine, &file, bad).await?;
        let key = |name: &str| trusted_key(&trust, name);
        let imported = import_sessions(engine, transfer, findings, key).await?;
        Ok(Box::new(imported) as Box<dyn Report>)
    })
}

/// The refusal to import a file that fails verification.
fn unverified_failure(path: &Path, verified: &VerifyReport) -> Failure {
    let findings = verified.describe_findings();
    let listed = findings.len().min(MAX_FINDINGS);
    let mut message = format!(
        "cannot verify {}: {}",
        path.display(),
        findings[..listed].join("; ")
    );
    if findings.len() > listed {
        let _ = write!(message, "; and {} more", findings.len() - listed);
    }
    let failure = Failure::new(Exit::Integrity, "unverified", message);
    let file = lillux::shell_word(path);
    if verified.has_only_unknown_keys() {
        return failure.hint("rye keys trust --help");
    }
    failure.hint(format!("rye session import {file} --allow-unverified"))
}

/// Opens a file that can be read twice: to verify it and to import it. Copies a pipe.
fn seekable(path: &Path) -> io::Result<File> {
    let mut source = if path == Path::new("-") {
        File::from(rustix::io::dup(io::stdin())?)
    } else {
        File::open(path)?
    };
    if source.metadata()?.is_file() {
        return Ok(source);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut source, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// Fails if one of the sessions exists. A task without its parent is the remainder of an
/// interrupted import, which imports the parent last, and is removed.
async fn check_not_present(engine: &Engine, transfer: &ExportFile) -> Result<(), Failure> {
    let mut parents = HashSet::new();
    for archive in &transfer.archives {
        let id = &archive.session.id;
        let is_task = archive.session.parent.as_ref();
        let is_task = is_task.is_some_and(|it| parents.contains(&it.session));
        parents.insert(id.clone());
        match engine.session_data(id).await? {
            None => {}
            Some(_) if is_task => engine.remove_session(id).await?,
            Some(_) => return Err(already_exists(id)),
        }
    }
    Ok(())
}

/// Imports the blobs. Comes before the sessions, so that no session refers to a missing blob.
async fn import_blobs(
    engine: &Engine,
    file: &File,
    bad: impl Fn(TransferError) -> Failure,
) -> Result<(), Failure> {
    let mut reader = Reader::new(BufReader::new(file));
    while let Some(bytes) = reader.next_blob().map_err(&bad)? {
        let stored = engine.store_blob(bytes).await;
        stored.map_err(|error| Failure::failed("store", error))?;
    }
    Ok(())
}

async fn import_sessions(
    engine: &Engine,
    transfer: ExportFile,
    unverified: Vec<String>,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Result<ImportReport, Failure> {
    let found = engine.blob_statuses(&transfer.archives).await;
    let mut imported = ImportReport {
        sessions: Vec::new(),
        untrusted: Vec::new(),
        unverified: Vec::new(),
        blobs: transfer.blobs.intact.len(),
        missing: found
            .into_iter()
            .filter(|it| it.1 != BlobStatus::Intact)
            .map(|it| it.0)
            .collect(),
    };
    imported.sessions = ids(&transfer.archives);
    // In reverse: the parent comes last, so that an interrupted import leaves no incomplete session.
    for archive in transfer.archives.into_iter().rev() {
        imported.untrusted.extend(match unverified.first() {
            Some(why) => engine.import_unverified(archive, why).await?,
            None => engine.import(archive, &key).await?,
        });
    }
    imported.unverified = unverified;
    Ok(imported)
}

fn ids(archives: &[Archive]) -> Vec<SessionId> {
    let all = archives.iter();
    all.map(|it| it.session.id.clone()).collect()
}

fn already_exists(id: &SessionId) -> Failure {
    let id = id.short();
    Failure::failed("conflict", format!("session {id} already exists"))
        .hint(format!("rye session show {id}"))
}

struct ImportReport {
    sessions: Vec<SessionId>,
    /// Decisions that do not count here.
    untrusted: Vec<UntrustedDecision>,
    /// Why the sessions could not be verified; empty if they were.
    unverified: Vec<String>,
    /// Number of imported blobs.
    blobs: usize,
    /// Required blobs that are not in the file.
    missing: Vec<Hash>,
}

impl ImportReport {
    fn reopened(&self) -> usize {
        let untrusted = self.untrusted.iter();
        untrusted.filter(|it| it.is_reopened).count()
    }
}

impl Report for ImportReport {
    fn json(&self) -> Value {
        let untrusted = self
            .untrusted
            .iter()
            .map(|it| json!({ "gate": it.gate, "reason": it.reason, "reopened": it.is_reopened }));
        let untrusted: Vec<_> = untrusted.collect();
        json!({
            "sessions": self.sessions,
            "unverified": self.unverified,
            "untrusted_decisions": untrusted,
            "blobs": self.blobs,
            "missing_blobs": self.missing,
        })
    }

    fn show(&self, page: &mut Page) {
        for id in &self.sessions {
            page.line(id.short());
        }
        if let Some(why) = self.unverified.first() {
            let why = format!("imported unverified: {}", sanitize(why));
            page.line(paint(BAD, why));
        }
        if !self.missing.is_empty() {
            let what = count(self.missing.len(), "blob is", "blobs are");
            page.line(format_args!(
                "{what} not in the file: some long output or files cannot be read here"
            ));
        }
        let reopened = self.reopened();
        if reopened > 0 {
            let what = count(reopened, "gate", "gates");
            page.line(format_args!("{what} reopened:"));
        }
        for decision in self.untrusted.iter().filter(|it| it.is_reopened) {
            let why = sanitize(&decision.reason);
            page.line(format_args!("  {}: {why}", decision.gate.short()));
        }
        let ignored = self.untrusted.len() - reopened;
        if ignored > 0 {
            let what = count(ignored, "session-wide approval", "session-wide approvals");
            page.line(format_args!("{what} ignored: not signed by a trusted key"));
        }
    }

    fn next_command(&self) -> Option<String> {
        let first = self.sessions.first()?.short();
        if self.reopened() > 0 {
            return Some("rye gate list".to_owned());
        }
        Some(format!(
            "rye session verify {first} && rye session resume {first}"
        ))
    }
}
