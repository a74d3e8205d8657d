//! What the server does without a request: it fires schedules.

use std::sync::Arc;

use rye_automation::{Launcher, Owner, Scheduler, Schedules};
use rye_engine::Engine;
use rye_engine::clock::{Clock, SystemClock};
use rye_engine::documents::DocumentStore;
use rye_host::automation::ProjectGraphs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::Principal;

/// Definitions, and what acts on them.
pub(crate) struct Automation {
    pub(crate) schedules: Schedules,
    pub(crate) graphs: Arc<ProjectGraphs>,
    documents: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    launcher: Launcher,
    project: String,
}

impl Automation {
    pub(crate) fn new(
        documents: Arc<dyn DocumentStore>,
        engine: Engine,
        graphs: ProjectGraphs,
        project: String,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let graphs = Arc::new(graphs);
        Self {
            schedules: Schedules::new(Arc::clone(&documents), Arc::clone(&clock)),
            launcher: Launcher {
                engine,
                graphs: Arc::clone(&graphs) as _,
            },
            graphs,
            documents,
            clock,
            project,
        }
    }

    /// Starts the tasks that act on definitions, until `stop` is cancelled.
    pub(crate) fn start(&self, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let scheduler = Scheduler::new(
            Arc::clone(&self.documents),
            Arc::clone(&self.clock),
            self.launcher.clone(),
            self.project.clone(),
        );
        let stop = stop.clone();
        tasks.spawn(async move { scheduler.run(stop).await });
        tasks
    }
}

impl Principal {
    /// Whether the caller may know of a definition and of what it starts.
    pub(crate) fn can_see_owned(&self, owner: &Owner) -> bool {
        self.can_see_owner(
            owner.user.as_ref(),
            owner.org.as_ref(),
            Some(&owner.project),
        )
    }
}
