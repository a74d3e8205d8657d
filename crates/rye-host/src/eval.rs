//! Evaluation: runs small tasks with a model and checks what it did.
//!
//! Each task has a workspace of its own, in a temporary directory, and runs in a process of its
//! own, as `rye prompt` would. Its session is recorded like any other.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rye_engine::protocol::{SessionId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::context::Context;
use crate::engine::{EngineOptions, with_engine};
use crate::failure::{Failure, FailureKind};

/// Maximum number of model calls of a task that states none.
const DEFAULT_MAX_TURNS: u64 = 30;
/// Time limit of a task that states none, in seconds.
const DEFAULT_MAX_TIME: u64 = 600;
/// Maximum length of a text in the reason of a failure, in characters.
const MAX_SHOWN: usize = 200;

/// A file with tasks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    tasks: Vec<Task>,
}

/// A task for an agent, and how its success is checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Unique name.
    pub id: String,
    /// What the agent is asked to do.
    pub prompt: String,
    /// Files of the workspace, by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// What must be true afterwards.
    pub checks: Vec<Check>,
    /// Maximum number of model calls.
    pub max_turns: Option<u64>,
    /// Time limit in seconds.
    pub max_time: Option<u64>,
    /// Steps of a scripted model that solves the task, as in a script file.
    pub script: Option<Vec<Value>>,
}

/// A condition: exactly one of `file`, `answer`, `tool` and `command`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Path of a file of the workspace.
    file: Option<String>,
    /// The answer of the agent.
    #[serde(default)]
    answer: bool,
    /// Name of a tool that must have been called.
    tool: Option<String>,
    /// Command that must succeed in the workspace, in the confined sandbox.
    command: Option<String>,
    /// The whole text, without white space at its ends.
    equals: Option<String>,
    /// A part of the text.
    contains: Option<String>,
    /// Not a part of the text.
    lacks: Option<String>,
    /// Whether the file exists; default true.
    exists: Option<bool>,
}

impl Check {
    /// Why the check is invalid.
    fn problem(&self) -> Option<&'static str> {
        let subjects = [
            self.file.is_some(),
            self.answer,
            self.tool.is_some(),
            self.command.is_some(),
        ];
        let is_text = self.file.is_some() || self.answer;
        let compares = self.equals.is_some() || self.contains.is_some() || self.lacks.is_some();
        if subjects.iter().filter(|it| **it).count() != 1 {
            Some("a check has exactly one of `file`, `answer: true`, `tool` and `command`")
        } else if compares && !is_text {
            Some("`equals`, `contains` and `lacks` need `file` or `answer: true`")
        } else if self.answer && !compares {
            Some("`answer: true` needs `equals`, `contains` or `lacks`")
        } else if self.exists.is_some() && (self.file.is_none() || compares) {
            Some("`exists` needs `file`, and nothing to compare")
        } else {
            None
        }
    }

    /// Why the condition is not fulfilled.
    fn failure(&self, work: &FinishedWork<'_>) -> Option<String> {
        if let Some(tool) = &self.tool {
            let was_called = work.tools.contains(tool);
            return (!was_called).then(|| format!("the tool {tool} was not called"));
        }
        if let Some(command) = &self.command {
            return (work.run)(command).err();
        }
        let (subject, text) = match &self.file {
            None => ("the answer".to_owned(), Some(work.answer.to_owned())),
            Some(path) => {
                let text = fs::read(work.dir.join(path));
                let text = text.map(|it| String::from_utf8_lossy(&it).into_owned());
                (path.clone(), text.ok())
            }
        };
        match (text, self.exists) {
            (None, Some(false)) => None,
            (None, _) => Some(format!("{subject} does not exist")),
            (Some(_), Some(false)) => Some(format!("{subject} exists")),
            (Some(text), _) => self.difference(&subject, &text),
        }
    }

    fn difference(&self, subject: &str, text: &str) -> Option<String> {
        let shown: String = text.trim().chars().take(MAX_SHOWN).collect();
        let text_is = |what: &str| format!("{subject} {what}; it is {shown:?}");
        if let Some(expected) = &self.equals
            && text.trim() != expected.trim()
        {
            return Some(text_is(&format!("is not {:?}", expected.trim())));
        }
        if let Some(part) = &self.contains
            && !text.contains(part.as_str())
        {
            return Some(text_is(&format!("lacks {part:?}")));
        }
        if let Some(part) = &self.lacks
            && text.contains(part.as_str())
        {
            return Some(text_is(&format!("contains {part:?}")));
        }
        None
    }
}

/// What an agent left behind.
struct FinishedWork<'a> {
    dir: &'a Path,
    answer: &'a str,
    tools: &'a BTreeSet<String>,
    /// Runs a command in the workspace; the error is the reason of its failure.
    run: &'a dyn Fn(&str) -> Result<(), String>,
}

/// How tasks are run.
#[derive(Debug, Clone)]
pub struct EvalOptions {
    /// The model; the default model if there is none.
    pub model: Option<String>,
    /// Use the script of each task instead of a model.
    pub scripted: bool,
    /// Name of the sandbox.
    pub sandbox: String,
    /// Only these tasks, if there are any.
    pub only: Vec<String>,
    /// Number of tasks that run at the same time.
    pub jobs: usize,
}

/// The result of a task.
#[derive(Debug, Clone, Serialize)]
pub struct TaskResult {
    /// Name of the task.
    pub id: String,
    /// Why it failed; empty if it passed.
    pub failures: Vec<String>,
    /// Its session.
    pub session: Option<SessionId>,
    /// Model calls, tokens and cost.
    pub usage: Usage,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// Loads tasks from files. Errors name the file and the task.
pub fn load_tasks(files: &[PathBuf]) -> Result<Vec<Task>, Failure> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut ids = HashSet::new();
    for file in files {
        let fail = |why: String| {
            let message = format!("{}: {why}", file.display());
            Failure::new(FailureKind::Usage, "bad_tasks", message)
        };
        let text = fs::read_to_string(file).map_err(|error| fail(error.to_string()))?;
        let parsed: Result<TaskFile, _> = serde_saphyr::from_str(&text);
        let parsed = parsed.map_err(|error| fail(error.without_snippet().to_string()))?;
        for task in parsed.tasks {
            if let Some(why) = problem(&task) {
                return Err(fail(format!("task `{}`: {why}", task.id)));
            }
            if !ids.insert(task.id.clone()) {
                return Err(fail(format!("task `{}` is defined twice", task.id)));
            }
            tasks.push(task);
        }
    }
    Ok(tasks)
}

/// Why a task is invalid.
fn problem(task: &Task) -> Option<String> {
    if task.checks.is_empty() {
        return Some("it has no checks".to_owned());
    }
    let check_files = task.checks.iter().filter_map(|check| check.file.as_ref());
    let outside = |path: &&String| {
        let mut parts = Path::new(path.as_str()).components();
        !parts.all(|part| matches!(part, Component::Normal(_)))
    };
    if let Some(path) = task.files.keys().chain(check_files).find(outside) {
        return Some(format!("{path} is not a path inside of the workspace"));
    }
    let problems = task.checks.iter().zip(1..);
    let mut problems = problems.filter_map(|(check, at)| Some((at, check.problem()?)));
    let (at, why) = problems.next()?;
    Some(format!("check {at}: {why}"))
}

/// Runs tasks. `on_result` is called as each of them ends.
pub fn run(
    tasks: &[Task],
    options: &EvalOptions,
    context: &Context,
    on_result: &(dyn Fn(&TaskResult) + Sync),
) -> Result<Vec<TaskResult>, Failure> {
    let tasks = select(tasks, options)?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::failed("eval", error))?;
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(at) else {
                        return;
                    };
                    let result = run_task(task, options, &program);
                    on_result(&result);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.insert(at, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut results: Vec<_> = results.into_values().collect();
    with_engine(context, EngineOptions::default(), async |engine| {
        for result in &mut results {
            if let Some(id) = &result.session {
                let session = engine.session_data(id).await?;
                result.usage = session.map(|session| session.usage).unwrap_or_default();
            }
        }
        Ok(())
    })?;
    Ok(results)
}

/// The chosen tasks, or the failure that one does not exist or has no script.
fn select<'t>(tasks: &'t [Task], options: &EvalOptions) -> Result<Vec<&'t Task>, Failure> {
    let exists = |id: &&String| tasks.iter().any(|task| task.id == **id);
    if let Some(id) = options.only.iter().find(|id| !exists(id)) {
        return Err(Failure::usage(format!("there is no task `{id}`")));
    }
    let is_chosen = |task: &&Task| options.only.is_empty() || options.only.contains(&task.id);
    let chosen: Vec<_> = tasks.iter().filter(is_chosen).collect();
    let missing = chosen.iter().find(|task| task.script.is_none());
    match missing {
        Some(task) if options.scripted => {
            let message = format!("task `{}` has no script", task.id);
            Err(Failure::usage(message).hint("rye eval FILE --model MODEL"))
        }
        _ => Ok(chosen),
    }
}

/// Runs one task. Everything that goes wrong is a failure of the task.
fn run_task(task: &Task, options: &EvalOptions, program: &Path) -> TaskResult {
    let start = Instant::now();
    let mut result = TaskResult {
        id: task.id.clone(),
        failures: Vec::new(),
        session: None,
        usage: Usage::default(),
        duration_ms: 0,
    };
    if let Err(why) = attempt(task, options, program, &mut result) {
        result.failures.push(why);
    }
    let duration: Duration = start.elapsed();
    result.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    result
}

fn attempt(
    task: &Task,
    options: &EvalOptions,
    program: &Path,
    result: &mut TaskResult,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let temporary = TempDir::with_prefix("rye-eval-").map_err(text)?;
    let dir = temporary.path().join("workspace");
    // A project, so that nothing of a project around it applies.
    fs::create_dir_all(dir.join(".ai")).map_err(text)?;
    for (path, content) in &task.files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&dir)).map_err(text)?;
        fs::write(&path, content).map_err(text)?;
    }
    let model = match (&task.script, options.scripted) {
        (Some(steps), true) => {
            let path = temporary.path().join("script.yaml");
            let script = serde_json::json!({ "steps": steps });
            fs::write(&path, script.to_string()).map_err(text)?;
            Some(format!("scripted:{}", path.display()))
        }
        _ => options.model.clone(),
    };
    let turns = task.max_turns.unwrap_or(DEFAULT_MAX_TURNS).to_string();
    let time = task.max_time.unwrap_or(DEFAULT_MAX_TIME).to_string();
    let mut command = Command::new(program);
    command.args(["prompt", "--json", "--yes", "--sandbox", &options.sandbox]);
    command.args(["--max-turns", &turns, "--max-time", &time]);
    command.arg("--project").arg(&dir).current_dir(&dir);
    if let Some(model) = &model {
        command.args(["--model", model]);
    }
    command.arg("--").arg(&task.prompt).stdin(Stdio::null());
    let output = command.output().map_err(text)?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let events: Vec<Value> = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let tools = events.iter().filter(|event| event["type"] == "tool_start");
    let tools = tools.filter_map(|event| event["data"]["tool"].as_str());
    let tools: BTreeSet<_> = tools.map(str::to_owned).collect();
    let outcome = events.last().ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("no outcome: {}", errors.trim())
    })?;
    result.session = serde_json::from_value(outcome["session"].clone()).ok();
    if let Some(message) = outcome["error"]["message"].as_str() {
        result.failures.push(message.to_owned());
    }
    let run_check = |command: &str| confined(program, command, &dir);
    let work = FinishedWork {
        dir: &dir,
        answer: outcome["answer"].as_str().unwrap_or_default(),
        tools: &tools,
        run: &run_check,
    };
    let failed = task.checks.iter().filter_map(|check| check.failure(&work));
    result.failures.extend(failed);
    Ok(())
}

/// Runs the command of a check in the confined sandbox, because an agent wrote what it runs.
fn confined(program: &Path, command: &str, dir: &Path) -> Result<(), String> {
    let mut check = Command::new(program);
    check.args(["sandbox", "run", "--project"]).arg(dir);
    check.args(["--", "sh", "-c", command]);
    check.current_dir(dir).stdin(Stdio::null());
    let output = check.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let end: String = text.trim().chars().rev().take(MAX_SHOWN).collect();
    let end: String = end.chars().rev().collect();
    Err(format!("`{command}` failed ({}): {end}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(check: &Check) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.txt"), "one two\n").unwrap();
        let tools = BTreeSet::from(["edit".to_owned()]);
        let run = |command: &str| match command {
            "true" => Ok(()),
            other => Err(format!("{other} failed")),
        };
        check.failure(&FinishedWork {
            dir: dir.path(),
            answer: "It is 42.",
            tools: &tools,
            run: &run,
        })
    }

    fn check(yaml: &str) -> Check {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn conditions_are_checked() {
        for (yaml, passes) in [
            ("{ file: a.txt }", true),
            ("{ file: b.txt }", false),
            ("{ file: b.txt, exists: false }", true),
            ("{ file: a.txt, exists: false }", false),
            ("{ file: a.txt, equals: one two }", true),
            ("{ file: a.txt, equals: one }", false),
            ("{ file: a.txt, contains: two, lacks: three }", true),
            ("{ file: a.txt, lacks: two }", false),
            ("{ answer: true, contains: '42' }", true),
            ("{ answer: true, contains: '43' }", false),
            ("{ tool: edit }", true),
            ("{ tool: write }", false),
            ("{ command: 'true' }", true),
            ("{ command: 'false' }", false),
        ] {
            let check = check(yaml);
            assert_eq!(check.problem(), None, "{yaml}");
            assert_eq!(failure(&check).is_none(), passes, "{yaml}");
        }
    }

    #[test]
    fn invalid_checks_are_reported() {
        for yaml in [
            "{ exists: true }",
            "{ file: a, tool: b }",
            "{ answer: true }",
            "{ tool: a, contains: b }",
            "{ file: a, exists: true, contains: b }",
        ] {
            assert!(check(yaml).problem().is_some(), "{yaml}");
        }
    }

    #[test]
    fn tasks_with_problems_name_the_file_and_the_task() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.yaml");
        let task = |rest: &str| format!("tasks:\n  - {{ id: one, prompt: go, {rest} }}\n");
        for (text, expected) in [
            (task("checks: []"), "no checks"),
            (task("checks: [{ tool: a, file: b }]"), "check 1"),
            (task("checks: [{ file: ../b }]"), "../b"),
            (
                task("files: { /etc/x: y }, checks: [{ tool: a }]"),
                "/etc/x",
            ),
            (task("check: []"), "check"),
            (
                "tasks:\n  - &one { id: one, prompt: go, checks: [{ tool: a }] }\n  - *one\n"
                    .into(),
                "twice",
            ),
        ] {
            fs::write(&file, &text).unwrap();
            let failure = load_tasks(std::slice::from_ref(&file)).unwrap_err();
            let message = failure.message.clone();
            assert!(
                message.contains("tasks.yaml") && message.contains(expected),
                "{message}"
            );
        }
    }
}
