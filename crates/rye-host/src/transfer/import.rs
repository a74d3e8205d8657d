//! Imports sessions and their blobs.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Seek as _};
use std::path::Path;

use lillux::Hash;
use lillux::keys::PublicKey;
use rye_engine::Engine;
use rye_engine::audit::{BlobStatus, UntrustedDecision};
use rye_engine::protocol::{Archive, SessionId};

use super::{ExportFile, Reader, TransferError};
use crate::failure::Failure;

/// The sessions of a file that were imported.
#[derive(Debug)]
pub struct Imported {
    /// The sessions.
    pub sessions: Vec<SessionId>,
    /// Decisions that do not count here.
    pub untrusted: Vec<UntrustedDecision>,
    /// Why the sessions could not be verified; empty if they were.
    pub unverified: Vec<String>,
    /// Number of imported blobs.
    pub blobs: usize,
    /// Required blobs that are not in the file.
    pub missing: Vec<Hash>,
}

/// Opens a file that can be read twice: to verify it and to import it. Copies a pipe.
pub fn open_seekable(path: &Path) -> io::Result<File> {
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
pub async fn check_not_present(engine: &Engine, transfer: &ExportFile) -> Result<(), Failure> {
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
pub async fn import_blobs(
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

/// Imports the sessions. Findings are the reasons why they are unverified.
pub async fn import_sessions(
    engine: &Engine,
    transfer: ExportFile,
    unverified: Vec<String>,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Result<Imported, Failure> {
    let found = engine.blob_statuses(&transfer.archives).await;
    let mut imported = Imported {
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
