//! `rye doctor`

mod agent;
mod items;
mod keys;
mod machine;
mod sessions;

use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, GOOD, HELP, Page, WARN, paint, plain};
use crate::cli::printer::Report;

pub(crate) fn run(context: &Context) -> Box<dyn Report> {
    let mut health = Health::default();
    let library = match context.library() {
        Ok(library) => Some(library),
        Err(failure) => {
            health.broken("spaces", failure);
            None
        }
    };
    keys::check(context, library.as_ref(), &mut health);
    if let Some(library) = &library {
        items::check(context, library, &mut health);
        agent::check(library, &mut health);
    }
    sessions::check(context, &mut health);
    machine::check(context, &mut health);
    Box::new(health)
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Warn,
    Fail,
}

struct Check {
    state: State,
    name: &'static str,
    about: String,
    fix: Option<String>,
}

/// All that was looked at.
#[derive(Default)]
struct Health(Vec<Check>);

impl Health {
    fn good(&mut self, name: &'static str, about: impl Into<String>) {
        self.add(State::Good, name, about, None);
    }

    fn warn(
        &mut self,
        name: &'static str,
        about: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(State::Warn, name, about, fix.into());
    }

    fn fail(
        &mut self,
        name: &'static str,
        about: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(State::Fail, name, about, fix.into());
    }

    fn broken(&mut self, name: &'static str, failure: Failure) {
        self.fail(name, failure.message, failure.hint);
    }

    fn add(
        &mut self,
        state: State,
        name: &'static str,
        about: impl Into<String>,
        fix: Option<String>,
    ) {
        let about = about.into();
        self.0.push(Check {
            state,
            name,
            about,
            fix,
        });
    }
}

impl Report for Health {
    fn json(&self) -> Value {
        let checks: Vec<_> = self
            .0
            .iter()
            .map(|check| {
                json!({
                    "check": check.name,
                    "state": word(check.state),
                    "about": check.about,
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
                State::Good => GOOD,
                State::Warn => WARN,
                State::Fail => BAD,
            };
            let state = paint(style, format!("{:<4}", word(check.state)));
            let (name, about) = (check.name, plain(&check.about));
            page.line(format_args!("{state}  {name:<width$}  {about}"));
            if let Some(fix) = &check.fix {
                let fix = plain(fix);
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
        State::Good => "ok",
        State::Warn => "warn",
        State::Fail => "fail",
    }
}
