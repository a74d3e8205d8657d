//! The agent engine: prompts go in, events come out, and nothing is done before it is
//! written down.
//!
//! A host supplies the parts, each behind a trait: a [store], [models](model), a
//! [sandbox] and [tools](tool). Every step of a turn is one [commit](store::SessionStore::commit)
//! made before it is acted on, so a process may be killed at any instant and another
//! continues from the record.
//!
//! An engine is put together by its [builder](Engine::builder), which says what it lacks:
//!
//! ```
//! use rye_engine::{BuildError, Engine};
//!
//! let lacking = Engine::builder().tools(rye_engine::builtin::tools()).build();
//! assert_eq!(lacking.err(), Some(BuildError::Missing("store")));
//! ```
//!
//! `rye-host` has stores, models and sandboxes to give, and in its documentation a whole
//! program with a tool of its own.

pub mod arguments;
pub mod attachment;
pub mod audit;
pub mod blob;
pub mod builtin;
mod bus;
mod child;
pub mod clock;
pub mod compaction;
pub mod credential;
mod engine;
pub mod guides;
pub mod history;
mod machine;
pub mod meta_tools;
pub mod metrics;
pub mod model;
pub mod result;
mod runner;
pub mod sandbox;
mod schema;
pub mod store;
mod text;
mod tokens;
pub mod tool;
pub mod transcript;

pub use bus::{Feed, Filter, MissedEvents, Notice, Subscription};
pub use child::Child;
pub use engine::{
    Answer, BuildError, Builder, DecideError, Decision, Engine, NewSession, Prompt, Session,
    ThreadChange, ThreadSettings, ThreadView,
};
pub use futures_util::future::BoxFuture;
pub use lillux::redact;
pub use machine::CallLimits;
pub use runner::Compaction;
pub use rye_protocol as protocol;
