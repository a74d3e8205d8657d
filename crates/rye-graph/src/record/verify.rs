//! Whether a record is as it was signed.

mod check;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;

use lillux::PathContext as _;
use lillux::cas::Cas;

use super::runs::{RunHandle, RunStore, SNAPSHOT};
use super::{RecordError, Replayed, TrustPolicy};
use check::Check;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many lines there are.
    pub lines: usize,
    /// How many of them are signed; each stands for all before it.
    pub signed: usize,
    /// How many at the end no signature stands for: what one crash can leave. Whoever goes on
    /// with the run passes over them.
    pub open: usize,
    /// How many snapshots were compared with what the lines tell.
    pub snapshots: usize,
    /// How many decisions there are with a person's signature.
    pub receipts: usize,
    /// The fingerprints of the keys that signed.
    pub keys: BTreeSet<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// As many bytes of the record as signatures stand for.
    pub(crate) length: usize,
}

impl VerifyReport {
    /// Whether all that is wrong is that nobody signed it.
    pub fn is_unsigned(&self) -> bool {
        let is_unsigned = |finding: &Finding| finding.kind == FindingKind::Unsigned;
        !self.findings.is_empty() && self.findings.iter().all(is_unsigned)
    }

    /// Whether all that is wrong is that keys are not trusted.
    pub fn has_only_untrusted_keys(&self) -> bool {
        let is_unknown = |finding: &Finding| finding.kind == FindingKind::UnknownKey;
        !self.findings.is_empty() && self.findings.iter().all(is_unknown)
    }
}

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line, from 1; 0 is the record as a whole.
    pub line: usize,
    /// Of which kind it is.
    pub kind: FindingKind,
    /// In words.
    pub message: String,
}

/// The kinds of what can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// It is not what was written.
    Altered,
    /// Nobody signed it.
    Unsigned,
    /// Who signed it is not trusted.
    UnknownKey,
}

impl RunHandle {
    /// Checks the record: it is there from its beginning on, every line follows the one
    /// before it, keys that are trusted have signed it, each decision has a person's receipt,
    /// and snapshots hold what the lines tell.
    pub fn verify(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
    ) -> Result<VerifyReport, RecordError> {
        let path = self.events();
        let bytes = fs::read(&path).at("read", &path)?;
        Ok(self.check(runs, trust, &bytes))
    }

    /// The same of what was read of it.
    pub(super) fn check(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        bytes: &[u8],
    ) -> VerifyReport {
        let store = Cas::open_existing(runs.store()).ok();
        let mut check = Check::new(&self.id, trust, store);
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            // What a dying process did not finish is no line.
            if text.ends_with(b"\n") {
                check.line(text);
            }
        }
        let named = fs::read_to_string(self.folder().join(SNAPSHOT));
        check.end(named.unwrap_or_default().trim())
    }

    /// Opens its record to go on with it, as far as it is signed by those who are trusted.
    /// Where nobody has a key, nothing is signed, and it is taken as it is.
    pub(crate) fn open(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        has_key: bool,
    ) -> Result<(File, Replayed), RecordError> {
        let path = self.events();
        let opened = OpenOptions::new().read(true).append(true).open(&path);
        let mut file = opened.at("open", &path)?;
        // Before it is read: nobody may write to it any more.
        file.try_lock()
            .map_err(|_| RecordError::InUse(self.id.clone()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &path)?;
        let verdict = self.check(runs, trust, &bytes);
        if !has_key && verdict.is_unsigned() {
            return Ok((file, Replayed::read(&self.id, &path, &bytes)?));
        }
        self.holds(&verdict)?;
        if !has_key {
            return Err(RecordError::NoKey(self.id.clone()));
        }
        let (signed, open) = bytes.split_at(verdict.length);
        let mut replayed = Replayed::read(&self.id, &path, signed)?;
        replayed.beware(open);
        Ok((file, replayed))
    }

    /// Whether it may be acted on.
    fn holds(&self, verdict: &VerifyReport) -> Result<(), RecordError> {
        let run = self.id.clone();
        let Some(Finding { line, message, .. }) = verdict.findings.first().cloned() else {
            return Ok(());
        };
        Err(if verdict.is_unsigned() {
            RecordError::Unsigned(run)
        } else if verdict.has_only_untrusted_keys() {
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

    /// Whether it could be gone on with, for those who want to know before they try.
    pub fn check_resumable(
        &self,
        runs: &RunStore,
        trust: &dyn TrustPolicy,
        has_key: bool,
    ) -> Result<(), RecordError> {
        let verdict = self.verify(runs, trust)?;
        if !has_key && verdict.is_unsigned() {
            return Ok(());
        }
        self.holds(&verdict)?;
        if has_key {
            Ok(())
        } else {
            Err(RecordError::NoKey(self.id.clone()))
        }
    }
}
