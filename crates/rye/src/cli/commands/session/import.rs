//! `rye session import`

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
use rye_host::transfer::{self, Reader, Transfer, TransferError};
use serde_json::{Value, json};

use super::proof::{Verified, count, failure, trusted, verify_file};
use crate::cli::args::ImportSessionArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, with_engine};
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

/// How many faults of a file are listed.
const MOST_COMPLAINTS: usize = 10;

pub(crate) fn import(args: &ImportSessionArgs, context: &Context) -> Outcome {
    let bad = |error: TransferError| failure(&args.file, &error);
    let mut file = seekable(&args.file).map_err(|error| bad(error.into()))?;
    let transfer = transfer::read(BufReader::new(&file)).map_err(bad)?;
    let library = context.library()?;
    let trust = library.trust();
    let verified = verify_file(&args.file, &transfer, |name| trusted(&trust, name));
    let complaints = verified.complaints();
    if !complaints.is_empty() && !args.allow_unverified {
        return Err(unverified(&args.file, &verified));
    }
    with_engine(context, Wanted::default(), async |engine| {
        all_new(engine, &transfer).await?;
        file.rewind().map_err(|error| bad(error.into()))?;
        keep_blobs(engine, &file, bad).await?;
        let key = |name: &str| trusted(&trust, name);
        let imported = sessions(engine, transfer, complaints, key).await?;
        Ok(Box::new(imported) as Box<dyn Report>)
    })
}

/// Nothing is written of a file that does not hold.
fn unverified(path: &Path, verified: &Verified) -> Failure {
    let complaints = verified.complaints();
    let listed = complaints.len().min(MOST_COMPLAINTS);
    let mut message = format!(
        "{} cannot be verified: {}",
        path.display(),
        complaints[..listed].join("; ")
    );
    if complaints.len() > listed {
        let _ = write!(message, "; and {} more", complaints.len() - listed);
    }
    let failure = Failure::new(Exit::Integrity, "unverified", message);
    let file = lillux::shell_word(path);
    if verified.is_by_strangers() {
        return failure.hint(
            "its owner shows the key with `rye keys show`; then: rye keys trust FILE".to_owned(),
        );
    }
    failure.hint(format!("rye session import {file} --allow-unverified"))
}

/// A file that can be read twice: once to see that it is whole, and then to use it.
fn seekable(path: &Path) -> io::Result<File> {
    let mut there = if path == Path::new("-") {
        File::from(rustix::io::dup(io::stdin())?)
    } else {
        File::open(path)?
    };
    if there.metadata()?.is_file() {
        return Ok(there);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut there, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// None of them may be here. Tasks whose session is not are what an import has left that was
/// cut off: the session itself is taken in last.
async fn all_new(engine: &Engine, transfer: &Transfer) -> Result<(), Failure> {
    let mut above = HashSet::new();
    for archive in &transfer.archives {
        let id = &archive.session.id;
        let is_task = archive.session.parent.as_ref();
        let is_task = is_task.is_some_and(|it| above.contains(&it.session));
        above.insert(id.clone());
        match engine.session_data(id).await? {
            None => {}
            Some(_) if is_task => engine.remove_session(id).await?,
            Some(_) => return Err(here_already(id)),
        }
    }
    Ok(())
}

/// Before the sessions, so that none ever refers to what is not there.
async fn keep_blobs(
    engine: &Engine,
    file: &File,
    bad: impl Fn(TransferError) -> Failure,
) -> Result<(), Failure> {
    let mut reader = Reader::new(BufReader::new(file));
    while let Some(bytes) = reader.next_blob().map_err(&bad)? {
        let kept = engine.store_blob(bytes).await;
        kept.map_err(|error| Failure::failed("store", error))?;
    }
    Ok(())
}

async fn sessions(
    engine: &Engine,
    transfer: Transfer,
    unverified: Vec<String>,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Result<Imported, Failure> {
    let found = engine.blob_statuses(&transfer.archives).await;
    let mut imported = Imported {
        sessions: Vec::new(),
        doubts: Vec::new(),
        unverified: Vec::new(),
        blobs: transfer.blobs.whole.len(),
        missing: found
            .into_iter()
            .filter(|it| it.1 != BlobStatus::Intact)
            .map(|it| it.0)
            .collect(),
    };
    imported.sessions = ids(&transfer.archives);
    // Whoever is killed meanwhile has not taken in a session that misses something.
    for archive in transfer.archives.into_iter().rev() {
        imported.doubts.extend(match unverified.first() {
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

fn here_already(id: &SessionId) -> Failure {
    Failure::failed("conflict", format!("session {id} is here already")).hint(format!(
        "rye session rm {id}, if the one of the file is to take its place"
    ))
}

struct Imported {
    sessions: Vec<SessionId>,
    /// Decisions that do not count here.
    doubts: Vec<UntrustedDecision>,
    /// Why they could not be verified; nothing where they were.
    unverified: Vec<String>,
    /// How many blobs came along.
    blobs: usize,
    /// Those that did not, and are needed.
    missing: Vec<Hash>,
}

impl Imported {
    fn asked_again(&self) -> usize {
        let doubts = self.doubts.iter();
        doubts.filter(|it| it.is_reopened).count()
    }
}

impl Report for Imported {
    fn json(&self) -> Value {
        let doubts = self
            .doubts
            .iter()
            .map(|it| json!({ "gate": it.gate, "why": it.reason, "asked_again": it.is_reopened }));
        let doubts: Vec<_> = doubts.collect();
        json!({
            "sessions": self.sessions,
            "unverified": self.unverified,
            "decisions_not_counted": doubts,
            "blobs": self.blobs,
            "missing_blobs": self.missing,
        })
    }

    fn show(&self, page: &mut Page) {
        for id in &self.sessions {
            page.line(id);
        }
        if let Some(why) = self.unverified.first() {
            let why = format!("imported unverified: {}", plain(why));
            page.line(paint(BAD, why));
        }
        if !self.missing.is_empty() {
            let what = count(self.missing.len(), "blob is", "blobs are");
            page.line(format_args!(
                "{what} not in the file: long output or files that cannot be read on here"
            ));
        }
        let again = self.asked_again();
        if again > 0 {
            let what = count(again, "decision is", "decisions are");
            page.line(format_args!("{what} asked again here:"));
        }
        for doubt in self.doubts.iter().filter(|it| it.is_reopened) {
            let (gate, why) = (plain(doubt.gate.as_str()), plain(&doubt.reason));
            page.line(format_args!("  {gate}: {why}"));
        }
        let past = self.doubts.len() - again;
        if past > 0 {
            let what = count(past, "approval", "approvals");
            page.line(format_args!(
                "{what} for the whole session will not be gone by: not signed by anybody \
                 who is trusted here"
            ));
        }
    }

    fn next(&self) -> Option<String> {
        let first = self.sessions.first()?;
        if self.asked_again() > 0 {
            return Some("rye gate list".to_owned());
        }
        Some(format!(
            "rye session verify {first} && rye session resume {first}"
        ))
    }
}
