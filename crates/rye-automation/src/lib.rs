//! Work that no person starts: schedules start prompts and graphs at times.
//!
//! Definitions and state are [documents](rye_engine::documents), which any process can change and
//! any server can act on. A server runs a [`Scheduler`]; whatever it starts has an id that is
//! derived from its cause, so that work is started once, also if a server dies in between.

mod action;
mod error;
mod recurrence;
mod schedule;
mod scheduler;
mod stored;

pub use action::{Action, GraphStarter, Launcher, Occasion, Owner, StartError, StartedWork};
pub use error::AutomationError;
pub use recurrence::Recurrence;
pub use schedule::{Firing, FiringOutcome, MissedPolicy, NewSchedule, Schedule, Schedules};
pub use scheduler::Scheduler;
