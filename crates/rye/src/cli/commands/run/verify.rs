//! `rye run verify`

use std::collections::BTreeSet;

use rye_graph::{Found, Runs, Verdict};
use serde_json::{Value, json};

use crate::cli::commands::gate::graphs::trust;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, GOOD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

/// Checks a record against the keys that are trusted.
pub(super) fn run(found: Found, context: &Context) -> Outcome {
    if !found.has_begun() && found.is_walked() {
        return Err(starting(&found));
    }
    let runs = Runs::of(found.project());
    let verdict = found.verify(&runs, &trust(found.project(), context)?)?;
    Ok(Box::new(Verified {
        id: found.id,
        verdict,
    }))
}

/// A run that somebody is about to begin.
pub(super) fn starting(found: &Found) -> Failure {
    let message = format!("nothing of the run {} is written down yet", found.id);
    let hint = format!("rye run tail {} --follow", found.id);
    Failure::failed("starting", message).hint(hint)
}

struct Verified {
    id: String,
    verdict: Verdict,
}

impl Report for Verified {
    fn json(&self) -> Value {
        let verdict = &self.verdict;
        let faults = verdict.faults.iter();
        let faults = faults.map(|fault| json!({ "line": fault.line, "why": fault.why }));
        json!({
            "run": self.id,
            "lines": verdict.lines,
            "signed": verdict.signed,
            "unsigned_lines_of_a_step_under_way": verdict.open,
            "snapshots": verdict.snapshots,
            "receipts": verdict.receipts,
            "keys": verdict.keys,
            "faults": faults.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let verdict = &self.verdict;
        let said = if verdict.faults.is_empty() {
            paint(GOOD, "verified")
        } else if verdict.is_unsigned() {
            paint(BAD, "not signed")
        } else {
            paint(BAD, "not as it was")
        };
        page.line(format_args!("{}  {said}", self.id));
        let keys: &BTreeSet<String> = &verdict.keys;
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let keys = if keys.is_empty() {
            "nobody".to_owned()
        } else {
            keys.join(", ")
        };
        let counted = [
            (verdict.lines, "line"),
            (verdict.signed, "signature"),
            (verdict.snapshots, "snapshot"),
            (verdict.receipts, "receipt"),
        ];
        let counted = counted.map(|(count, what)| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        });
        let counted = counted.join(", ");
        page.line(format_args!("  {counted}, signed by {keys}"));
        if verdict.open > 0 && verdict.signed > 0 {
            page.line(format_args!(
                "  the last {} no signature stands for: whoever goes on passes over them",
                verdict.open
            ));
        }
        for fault in &verdict.faults {
            let place = match fault.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let (word, why) = (paint(BAD, "fault"), plain(&fault.why));
            page.line(format_args!("  {word}{place}: {why}"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let message = match self.verdict.faults.len() {
            0 => return None,
            _ if self.verdict.is_unsigned() => {
                "nobody signed it, so whether it is as it was cannot be told".to_owned()
            }
            1 => "something is not as it was signed".to_owned(),
            many => format!("{many} things are not as they were signed"),
        };
        let failure = Failure::new(Exit::Integrity, "integrity", message);
        Some(if self.verdict.is_unsigned() {
            failure.hint("rye init makes a key; runs that begin from then on are signed")
        } else if self.verdict.is_of_strangers() {
            failure.hint("its owner shows the key with `rye keys show`; then: rye keys trust FILE")
        } else {
            failure
        })
    }
}
