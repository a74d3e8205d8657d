//! `rye run verify`: verifies the record of a graph run.

use std::collections::BTreeSet;

use rye_engine::protocol::short_id;
use rye_graph::{RunHandle, RunStore, VerifyReport};
use serde_json::{Value, json};

use crate::cli::commands::gate::graphs::trust;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

/// Verifies a record against the trusted keys.
pub(super) fn run(found: RunHandle, context: &Context) -> Outcome {
    if !found.has_started() && found.is_running() {
        return Err(starting(&found));
    }
    let runs = RunStore::new(found.project());
    let report = found.verify(&runs, &trust(found.project(), context)?)?;
    Ok(Box::new(VerifiedRun {
        id: found.id,
        report,
    }))
}

/// The failure for a run whose process has not written anything yet.
pub(super) fn starting(found: &RunHandle) -> Failure {
    let id = short_id(&found.id);
    let message = format!("run {id} has not started yet");
    let hint = format!("rye run tail {id} --follow");
    Failure::failed("starting", message).hint(hint)
}

struct VerifiedRun {
    id: String,
    report: VerifyReport,
}

impl Report for VerifiedRun {
    fn json(&self) -> Value {
        let report = &self.report;
        let findings = report.findings.iter();
        let findings =
            findings.map(|finding| json!({ "line": finding.line, "message": finding.message }));
        json!({
            "run": self.id,
            "lines": report.lines,
            "signed": report.signed,
            "unsigned_lines": report.unsigned,
            "snapshots": report.snapshots,
            "receipts": report.receipts,
            "keys": report.keys,
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let report = &self.report;
        let state = if report.findings.is_empty() {
            paint(GOOD, "verified")
        } else if report.is_unsigned() {
            paint(BAD, "not signed")
        } else {
            paint(BAD, "altered")
        };
        page.line(format_args!("run {}: {state}", short_id(&self.id)));
        let keys: &BTreeSet<String> = &report.keys;
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let keys = if keys.is_empty() {
            "no key".to_owned()
        } else {
            keys.join(", ")
        };
        let counts = [
            (report.lines, "line"),
            (report.signed, "signature"),
            (report.snapshots, "snapshot"),
            (report.receipts, "receipt"),
        ];
        let counts = counts.map(|(count, noun)| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        });
        let counts = counts.join(", ");
        page.line(format_args!("  {counts}, signed by {keys}"));
        if report.unsigned > 0 && report.signed > 0 {
            page.line(format_args!(
                "  the last {} lines are not signed; resuming the run ignores them",
                report.unsigned
            ));
        }
        for finding in &report.findings {
            let location = match finding.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let message = sanitize(&finding.message);
            page.line(format_args!(
                "  {}{location}: {message}",
                paint(BAD, "finding")
            ));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let message = match self.report.findings.len() {
            0 => return None,
            _ if self.report.is_unsigned() => {
                "the run is not signed, so it cannot be verified".to_owned()
            }
            1 => "verification failed: 1 finding".to_owned(),
            many => format!("verification failed: {many} findings"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        Some(if self.report.is_unsigned() {
            failure.hint("rye init")
        } else if self.report.has_only_untrusted_keys() {
            failure.hint("rye keys trust FILE")
        } else {
            failure
        })
    }
}
