//! State graphs: durable workflows of tool calls, written as YAML.
//!
//! [`Graph::parse`] reports all problems of a graph at once, each with its position in the file.
//! A run visits node after node, and most nodes call a tool. A run is a session of purpose
//! `workflow`: every step is committed to the session store before the next one starts, so another
//! process can resume the run after a crash.
//! [`StateGraph`] is the primitive that runs signed graphs. [`run_recorded`] and
//! [`run_in_memory`] run a graph with a custom [`Dispatcher`].
//!
//! ```
//! use rye_graph::{Dispatcher, EffectClass, Graph, ToolTraits, DispatchFuture, Limits, NodeError, ToolCall, run_in_memory};
//! use rye_items::ItemId;
//! use serde_json::{Value, json};
//!
//! /// A dispatcher with a single tool, which adds two numbers.
//! struct Adder;
//!
//! impl Dispatcher for Adder {
//!     fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
//!         Ok(ToolTraits { effect: EffectClass::Pure, is_graph: false, hash: None })
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
//! let parsed = Graph::parse(br#"
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
//! assert_eq!(parsed.problems, []);
//! let graph = parsed.graph.ok_or("the graph is valid")?;
//! let result = run_in_memory(&graph, &Adder, json!({ "step": 4 }), Limits::default()).await;
//! assert_eq!(result.output, json!(12));
//! # Ok(())
//! # }
//! ```

mod cache;
mod condition;
mod definition;
mod dispatch;
mod draw;
mod error;
mod history;
mod journal;
mod parse;
mod path;
mod permission;
mod primitive;
mod problem;
mod replay;
mod standalone;
mod template;
mod trust;
mod validate;
mod walk;

pub use definition::Graph;
pub use dispatch::{DispatchFuture, Dispatcher, ToolCall, ToolTraits};
pub use draw::{DrawFormat, NodeMark, NodeMarks};
pub use error::RecordError;
pub use history::{RunRecord, check_record};
pub use journal::{EventListener, JournalLine};
pub use parse::ParsedGraph;
pub use primitive::{OpenStore, ResumeError, RunOptions, StateGraph};
pub use problem::{Problem, Severity};
pub use replay::{GraphReplay, StepDifference, replay};
pub use rye_protocol::{
    EffectClass, GraphChange, NodeError, NodeOutcome, RunEvent, RunStart, RunStatus,
};
pub use standalone::{RecordOptions, run_in_memory, run_recorded};
pub use trust::TrustPolicy;
pub use walk::{Limits, RunResult};
