//! Exit codes, and the text of failures for people.

use std::fmt::Write as _;
use std::process::ExitCode;

use rye_host::failure::{CANDIDATES, UNVERIFIED, VIOLATIONS};
use serde_json::Value;

use super::page::{self, indented, one_line};

pub(crate) use rye_host::{Failure, FailureKind as Exit};

/// The exit code for a kind of failure.
pub(crate) fn exit_code(kind: Exit) -> ExitCode {
    ExitCode::from(match kind {
        Exit::Failed => 1,
        Exit::Usage => 2,
        Exit::Integrity => 3,
        Exit::Permission => 4,
        Exit::GatePending => 5,
        Exit::Aborted => 6,
        Exit::Limit => 7,
        Exit::SchemaMismatch => 8,
        Exit::TimedOut => 124,
        Exit::Interrupted => 130,
        Exit::Terminated => 143,
    })
}

/// The failure as text for people, with styles.
pub(crate) fn render(failure: &Failure) -> String {
    let (bad, dim, help) = (page::BAD, page::DIM, page::HELP);
    let mut text = format!("{bad}error{bad:#}: {}\n", indented(&failure.message));
    if let Some(path) = &failure.path {
        let path = path.display().to_string();
        let position = match &failure.excerpt {
            Some(excerpt) => format!(":{}", excerpt.position),
            None => String::new(),
        };
        let _ = writeln!(text, "  {dim}-->{dim:#} {}{position}", one_line(&path));
    }
    if let Some(excerpt) = &failure.excerpt {
        let _ = writeln!(text, "{excerpt}");
    }
    let details = failure.details.iter();
    let listed = details.filter(|(key, _)| [VIOLATIONS, CANDIDATES, UNVERIFIED].contains(key));
    let listed = listed.filter_map(|(_, all)| all.as_array()).flatten();
    for line in listed.filter_map(Value::as_str) {
        let _ = writeln!(text, "  {dim}-{dim:#} {}", one_line(line));
    }
    if let Some(hint) = &failure.hint {
        let _ = writeln!(text, "  {help}hint{help:#}: {}", one_line(hint));
    }
    text
}
