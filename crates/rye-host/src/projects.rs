//! The projects whose sessions one engine runs, each with the items, policy, models, credentials
//! and sandbox of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use parking_lot::Mutex;
use rye_engine::protocol::Session;
use rye_engine::{BoxFuture, Engine, Setup, Setups};
use tokio::sync::OnceCell;

use crate::automation::documents;
use crate::catalogue::catalogue;
use crate::context::{Context, Progress, Reporter};
use crate::engine::{EngineOptions, open_store, project_builder, run_builder, runtime};
use crate::failure::Failure;
use crate::mcp_tools::OfferedServers;
use crate::settings::{Options, project_of};
use crate::{Catalogue, HostError};

/// How many projects stay in memory although nothing uses them.
const MAX_UNUSED: usize = 32;

/// The projects that an engine serves.
#[derive(Debug, Clone)]
pub enum Served {
    /// Each directory, such as those that are open in an editor.
    All,
    /// The project of the process, and directories that were permitted, with what is below them.
    Permitted(Vec<PathBuf>),
}

/// Loads projects when they are needed.
pub struct Projects {
    settings: Options,
    served: Served,
    loader: Arc<Loader>,
    loaded: Mutex<HashMap<PathBuf, Arc<OnceCell<Arc<Project>>>>>,
}

/// A project that is loaded.
pub struct Project {
    /// Settings, keys and items of the project.
    pub context: Context,
    /// The models that sessions can use.
    pub models: Catalogue,
    /// What was reported while it was loaded: a text, and a command that helps.
    pub notices: Vec<(String, Option<String>)>,
    /// MCP servers that an editor offers to the sessions of the project.
    pub offered_servers: OfferedServers,
    setup: Arc<Setup>,
}

/// What projects are loaded with.
struct Loader {
    /// The context of the process.
    context: Context,
    options: EngineOptions,
    reporter: Arc<dyn Reporter>,
    supervisor: Arc<Supervisor>,
}

/// Runs `work` on an engine that runs the sessions of several projects, and shuts it down
/// afterwards.
pub fn with_projects<T>(
    context: &Context,
    settings: &Options,
    options: EngineOptions,
    served: Served,
    supervisor: impl Into<Arc<Supervisor>>,
    work: impl AsyncFnOnce(&Engine, &Arc<Projects>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let supervisor = supervisor.into();
    let runtime = runtime()?;
    let store = open_store(context)?;
    // A broken configuration of one project does not keep an editor from opening another one.
    let own = EngineOptions {
        runs_sessions: options.runs_sessions && matches!(served, Served::Permitted(_)),
        ..options.clone()
    };
    let projects = Arc::new(Projects {
        settings: settings.clone(),
        served,
        loader: Arc::new(Loader {
            context: context.in_project_silently(context.settings.project())?,
            options,
            reporter: context.shared_reporter(),
            supervisor: Arc::clone(&supervisor),
        }),
        loaded: Mutex::default(),
    });
    let setups = Arc::clone(&projects);
    let build = || {
        let builder = project_builder(context, own, supervisor)?;
        let builder = builder.quotas(documents(context)?);
        Ok(builder.runs_sessions(true).setups(setups))
    };
    run_builder(runtime, store, build, async |engine| {
        work(engine, &projects).await
    })
}

impl Projects {
    /// The project that a directory belongs to.
    pub async fn of_directory(&self, dir: &Path) -> Result<Arc<Project>, Failure> {
        self.open(project_of(&self.settings, dir)).await
    }

    /// The project of a session. If its directory does not exist any more, that of the process.
    pub async fn of_session(&self, session: &Session) -> Result<Arc<Project>, Failure> {
        let project = project(session).filter(|it| it.is_dir());
        self.open(project.unwrap_or_else(|| self.own().to_owned()))
            .await
    }

    /// The models of the project of the process.
    pub fn models(&self) -> Result<Catalogue, Failure> {
        let context = &self.loader.context;
        self.loader.catalogue(context, context.settings.project())
    }

    /// The real path of a directory in which sessions may work; `None` if they may not, or if it
    /// does not exist.
    pub fn permitted(&self, dir: &Path) -> Option<PathBuf> {
        let found = dir.canonicalize().ok().filter(|it| it.is_dir())?;
        let is_in = |root: &Path| {
            let root = root.canonicalize();
            root.is_ok_and(|root| found.starts_with(root))
        };
        let is_permitted = match &self.served {
            Served::All => true,
            Served::Permitted(roots) => is_in(self.own()) || roots.iter().any(|it| is_in(it)),
        };
        is_permitted.then_some(found)
    }

    /// The project of the process.
    pub fn own(&self) -> &Path {
        self.loader.context.settings.project()
    }

    async fn open(&self, project: PathBuf) -> Result<Arc<Project>, Failure> {
        let cell = self.cell(&project);
        let loader = &self.loader;
        let load = async || {
            let loader = Arc::clone(loader);
            // Reads and verifies files.
            let load = tokio::task::spawn_blocking(move || loader.load(&project));
            let loaded = load.await;
            loaded.map_err(|error| Failure::failed("project", error.to_string()))?
        };
        Ok(Arc::clone(cell.get_or_try_init(load).await?))
    }

    /// The cell of a project. Forgets unused projects if there are too many.
    fn cell(&self, project: &Path) -> Arc<OnceCell<Arc<Project>>> {
        let mut loaded = self.loaded.lock();
        if let Some(cell) = loaded.get(project) {
            return Arc::clone(cell);
        }
        if loaded.len() >= MAX_UNUSED {
            let is_used = |project: &Arc<Project>| {
                Arc::strong_count(project) > 1 || Arc::strong_count(&project.setup) > 1
            };
            loaded.retain(|_, cell| Arc::strong_count(cell) > 1 || cell.get().is_some_and(is_used));
        }
        Arc::clone(loaded.entry(project.to_owned()).or_default())
    }
}

impl Setups for Projects {
    fn setup<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Arc<Setup>>, String>> {
        Box::pin(async move {
            let loaded = match (&self.served, project(session)) {
                (Served::All, _) => self.of_session(session).await,
                (Served::Permitted(_), Some(project)) if project != self.own() => {
                    if !project.is_dir() {
                        return Err(format!("its project {} does not exist", project.display()));
                    }
                    if self.permitted(&project).is_none() {
                        let shown = project.display();
                        return Err(format!("this server does not serve its project {shown}"));
                    }
                    self.open(project).await
                }
                (Served::Permitted(_), _) => return Ok(None),
            };
            let loaded = loaded.map_err(|failure| failure.message)?;
            Ok(Some(Arc::clone(&loaded.setup)))
        })
    }
}

/// The project that a session was created in.
fn project(session: &Session) -> Option<PathBuf> {
    let project = session.project.as_ref().or(session.workspace.as_ref());
    project.map(PathBuf::from)
}

impl Loader {
    fn load(&self, project: &Path) -> Result<Arc<Project>, Failure> {
        let recorder = Arc::new(Recorder {
            reporter: Arc::clone(&self.reporter),
            notices: Mutex::default(),
        });
        let mut context = self.context.in_project_silently(project)?;
        let models = self.catalogue(&context, project)?;
        context.set_reporter(Arc::clone(&recorder) as Arc<dyn Reporter>);
        context.warn_ignored_settings();
        let supervisor = Arc::clone(&self.supervisor);
        let offered_servers = OfferedServers::default();
        let options = EngineOptions {
            offered_servers: offered_servers.clone(),
            ..self.options.clone()
        };
        let builder = project_builder(&context, options, supervisor)?;
        let setup = builder.setup().map_err(HostError::from)?;
        let notices = recorder.notices.lock().clone();
        Ok(Arc::new(Project {
            context,
            models,
            notices,
            offered_servers,
            setup: Arc::new(setup),
        }))
    }

    fn catalogue(&self, context: &Context, project: &Path) -> Result<Catalogue, Failure> {
        let models = catalogue(context, project)?;
        Ok(match &self.options.model {
            Some(model) => models.default_model(model),
            None => models,
        })
    }
}

/// Records notices and passes them on.
struct Recorder {
    reporter: Arc<dyn Reporter>,
    notices: Mutex<Vec<(String, Option<String>)>>,
}

impl Reporter for Recorder {
    fn warn(&self, text: &str, hint: Option<&str>) {
        let notice = (text.to_owned(), hint.map(str::to_owned));
        self.notices.lock().push(notice);
        self.reporter.warn(text, hint);
    }

    fn info(&self, text: &str) {
        self.notices.lock().push((text.to_owned(), None));
        self.reporter.info(text);
    }

    fn progress(&self, label: &'static str, total: Option<usize>) -> Box<dyn Progress> {
        self.reporter.progress(label, total)
    }
}
