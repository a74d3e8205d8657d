//! `rye run verify`: verifies the record of a graph run.

use std::collections::BTreeSet;

use rye_engine::protocol::short_id;
use rye_graph::{Found, Runs, Verdict};
use serde_json::{Value, json};

use crate::cli::commands::gate::graphs::trust;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

/// Verifies a record against the trusted keys.
pub(super) fn run(found: Found, context: &Context) -> Outcome {
    if !found.has_begun() && found.is_walked() {
        return Err(starting(&found));
    }
    let runs = Runs::of(found.project());
    let verdict = found.verify(&runs, &trust(found.project(), context)?)?;
    Ok(Box::new(VerifyReport {
        id: found.id,
        report,
    }))
}

/// The failure for a run whose process has not written anything yet.
pub(super) fn starting(found: &Found) -> Failure {
    let id = short_id(&found.id);
    let message = format!("run {id} has not started yet");
    let hint = format!("rye run tail {id} --follow");
    Failure::failed("starting", message).hint(hint)
}

struct VerifyReport {
    id: String,
    report: VerifyReport,
}

impl Report for VerifyReport {
    fn json(&self) -> Value {
        let report = &self.report;
        let findings = report.findings.iter();
        let findings =
            findings.map(|finding| json!({ "line": finding.line, "message": finding.message }));
        json!({
            "run": self.id,
            "lines": verdict.lines,
            "signed": verdict.signed,
            "unsigned_lines": verdict.open,
            "snapshots": verdict.snapshots,
            "receipts": verdict.receipts,
            "keys": verdict.keys,
            "faults": faults.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let verdict = &self.verdict;
        let state = if verdict.faults.is_empty() {
            paint(GOOD, "verified")
        } else if report.is_unsigned() {
            paint(BAD, "not signed")
        } else {
            paint(BAD, "altered")
        };
        page.line(format_args!("run {}: {state}", short_id(&self.id)));
        let keys: &BTreeSet<String> = &verdict.keys;
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let keys = if keys.is_empty() {
            "no key".to_owned()
        } else {
            keys.join(", ")
        };
        let counted = [
            (report.lines, "line"),
            (report.signed, "signature"),
            (report.snapshots, "snapshot"),
            (report.receipts, "receipt"),
        ];
        let counted = counted.map(|(count, what)| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        });
        let counted = counted.join(", ");
        page.line(format_args!("  {counted}, signed by {keys}"));
        if report.open > 0 && report.signed > 0 {
            page.line(format_args!(
                "  the last {} lines are not signed; resuming the run ignores them",
                verdict.open
            ));
        }
        for fault in &verdict.faults {
            let location = match fault.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let (word, why) = (paint(BAD, "fault"), sanitize(&fault.why));
            page.line(format_args!("  {word}{location}: {why}"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let message = match self.report.findings.len() {
            0 => return None,
            _ if self.verdict.is_unsigned() => {
                "the run is not signed, so it cannot be verified".to_owned()
            }
            1 => "1 fault: the record was altered".to_owned(),
            many => format!("{many} faults: the record was altered"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        Some(if self.verdict.is_unsigned() {
            failure.hint("rye init")
        } else if self.verdict.is_of_strangers() {
            failure.hint("rye keys trust FILE")
        } else {
            failure
        })
    }
}
