//! `rye session import`: verifies an exported file and imports its sessions and blobs.

use std::fmt::Write as _;
use std::io::{BufReader, Seek as _};
use std::path::Path;

use rye_host::engine::{EngineOptions, with_engine};
use rye_host::session_check::{transfer_failure, trusted_key, verify_file};
use rye_host::transfer::{self, Imported, TransferError};
use serde_json::{Value, json};

use super::verify::{VerifyReport, count};
use crate::cli::args::ImportSessionArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

/// How many findings of a file are listed.
const MAX_FINDINGS: usize = 10;

pub(crate) fn import(args: &ImportSessionArgs, context: &Context) -> Outcome {
    let bad = |error: TransferError| transfer_failure(&args.file, &error);
    let mut file = transfer::open_seekable(&args.file).map_err(|error| bad(error.into()))?;
    let transfer = transfer::read(BufReader::new(&file)).map_err(bad)?;
    let library = context.library()?;
    let trust = library.trust();
    let sessions = verify_file(&args.file, &transfer, |name| trusted_key(&trust, name));
    let verified = VerifyReport::new(sessions, &trust);
    let findings = verified.describe_findings();
    if !findings.is_empty() && !args.allow_unverified {
        return Err(unverified_failure(&args.file, &verified));
    }
    with_engine(context, EngineOptions::default(), async |engine| {
        transfer::check_not_present(engine, &transfer).await?;
        file.rewind().map_err(|error| bad(error.into()))?;
        transfer::import_blobs(engine, &file, bad).await?;
        let key = |name: &str| trusted_key(&trust, name);
        let imported = transfer::import_sessions(engine, transfer, findings, key).await?;
        Ok(Box::new(ImportReport(imported)) as Box<dyn Report>)
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

struct ImportReport(Imported);

impl ImportReport {
    fn reopened(&self) -> usize {
        let untrusted = self.0.untrusted.iter();
        untrusted.filter(|it| it.is_reopened).count()
    }
}

impl Report for ImportReport {
    fn json(&self) -> Value {
        let untrusted =
            self.0.untrusted.iter().map(
                |it| json!({ "gate": it.gate, "reason": it.reason, "reopened": it.is_reopened }),
            );
        let untrusted: Vec<_> = untrusted.collect();
        json!({
            "sessions": self.0.sessions,
            "unverified": self.0.unverified,
            "untrusted_decisions": untrusted,
            "blobs": self.0.blobs,
            "missing_blobs": self.0.missing,
        })
    }

    fn show(&self, page: &mut Page) {
        for id in &self.0.sessions {
            page.line(id.short());
        }
        if let Some(why) = self.0.unverified.first() {
            let why = format!("imported unverified: {}", sanitize(why));
            page.line(paint(BAD, why));
        }
        if !self.0.missing.is_empty() {
            let what = count(self.0.missing.len(), "blob is", "blobs are");
            page.line(format_args!(
                "{what} not in the file: some long output or files cannot be read here"
            ));
        }
        let reopened = self.reopened();
        if reopened > 0 {
            let what = count(reopened, "gate", "gates");
            page.line(format_args!("{what} reopened:"));
        }
        for decision in self.0.untrusted.iter().filter(|it| it.is_reopened) {
            let why = sanitize(&decision.reason);
            page.line(format_args!("  {}: {why}", decision.gate.short()));
        }
        let ignored = self.0.untrusted.len() - reopened;
        if ignored > 0 {
            let what = count(ignored, "session-wide approval", "session-wide approvals");
            page.line(format_args!("{what} ignored: not signed by a trusted key"));
        }
    }

    fn next_command(&self) -> Option<String> {
        let first = self.0.sessions.first()?.short();
        if self.reopened() > 0 {
            return Some("rye gate list".to_owned());
        }
        Some(format!(
            "rye session verify {first} && rye session resume {first}"
        ))
    }
}
