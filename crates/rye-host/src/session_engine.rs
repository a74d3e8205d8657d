//! Runs a session in the project it was created in, wherever the command is called: its items,
//! policy and working directory are those of that project.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_engine::Engine;
use rye_engine::protocol::{Session, SessionId};

use crate::SandboxKind;
use crate::context::Context;
use crate::engine::{EngineOptions, open_store, run_engine, runtime, start_supervisor};
use crate::failure::Failure;
use crate::lookup::{find_newest_session, find_session_and_root};
use crate::settings::{Origin, Setting};

/// A session to run, with its engine and project.
pub struct SessionContext<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// The id of the session.
    pub session: &'a SessionId,
    /// The context of the session's project.
    pub context: &'a Context,
    /// Working directory of the session's tools.
    pub workspace: &'a Path,
}

/// Which session to run.
#[derive(Debug, Clone, Copy)]
pub enum SessionChoice<'a> {
    /// The one with this id, or unique prefix or suffix of it.
    Id(&'a str),
    /// The newest one of the current project.
    Newest,
}

impl<'a> From<&'a String> for SessionChoice<'a> {
    fn from(part: &'a String) -> Self {
        Self::Id(part)
    }
}

/// Runs `work` on an engine for a session, in the session's own project unless `options` say
/// otherwise. Refuses tasks, because only their parent may prompt them.
pub fn with_session<'a, T>(
    context: &Context,
    choice: impl Into<SessionChoice<'a>>,
    options: EngineOptions,
    work: impl AsyncFnOnce(SessionContext<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refuse = |task: &SessionId, root: &Session| {
        let (task, root) = (task.short(), root.id.short());
        let message =
            format!("session {task} is a task; only its parent session {root} can prompt it");
        Err(Failure::usage(message).hint(format!("rye session fork {task}")))
    };
    with_root_session(context, choice.into(), options, refuse, work)
}

/// Like [`with_session`], but for a task it runs the session at the top, with a warning.
pub fn with_session_or_root<T>(
    context: &Context,
    part: &str,
    options: EngineOptions,
    work: impl AsyncFnOnce(SessionContext<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let warn = |task: &SessionId, root: &Session| {
        let (task, root) = (task.short(), root.id.short());
        let text = format!("session {task} is a task; resuming its parent session {root}");
        context.reporter().warn(&text, None);
        Ok(())
    };
    with_root_session(context, SessionChoice::Id(part), options, warn, work)
}

fn with_root_session<T>(
    context: &Context,
    choice: SessionChoice<'_>,
    options: EngineOptions,
    on_task: impl FnOnce(&SessionId, &Session) -> Result<(), Failure>,
    work: impl AsyncFnOnce(SessionContext<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // It forks, so it must start before any threads.
    let supervisor = start_supervisor()?;
    let runtime = runtime()?;
    let store = open_store(context)?;
    let session = match choice {
        SessionChoice::Id(part) => {
            let (id, session) = runtime.block_on(find_session_and_root(&store, part))?;
            if id != session.id {
                on_task(&id, &session)?;
            }
            session
        }
        SessionChoice::Newest => {
            let project = context.settings.project();
            runtime.block_on(find_newest_session(&store, project))?
        }
    };
    let previous_sandbox = session.sandbox.as_ref();
    let previous_sandbox = previous_sandbox.map_or(SandboxKind::Virtual, |it| it.kind.into());
    let here = &context.settings.dirs.project;
    let location = Location::resolve(&session, here, options.workspace)?;
    location.print_notice(context);
    let other_context = (location.project != here.value)
        .then(|| context.in_project(&location.project))
        .transpose()?;
    let context = other_context.as_ref().unwrap_or(context);
    let options = EngineOptions {
        runs_sessions: true,
        sandbox: Some(options.sandbox.unwrap_or(previous_sandbox)),
        review: Some(false),
        workspace: Some(location.workspace.clone()),
        ..options
    };
    let work = async |engine: &Engine| {
        let session_context = SessionContext {
            engine,
            session: &session.id,
            context,
            workspace: &location.workspace,
        };
        work(session_context).await
    };
    run_engine(runtime, store, context, options, Arc::new(supervisor), work)
}

/// Runs `work` on an engine that can read and write the files of a session and runs no session.
/// Works with a broken configuration too.
///
/// A sandbox with a directory of this machine is opened without confinement: no commands run in it,
/// and the machine may not be able to confine them.
pub fn with_session_files<T>(
    context: &Context,
    part: &str,
    work: impl AsyncFnOnce(&Engine, &SessionId) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // It forks, so it must start before any threads.
    let supervisor = start_supervisor()?;
    let runtime = runtime()?;
    let store = open_store(context)?;
    let (_, session) = runtime.block_on(find_session_and_root(&store, part))?;
    let sandbox = session.sandbox.as_ref();
    let is_here = sandbox.is_some_and(|it| it.workspace.is_some());
    let kind = sandbox.map(|it| SandboxKind::from(it.kind));
    let options = EngineOptions {
        sandbox: if is_here {
            Some(SandboxKind::Local)
        } else {
            kind
        },
        needs_sandbox: kind == Some(SandboxKind::Remote),
        ..EngineOptions::default()
    };
    let work = async |engine: &Engine| work(engine, &session.id).await;
    run_engine(runtime, store, context, options, Arc::new(supervisor), work)
}

/// Project and working directory of a session.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    project: PathBuf,
    workspace: PathBuf,
    notice: Notice,
}

/// What to tell the user about the location.
#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// The session's project is the current one.
    None,
    /// The session runs in its own project, which is not the current one.
    Info(String),
    /// The session runs in another project than the one it was created in.
    Warning(String),
}

impl Location {
    fn resolve(
        session: &Session,
        here: &Setting<PathBuf>,
        requested_workspace: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let workspace = session.workspace.as_ref().map(PathBuf::from);
        let created_in = session.project.as_ref().map(PathBuf::from);
        let created_in = created_in.or_else(|| workspace.clone());
        let Some(created_in) = created_in else {
            // Created without a project.
            return Ok(Self {
                project: here.value.clone(),
                workspace: requested_workspace.unwrap_or_else(|| here.value.clone()),
                notice: Notice::None,
            });
        };
        let is_explicit = here.origin == Origin::Option("--project");
        let is_project = matches!(here.origin, Origin::Discovered | Origin::Variable(_));
        let (old, new) = (created_in.display(), here.value.display());
        let (project, notice) = if here.value == created_in {
            (here.value.clone(), Notice::None)
        } else if is_explicit {
            let text = format!("continuing in {new}; the session was created in {old}");
            (here.value.clone(), Notice::Warning(text))
        } else if created_in.is_dir() {
            let text = format!("continuing in {old}, where the session was created");
            (created_in.clone(), Notice::Info(text))
        } else if is_project {
            let text = format!(
                "continuing in {new}: {old}, where the session was created, does not exist"
            );
            (here.value.clone(), Notice::Warning(text))
        } else {
            return Err(missing_dir(session, &created_in, &here.value));
        };
        let own_workspace = workspace.filter(|dir| *dir != created_in);
        let workspace = match (requested_workspace, own_workspace) {
            (Some(dir), _) => dir,
            (None, Some(dir)) if dir.is_dir() => dir,
            (None, Some(dir)) if !is_explicit && project == created_in => {
                return Err(missing_dir(session, &dir, &here.value));
            }
            (None, _) => project.clone(),
        };
        Ok(Self {
            project,
            workspace,
            notice,
        })
    }

    fn print_notice(&self, context: &Context) {
        match &self.notice {
            Notice::None => {}
            Notice::Info(text) => context.reporter().info(text),
            Notice::Warning(text) => context.reporter().warn(text, None),
        }
    }
}

fn missing_dir(session: &Session, dir: &Path, here: &Path) -> Failure {
    let id = session.id.short();
    let message = format!(
        "session {id} works in {}, which does not exist",
        dir.display()
    );
    Failure::failed("no_directory", message).hint(format!(
        "rye session resume {id} --project {}",
        lillux::shell_word(here)
    ))
}
