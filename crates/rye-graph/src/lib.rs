//! State graphs: programs of nodes and edges, written as YAML, walked in process and durably.
//!
//! A [`Graph`] is read with all that is wrong with it at once, each with its place in the
//! file. The walker goes from node to node; each calls a tool, and every step is written down
//! before the next is acted on, so that a process may die at any instant and another goes on.
//! [`StateGraph`] is the primitive in which the chain of a graph ends; [`run_in_memory`] is the same
//! without a record.
//!
//! ```
//! use rye_graph::{Dispatcher, Graph, ToolTraits, DispatchFuture, Limits, NodeError, ToolCall, run_in_memory};
//! use rye_items::{ItemId, metadata::Effect};
//! use serde_json::{Value, json};
//!
//! /// Instead of signed tools, one that adds.
//! struct Adding;
//!
//! impl Dispatcher for Adding {
//!     fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
//!         Ok(ToolTraits { effect: Effect::Pure, is_graph: false, hash: None })
//!     }
//!
//!     fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
//!         let sum = call.params["a"].as_i64().zip(call.params["b"].as_i64());
//!         Box::pin(async move { Ok(json!(sum.map(|(a, b)| a + b))) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reading = Graph::parse(br#"
//! permissions: ["rye.execute.tool.add"]
//! config:
//!   start: add
//!   nodes:
//!     add:
//!       action: { item_id: add, params: { a: "${state.sum || 0}", b: "${inputs.step}" } }
//!       assign: { sum: "${result}" }
//!       next: [{ to: add, when: { path: state.sum, op: lt, value: 10 } }, { to: done }]
//!     done: { type: return, output: "${state.sum}" }
//! "#)?;
//! assert_eq!(reading.problems, []);
//! let graph = reading.graph.ok_or("it is sound")?;
//! let ended = run_in_memory(&graph, &Adding, json!({ "step": 4 }), Limits::default()).await;
//! assert_eq!(ended.output, json!(12));
//! # Ok(())
//! # }
//! ```

mod cache;
mod condition;
mod dispatch;
mod draw;
mod event;
mod gates;
mod model;
mod path;
mod permission;
mod primitive;
mod problem;
mod read;
mod record;
mod template;
mod validate;
mod walk;

pub use dispatch::{DispatchFuture, Dispatcher, ToolCall, ToolTraits};
pub use draw::{DrawFormat, NodeMark, NodeMarks};
pub use event::{Event, GraphChange, JournalLine, NodeError, NodeOutcome, RunStart, RunStatus};
pub use gates::{GateFile, PendingIndex, ResolveOutcome};
pub use model::Graph;
pub use primitive::{
    JournalOptions, ResumeError, RunOptions, StateGraph, run_in_memory, run_journaled,
};
pub use problem::{Problem, Severity};
pub use read::ParsedGraph;
pub use record::{
    Finding, FindingKind, RecordError, RunHandle, RunRecord, RunState, RunStore, TrustPolicy,
    VerifyReport, disk_syncs,
};
pub use walk::{EventListener, Limits, RunResult};
