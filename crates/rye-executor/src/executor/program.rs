//! The program that a call runs: an interpreter, or a tool's own compiled one.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use lillux::Hash;
use lillux::process::Command;
use rye_items::Space;
use serde_json::Value;

use super::Executor;
use super::guard::Guard;
use super::prepare::word;
use crate::environment::Environment;
use crate::interpreter::{InterpreterError, Resolver, Way};
use crate::template::{self, Names};

/// How long a command may take that says where an interpreter is.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

impl Executor {
    /// Finds an interpreter, and a program of the tool's own by its hash.
    pub(super) async fn find(
        &self,
        resolver: &Resolver,
        space: Space,
        facts: &Names,
        environment: &Environment,
        guard: &Guard<'_>,
    ) -> Result<String, InterpreterError> {
        let roots = self.roots(&resolver.way, space, facts, environment);
        let answer = match &resolver.way {
            // Few ask, and every call would carry the room for it.
            Way::Command(command) => Box::pin(self.ask(command, environment)).await,
            _ => None,
        };
        let path = environment.get("PATH").unwrap_or_default();
        let found = match own_program(&resolver.way, facts) {
            Some(own) => self.own(&own, resolver, path)?,
            None => resolver.find(&roots, path, answer.as_deref(), &|path| {
                guard.admits(path, space)
            })?,
        };
        Ok(found.to_string_lossy().into_owned())
    }

    /// Below which folders an interpreter is looked for. A project's own is for its own
    /// tools: those of the user and the system need nothing of a project that was only cloned.
    fn roots(
        &self,
        way: &Way,
        space: Space,
        facts: &Names,
        environment: &Environment,
    ) -> Vec<PathBuf> {
        let Way::Local { roots, .. } = way else {
            return Vec::new();
        };
        let project = &self.roots.project;
        let mut roots: Vec<_> = roots
            .iter()
            .map(|root| word(template::render(root, environment.variables(), facts)))
            .map(PathBuf::from)
            .collect();
        if roots.is_empty() {
            roots.push(project.clone());
        }
        if space != Space::Project {
            roots.retain(|root| !root.starts_with(project));
        }
        roots
    }

    /// Checks a program of the tool's own as a call would, if something vouches for it.
    pub(super) fn check_own(
        &self,
        resolver: &Resolver,
        facts: &Names,
        path: &str,
    ) -> Result<(), InterpreterError> {
        match own_program(&resolver.way, facts) {
            Some(own) if own.is_beside() || own.sha256.is_some() => {
                self.own(&own, resolver, path).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Finds a program of the tool's own, beside it or on `PATH`. One whose hash the
    /// tool says is a private copy of what has that hash.
    fn own(
        &self,
        own: &OwnProgram,
        resolver: &Resolver,
        path: &str,
    ) -> Result<PathBuf, InterpreterError> {
        let found = if own.is_beside() {
            own.beside()?
        } else {
            let names = vec![own.name.clone()];
            let resolver = Resolver {
                way: Way::System { names },
                ..resolver.clone()
            };
            resolver.find(&[], path, None, &|_| true)?
        };
        match &own.sha256 {
            Some(expected) => self.vouched(&found, expected),
            None => Ok(found),
        }
    }

    /// What a command prints that knows where an interpreter is; none if it fails.
    async fn ask(&self, command: &[String], environment: &Environment) -> Option<String> {
        let (program, arguments) = command.split_first()?;
        let mut asked = Command::new(program)
            .args(arguments)
            .cwd(&self.roots.project)
            .environment(lillux::process::Environment::Exact)
            .timeout(RESOLVE_LIMIT);
        for (name, value) in environment.variables() {
            asked = asked.env(name, value);
        }
        let output = self.supervisor.exec(asked).await.ok()?;
        let answer = output.stdout.text().trim().to_owned();
        (output.success() && !answer.is_empty()).then_some(answer)
    }

    /// A private copy of a program that has the hash which the tool says.
    fn vouched(&self, path: &Path, expected: &str) -> Result<PathBuf, InterpreterError> {
        let unusable = |why: String| InterpreterError::Unusable(why);
        let bytes = fs::read(path)
            .map_err(|error| unusable(format!("cannot read {}: {error}", path.display())))?;
        let found = Hash::digest(&bytes).to_hex();
        if !found.eq_ignore_ascii_case(expected) {
            return Err(InterpreterError::Changed {
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
struct OwnProgram {
    name: String,
    tool_dir: PathBuf,
    sha256: Option<String>,
}

/// `binary: "{binary}"` of a runtime: the program is the tool's own.
fn placeholder(way: &Way) -> Option<&String> {
    let Way::System { names } = way else {
        return None;
    };
    names.first().filter(|name| name.starts_with('{'))
}

/// Whether the program is what the tool says in its configuration.
pub(super) fn is_own(resolver: &Resolver) -> bool {
    placeholder(&resolver.way).is_some()
}

fn own_program(way: &Way, facts: &Names) -> Option<OwnProgram> {
    let placeholder = placeholder(way)?;
    let rendered = template::render(placeholder, &template::Variables::new(), facts);
    let text = |name: &str| facts.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(OwnProgram {
        name: word(rendered),
        tool_dir: Path::new(&text("tool_source")?).parent()?.to_owned(),
        sha256: text("sha256"),
    })
}

impl OwnProgram {
    /// Whether it is a path rather than a name.
    fn is_beside(&self) -> bool {
        self.name.contains('/')
    }

    /// Its path in the tool's folder. Nothing but its hash vouches for it.
    fn beside(&self) -> Result<PathBuf, InterpreterError> {
        let relative = Path::new(&self.name);
        let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(stays) {
            let why = format!(
                "`{}` is neither the name of a program nor a path beside the tool",
                self.name
            );
            return Err(InterpreterError::Unusable(why));
        }
        if self.sha256.is_none() {
            return Err(InterpreterError::Unsigned(self.name.clone()));
        }
        Ok(self.tool_dir.join(relative))
    }
}
