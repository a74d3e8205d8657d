//! Calls of tools, as the walker makes them.

use std::future::Future;
use std::pin::Pin;

use lillux::Hash;
use rye_executor::{Approval, Executor, OutputListener, Request, RunContext};
use rye_items::metadata::Effect;
use rye_items::{ItemId, ItemKind, ItemRef};
use serde_json::Value;

use crate::event::NodeError;

/// Result of a tool call that a [`Dispatcher`] makes.
pub type DispatchFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, NodeError>> + Send + 'a>>;

/// What is known of a tool before it is called.
#[derive(Debug, Clone)]
pub struct ToolTraits {
    /// Whether it may be repeated.
    pub effect: Effect,
    /// Whether it is a graph, whose own record tells how far it came.
    pub is_graph: bool,
    /// The hash of what would run, with its configuration: what a kept result is of.
    pub hash: Option<Hash>,
}

/// A call to be made.
#[derive(Debug)]
pub struct ToolCall {
    /// The tool.
    pub item: ItemId,
    /// Its parameters.
    pub params: Value,
    /// The names of the parameters that contain interpolated values.
    pub interpolated: Vec<String>,
    /// The name of the call, under which a graph writes itself down.
    pub run: Option<RunContext>,
}

/// Somebody who calls tools.
pub trait Dispatcher: Sync {
    /// Looks at a tool.
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError>;

    /// Calls it, and gives its data.
    fn call(&self, call: ToolCall) -> DispatchFuture<'_>;
}

/// The tools of an executor.
pub(crate) struct Items<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) approval: Approval,
    pub(crate) listener: Option<OutputListener>,
}

impl Dispatcher for Items<'_> {
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
        let standing = self.executor.inspect(&tool(item)).map_err(|error| {
            let refused = NodeError::new(error.code(), error.to_string());
            match error.hint() {
                Some(hint) => refused.with_hint(hint),
                None => refused,
            }
        })?;
        let config = lillux::canonical::to_vec(&standing.config).unwrap_or_default();
        let both = [standing.chain_hash.as_bytes().as_slice(), &config].concat();
        Ok(ToolTraits {
            effect: standing.metadata.effect().unwrap_or(Effect::AtMostOnce),
            is_graph: standing.metadata.tool_type() == Some("graph"),
            hash: Some(Hash::digest(both)),
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        Box::pin(async move {
            let mut request = Request::new(tool(&call.item)).with_parameters(call.params);
            request.interpolated = call.interpolated;
            request.approval = self.approval.clone();
            request.listener = self.listener.clone();
            request.run = call.run;
            let envelope = self.executor.execute(request).await;
            if let Some(error) = envelope.error {
                let mut message = error.message;
                if let Value::Array(all) = &error.violations {
                    let all = all.iter().filter_map(|it| it["message"].as_str());
                    let all: Vec<_> = all.collect();
                    message = format!("{message}: {}", all.join("; "));
                }
                let message = format!("{}: {message}", call.item);
                let failed = NodeError::new(&error.code, message);
                return Err(match error.hint {
                    Some(hint) => failed.with_hint(hint),
                    None => failed,
                });
            }
            unwrapped(envelope.data)
        })
    }
}

fn tool(item: &ItemId) -> ItemRef {
    ItemRef::new(ItemKind::Tool, item.clone())
}

/// The data of a tool; what says of itself that it failed has.
pub(crate) fn unwrapped(data: Value) -> Result<Value, NodeError> {
    if data.get("success") == Some(&Value::Bool(false)) {
        let said = data.get("error").and_then(Value::as_str);
        let message = said.unwrap_or("it said that it failed, and not why");
        return Err(NodeError::new("tool_failed", message));
    }
    Ok(data)
}
