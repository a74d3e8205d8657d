//! Checks the records of sessions: hash chain, seals, receipts and blobs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lillux::Hash;
use lillux::keys::{Fingerprint, PublicKey};
use rye_engine::audit::{self, BlobStatus, Finding, FindingKind, Verdict};
use rye_engine::blob::{SCHEME, required_blobs};
use rye_engine::protocol::{Archive, SessionId};
use rye_items::trust::Trust;
use serde_json::{Value, json};

use crate::failure::{Failure, FailureKind};
use crate::transfer::{self, ExportFile, TransferError};

/// The verdict on each session.
pub type Verdicts = Vec<(SessionId, Verdict)>;

/// The verdict on a session as JSON, with the owners of keys by fingerprint.
pub fn verdict_json(
    session: &SessionId,
    verdict: &Verdict,
    owners: &BTreeMap<String, String>,
) -> Value {
    let findings = verdict.findings.iter().map(|finding| {
        json!({
            "kind": finding_name(finding.kind),
            "location": finding.location,
            "reason": finding.reason,
        })
    });
    json!({
        "session": session,
        "entries": verdict.entries,
        "unsigned_entries": verdict.unsealed_entries,
        "seals": verdict.seals,
        "receipts": verdict.receipts,
        "blobs": verdict.blobs,
        "keys": verdict.keys,
        "owners": owners,
        "sealed_at": verdict.sealed_at,
        "unsealed": verdict.unsealed_rows,
        "findings": findings.collect::<Vec<_>>(),
    })
}

/// The owners of the keys in verdicts, by fingerprint.
pub fn key_owners(sessions: &Verdicts, trust: &Trust<'_>) -> BTreeMap<String, String> {
    let keys = sessions.iter().flat_map(|(_, verdict)| &verdict.keys);
    keys.filter_map(|key| Some((key.clone(), key_owner(trust, key)?)))
        .collect()
}

/// The serialised name of a kind of finding.
pub fn finding_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Altered => "altered",
        FindingKind::Missing => "missing",
        FindingKind::Added => "added",
        FindingKind::Signature => "signature",
        FindingKind::UnknownKey => "unknown_key",
    }
}

/// The sessions to verify.
pub struct SessionRecords {
    /// The sessions, parents first.
    pub archives: Vec<Archive>,
    /// What is wrong with the signature of the file.
    pub file_finding: Option<Finding>,
    /// State of the required blobs.
    pub blobs: BTreeMap<Hash, BlobStatus>,
}

impl SessionRecords {
    /// Checks seals, receipts, rows and blobs.
    pub fn verify(&self, key: impl Fn(&str) -> Option<PublicKey>) -> Verdicts {
        let mut sessions = Verdicts::new();
        let verdicts = audit::check_all(&self.archives, key);
        for (archive, mut verdict) in self.archives.iter().zip(verdicts) {
            audit::check_blobs(archive, &mut verdict, |hash| {
                self.blobs.get(hash).copied().unwrap_or(BlobStatus::Missing)
            });
            if sessions.is_empty() {
                verdict.findings.extend(self.file_finding.clone());
            }
            sessions.push((archive.session.id.clone(), verdict));
        }
        sessions
    }
}

/// The key with a fingerprint, if it is trusted.
pub fn trusted_key(trust: &Trust<'_>, name: &str) -> Option<PublicKey> {
    let fingerprint: Fingerprint = name.parse().ok()?;
    Some(trust.key_status(fingerprint).ok()?.key.clone())
}

/// The owner of the trusted key with a fingerprint.
pub fn key_owner(trust: &Trust<'_>, name: &str) -> Option<String> {
    let fingerprint: Fingerprint = name.parse().ok()?;
    trust.key_status(fingerprint).ok()?.owner.clone()
}

/// Reads an exported file.
pub fn read_sessions(
    path: &Path,
    key: &impl Fn(&str) -> Option<PublicKey>,
) -> Result<SessionRecords, Failure> {
    let read = File::open(path)
        .map_err(TransferError::from)
        .and_then(|file| transfer::read(BufReader::new(file)));
    let transfer = read.map_err(|error| transfer_failure(path, &error))?;
    Ok(SessionRecords::from_file(path, &transfer, key))
}

/// Verifies a file before it is imported.
pub fn verify_file(
    path: &Path,
    transfer: &ExportFile,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Verdicts {
    let mut sessions = SessionRecords::from_file(path, transfer, &key).verify(key);
    // A blob that was missing at the time of the export does not mean that the file was altered.
    for (_, verdict) in &mut sessions {
        let is_missing_blob =
            |it: &Finding| it.kind == FindingKind::Missing && it.location.starts_with(SCHEME);
        verdict.findings.retain(|finding| !is_missing_blob(finding));
    }
    sessions
}

impl SessionRecords {
    /// The content of a file, with a finding if its signature is missing or wrong.
    fn from_file(
        path: &Path,
        transfer: &ExportFile,
        key: &impl Fn(&str) -> Option<PublicKey>,
    ) -> Self {
        let finding = |kind, reason: String| {
            Some(Finding {
                kind,
                location: path.display().to_string(),
                reason,
            })
        };
        let file_finding = match &transfer.signature {
            None => finding(FindingKind::Signature, "the file is not signed".to_owned()),
            Some(signed) => match key(&signed.key) {
                None => {
                    let why = format!("signed by {}, which is not trusted", signed.key);
                    finding(FindingKind::UnknownKey, why)
                }
                Some(public) if signed.is_valid_for(&public) => None,
                Some(_) => finding(FindingKind::Signature, "the signature is wrong".to_owned()),
            },
        };
        let required = transfer.archives.iter().flat_map(required_blobs);
        let find = |hash: Hash| (hash, transfer.blobs.status(&hash));
        let blobs = required.map(|(hash, _)| find(hash)).collect();
        Self {
            archives: transfer.archives.clone(),
            file_finding,
            blobs,
        }
    }
}

/// The failure to read an exported file.
pub fn transfer_failure(path: &Path, error: &TransferError) -> Failure {
    let path = path.display();
    match error {
        TransferError::Io(error) => Failure::failed("io", format_args!("{path}: {error}")),
        TransferError::Version(_) => Failure::failed("version", format_args!("{path}: {error}")),
        _ => Failure::new(
            FailureKind::Integrity,
            "integrity",
            format_args!("{path}: {error}"),
        ),
    }
}
