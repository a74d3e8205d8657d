//! `rye session verify`: checks the hash chain, seals, receipts and blobs of a session.

use std::collections::BTreeMap;
use std::path::Path;

use rye_engine::audit::{Finding, FindingKind, Verdict};
use rye_engine::protocol::Millis;
use rye_engine::store::StoreError;
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::find_session;
use rye_host::session_check::{
    SessionRecords, Verdicts, finding_name, key_owners, read_sessions, trusted_key, verdict_json,
};
use rye_items::trust::Trust;
use serde_json::{Value, json};

use crate::cli::args::VerifySessionArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, WARN, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn verify(args: &VerifySessionArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let trust = library.trust();
    let key = |name: &str| trusted_key(&trust, name);
    let file = Path::new(&args.source);
    let input = if file.is_file() {
        read_sessions(file, &key)?
    } else {
        with_engine(context, EngineOptions::default(), async |engine| {
            let id = find_session(engine, &args.source).await?;
            let archives = engine.export(&id).await.map_err(altered)?;
            let found = engine.blob_statuses(&archives).await;
            Ok(SessionRecords {
                archives,
                file_finding: None,
                blobs: found,
            })
        })?
    };
    let sessions = input.verify(key);
    Ok(Box::new(VerifyReport::new(sessions, &trust)))
}

/// An unreadable record counts as altered.
fn altered(error: StoreError) -> Failure {
    match error {
        StoreError::Unreadable(_) | StoreError::Damaged(_) => {
            Failure::new(Exit::Integrity, "altered", error)
        }
        other => other.into(),
    }
}

pub(super) struct VerifyReport {
    sessions: Verdicts,
    /// Owners of the keys, by fingerprint.
    owners: BTreeMap<String, String>,
}

impl VerifyReport {
    pub(super) fn new(sessions: Verdicts, trust: &Trust<'_>) -> Self {
        let owners = key_owners(&sessions, trust);
        Self { sessions, owners }
    }

    /// A key as its owner with the fingerprint.
    fn describe_key(&self, key: &str) -> String {
        match self.owners.get(key) {
            Some(owner) => format!("{} ({key})", sanitize(owner)),
            None => key.to_owned(),
        }
    }

    /// All findings, a line each.
    pub(super) fn describe_findings(&self) -> Vec<String> {
        let line = |finding: &Finding| {
            format!(
                "{} {}: {}",
                finding_name(finding.kind),
                finding.location,
                finding.reason
            )
        };
        self.findings().map(line).collect()
    }

    /// Whether all findings are signatures by keys that are not trusted here.
    pub(super) fn has_only_unknown_keys(&self) -> bool {
        self.findings().all(|it| it.kind == FindingKind::UnknownKey)
    }

    fn unsealed(&self) -> usize {
        let sessions = self.sessions.iter();
        sessions
            .map(|(_, verdict)| verdict.unsealed_rows.len())
            .sum()
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sessions
            .iter()
            .flat_map(|(_, verdict)| &verdict.findings)
    }
}

impl Report for VerifyReport {
    fn json(&self) -> Value {
        let sessions = self.sessions.iter();
        let sessions = sessions.map(|(id, verdict)| verdict_json(id, verdict, &self.owners));
        json!({ "sessions": sessions.collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        for (id, verdict) in &self.sessions {
            let state = if verdict.is_verified() {
                paint(GOOD, "verified")
            } else if verdict.findings.is_empty() {
                paint(WARN, "verified up to the last seal")
            } else if verdict.is_unsigned() {
                paint(BAD, "not signed")
            } else {
                paint(BAD, "altered")
            };
            let Verdict {
                entries,
                unsealed_entries: open,
                seals,
                receipts,
                blobs,
                keys,
                ..
            } = verdict;
            let blobs = match blobs {
                0 => String::new(),
                some => format!("{}, ", count(*some, "blob", "blobs")),
            };
            let keys: Vec<_> = keys.iter().map(|key| self.describe_key(key)).collect();
            page.line(format_args!("session {}: {state}", id.short()));
            page.line(format_args!(
                "  {}, {}, {}, {blobs}signed by {}",
                count(*entries, "entry", "entries"),
                count(*seals, "seal", "seals"),
                count(*receipts, "receipt", "receipts"),
                if keys.is_empty() {
                    "no key".to_owned()
                } else {
                    keys.join(", ")
                }
            ));
            if *open > 0 {
                page.line(format_args!("  {open} of them in a running turn"));
            }
            if !verdict.unsealed_rows.is_empty() {
                let since = verdict.sealed_at.map(timestamp);
                page.line(format_args!(
                    "  {} since {}:",
                    paint(WARN, "unsealed changes"),
                    since.unwrap_or_else(|| "the beginning".to_owned())
                ));
                for row in &verdict.unsealed_rows {
                    page.line(format_args!("    {}", sanitize(row)));
                }
            }
            for finding in &verdict.findings {
                let (kind, reason) = (finding_name(finding.kind), sanitize(&finding.reason));
                page.line(format_args!(
                    "  {} {}: {reason}",
                    paint(BAD, kind),
                    sanitize(&finding.location)
                ));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let findings = self.findings().count();
        if findings == 0 && self.unsealed() == 0 {
            return None;
        }
        if findings == 0 {
            let message = "some changes are not sealed: a turn is running, or the process that ran \
                           it was killed";
            let failure = Failure::new(Exit::Integrity, "unsealed", message);
            let id = self.sessions.first().map(|it| it.0.short().to_owned());
            return Some(failure.hint(format!("rye session show {}", id.unwrap_or_default())));
        }
        let mut faulty = self.sessions.iter().filter(|it| !it.1.findings.is_empty());
        let unsigned = faulty.all(|(_, verdict)| verdict.is_unsigned());
        let message = match findings {
            _ if unsigned => "the session is not signed, so it cannot be verified".to_owned(),
            1 => "verification failed: 1 finding".to_owned(),
            many => format!("verification failed: {many} findings"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        let unknown = self.has_only_unknown_keys();
        Some(if unsigned {
            failure.hint("rye init")
        } else if unknown {
            failure.hint("rye keys trust --help")
        } else {
            failure
        })
    }
}

fn timestamp(at: Millis) -> String {
    lillux::time::format_rfc3339((at.0 / 1000).cast_signed())
}

/// A number with its noun.
pub(super) fn count(many: usize, one: &str, more: &str) -> String {
    let word = if many == 1 { one } else { more };
    format!("{many} {word}")
}
