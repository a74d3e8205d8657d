//! `rye session verify`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lillux::Hash;
use lillux::keys::{Fingerprint, PublicKey};
use rye_engine::audit::{self, BlobStatus, Finding, FindingKind, Verdict};
use rye_engine::blob::{SCHEME, required_blobs};
use rye_engine::protocol::{Archive, Millis, SessionId};
use rye_engine::store::StoreError;
use rye_host::transfer::{self, Transfer, TransferError};
use rye_items::trust::Trust;
use serde_json::{Value, json};

use crate::cli::args::VerifySessionArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, with_engine};
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, WARN, paint, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn verify(args: &VerifySessionArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let trust = library.trust();
    let key = |name: &str| trusted(&trust, name);
    let file = Path::new(&args.what);
    let checked = if file.is_file() {
        from_file(file, &key)?
    } else {
        with_engine(context, Wanted::default(), async |engine| {
            let id = find(engine, &args.what).await?;
            let archives = engine.export(&id).await.map_err(altered)?;
            let found = engine.blob_statuses(&archives).await;
            Ok(Checked {
                archives,
                fault: None,
                blobs: found,
            })
        })?
    };
    Ok(Box::new(checked.verify(key)))
}

/// What is to be checked.
struct Checked {
    archives: Vec<Archive>,
    /// What is wrong with the file itself.
    fault: Option<Finding>,
    /// How the blobs are found.
    blobs: BTreeMap<Hash, BlobStatus>,
}

impl Checked {
    /// Checks seals, receipts, rows and blobs.
    fn verify(&self, key: impl Fn(&str) -> Option<PublicKey>) -> Verified {
        let mut report = Verified::default();
        let verdicts = audit::check_all(&self.archives, key);
        for (archive, mut verdict) in self.archives.iter().zip(verdicts) {
            audit::check_blobs(archive, &mut verdict, |hash| {
                self.blobs.get(hash).copied().unwrap_or(BlobStatus::Missing)
            });
            if report.sessions.is_empty() {
                verdict.findings.extend(self.fault.clone());
            }
            report.sessions.push((archive.session.id.clone(), verdict));
        }
        report
    }
}

/// What cannot be read any more is not what was written.
fn altered(error: StoreError) -> Failure {
    match error {
        StoreError::Unreadable(_) => Failure::new(Exit::Integrity, "altered", error),
        other => other.into(),
    }
}

/// The key of a fingerprint, if it is trusted.
pub(super) fn trusted(trust: &Trust<'_>, name: &str) -> Option<PublicKey> {
    let fingerprint: Fingerprint = name.parse().ok()?;
    Some(trust.key_status(fingerprint).ok()?.key.clone())
}

fn from_file(path: &Path, key: &impl Fn(&str) -> Option<PublicKey>) -> Result<Checked, Failure> {
    let read = File::open(path)
        .map_err(TransferError::from)
        .and_then(|file| transfer::read(BufReader::new(file)));
    let transfer = read.map_err(|error| failure(path, &error))?;
    Ok(Checked::of_file(path, &transfer, key))
}

/// Checks what a file says, before anything of it is written here.
pub(super) fn verify_file(
    path: &Path,
    transfer: &Transfer,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Verified {
    let mut verified = Checked::of_file(path, transfer, &key).verify(key);
    // A blob that was missing when the file was written is no sign that anybody altered it.
    for (_, verdict) in &mut verified.sessions {
        let is_missing_blob =
            |it: &Finding| it.kind == FindingKind::Missing && it.location.starts_with(SCHEME);
        verdict.findings.retain(|fault| !is_missing_blob(fault));
    }
    verified
}

impl Checked {
    /// What a file says, and what is wrong with its signature.
    fn of_file(path: &Path, transfer: &Transfer, key: &impl Fn(&str) -> Option<PublicKey>) -> Self {
        let fault = |kind, reason: String| {
            Some(Finding {
                kind,
                location: path.display().to_string(),
                reason,
            })
        };
        let fault = match &transfer.signed_by {
            None => fault(FindingKind::Signature, "nobody signed the file".to_owned()),
            Some(signed) => match key(&signed.key) {
                None => {
                    let why = format!("it is signed by {}, which is not trusted", signed.key);
                    fault(FindingKind::UnknownKey, why)
                }
                Some(public) if signed.is_by(&public) => None,
                Some(_) => fault(FindingKind::Signature, "its signature is wrong".to_owned()),
            },
        };
        let required = transfer.archives.iter().flat_map(required_blobs);
        let find = |hash: Hash| (hash, transfer.blobs.find(&hash));
        let blobs = required.map(|(hash, _)| find(hash)).collect();
        Self {
            archives: transfer.archives.clone(),
            fault,
            blobs,
        }
    }
}

/// A file that is no session, or not all of one.
pub(in crate::cli::commands) fn failure(path: &Path, error: &TransferError) -> Failure {
    let place = path.display();
    match error {
        TransferError::Io(error) => Failure::failed("io", format_args!("{place}: {error}")),
        TransferError::Version(_) => Failure::failed("version", format_args!("{place}: {error}")),
        _ => Failure::new(
            Exit::Integrity,
            "integrity",
            format_args!("{place}: {error}"),
        )
        .hint("copy it again from where it was written"),
    }
}

#[derive(Default)]
pub(super) struct Verified {
    sessions: Vec<(SessionId, Verdict)>,
}

impl Verified {
    /// What is wrong, a line for each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let line =
            |fault: &Finding| format!("{} {}: {}", word(fault.kind), fault.location, fault.reason);
        self.faults().map(line).collect()
    }

    /// Whether all that is wrong is that the keys are not trusted here.
    pub(super) fn is_by_strangers(&self) -> bool {
        self.faults().all(|it| it.kind == FindingKind::UnknownKey)
    }

    fn unsealed(&self) -> usize {
        let sessions = self.sessions.iter();
        sessions
            .map(|(_, verdict)| verdict.unsealed_rows.len())
            .sum()
    }

    fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.sessions
            .iter()
            .flat_map(|(_, verdict)| &verdict.findings)
    }
}

impl Report for Verified {
    fn json(&self) -> Value {
        let sessions = self.sessions.iter().map(|(id, verdict)| {
            let faults = verdict.findings.iter().map(|fault| {
                json!({ "trouble": word(fault.kind), "place": fault.location, "why": fault.reason })
            });
            json!({
                "session": id,
                "entries": verdict.entries,
                "unsigned_entries_of_a_turn_under_way": verdict.unsealed_entries,
                "seals": verdict.seals,
                "receipts": verdict.receipts,
                "blobs": verdict.blobs,
                "keys": verdict.keys,
                "sealed_at": verdict.sealed_at,
                "unsealed": verdict.unsealed_rows,
                "faults": faults.collect::<Vec<_>>(),
            })
        });
        json!({ "sessions": sessions.collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        for (id, verdict) in &self.sessions {
            let said = if verdict.is_verified() {
                paint(GOOD, "verified")
            } else if verdict.findings.is_empty() {
                paint(WARN, "verified up to its last seal")
            } else if verdict.is_unsigned() {
                paint(BAD, "not signed")
            } else {
                paint(BAD, "not as it was")
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
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            page.line(format_args!("{id}  {said}"));
            page.line(format_args!(
                "  {}, {}, {}, {blobs}signed by {}",
                count(*entries, "entry", "entries"),
                count(*seals, "seal", "seals"),
                count(*receipts, "receipt", "receipts"),
                if keys.is_empty() {
                    "nobody".to_owned()
                } else {
                    keys.join(", ")
                }
            ));
            if *open > 0 {
                page.line(format_args!("  {open} of them belong to a turn under way"));
            }
            if !verdict.unsealed_rows.is_empty() {
                let since = verdict.sealed_at.map(moment);
                page.line(format_args!(
                    "  {} since {}:",
                    paint(WARN, "unsealed changes"),
                    since.unwrap_or_else(|| "the beginning".to_owned())
                ));
                for row in &verdict.unsealed_rows {
                    page.line(format_args!("    {}", plain(row)));
                }
            }
            for fault in &verdict.findings {
                let (word, why) = (word(fault.kind), plain(&fault.reason));
                page.line(format_args!(
                    "  {} {}: {why}",
                    paint(BAD, word),
                    plain(&fault.location)
                ));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let faults = self.faults().count();
        if faults == 0 && self.unsealed() == 0 {
            return None;
        }
        if faults == 0 {
            let message = "not all of it is sealed yet: a turn is under way, or its host died";
            let failure = Failure::new(Exit::Integrity, "unsealed", message);
            let id = self.sessions.first().map(|it| it.0.to_string());
            return Some(failure.hint(format!("rye session show {}", id.unwrap_or_default())));
        }
        let mut faulty = self.sessions.iter().filter(|it| !it.1.findings.is_empty());
        let unsigned = faulty.all(|(_, verdict)| verdict.is_unsigned());
        let message = match faults {
            _ if unsigned => {
                "nobody signed it, so whether it is as it was cannot be told".to_owned()
            }
            1 => "something is not as it was signed".to_owned(),
            many => format!("{many} things are not as they were signed"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        let unknown = self.faults().all(|it| it.kind == FindingKind::UnknownKey);
        Some(if unsigned {
            failure.hint("rye init makes a key; what is done from then on is signed")
        } else if unknown {
            failure.hint("its owner shows the key with `rye keys show`; then: rye keys trust FILE")
        } else {
            failure
        })
    }
}

fn moment(at: Millis) -> String {
    lillux::time::seconds((at.0 / 1000).cast_signed())
}

fn word(trouble: FindingKind) -> &'static str {
    match trouble {
        FindingKind::Altered => "altered",
        FindingKind::Missing => "missing",
        FindingKind::Added => "added",
        FindingKind::Signature => "signature",
        FindingKind::UnknownKey => "unknown_key",
    }
}

/// So many of them.
pub(super) fn count(many: usize, one: &str, more: &str) -> String {
    let word = if many == 1 { one } else { more };
    format!("{many} {word}")
}
