//! `rye session import`

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Seek as _};
use std::path::Path;

use lillux::Hash;
use lillux::keys::PublicKey;
use rye_engine::Engine;
use rye_engine::proof::{Doubt, Kept};
use rye_engine::protocol::{Archive, SessionId};
use rye_host::transfer::{self, Reader, Transfer, TransferError};
use serde_json::{Value, json};

use super::proof::{count, failure, trusted};
use crate::cli::args::ImportSessionArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn import(args: &ImportSessionArgs, context: &Context) -> Outcome {
    let bad = |error: TransferError| failure(&args.file, &error);
    let mut file = seekable(&args.file).map_err(|error| bad(error.into()))?;
    let transfer = transfer::read(BufReader::new(&file)).map_err(bad)?;
    let altered = transfer.blobs.as_ref().map(|it| &it.altered);
    if let Some(hash) = altered.and_then(|it| it.first()) {
        let why = format!("blob {hash} is not what its hash says");
        return Err(bad(TransferError::Damaged(why)));
    }
    let library = context.library()?;
    let trust = library.trust();
    with_engine(context, Wanted::default(), async |engine| {
        all_new(engine, &transfer).await?;
        if transfer.blobs.is_some() {
            file.rewind().map_err(|error| bad(error.into()))?;
            keep_blobs(engine, &file, bad).await?;
        }
        let imported = sessions(engine, transfer, |name| trusted(&trust, name)).await?;
        Ok(Box::new(imported) as Box<dyn Report>)
    })
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
        let kept = engine.keep_blob(bytes).await;
        kept.map_err(|error| Failure::failed("store", error))?;
    }
    Ok(())
}

async fn sessions(
    engine: &Engine,
    transfer: Transfer,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Result<Imported, Failure> {
    let found = engine.look_at_blobs(&transfer.archives).await;
    let mut imported = Imported {
        sessions: Vec::new(),
        doubts: Vec::new(),
        blobs: transfer.blobs.map_or(0, |it| it.whole.len()),
        missing: found
            .into_iter()
            .filter(|it| it.1 != Kept::Whole)
            .map(|it| it.0)
            .collect(),
    };
    imported.sessions = ids(&transfer.archives);
    // Whoever is killed meanwhile has not taken in a session that misses something.
    for archive in transfer.archives.into_iter().rev() {
        imported.doubts.extend(engine.import(archive, &key).await?);
    }
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
    doubts: Vec<Doubt>,
    /// How many blobs came along.
    blobs: usize,
    /// Those that did not, and are needed.
    missing: Vec<Hash>,
}

impl Imported {
    fn asked_again(&self) -> usize {
        let doubts = self.doubts.iter();
        doubts.filter(|it| it.is_asked_again).count()
    }
}

impl Report for Imported {
    fn json(&self) -> Value {
        let doubts = self
            .doubts
            .iter()
            .map(|it| json!({ "gate": it.gate, "why": it.why, "asked_again": it.is_asked_again }));
        let doubts: Vec<_> = doubts.collect();
        json!({
            "sessions": self.sessions,
            "decisions_not_counted": doubts,
            "blobs": self.blobs,
            "missing_blobs": self.missing,
        })
    }

    fn show(&self, page: &mut Page) {
        for id in &self.sessions {
            page.line(id);
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
        for doubt in self.doubts.iter().filter(|it| it.is_asked_again) {
            let (gate, why) = (plain(doubt.gate.as_str()), plain(&doubt.why));
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
