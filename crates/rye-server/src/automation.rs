//! What the server does without a request: it fires schedules and sends events to webhooks.

use std::sync::Arc;
use std::time::Duration;

use rye_automation::{
    Hooks, Launcher, Outbox, Owner, Scheduler, Schedules, Sealer, Sender, Webhooks,
};
use rye_engine::Engine;
use rye_engine::clock::{Clock, SystemClock};
use rye_engine::documents::DocumentStore;
use rye_host::Failure;
use rye_host::automation::ProjectGraphs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::Principal;

/// Interval at which records of hooks are deleted.
const CLEANUP: Duration = Duration::from_mins(1);

/// Definitions, and what acts on them.
pub(crate) struct Automation {
    pub(crate) schedules: Schedules,
    pub(crate) webhooks: Webhooks,
    pub(crate) hooks: Hooks,
    pub(crate) graphs: Arc<ProjectGraphs>,
    documents: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    pub(crate) launcher: Launcher,
    sealer: Sealer,
    project: String,
}

impl Automation {
    pub(crate) fn new(
        documents: Arc<dyn DocumentStore>,
        engine: Engine,
        graphs: ProjectGraphs,
        sealer: Sealer,
        project: String,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let graphs = Arc::new(graphs);
        let (store, time) = (Arc::clone(&documents), Arc::clone(&clock));
        let webhooks = Webhooks::new(store, time, sealer.clone());
        let (store, time) = (Arc::clone(&documents), Arc::clone(&clock));
        Self {
            webhooks,
            hooks: Hooks::new(store, time, sealer.clone()),
            sealer,
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
    pub(crate) fn start(&self, stop: &CancellationToken) -> Result<JoinSet<()>, Failure> {
        let mut tasks = JoinSet::new();
        let scheduler = Scheduler::new(
            Arc::clone(&self.documents),
            Arc::clone(&self.clock),
            self.launcher.clone(),
            self.project.clone(),
        );
        let token = stop.clone();
        tasks.spawn(async move { scheduler.run(token).await });
        let (documents, clock) = (Arc::clone(&self.documents), Arc::clone(&self.clock));
        let sender = Sender::new(documents, clock, self.sealer.clone())?;
        let token = stop.clone();
        tasks.spawn(async move { sender.run(token).await });
        let (documents, clock) = (Arc::clone(&self.documents), Arc::clone(&self.clock));
        let outbox = Outbox::new(documents, clock, self.launcher.engine.clone());
        tasks.spawn(outbox.run(stop.clone()));
        tasks.spawn(forget_requests(self.hooks.clone(), stop.clone()));
        Ok(tasks)
    }
}

/// Deletes records of requests that are refused by now anyway.
async fn forget_requests(hooks: Hooks, stop: CancellationToken) {
    loop {
        if let Err(error) = hooks.forget_requests().await {
            tracing::warn!(%error, "cannot delete records of hooks");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CLEANUP) => {}
        }
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
