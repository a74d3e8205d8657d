//! The agent engine: runs sessions of an agent, and commits every step to a store before acting
//! on it.
//!
//! An [`Engine`] creates and opens [`Session`]s. A session has threads; each [`Prompt`] to a
//! thread starts a turn of model and tool calls, and a [`Subscription`] delivers the events. A
//! tool can open a gate, where the turn waits durably for a [`Decision`] by a person. A process
//! may be killed at any time: another one opens the session and continues from the store.
//!
//! The embedding application supplies the parts, each behind a trait: a
//! [store](store::SessionStore), [models](model::Models), a [sandbox](sandbox::Sandbox) and
//! [tools](tool::Tool). The [builder](Engine::builder) reports a missing part:
//!
//! ```
//! use rye_engine::{BuildError, Engine};
//!
//! let incomplete = Engine::builder().tools(Vec::new()).build();
//! assert_eq!(incomplete.err(), Some(BuildError::Missing("store")));
//! ```
//!
//! `rye-tools` has the built-in tools, `rye-host` provides stores, models and sandboxes, and its crate page has a complete program
//! with a custom tool.

pub mod arguments;
pub mod attachment;
pub mod audit;
pub mod blob;
mod bus;
pub mod changes;
mod child;
pub mod clock;
pub mod compaction;
pub mod credential;
pub mod documents;
mod engine;
mod follow;
pub mod guides;
mod machine;
pub mod metrics;
pub mod model;
pub mod quotas;
pub mod record;
pub mod related_sessions;
pub mod result;
pub mod review;
mod runner;
pub mod sandbox;
mod setup;
pub mod store;
pub mod text;
mod tokens;
pub mod tool;
pub mod tool_provider;
pub mod transcript;
pub mod web;

pub use bus::{Feed, Filter, MissedEvents, Notice, Subscription};
pub use child::Child;
pub use engine::Upkeep;
pub use engine::{
    Answer, BuildError, Builder, DecideError, Decision, EditorAttachment, Engine, EventStream,
    NewSession, Prompt, ReviewSwitch, Session, ThreadChange, ThreadSettings, ThreadView,
    WithdrawError,
};
pub use follow::{SessionFollower, SessionUpdate};
pub use futures_util::future::BoxFuture;
pub use lillux::redact;
pub use machine::CallLimits;
pub use runner::{CompactionOutcome, UndoOutcome};
pub use rye_protocol as protocol;
pub use rye_protocol::policy;
pub use setup::{InvalidSession, Setup, Setups};
