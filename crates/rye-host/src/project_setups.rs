//! Lets one engine run the sessions of several projects, each with the items, policy, models and
//! sandbox of its own project.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use parking_lot::Mutex;
use rye_engine::protocol::Session;
use rye_engine::{BoxFuture, Setup, Setups};
use tokio::sync::OnceCell;

use crate::context::Context;
use crate::engine::{EngineOptions, project_builder};
use crate::failure::Failure;
use crate::settings;

/// How many projects are kept in memory although no session of theirs is open.
const MAX_UNUSED: usize = 32;

/// Builds the setup of a project when its first session runs.
pub(crate) struct ProjectSetups {
    /// The project of the engine itself.
    own: PathBuf,
    options: EngineOptions,
    supervisor: Arc<Supervisor>,
    known: Mutex<HashMap<PathBuf, Arc<OnceCell<Arc<Setup>>>>>,
}

impl ProjectSetups {
    pub(crate) fn new(own: PathBuf, options: EngineOptions, supervisor: Arc<Supervisor>) -> Self {
        Self {
            own,
            options,
            supervisor,
            known: Mutex::default(),
        }
    }

    /// The cell of a project. Forgets projects without open sessions if there are too many.
    fn cell(&self, project: &Path) -> Arc<OnceCell<Arc<Setup>>> {
        let mut known = self.known.lock();
        if let Some(cell) = known.get(project) {
            return Arc::clone(cell);
        }
        if known.len() >= MAX_UNUSED {
            known.retain(|_, cell| {
                let is_used = |setup: &Arc<Setup>| Arc::strong_count(setup) > 1;
                Arc::strong_count(cell) > 1 || cell.get().is_some_and(is_used)
            });
        }
        Arc::clone(known.entry(project.to_owned()).or_default())
    }

    async fn load(&self, project: PathBuf) -> Result<Arc<Setup>, String> {
        let (options, supervisor) = (self.options.clone(), Arc::clone(&self.supervisor));
        // Reads and verifies files.
        let load = tokio::task::spawn_blocking(move || -> Result<Setup, Failure> {
            let context = Context::open(&settings::Options {
                project: Some(project),
                color: None,
            })?;
            let builder = project_builder(&context, options, supervisor)?;
            Ok(builder.setup().map_err(crate::HostError::from)?)
        });
        let setup = load.await.map_err(|error| error.to_string())?;
        setup.map(Arc::new).map_err(|failure| failure.message)
    }
}

impl Setups for ProjectSetups {
    fn setup<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Arc<Setup>>, String>> {
        Box::pin(async move {
            let project = session.project.as_ref().or(session.workspace.as_ref());
            let Some(project) = project.map(PathBuf::from).filter(|it| *it != self.own) else {
                return Ok(None);
            };
            if !project.is_dir() {
                return Err(format!("its project {} does not exist", project.display()));
            }
            let cell = self.cell(&project);
            let setup = cell.get_or_try_init(|| self.load(project)).await?;
            Ok(Some(Arc::clone(setup)))
        })
    }
}
