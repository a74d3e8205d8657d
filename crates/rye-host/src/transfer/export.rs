//! Writes sessions and their blobs.

use std::collections::BTreeSet;
use std::io::Write;

use lillux::Hash;
use lillux::keys::{PublicKey, SigningKey};
use rye_engine::Engine;
use rye_engine::blob::{referenced_blobs, required_blobs};
use rye_engine::protocol::{Archive, EventKind};

use super::{TransferError, Writer};
use crate::context::Context;
use crate::failure::Failure;
use crate::session_check::trusted_key;

/// The blobs of an export.
#[derive(Debug, Default)]
pub struct WrittenBlobs {
    /// Number of blobs in the file.
    pub written: usize,
    /// Blobs that are required but not in the file, and why.
    pub missing: Vec<(Hash, String)>,
}

/// Writes sessions, their blobs and the public keys that they need.
pub async fn export<W: Write>(
    out: W,
    archives: Vec<Archive>,
    keys: &[PublicKey],
    signer: Option<&SigningKey>,
    engine: &Engine,
) -> Result<(W, WrittenBlobs), TransferError> {
    let all: BTreeSet<Hash> = archives.iter().flat_map(referenced_blobs).collect();
    let required = archives.iter().flat_map(required_blobs);
    let required: BTreeSet<Hash> = required.map(|it| it.0).collect();
    let mut blobs = WrittenBlobs::default();
    let mut out = Writer::new(out, archives, keys)?;
    // Blobs that are only mentioned are included if any blob is required.
    for hash in all.into_iter().filter(|_| !required.is_empty()) {
        match engine.blob(&hash).await {
            Ok(Some(bytes)) => {
                out.write_blob(&hash, &bytes)?;
                blobs.written += 1;
            }
            Ok(None) | Err(_) if !required.contains(&hash) => {}
            Ok(None) => blobs.missing.push((hash, "not found".to_owned())),
            Err(error) => blobs.missing.push((hash, error.to_string())),
        }
    }
    Ok((out.finish(signer)?, blobs))
}

/// The public keys of the signatures, if they are trusted here.
pub fn public_keys(archives: &[Archive], context: &Context) -> Result<Vec<PublicKey>, Failure> {
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
