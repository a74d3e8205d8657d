//! Where a session goes on: in the project that it was made in, wherever that is gone on from.
//! Its items, its policy and the folder of its tools are that project's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_engine::Engine;
use rye_engine::protocol::{Session, SessionId};
use rye_host::SandboxKind;
use serde_json::{Map, Value};

use super::context::Context;
use super::engine::{Wanted, meant_root, run, runtime, store, unable};
use super::failure::Failure;
use super::page::{DIM, paint};
use crate::settings::{Origin, Setting};

/// Where a session's data names the project that it was made in.
pub(crate) const PROJECT: &str = "project";

/// What a new session remembers of where it was made.
pub(crate) fn made_in(context: &Context) -> Map<String, Value> {
    let project = context.settings.project().display().to_string();
    Map::from_iter([(PROJECT.to_owned(), Value::String(project))])
}

/// A session that goes on, and where.
pub(crate) struct GoingOn<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a SessionId,
    /// The surroundings of its project.
    pub(crate) context: &'a Context,
    /// The folder that its tools work in.
    pub(crate) workspace: &'a Path,
}

/// Runs work on an engine for the one session that is meant: all is as it was where it was
/// made, unless something else is asked for. A task is moved by its parent alone, and refused.
pub(crate) fn with_session<T>(
    context: &Context,
    meant: &str,
    asked: Wanted,
    work: impl AsyncFnOnce(GoingOn<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refused = |task: &SessionId, top: &Session| {
        let message = format!(
            "{task} is a task of session {}, which alone asks it",
            top.id
        );
        let hint = format!("rye session fork {task} makes a session of its own of it");
        Err(Failure::usage(message).hint(hint))
    };
    with_top(context, meant, asked, refused, work)
}

/// The same, where for a task the session at the top is meant.
pub(crate) fn with_session_above<T>(
    context: &Context,
    meant: &str,
    asked: Wanted,
    work: impl AsyncFnOnce(GoingOn<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let said = |task: &SessionId, top: &Session| {
        let text = format!("{task} is a task of session {}, which goes on", top.id);
        context.printer.warn(&text, None);
        Ok(())
    };
    with_top(context, meant, asked, said, work)
}

fn with_top<T>(
    context: &Context,
    meant: &str,
    asked: Wanted,
    is_task: impl FnOnce(&SessionId, &Session) -> Result<(), Failure>,
    work: impl AsyncFnOnce(GoingOn<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Before there are threads, since it forks.
    let supervisor = Supervisor::start().map_err(unable)?;
    let runtime = runtime()?;
    let store = store(context)?;
    let (meant, session) = runtime.block_on(meant_root(&store, meant))?;
    if meant != session.id {
        is_task(&meant, &session)?;
    }
    let before = match &session.sandbox {
        Some(sandbox) if sandbox.kind == "local" => SandboxKind::Local,
        _ => SandboxKind::Virtual,
    };
    let here = &context.settings.places.project;
    let place = Place::of(&session, here, asked.workspace)?;
    place.tell(context);
    let elsewhere = (place.project != here.value)
        .then(|| context.in_project(&place.project))
        .transpose()?;
    let context = elsewhere.as_ref().unwrap_or(context);
    let wanted = Wanted {
        goes_on: true,
        sandbox: Some(asked.sandbox.unwrap_or(before)),
        workspace: Some(place.workspace.clone()),
        ..asked
    };
    let work = async |engine: &Engine| {
        let going_on = GoingOn {
            engine,
            session: &session.id,
            context,
            workspace: &place.workspace,
        };
        work(going_on).await
    };
    run(runtime, store, context, wanted, Arc::new(supervisor), work)
}

/// Where a session goes on.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    project: PathBuf,
    workspace: PathBuf,
    said: Said,
}

/// What a person must know of it.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// It is where they are.
    Nothing,
    /// It is where it was, and they are elsewhere.
    Aside(String),
    /// It is not where it was.
    Moved(String),
}

impl Place {
    fn of(
        session: &Session,
        here: &Setting<PathBuf>,
        asked: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let workspace = session.workspace.as_ref().map(PathBuf::from);
        let made_in = session.metadata.get(PROJECT).and_then(Value::as_str);
        let made_in = made_in.map(PathBuf::from).or_else(|| workspace.clone());
        let Some(made_in) = made_in else {
            // Whoever made it had no project.
            return Ok(Self {
                project: here.value.clone(),
                workspace: asked.unwrap_or_else(|| here.value.clone()),
                said: Said::Nothing,
            });
        };
        let is_named = here.origin == Origin::Option("--project");
        let is_project = matches!(here.origin, Origin::Found | Origin::Variable(_));
        let (was, now) = (made_in.display(), here.value.display());
        let (project, said) = if here.value == made_in {
            (here.value.clone(), Said::Nothing)
        } else if is_named {
            let text = format!("it goes on in {now}, and was made in {was}");
            (here.value.clone(), Said::Moved(text))
        } else if made_in.is_dir() {
            let text = format!("it goes on in {was}, where it was made");
            (made_in.clone(), Said::Aside(text))
        } else if is_project {
            let text = format!("it goes on in {now}: {was}, where it was made, is not there");
            (here.value.clone(), Said::Moved(text))
        } else {
            return Err(gone(session, &made_in));
        };
        let own = workspace.filter(|folder| *folder != made_in);
        let workspace = match (asked, own) {
            (Some(folder), _) => folder,
            (None, Some(folder)) if folder.is_dir() => folder,
            (None, Some(folder)) if !is_named && project == made_in => {
                return Err(gone(session, &folder));
            }
            (None, _) => project.clone(),
        };
        Ok(Self {
            project,
            workspace,
            said,
        })
    }

    fn tell(&self, context: &Context) {
        match &self.said {
            Said::Nothing => {}
            Said::Aside(text) => {
                if !context.printer.quiet {
                    context.printer.aside(&format!("{}\n", paint(DIM, text)));
                }
            }
            Said::Moved(text) => context.printer.warn(text, None),
        }
    }
}

fn gone(session: &Session, folder: &Path) -> Failure {
    let message = format!(
        "session {} works in {}, which is not there",
        session.id,
        folder.display()
    );
    let hint = format!("rye session resume {} --project DIR", session.id);
    Failure::failed("no_folder", message).hint(hint)
}
