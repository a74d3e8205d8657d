//! `rye doctor`: checks the installation.

use rye_host::doctor::{Check, CheckState, check};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::Report;

pub(crate) fn run(context: &Context) -> Box<dyn Report> {
    Box::new(DoctorReport(check(context)))
}

/// All checks.
struct DoctorReport(Vec<Check>);

impl Report for DoctorReport {
    fn json(&self) -> Value {
        let checks: Vec<_> = self
            .0
            .iter()
            .map(|check| {
                json!({
                    "check": check.name,
                    "state": word(check.state),
                    "detail": check.detail,
                    "fix": check.fix,
                })
            })
            .collect();
        json!({ "checks": checks })
    }

    fn show(&self, page: &mut Page) {
        let width = self.0.iter().map(|check| check.name.len()).max();
        let width = width.unwrap_or_default();
        for check in &self.0 {
            let style = match check.state {
                CheckState::Ok => GOOD,
                CheckState::Warn => WARN,
                CheckState::Fail => BAD,
            };
            let state = paint(style, format!("{:<4}", word(check.state)));
            let (name, detail) = (check.name, sanitize(&check.detail));
            page.line(format_args!("{state}  {name:<width$}  {detail}"));
            if let Some(fix) = &check.fix {
                let fix = sanitize(fix);
                page.line(format_args!(
                    "      {:<width$}  {}: {fix}",
                    "",
                    paint(HELP, "fix")
                ));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let failed: Vec<_> = self
            .0
            .iter()
            .filter(|c| c.state == CheckState::Fail)
            .collect();
        let first = failed.first()?;
        let message = match failed.len() {
            1 => "1 check failed".to_owned(),
            n => format!("{n} checks failed"),
        };
        Some(Failure::failed("unhealthy", message).maybe_hint(first.fix.clone()))
    }
}

fn word(state: CheckState) -> &'static str {
    match state {
        CheckState::Ok => "ok",
        CheckState::Warn => "warn",
        CheckState::Fail => "fail",
    }
}
