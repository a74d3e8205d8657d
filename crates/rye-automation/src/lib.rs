//! Work that no person starts, and events that no person reads: schedules start prompts and graphs
//! at times, hooks start them when a signed request arrives, and webhooks get the events of
//! sessions.
//!
//! Definitions and state are [documents](rye_engine::documents), which any process can change and
//! any server can act on. A server runs a [`Scheduler`], an [`Outbox`] and a [`Sender`]. Whatever
//! they start or send has an id that is derived from its cause, so that work is started once, and
//! an event is recognised if it is sent again, also if a server dies in between.

mod action;
mod delivery;
mod error;
mod hook;
mod outbox;
mod recurrence;
mod schedule;
mod scheduler;
mod secret;
mod stored;
mod webhook;

pub use action::{Action, GraphStarter, Launcher, Occasion, Owner, StartError, StartedWork};
pub use delivery::Sender;
pub use error::AutomationError;
pub use hook::{Hook, HookError, HookRequest, Hooks, NewHook};
pub use outbox::Outbox;
pub use recurrence::Recurrence;
pub use schedule::{Firing, FiringOutcome, MissedPolicy, NewSchedule, Schedule, Schedules};
pub use scheduler::Scheduler;
pub use secret::{KeySource, Sealer, SigningSecret};
pub use webhook::{Delivery, DeliveryStatus, NewWebhook, Webhook, Webhooks};
