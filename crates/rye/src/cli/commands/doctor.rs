//! `rye doctor`: checks the installation.

mod agent;
mod items;
mod keys;
mod machine;
mod sessions;

use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::Report;

pub(crate) fn run(context: &Context) -> Box<dyn Report> {
    let mut report = DoctorReport::default();
    let library = match context.library() {
        Ok(library) => Some(library),
        Err(failure) => {
            report.fail_with("spaces", failure);
            None
        }
    };
    keys::check(context, library, &mut report);
    if let Some(library) = library {
        items::check(context, library, &mut report);
        agent::check(library, &mut report);
    }
    sessions::check(context, &mut report);
    machine::check(context, &mut report);
    Box::new(report)
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    Warn,
    Fail,
}

struct Check {
    state: State,
    name: &'static str,
    detail: String,
    fix: Option<String>,
}

/// All checks.
#[derive(Default)]
struct DoctorReport(Vec<Check>);

impl DoctorReport {
    fn ok(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(State::Ok, name, detail, None);
    }

    fn warn(
        &mut self,
        name: &'static str,
        detail: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(State::Warn, name, detail, fix.into());
    }

    fn fail(
        &mut self,
        name: &'static str,
        detail: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(State::Fail, name, detail, fix.into());
    }

    fn fail_with(&mut self, name: &'static str, failure: Failure) {
        self.fail(name, failure.message, failure.hint);
    }

    fn add(
        &mut self,
        state: State,
        name: &'static str,
        detail: impl Into<String>,
        fix: Option<String>,
    ) {
        let detail = detail.into();
        self.0.push(Check {
            state,
            name,
            detail,
            fix,
        });
    }
}

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
                State::Ok => GOOD,
                State::Warn => WARN,
                State::Fail => BAD,
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
        let failed: Vec<_> = self.0.iter().filter(|c| c.state == State::Fail).collect();
        let first = failed.first()?;
        let message = match failed.len() {
            1 => "1 check failed".to_owned(),
            n => format!("{n} checks failed"),
        };
        Some(Failure::failed("unhealthy", message).maybe_hint(first.fix.clone()))
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warn => "warn",
        State::Fail => "fail",
    }
}
