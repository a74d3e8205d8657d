//! Schedules: definitions and what became of them.

use std::sync::Arc;

use rye_engine::clock::Clock;
use rye_engine::documents::{DocumentKind, DocumentStore};
use rye_engine::store::StoreError;
use rye_protocol::{Millis, ScheduleId};
use serde::{Deserialize, Serialize};

use crate::action::{Action, Owner, StartedWork};
use crate::error::AutomationError;
use crate::recurrence::Recurrence;
use crate::stored::{self, Stored};

/// What happens to firings that were due while no server ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MissedPolicy {
    /// They are skipped.
    #[default]
    Skip,
    /// However many they are, the schedule fires once.
    Once,
}

/// A schedule to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// Name for people.
    pub name: Option<String>,
    /// The cron expression.
    pub cron: String,
    /// Name of the time zone.
    pub time_zone: String,
    /// What happens to missed firings.
    pub missed: MissedPolicy,
    /// What it starts.
    pub action: Action,
    /// Who owns it.
    pub owner: Owner,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Unique id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: ScheduleId,
    /// Name for people.
    pub name: Option<String>,
    /// The cron expression.
    pub cron: String,
    /// Name of the time zone.
    pub time_zone: String,
    /// What happens to missed firings.
    pub missed: MissedPolicy,
    /// What it starts.
    pub action: Action,
    /// Who owns it.
    pub owner: Owner,
    /// Creation time.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub created_at: Millis,
    /// Whether it does not fire at present.
    pub paused: bool,
    /// When it fires next.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub next: Option<Millis>,
    /// What became of the last firing.
    pub last: Option<Firing>,
    /// When another server may take over the firing that a server works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub(crate) claimed_until: Option<Millis>,
}

/// A firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Firing {
    /// When it was due.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub due: Millis,
    /// When it happened.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub at: Millis,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: FiringOutcome,
}

/// What became of a firing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FiringOutcome {
    /// The work was started.
    Started(StartedWork),
    /// No server ran, and the schedule skips missed firings.
    Missed,
    /// The work could not be started.
    Failed {
        /// Stable code.
        code: String,
        /// What is wrong.
        message: String,
    },
}

impl Stored for Schedule {
    const KIND: DocumentKind = DocumentKind::Schedule;
    const NAME: &'static str = "schedule";

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn due_at(&self) -> Option<Millis> {
        self.claimed_until.or(self.next)
    }
}

impl Schedule {
    /// When it is due.
    pub(crate) fn recurrence(&self) -> Result<Recurrence, AutomationError> {
        Recurrence::parse(&self.cron, &self.time_zone)
    }

    /// Identifies the firing that is due at a time.
    pub(crate) fn firing_key(&self, due: Millis) -> String {
        format!("schedule-{}-{}", self.id, due.0)
    }

    /// Sets when it fires next, unless it is paused.
    pub(crate) fn set_next(&mut self, after: Millis) -> Result<(), AutomationError> {
        self.claimed_until = None;
        self.next = if self.paused {
            None
        } else {
            self.recurrence()?.next_after(after)
        };
        Ok(())
    }
}

/// The schedules of a store.
#[derive(Clone)]
pub struct Schedules {
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
}

impl Schedules {
    /// The schedules of a store.
    pub fn new(store: Arc<dyn DocumentStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Creates a schedule.
    pub async fn add(&self, new: NewSchedule) -> Result<Schedule, AutomationError> {
        check_action(&new.action)?;
        let now = self.clock.now();
        let mut schedule = Schedule {
            id: ScheduleId::new(),
            name: new.name,
            cron: new.cron,
            time_zone: new.time_zone,
            missed: new.missed,
            action: new.action,
            owner: new.owner,
            created_at: now,
            paused: false,
            next: None,
            last: None,
            claimed_until: None,
        };
        schedule.set_next(now)?;
        // No other schedule has its id.
        self.store.write(vec![schedule.create()?]).await?;
        Ok(schedule)
    }

    /// All schedules, oldest first.
    pub async fn list(&self) -> Result<Vec<Schedule>, StoreError> {
        stored::all(&self.store).await
    }

    /// A schedule; `None` if it does not exist.
    pub async fn get(&self, id: &str) -> Result<Option<Schedule>, StoreError> {
        let found = stored::find(&self.store, id).await?;
        Ok(found.map(|(_, schedule)| schedule))
    }

    /// Removes a schedule. What it has started goes on.
    pub async fn remove(&self, id: &str) -> Result<Schedule, AutomationError> {
        stored::remove(&self.store, id).await
    }

    /// Pauses a schedule, or resumes it. Firings during a pause are not made up for.
    pub async fn set_paused(&self, id: &str, paused: bool) -> Result<Schedule, AutomationError> {
        let now = self.clock.now();
        let set = |schedule: &mut Schedule| {
            schedule.paused = paused;
            schedule.set_next(now)
        };
        stored::change(&self.store, id, set).await
    }

    /// Makes a schedule due now, also if it is paused.
    pub async fn run_now(&self, id: &str) -> Result<Schedule, AutomationError> {
        let now = self.clock.now();
        let set = |schedule: &mut Schedule| {
            schedule.next = Some(now);
            schedule.claimed_until = None;
            Ok(())
        };
        stored::change(&self.store, id, set).await
    }
}

/// Fails if an action can never be started.
pub(crate) fn check_action(action: &Action) -> Result<(), AutomationError> {
    let invalid = |field, reason: &str| {
        let reason = reason.to_owned();
        Err(AutomationError::Invalid { field, reason })
    };
    match action {
        Action::Prompt { text, .. } if text.trim().is_empty() => {
            invalid("action", "the prompt is empty")
        }
        Action::Prompt { thread, .. } if thread.as_ref().is_some_and(|it| it.trim().is_empty()) => {
            invalid("action", "a thread key must not be empty")
        }
        Action::Graph { graph, .. } if graph.trim().is_empty() => {
            invalid("action", "the id of the graph is empty")
        }
        _ => Ok(()),
    }
}
