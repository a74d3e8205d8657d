//! Checks an installation: spaces, keys, items, policy, sessions, cache and interpreters.

mod agent;
mod items;
mod keys;
mod machine;
mod sessions;

use crate::context::Context;
use crate::failure::Failure;

/// Runs all checks.
pub fn check(context: &Context) -> Vec<Check> {
    let mut report = Checks::default();
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
    report.0
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// All is well.
    Ok,
    /// Something may be wrong.
    Warn,
    /// Something does not work.
    Fail,
}

/// A check.
#[derive(Debug, Clone)]
pub struct Check {
    /// Its result.
    pub state: CheckState,
    /// What was checked.
    pub name: &'static str,
    /// What was found.
    pub detail: String,
    /// A command that helps.
    pub fix: Option<String>,
}

/// All checks.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn ok(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(CheckState::Ok, name, detail, None);
    }

    fn warn(
        &mut self,
        name: &'static str,
        detail: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(CheckState::Warn, name, detail, fix.into());
    }

    fn fail(
        &mut self,
        name: &'static str,
        detail: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) {
        self.add(CheckState::Fail, name, detail, fix.into());
    }

    fn fail_with(&mut self, name: &'static str, failure: Failure) {
        self.fail(name, failure.message, failure.hint);
    }

    fn add(
        &mut self,
        state: CheckState,
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
