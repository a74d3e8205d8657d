//! Checks of changed files, such as linters: after a tool changed a file, the model reads the
//! diagnostics that are new.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lillux::{shell_word, strip_control};
use parking_lot::Mutex;
use rye_protocol::SessionId;
use serde::Deserialize;
use serde_json::json;

use super::tree::Pattern;
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, FileAccess};
use rye_engine::tool::{ToolContext, ToolOutput};

/// Default time limit of a check, in seconds.
const DEFAULT_TIMEOUT: f64 = 30.0;
/// Maximum time limit of a check, in seconds.
const MAX_TIMEOUT: f64 = 600.0;
/// Maximum size of each stream of a check's output, in bytes.
const MAX_OUTPUT: usize = 256 * 1024;
/// Maximum number of diagnostics of a check in a result.
const MAX_LINES: usize = 30;
/// Maximum length of a diagnostic, in characters.
const MAX_LINE: usize = 300;
/// Placeholder of the changed file in a command.
const FILE: &str = "{file}";
/// Exit codes with which a shell says that it cannot run a command.
const NOT_RUN: [i32; 2] = [126, 127];

/// A command that checks files after a change.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckSpec {
    /// Patterns of the files: `*.py`, `src/**/*.ts`.
    pub files: Vec<String>,
    /// The command line; `{file}` is the changed file.
    pub command: String,
    /// Time limit in seconds.
    #[serde(default = "default_timeout")]
    pub timeout: f64,
}

fn default_timeout() -> f64 {
    DEFAULT_TIMEOUT
}

/// Checks of changed files, with the last diagnostics of each command.
#[derive(Debug, Default)]
pub struct Checks {
    checks: Vec<Check>,
    /// Diagnostics of a session's last run of a command line.
    last: Mutex<HashMap<(SessionId, String), Vec<String>>>,
}

#[derive(Debug)]
struct Check {
    patterns: Vec<Pattern>,
    command: String,
    timeout: Duration,
}

/// Diagnostics before a change, by command line.
pub(super) struct Baseline(Vec<PendingCheck>);

/// A check that runs again after the change.
struct PendingCheck {
    command: String,
    timeout: Duration,
    before: Vec<String>,
}

/// Discards the output while the command runs.
struct Quiet;

impl ExecObserver for Quiet {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}
}

impl Checks {
    /// Compiles the checks. The error says what is wrong with one of them.
    pub fn new(specs: Vec<CheckSpec>) -> Result<Self, String> {
        let compile = |spec: CheckSpec| {
            let invalid = |why: &str| format!("check `{}`: {why}", spec.command);
            if spec.command.trim().is_empty() || spec.files.is_empty() {
                return Err(invalid("`command` and `files` must not be empty"));
            }
            let is_valid = spec.timeout > 0.0 && spec.timeout <= MAX_TIMEOUT;
            if !is_valid {
                return Err(invalid("`timeout` must be between 0 and 600 seconds"));
            }
            let patterns = spec.files.iter().map(|text| Pattern::new(text));
            let patterns: Result<_, _> = patterns.collect();
            Ok(Check {
                patterns: patterns.map_err(|error| invalid(&error.to_string()))?,
                command: spec.command.clone(),
                timeout: Duration::from_secs_f64(spec.timeout),
            })
        };
        let checks: Result<_, String> = specs.into_iter().map(compile).collect();
        Ok(Self {
            checks: checks?,
            last: Mutex::default(),
        })
    }

    /// The diagnostics before files are changed. A command whose last diagnostics are known does not
    /// run again.
    pub(super) async fn before(&self, paths: &[&str], context: &ToolContext) -> Baseline {
        let mut pending: Vec<PendingCheck> = Vec::new();
        // The commands of a sandbox in memory are no linters.
        if context.sandbox.confinement().files == FileAccess::Memory {
            return Baseline(pending);
        }
        for path in paths {
            let matching = self.checks.iter().filter(|check| check.matches(path));
            for check in matching {
                let command = check.command_for(path);
                if pending.iter().any(|it| it.command == command) {
                    continue;
                }
                let known = self.known(&command, context);
                let before = match known {
                    Some(known) => known,
                    // There is nothing to check in a new file.
                    None if check.command.contains(FILE)
                        && context.sandbox.stat(path).await.is_err() =>
                    {
                        Vec::new()
                    }
                    // A failure is reported after the change.
                    None => run(&command, check.timeout, context)
                        .await
                        .unwrap_or_default(),
                };
                pending.push(PendingCheck {
                    command,
                    timeout: check.timeout,
                    before,
                });
            }
        }
        Baseline(pending)
    }

    fn known(&self, command: &str, context: &ToolContext) -> Option<Vec<String>> {
        let key = (context.session.clone(), command.to_owned());
        self.last.lock().get(&key).cloned()
    }

    /// Runs the checks after the change, and adds the diagnostics that are new to the result.
    pub(super) async fn add_new(
        &self,
        Baseline(pending): Baseline,
        output: &mut ToolOutput,
        context: &ToolContext,
    ) {
        let mut all = Vec::new();
        for check in pending {
            let PendingCheck {
                command,
                timeout,
                before,
            } = check;
            let lines = match run(&command, timeout, context).await {
                Ok(lines) => lines,
                Err(why) => {
                    let _ = write!(output.text, "\n[check `{command}`: {why}]");
                    continue;
                }
            };
            let new = new_lines(&before, &lines);
            let key = (context.session.clone(), command.clone());
            self.last.lock().insert(key, lines);
            if new.is_empty() {
                continue;
            }
            let shown = &new[..new.len().min(MAX_LINES)];
            let _ = write!(
                output.text,
                "\n[new diagnostics of `{command}`]\n{}",
                shown.join("\n")
            );
            if new.len() > MAX_LINES {
                let _ = write!(output.text, "\n[and {} more]", new.len() - MAX_LINES);
            }
            all.push(json!({ "command": command, "lines": shown }));
        }
        if !all.is_empty() {
            output.data["diagnostics"] = json!(all);
        }
    }
}

impl Check {
    fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix("./").unwrap_or(path);
        let is_negated = |it: &&Pattern| it.is_negated();
        let is_selected = self
            .patterns
            .iter()
            .any(|it| !it.is_negated() && it.matches(path));
        is_selected
            && self
                .patterns
                .iter()
                .filter(is_negated)
                .all(|it| it.matches(path))
    }

    fn command_for(&self, path: &str) -> String {
        self.command.replace(FILE, &shell_word(Path::new(path)))
    }
}

/// Runs a check and returns the lines that it prints. The error says why it did not run.
async fn run(
    command: &str,
    timeout: Duration,
    context: &ToolContext,
) -> Result<Vec<String>, String> {
    let exec = Exec {
        command: command.to_owned(),
        timeout: Some(timeout),
        max_output: Some(MAX_OUTPUT),
        max_streamed: Some(0),
        ..Exec::default()
    };
    let output = context.exec(exec, &Quiet).await;
    let output = output.map_err(|error| error.to_string())?;
    if !output.quarantined.is_empty() {
        // Nobody asked for files that decide what programs do later.
        let removed = context
            .sandbox
            .settle_quarantined(&output.quarantined, false);
        removed.await.map_err(|error| error.to_string())?;
    }
    if output.timed_out {
        return Err(format!("ended after {} s", timeout.as_secs_f64()));
    }
    let lines = lines(&output);
    match output.exit_code {
        Some(code) if NOT_RUN.contains(&code) => Err(lines
            .last()
            .cloned()
            .unwrap_or_else(|| format!("exit code {code}"))),
        Some(_) => Ok(lines),
        None => Err("killed by a signal".to_owned()),
    }
}

fn lines(output: &ExecOutput) -> Vec<String> {
    let all = output.stdout.lines().chain(output.stderr.lines());
    let all = all.map(|line| strip_control(line.trim_end()));
    let shown = all.map(|line| line.chars().take(MAX_LINE).collect::<String>());
    shown.filter(|line| !line.trim().is_empty()).collect()
}

/// The lines that were not there before. Numbers do not count: a change moves the lines below it.
fn new_lines(before: &[String], after: &[String]) -> Vec<String> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for line in before {
        *known.entry(without_numbers(line)).or_default() += 1;
    }
    let is_new = |line: &&String| match known.get_mut(&without_numbers(line)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    after.iter().filter(is_new).cloned().collect()
}

fn without_numbers(line: &str) -> String {
    line.chars().filter(|it| !it.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(files: &[&str], command: &str) -> CheckSpec {
        CheckSpec {
            files: files.iter().map(|it| (*it).to_owned()).collect(),
            command: command.to_owned(),
            timeout: DEFAULT_TIMEOUT,
        }
    }

    #[test]
    fn patterns_select_files() {
        let checks = Checks::new(vec![spec(&["*.py", "!test_*"], "lint {file}")]).unwrap();
        let check = &checks.checks[0];
        for (path, expected) in [
            ("a.py", true),
            ("./src/a.py", true),
            ("src/a.py", true),
            ("src/test_a.py", false),
            ("a.rs", false),
        ] {
            assert_eq!(check.matches(path), expected, "{path}");
        }
        assert_eq!(check.command_for("it's.py"), r"lint 'it'\''s.py'");
    }

    #[test]
    fn invalid_checks_are_refused() {
        for invalid in [
            spec(&[], "x"),
            spec(&["*"], " "),
            spec(&["[a"], "x"),
            CheckSpec {
                timeout: 0.0,
                ..spec(&["*"], "x")
            },
        ] {
            assert!(Checks::new(vec![invalid.clone()]).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn only_new_lines_are_reported_wherever_they_moved() {
        let text = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let before = text(&["a.py:1:2: unused", "a.py:9:2: unused", "2 errors"]);
        let after = text(&[
            "a.py:3:2: unused",
            "a.py:4:2: undefined",
            "a.py:11:2: unused",
            "a.py:12:2: unused",
            "4 errors",
        ]);
        let new = new_lines(&before, &after);
        assert_eq!(new, ["a.py:4:2: undefined", "a.py:12:2: unused"]);
    }
}
