//! State graphs: programs of nodes and edges, written as YAML, walked in process and durably.
//!
//! A [`Graph`] is read with all that is wrong with it at once, each with its place in the
//! file. The walker goes from node to node; each calls a tool, and every step is written down
//! before the next is acted on, so that a process may die at any instant and another goes on.
//! [`StateGraph`] is the primitive in which the chain of a graph ends; [`walk`] is the same
//! without a record.
//!
//! ```
//! use rye_graph::{Dispatch, Graph, Known, Later, Limits, NodeError, ToolCall, walk};
//! use rye_items::{ItemId, metadata::Effect};
//! use serde_json::{Value, json};
//!
//! /// Instead of signed tools, one that adds.
//! struct Adding;
//!
//! impl Dispatch for Adding {
//!     fn look(&self, _: &ItemId) -> Result<Known, NodeError> {
//!         Ok(Known { effect: Effect::Pure, is_graph: false, hash: None })
//!     }
//!
//!     fn call(&self, call: ToolCall) -> Later<'_, Result<Value, NodeError>> {
//!         let sum = call.params["a"].as_i64().zip(call.params["b"].as_i64());
//!         Box::pin(async move { Ok(json!(sum.map(|(a, b)| a + b))) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reading = Graph::read(br#"
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
//! let ended = walk(&graph, &Adding, json!({ "step": 4 }), Limits::default()).await;
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

pub use dispatch::{Dispatch, Known, Later, ToolCall};
pub use draw::{Colours, Format, Mark};
pub use event::{Changed, Event, Line, NodeError, Outcome, Started, Status};
pub use gates::{Asking, Posted, Question};
pub use model::Graph;
pub use primitive::{Going, Refusal, StateGraph, Writing, walk, walk_written};
pub use problem::{Problem, Severity};
pub use read::Reading;
pub use record::{
    Fault, Found, RecordError, Run, Runs, Standing, Trouble, Trusting, Verdict, commits,
};
pub use walk::{Ended, Limits, Watcher};
