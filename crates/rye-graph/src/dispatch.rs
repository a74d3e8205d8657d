//! Tool calls of a run.

use std::future::Future;
use std::pin::Pin;

use lillux::Hash;
use rye_executor::{Approval, Executor, OutputListener, Request, RunContext};
use rye_items::{ItemId, ItemKind, ItemRef};
use rye_protocol::{EffectClass, NodeError};
use serde_json::Value;

/// Result of a tool call that a [`Dispatcher`] makes.
pub type DispatchFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, NodeError>> + Send + 'a>>;

/// Properties of a tool that are known before it is called.
#[derive(Debug, Clone)]
pub struct ToolTraits {
    /// Effect class, which decides whether a call may be repeated after a crash.
    pub effect: EffectClass,
    /// Whether the tool is a graph, which has its own journal and can be resumed.
    pub is_graph: bool,
    /// Hash of the chain and its configuration; part of the cache key of a result.
    pub hash: Option<Hash>,
}

/// A tool call that a node makes.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Id of the tool.
    pub item: ItemId,
    /// Parameters of the call.
    pub params: Value,
    /// Names of the parameters that contain interpolated values.
    pub interpolated: Vec<String>,
    /// Identity of the nested run, if the tool is a graph.
    pub run: Option<RunContext>,
}

/// Calls tools on behalf of a run.
pub trait Dispatcher: Sync {
    /// Returns the properties of a tool.
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError>;

    /// Calls a tool and returns its data.
    fn call(&self, call: ToolCall) -> DispatchFuture<'_>;
}

/// Calls signed tools through an executor.
pub(crate) struct ExecutorDispatcher<'a> {
    pub(crate) executor: &'a Executor,
    /// The graph.
    pub(crate) graph: &'a ItemRef,
    pub(crate) approval: Approval,
    pub(crate) listener: Option<OutputListener>,
}

impl Dispatcher for ExecutorDispatcher<'_> {
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
        let info = self.executor.inspect(&tool(item));
        let info = info.map_err(|error| {
            // Names the unsigned tools of the other nodes too.
            let error = self.executor.with_all_unverified(self.graph, error);
            NodeError {
                hint: error.hint(),
                ..NodeError::new(error.code(), error.to_string())
            }
        })?;
        let config = lillux::canonical::to_vec(&info.config).unwrap_or_default();
        let both = [info.chain_hash.as_bytes().as_slice(), &config].concat();
        Ok(ToolTraits {
            effect: info.metadata.effect().unwrap_or(EffectClass::AtMostOnce),
            is_graph: info.metadata.tool_type() == Some("graph"),
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
            let result = self.executor.execute(request).await;
            if let Some(error) = result.error {
                let message = format!("{}: {}", call.item, error.message);
                return Err(NodeError {
                    hint: error.hint,
                    ..NodeError::new(&error.code, message)
                });
            }
            check_success(result.data)
        })
    }
}

fn tool(item: &ItemId) -> ItemRef {
    ItemRef::new(ItemKind::Tool, item.clone())
}

/// Returns the data of a tool, or an error if it contains `success: false`.
pub(crate) fn check_success(data: Value) -> Result<Value, NodeError> {
    if data.get("success") == Some(&Value::Bool(false)) {
        let message = data.get("error").and_then(Value::as_str);
        let message = message.unwrap_or("the tool reported a failure without a message");
        return Err(NodeError::new("tool_failed", message));
    }
    Ok(data)
}
