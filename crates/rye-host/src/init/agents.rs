//! Files that prepare a project for agents: instructions, roles and rules for approvals.

use std::path::Path;

use lillux::durable::{self, IfExists, WriteError};

use super::InitReport;
use crate::context::Context;
use crate::failure::Failure;
use crate::sign::{SignTargets, sign};

const INSTRUCTIONS: &str = "AGENTS.md";
/// Instructions for another program, which Rye reads if there is no `AGENTS.md`.
const OTHER_INSTRUCTIONS: &str = "CLAUDE.md";
const APPROVALS: &str = ".ai/config/agent/approvals.yaml";
const ROLES: [(&str, &str); 2] = [
    (".ai/roles/planner.md", include_str!("agents/planner.md")),
    (".ai/roles/reviewer.md", include_str!("agents/reviewer.md")),
];
/// Files that show how the tests of a project run.
const TEST_COMMANDS: [(&str, &str); 6] = [
    ("Cargo.toml", "cargo test"),
    ("package.json", "npm test"),
    ("pyproject.toml", "pytest"),
    ("go.mod", "go test ./..."),
    ("mix.exs", "mix test"),
    ("Makefile", "make test"),
];

/// Writes what is missing of `AGENTS.md`, two roles, and a signed file for rules about approvals.
pub(super) fn write(context: &Context, report: &mut InitReport) -> Result<(), Failure> {
    let project = context.settings.project();
    let other = project.join(OTHER_INSTRUCTIONS);
    if !project.join(INSTRUCTIONS).exists() && other.exists() {
        // With an `AGENTS.md`, Rye would no longer read it.
        report.existing("agent rules", other);
    } else {
        let text = instructions(project);
        create(project, INSTRUCTIONS, &text, "agent rules", report)?;
    }
    for (path, text) in ROLES {
        create(project, path, text, "role", report)?;
    }
    let text = include_str!("agents/approvals.yaml");
    if create(project, APPROVALS, text, "approvals", report)? {
        // With the key and the directories that exist since this call.
        let context = context.in_project(project)?;
        let targets = SignTargets {
            names: vec![project.join(APPROVALS).display().to_string()],
            ..SignTargets::default()
        };
        let signed = sign(targets, &context, None)?;
        if let Some(failure) = signed.rows.into_iter().find_map(|row| row.failure) {
            return Err(failure);
        }
    }
    Ok(())
}

/// Writes a file of the project, unless it exists. Returns whether it was written.
fn create(
    project: &Path,
    relative: &str,
    text: &str,
    what: &'static str,
    report: &mut InitReport,
) -> Result<bool, Failure> {
    if let Some((dir, _)) = relative.rsplit_once('/') {
        durable::create_dir_within(project, dir, 0o755)?;
    }
    let path = project.join(relative);
    match durable::write(&path, text.as_bytes(), 0o644, IfExists::Fail) {
        Err(WriteError::Exists(path)) => {
            report.existing(what, path);
            Ok(false)
        }
        outcome => {
            outcome?;
            report.created(what, path);
            Ok(true)
        }
    }
}

/// The text of `AGENTS.md`, with the commands that run the project's tests.
fn instructions(project: &Path) -> String {
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let found = TEST_COMMANDS.iter();
    let found = found.filter(|(file, _)| project.join(file).is_file());
    let mut commands: Vec<_> = found.map(|(_, run)| format!("- Test: `{run}`")).collect();
    if commands.is_empty() {
        commands.push("- Test: <!-- the command that runs the tests -->".to_owned());
    }
    format!(
        "# {name}\n\n\
         <!-- Agents that work in this directory read this file. Write what the code doesn't say, \
         and keep it short. -->\n\n\
         ## Commands\n\n\
         {}\n\n\
         ## Conventions\n\n\
         - Follow the style of the code around a change.\n\
         - Run the tests before you say that something works.\n",
        commands.join("\n")
    )
}
