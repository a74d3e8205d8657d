//! Finds the program that a call runs: an interpreter, or a program that the tool names.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use lillux::Hash;
use lillux::process::Command;
use rye_items::Space;
use serde_json::Value;

use super::Executor;
use super::path_guard::PathGuard;
use crate::environment::Environment;
use crate::interpreter::{
    Candidate, CandidateResult, InterpreterError, Resolver, SearchMethod, SearchRoot,
};
use crate::template::{self, Placeholders};
use crate::value_ext::as_text;

/// Time limit of a command that prints the path of an interpreter.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

impl Executor {
    /// Finds the program of a resolver, and adds each candidate to `tried`.
    pub(super) async fn find_program(
        &self,
        resolver: &Resolver,
        space: Space,
        placeholders: &Placeholders,
        environment: &Environment,
        guard: &PathGuard<'_>,
        tried: &mut Vec<Candidate>,
    ) -> Result<String, InterpreterError> {
        let roots = self.search_roots(&resolver.method, space, placeholders, environment);
        let path = environment.get("PATH").unwrap_or_default();
        let output = match &resolver.method {
            SearchMethod::Command(command) => {
                let start = Instant::now();
                let (output, result) = if guard.runs_commands {
                    // Boxed, because the future is large and rarely used.
                    let output = Box::pin(self.run_resolve_command(command, environment)).await;
                    (output, CandidateResult::Failed)
                } else {
                    let output = command_program(resolver, command, path);
                    (output, CandidateResult::NotRun)
                };
                let result = match (&output, guard.runs_commands) {
                    (Some(_), true) => CandidateResult::Found,
                    _ => result,
                };
                tried.push(Candidate::new(
                    format!("`{}`", command.join(" ")),
                    result,
                    start,
                ));
                if !guard.runs_commands
                    && let Some(program) = output
                {
                    return Ok(program);
                }
                output
            }
            _ => None,
        };
        let found = match tool_program(&resolver.method, placeholders) {
            Some(program) => self.find_tool_program(&program, resolver, path, tried)?,
            None => resolver.find(
                &roots,
                path,
                output.as_deref(),
                &|path| guard.allows(path, space),
                tried,
            )?,
        };
        Ok(found.to_string_lossy().into_owned())
    }

    /// Directories below which an interpreter is searched. Only tools of the project search the
    /// project, because it may be a repository that the user has merely cloned.
    fn search_roots(
        &self,
        method: &SearchMethod,
        space: Space,
        placeholders: &Placeholders,
        environment: &Environment,
    ) -> Vec<SearchRoot<PathBuf>> {
        let SearchMethod::Local { roots, .. } = method else {
            return Vec::new();
        };
        let project = &self.roots.project;
        let variables = environment.variables();
        let rendered = roots.iter().map(|root| match root {
            SearchRoot::Path => SearchRoot::Path,
            SearchRoot::Dir(template) => {
                let dir = as_text(&template::render(template, variables, placeholders));
                SearchRoot::Dir(PathBuf::from(dir))
            }
        });
        let mut roots: Vec<_> = rendered.collect();
        if roots.is_empty() {
            roots.push(SearchRoot::Dir(project.clone()));
        }
        roots.retain(|root| match root {
            SearchRoot::Path => true,
            // Without a user space, its directory is empty.
            SearchRoot::Dir(dir) => {
                !dir.as_os_str().is_empty()
                    && (space == Space::Project || !dir.starts_with(project))
            }
        });
        roots
    }

    /// Finds the program that a tool names, in the tool's directory or on `PATH`. If the tool
    /// contains a hash, the result is a private copy with that hash.
    fn find_tool_program(
        &self,
        program: &ToolProgram,
        resolver: &Resolver,
        path: &str,
        tried: &mut Vec<Candidate>,
    ) -> Result<PathBuf, InterpreterError> {
        let found = if program.is_path() {
            program.path()?
        } else {
            let names = vec![program.name.clone()];
            let resolver = Resolver {
                method: SearchMethod::System { names },
                ..resolver.clone()
            };
            resolver.find(&[], path, None, &|_| true, tried)?
        };
        match &program.sha256 {
            Some(expected) => self.verified_copy(&found, expected),
            None => Ok(found),
        }
    }

    /// Runs a command that prints the path of an interpreter; `None` if it fails.
    async fn run_resolve_command(
        &self,
        command: &[String],
        environment: &Environment,
    ) -> Option<String> {
        let (program, arguments) = command.split_first()?;
        let mut command = Command::new(program)
            .args(arguments)
            .cwd(&self.roots.project)
            .environment(lillux::process::Environment::Exact)
            .timeout(RESOLVE_TIMEOUT);
        for (name, value) in environment.variables() {
            command = command.env(name, value);
        }
        let output = self.supervisor.exec(command).await.ok()?;
        let path = output.stdout.text().trim().to_owned();
        (output.success() && !path.is_empty()).then_some(path)
    }

    /// Creates a private copy of a program with the expected hash.
    fn verified_copy(&self, path: &Path, expected: &str) -> Result<PathBuf, InterpreterError> {
        let unusable = |reason: String| InterpreterError::Unusable(reason);
        let bytes = fs::read(path)
            .map_err(|error| unusable(format!("cannot read {}: {error}", path.display())))?;
        let found = Hash::digest(&bytes).to_hex();
        if !found.eq_ignore_ascii_case(expected) {
            return Err(InterpreterError::HashMismatch {
                path: path.display().to_string(),
                expected: expected.to_owned(),
                found,
            });
        }
        let name = path.file_name().unwrap_or_else(|| "program".as_ref());
        rye_items::write_private_copy(&bytes, name, 0o500, &self.roots.cache)
            .map_err(|error| unusable(error.to_string()))
    }
}

/// A program that the tool's configuration names.
struct ToolProgram {
    name: String,
    tool_dir: PathBuf,
    sha256: Option<String>,
}

/// The placeholder in `binary: "{binary}"` of a runtime that runs a program of the tool.
fn binary_placeholder(method: &SearchMethod) -> Option<&String> {
    let SearchMethod::System { names } = method else {
        return None;
    };
    names.first().filter(|name| name.starts_with('{'))
}

/// The program of a command that prints the path of an interpreter. A dry run, which cannot know
/// the interpreter, uses it instead.
fn command_program(resolver: &Resolver, command: &[String], path: &str) -> Option<String> {
    let resolver = Resolver {
        method: SearchMethod::System {
            names: vec![command.first()?.clone()],
        },
        fallback: None,
        var: resolver.var.clone(),
    };
    let found = resolver.find(&[], path, None, &|_| true, &mut Vec::new());
    let found = found.ok()?;
    Some(found.to_string_lossy().into_owned())
}

fn tool_program(method: &SearchMethod, placeholders: &Placeholders) -> Option<ToolProgram> {
    let placeholder = binary_placeholder(method)?;
    let rendered = template::render(placeholder, &template::Variables::new(), placeholders);
    let text = |name: &str| {
        placeholders
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Some(ToolProgram {
        name: as_text(&rendered),
        tool_dir: Path::new(&text("tool_source")?).parent()?.to_owned(),
        sha256: text("sha256"),
    })
}

impl ToolProgram {
    /// Whether the program is a path in the tool's directory rather than a name on `PATH`.
    fn is_path(&self) -> bool {
        self.name.contains('/')
    }

    /// Path in the tool's directory. Such a program must have a hash.
    fn path(&self) -> Result<PathBuf, InterpreterError> {
        let relative = Path::new(&self.name);
        let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(is_inside) {
            let reason = format!(
                "`{}` is neither a program name nor a path in the tool's directory",
                self.name
            );
            return Err(InterpreterError::Unusable(reason));
        }
        if self.sha256.is_none() {
            return Err(InterpreterError::MissingHash(self.name.clone()));
        }
        Ok(self.tool_dir.join(relative))
    }
}
