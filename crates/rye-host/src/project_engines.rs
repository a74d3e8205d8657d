//! Engines of the projects that one process works in, such as those that are open in an editor.
//! They share the session database, the runtime and the supervisor of processes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rye_engine::Engine;
use rye_engine::protocol::{Session, SessionId};
use rye_engine::store::SessionStore;

use lillux::process::Supervisor;

use crate::Catalogue;
use crate::catalogue::catalogue;
use crate::context::{Context, Progress, Reporter};
use crate::engine::{
    CLOSE_TIMEOUT, EngineOptions, build_engine, open_store, runtime, write_metrics,
};
use crate::failure::Failure;
use crate::settings::{Options, project_of};

/// The engines of several projects, built when they are needed.
pub struct ProjectEngines {
    settings: Options,
    options: EngineOptions,
    /// The context of the process.
    context: Context,
    reporter: Arc<dyn Reporter>,
    store: Arc<dyn SessionStore>,
    supervisor: Arc<Supervisor>,
    open: tokio::sync::Mutex<HashMap<PathBuf, Arc<ProjectEngine>>>,
}

/// The engine of a project.
pub struct ProjectEngine {
    /// Settings, keys and items of the project.
    pub context: Context,
    /// The engine.
    pub engine: Engine,
    /// The models that sessions can use.
    pub models: Catalogue,
    /// What was reported while the engine was built: a text, and a command that helps.
    pub notices: Vec<(String, Option<String>)>,
}

/// Runs `work` on the engines of a process, and shuts them down afterwards.
pub fn with_projects<T>(
    context: &Context,
    settings: &Options,
    options: EngineOptions,
    supervisor: Supervisor,
    work: impl AsyncFnOnce(Arc<ProjectEngines>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = runtime()?;
    let mut store = open_store(context)?;
    let closing = store.close_handle();
    let reporter = context.shared_reporter();
    let context = context.in_project_silently(context.settings.project())?;
    let outcome = runtime.block_on(async {
        let projects = Arc::new(ProjectEngines {
            settings: settings.clone(),
            options,
            context,
            reporter,
            store: Arc::new(store),
            supervisor: Arc::new(supervisor),
            open: tokio::sync::Mutex::default(),
        });
        let outcome = work(Arc::clone(&projects)).await;
        let closed = projects.shut_down().await;
        // Report the first error.
        let outcome = outcome?;
        closed?;
        Ok(outcome)
    });
    // Blocked reads of standard input are abandoned, but the store is closed properly.
    runtime.shutdown_background();
    closing.wait(CLOSE_TIMEOUT);
    outcome
}

impl ProjectEngines {
    /// The engine of the project that a directory belongs to.
    pub async fn of_directory(&self, dir: &Path) -> Result<Arc<ProjectEngine>, Failure> {
        self.open(project_of(&self.settings, dir)).await
    }

    /// The engine of the project that a session was created in. If that directory does not exist
    /// any more, the engine of the project that `dir` belongs to.
    pub async fn of_session(
        &self,
        session: &Session,
        dir: &Path,
    ) -> Result<Arc<ProjectEngine>, Failure> {
        let created_in = session.project.as_ref().or(session.workspace.as_ref());
        match created_in.map(PathBuf::from).filter(|it| it.is_dir()) {
            Some(project) => self.open(project).await,
            None => self.of_directory(dir).await,
        }
    }

    /// A stored session; `None` if it does not exist.
    pub async fn session(&self, id: &SessionId) -> Result<Option<Session>, Failure> {
        Ok(self.store.session(id).await?)
    }

    /// The store that the engines share.
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    /// The models of the project of the process.
    pub fn models(&self) -> Result<Catalogue, Failure> {
        self.catalogue(&self.context, self.context.settings.project())
    }

    fn catalogue(&self, context: &Context, project: &Path) -> Result<Catalogue, Failure> {
        let models = catalogue(context, project)?;
        Ok(match &self.options.model {
            Some(model) => models.default_model(model),
            None => models,
        })
    }

    async fn open(&self, project: PathBuf) -> Result<Arc<ProjectEngine>, Failure> {
        let mut open = self.open.lock().await;
        if let Some(engine) = open.get(&project) {
            return Ok(Arc::clone(engine));
        }
        let recorder = Arc::new(Recorder {
            reporter: Arc::clone(&self.reporter),
            notices: Mutex::default(),
        });
        let mut context = self.context.in_project_silently(&project)?;
        let models = self.catalogue(&context, &project)?;
        context.set_reporter(Arc::clone(&recorder) as Arc<dyn Reporter>);
        context.warn_ignored_settings();
        let engine = build_engine(
            Arc::clone(&self.store),
            &context,
            self.options.clone(),
            Arc::clone(&self.supervisor),
        )?;
        let notices = recorder.notices.lock().clone();
        let engine = Arc::new(ProjectEngine {
            context,
            engine,
            models,
            notices,
        });
        open.insert(project, Arc::clone(&engine));
        Ok(engine)
    }

    async fn shut_down(&self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (_, project) in self.open.lock().await.drain() {
            outcome = outcome.and(project.engine.shutdown().await);
            write_metrics(&project.engine)?;
        }
        Ok(outcome?)
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
