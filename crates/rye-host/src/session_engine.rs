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
use crate::lookup::find_session_and_root;
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

/// Runs `work` on an engine for a session, in the session's own project unless `options` say
/// otherwise. Refuses tasks, because only their parent may prompt them.
pub fn with_session<T>(
    context: &Context,
    part: &str,
    options: EngineOptions,
    work: impl AsyncFnOnce(SessionContext<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refuse = |task: &SessionId, root: &Session| {
        let (task, root) = (task.short(), root.id.short());
        let message =
            format!("session {task} is a task; only its parent session {root} can prompt it");
        Err(Failure::usage(message).hint(format!("rye session fork {task}")))
    };
    with_root_session(context, part, options, refuse, work)
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
    with_root_session(context, part, options, warn, work)
}

fn with_root_session<T>(
    context: &Context,
    part: &str,
    options: EngineOptions,
    on_task: impl FnOnce(&SessionId, &Session) -> Result<(), Failure>,
    work: impl AsyncFnOnce(SessionContext<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // It forks, so it must start before any threads.
    let supervisor = start_supervisor()?;
    let runtime = runtime()?;
    let store = open_store(context)?;
    let (id, session) = runtime.block_on(find_session_and_root(&store, part))?;
    if id != session.id {
        on_task(&id, &session)?;
    }
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
