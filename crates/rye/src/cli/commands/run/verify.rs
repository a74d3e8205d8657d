//! `rye run verify`

use std::collections::BTreeSet;

use rye_graph::{RunHandle, RunStore, VerifyReport};
use serde_json::{Value, json};

use crate::cli::commands::gate::graphs::trust;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

/// Checks a record against the keys that are trusted.
pub(super) fn run(found: RunHandle, context: &Context) -> Outcome {
    if !found.has_begun() && found.is_walked() {
        return Err(starting(&found));
    }
    let runs = RunStore::new(found.project());
    let report = found.verify(&runs, &trust(found.project(), context)?)?;
    Ok(Box::new(Verified {
        id: found.id,
        report,
    }))
}

/// A run that somebody is about to begin.
pub(super) fn starting(found: &RunHandle) -> Failure {
    let message = format!("nothing of the run {} is written down yet", found.id);
    let hint = format!("rye run tail {} --follow", found.id);
    Failure::failed("starting", message).hint(hint)
}

struct Verified {
    id: String,
    report: VerifyReport,
}

impl Report for Verified {
    fn json(&self) -> Value {
        let report = &self.report;
        let findings = report.findings.iter();
        let findings =
            findings.map(|finding| json!({ "line": finding.line, "message": finding.message }));
        json!({
            "run": self.id,
            "lines": report.lines,
            "signed": report.signed,
            "unsigned_lines_of_a_step_under_way": report.open,
            "snapshots": report.snapshots,
            "receipts": report.receipts,
            "keys": report.keys,
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let report = &self.report;
        let said = if report.findings.is_empty() {
            paint(GOOD, "verified")
        } else if report.is_unsigned() {
            paint(BAD, "not signed")
        } else {
            paint(BAD, "not as it was")
        };
        page.line(format_args!("{}  {said}", self.id));
        let keys: &BTreeSet<String> = &report.keys;
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let keys = if keys.is_empty() {
            "nobody".to_owned()
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
                "  the last {} no signature stands for: whoever goes on passes over them",
                report.open
            ));
        }
        for finding in &report.findings {
            let place = match finding.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let (word, why) = (paint(BAD, "fault"), plain(&finding.message));
            page.line(format_args!("  {word}{place}: {why}"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let message = match self.report.findings.len() {
            0 => return None,
            _ if self.report.is_unsigned() => {
                "nobody signed it, so whether it is as it was cannot be told".to_owned()
            }
            1 => "something is not as it was signed".to_owned(),
            many => format!("{many} things are not as they were signed"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        Some(if self.report.is_unsigned() {
            failure.hint("rye init makes a key; runs that begin from then on are signed")
        } else if self.report.has_only_untrusted_keys() {
            failure.hint("its owner shows the key with `rye keys show`; then: rye keys trust FILE")
        } else {
            failure
        })
    }
}
