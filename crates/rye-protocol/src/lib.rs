//! The data model of the engine: stored records and published events. This crate does
//! no I/O and names no database, vendor or transport.
//!
//! A [`Session`] has concurrent [`Thread`]s. Prompts wait in a thread's queue as
//! [`QueuedPrompt`]s; the history is a tree of [`Entry`]s; a [`Gate`] waits for a person's
//! decision. A [`Batch`] commits changes and their [`Event`]s atomically.
//!
//! ```
//! use rye_protocol::{EntryKind, Message, Part, Role};
//!
//! let message = Message::text(Role::User, "hello");
//! let json = serde_json::to_value(EntryKind::Message(message)).unwrap();
//! assert_eq!(json["type"], "message");
//! assert_eq!(json["parts"][0], serde_json::json!({ "type": "text", "text": "hello" }));
//! # let _: Part = serde_json::from_value(json["parts"][0].clone()).unwrap();
//! ```
//!
//! With the feature `schema`, `schema()` returns the JSON Schema of all types. It is
//! checked in as `docs/reference/protocol.schema.json`.

mod batch;
mod change_set;
mod entry;
mod error;
mod event;
mod evidence;
mod file_change;
mod gate;
mod id;
pub mod json;
pub mod policy;
mod queue;
mod risk;
mod run;
#[cfg(feature = "schema")]
mod schema;
mod session;
mod thread;
mod time;
mod tool_sandbox;
mod usage;
mod validation;

pub use batch::{Batch, Op};
pub use change_set::{
    CHANGE_SET, Change, ChangeSet, ChangeSetSummary, FileKind, FileVersion, Selection, Settlement,
    escape_path, unescape_path,
};
pub use entry::{Entry, EntryKind, IncompleteReason, Message, Part, ResultStatus, Role, Synthetic};
pub use error::{ErrorCode, ErrorIds, ErrorInfo};
pub use event::{
    BackgroundCommand, Event, EventKind, ModelContext, StatusKind, ToolDefinition, TurnEnd,
};
pub use evidence::{Archive, Receipt, Seal};
pub use file_change::{FileChange, FileContent};
pub use gate::{Action, ActionId, Gate, GateKind, GateOrigin, GateRef, GateStatus, Resolution};
pub use id::{
    CallId, CommandId, DeliveryId, EntryId, GateId, HookId, IdError, PromptId, SandboxId,
    ScheduleId, SessionId, ThreadId, WebhookId, matches_id, short_id,
};
pub use queue::{Author, CollectedPrompt, PromptEnd, PromptStatus, QueueMode, QueuedPrompt};
pub use risk::{EffectClass, Risk};
pub use run::{GraphChange, NodeError, NodeOutcome, Run, RunEvent, RunStart, RunStatus};
#[cfg(feature = "schema")]
pub use schema::schema;
pub use session::{
    ForkPoint, Parent, Purpose, SandboxKind, SandboxRef, Session, SessionSettings, SessionStatus,
};
pub use thread::{
    Call, CallState, CompactionReason, Continuation, Phase, ProcessRef, Thread, ThreadStatus, Turn,
};
pub use time::Millis;
pub use tool_sandbox::{ProjectAccess, ToolNetwork, ToolSandbox};
pub use usage::{LimitKind, Limits, Usage};
pub use validation::{InvalidSchema, Schema, Violation, join as join_violations};
