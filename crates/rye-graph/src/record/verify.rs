//! Verification of a run's record.

mod check;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;

use lillux::PathContext as _;
use lillux::cas::Cas;

use super::runs::{RunHandle, RunStore, SNAPSHOT};
use super::{RecordError, Replay, TrustPolicy};
use check::Verifier;

/// Result of verifying a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of lines.
    pub lines: usize,
    /// Number of signatures; each covers all lines before it.
    pub signed: usize,
    /// Number of unsigned lines at the end, which a crash can leave. Resuming ignores them.
    pub unsigned: usize,
    /// Number of snapshots that match the journal.
    pub snapshots: usize,
    /// Number of decisions with a valid receipt.
    pub receipts: usize,
    /// Fingerprints of the keys that signed.
    pub keys: BTreeSet<String>,
    /// Problems that were found.
    pub findings: Vec<Finding>,
    /// Length of the signed part in bytes.
    pub(crate) signed_length: usize,
}

impl VerifyReport {
    /// Whether the missing signature is the only problem.
    pub fn is_unsigned(&self) -> bool {
        let is_unsigned = |finding: &Finding| finding.kind == FindingKind::Unsigned;
        !self.findings.is_empty() && self.findings.iter().all(is_unsigned)
    }

    /// Whether untrusted keys are the only problem.
    pub fn has_only_untrusted_keys(&self) -> bool {
        let is_unknown = |finding: &Finding| finding.kind == FindingKind::UnknownKey;
        !self.findings.is_empty() && self.findings.iter().all(is_unknown)
    }
}

/// A problem of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line number from 1; 0 for the whole record.
    pub line: usize,
    /// Kind of the problem.
    pub kind: FindingKind,
    /// Explanation for the user.
    pub message: String,
}

/// Kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// The record was modified.
    Altered,
    /// The record is not signed.
    Unsigned,
    /// The record is signed with an untrusted key.
    UnknownKey,
}

impl RunHandle {
    /// Verifies the record: the hash chain, signatures of trusted keys, receipts of decisions,
    /// and snapshots.
    pub fn verify(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
    ) -> Result<VerifyReport, RecordError> {
        let path = self.events();
        let bytes = fs::read(&path).at("read", &path)?;
        Ok(self.check(runs, trust, &bytes))
    }

    /// Verifies the bytes of a journal.
    pub(super) fn check(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        bytes: &[u8],
    ) -> VerifyReport {
        let store = Cas::open_existing(runs.store()).ok();
        let mut verifier = Verifier::new(&self.id, trust, store);
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Ignore an incomplete last line.
            if text.ends_with(b"\n") {
                verifier.line(text);
            }
        }
        let named = fs::read_to_string(self.run_dir().join(SNAPSHOT));
        verifier.finish(named.unwrap_or_default().trim())
    }

    /// Opens the journal to continue it, up to the last trusted signature. Without a signing
    /// key, an unsigned journal is accepted.
    pub(crate) fn open(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        has_key: bool,
    ) -> Result<(File, Replay), RecordError> {
        let path = self.events();
        let opened = OpenOptions::new().read(true).append(true).open(&path);
        let mut file = opened.at("open", &path)?;
        // Lock the file before reading it.
        file.try_lock()
            .map_err(|_| RecordError::InUse(self.id.clone()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &path)?;
        let report = self.check(runs, trust, &bytes);
        if !has_key && report.is_unsigned() {
            return Ok((file, Replay::from_bytes(&self.id, &path, &bytes)?));
        }
        self.check_report(&report)?;
        if !has_key {
            return Err(RecordError::NoKey(self.id.clone()));
        }
        let (signed, unsigned) = bytes.split_at(report.signed_length);
        let mut replay = Replay::from_bytes(&self.id, &path, signed)?;
        replay.apply_unsigned(unsigned);
        Ok((file, replay))
    }

    /// Fails if the record has problems.
    fn check_report(&self, report: &VerifyReport) -> Result<(), RecordError> {
        let run = self.id.clone();
        let Some(Finding { line, message, .. }) = report.findings.first().cloned() else {
            return Ok(());
        };
        Err(if report.is_unsigned() {
            RecordError::Unsigned(run)
        } else if report.has_only_untrusted_keys() {
            RecordError::UntrustedKey {
                run,
                line,
                why: message,
            }
        } else {
            RecordError::Altered {
                run,
                line,
                why: message,
            }
        })
    }

    /// Checks whether the record allows the run to be resumed.
    pub fn check_resumable(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        has_key: bool,
    ) -> Result<(), RecordError> {
        let report = self.verify(runs, trust)?;
        if !has_key && report.is_unsigned() {
            return Ok(());
        }
        self.check_report(&report)?;
        if has_key {
            Ok(())
        } else {
            Err(RecordError::NoKey(self.id.clone()))
        }
    }
}
