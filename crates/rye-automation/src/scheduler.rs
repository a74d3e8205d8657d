//! Fires schedules that are due.
//!
//! Several servers may do so at once. A server claims a firing by writing until when it works on
//! it; if it dies, another one takes over after that time. What is started has an id that is
//! derived from the schedule and the due time, so taking over starts nothing twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use rye_engine::clock::Clock;
use rye_engine::documents::{Document, DocumentKind, DocumentStore};
use rye_engine::store::StoreError;
use rye_protocol::Millis;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::action::{Launcher, Occasion, StartError, StartedWork};
use crate::error::AutomationError;
use crate::schedule::{Firing, FiringOutcome, MissedPolicy, Schedule};
use crate::stored::{self, Stored as _};

/// Interval at which due schedules are looked up.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a server may work on a firing before another one takes over.
const CLAIM: Duration = Duration::from_secs(15);

/// A firing that is later than this was missed.
const MISSED_AFTER: Duration = Duration::from_mins(1);

/// How long a firing is repeated while something it needs is not available.
const RETRY_FOR: Duration = Duration::from_mins(10);

/// Maximum number of due schedules that are read at once.
const PAGE: usize = 1000;

/// Number of firings at a time.
const CONCURRENCY: usize = 8;

/// Fires the schedules of a project.
#[derive(Clone)]
pub struct Scheduler {
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    launcher: Launcher,
    project: String,
}

impl Scheduler {
    /// A scheduler for the schedules of one project.
    pub fn new(
        store: Arc<dyn DocumentStore>,
        clock: Arc<dyn Clock>,
        launcher: Launcher,
        project: String,
    ) -> Self {
        Self {
            store,
            clock,
            launcher,
            project,
        }
    }

    /// Fires what is due, until it is stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let mut is_failing = false;
        loop {
            let fired = self.fire_due().await;
            if let Err(error) = &fired
                && !is_failing
            {
                tracing::warn!(%error, "cannot fire schedules");
            }
            is_failing = fired.is_err();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// Fires all schedules that are due now. One that fails does not affect the others.
    pub async fn fire_due(&self) -> Result<(), AutomationError> {
        let now = self.clock.now();
        let due = self.store.due(DocumentKind::Schedule, now, PAGE).await?;
        let firings = stream::iter(due).map(|document| self.fire(document, now));
        let mut firings = firings.buffer_unordered(CONCURRENCY);
        let mut outcome = Ok(());
        while let Some(fired) = firings.next().await {
            outcome = outcome.and(fired);
        }
        outcome
    }

    /// Claims and performs one firing.
    async fn fire(&self, document: Document, now: Millis) -> Result<(), AutomationError> {
        let mut schedule = Schedule::from_document(&document)?;
        let Some(due) = schedule.next else {
            return Ok(());
        };
        if schedule.owner.project != self.project {
            return Ok(());
        }
        // A firing that was claimed was on time, whatever became of the server.
        let is_missed = schedule.claimed_until.is_none() && is_late(due, now);
        if is_missed && schedule.missed == MissedPolicy::Skip {
            let (at, outcome) = (now, FiringOutcome::Missed);
            schedule.last = Some(Firing { due, at, outcome });
            schedule.set_next(now)?;
            self.store.write(vec![schedule.replace(&document)?]).await?;
            return Ok(());
        }
        schedule.claimed_until = Some(now.after(CLAIM));
        if !self.store.write(vec![schedule.replace(&document)?]).await? {
            // Another server was faster, or the schedule has changed.
            return Ok(());
        }
        let outcome = match self.start(&schedule, due).await {
            Ok(work) => FiringOutcome::Started(work),
            // The claim expires, and some server tries again.
            Err(error) if error.is_transient && due.until(now) < RETRY_FOR => return Ok(()),
            Err(error) => FiringOutcome::Failed {
                code: error.code,
                message: error.message,
            },
        };
        self.finish(&schedule, due, outcome).await
    }

    async fn start(&self, schedule: &Schedule, due: Millis) -> Result<StartedWork, StartError> {
        let mut metadata = Map::new();
        metadata.insert("schedule".into(), json!(schedule.id));
        metadata.insert("due".into(), json!(due));
        let occasion = Occasion {
            key: schedule.firing_key(due),
            channel: "schedule",
            metadata,
        };
        let (action, owner) = (&schedule.action, &schedule.owner);
        self.launcher.start(action, owner, occasion).await
    }

    /// Records a firing, and when the schedule fires next.
    async fn finish(
        &self,
        schedule: &Schedule,
        due: Millis,
        outcome: FiringOutcome,
    ) -> Result<(), AutomationError> {
        let at = self.clock.now();
        let firing = Firing { due, at, outcome };
        // Of several firings that were missed, one counts.
        let after = if is_late(due, at) { at } else { due };
        let record = |current: &mut Schedule| {
            current.last = Some(firing.clone());
            // Otherwise a person has changed it in the meantime.
            if current.next == Some(due) {
                current.set_next(after)?;
            }
            Ok(())
        };
        match stored::change(&self.store, schedule.id(), record).await {
            // It was removed.
            Err(AutomationError::Store(StoreError::NotFound { .. })) => Ok(()),
            recorded => recorded.map(drop),
        }
    }
}

/// Whether a firing at this time is so late that it counts as missed.
fn is_late(due: Millis, now: Millis) -> bool {
    due.until(now) > MISSED_AFTER
}
