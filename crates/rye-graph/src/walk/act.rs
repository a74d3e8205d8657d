//! Actions: one call, tried again where that is wanted.

use std::time::Duration;

use rye_executor::RunContext;
use rye_items::ItemId;
use rye_items::metadata::Effect;
use serde_json::Value;

use super::{Begun, Done, Walk, is_repeatable, words};
use crate::cache::Cache;
use crate::dispatch::{Dispatcher, ToolCall, ToolTraits};
use crate::event::{Event, NodeError, NodeOutcome};
use crate::model::{Action, Graph, Node, Retry};
use crate::path::Scope;
use crate::permission;
use crate::record::RecordError;

/// A call with everything filled in, and allowed.
pub(super) struct Ready {
    pub(super) item: ItemId,
    pub(super) params: Value,
    /// The names of the parameters that contain interpolated values.
    pub(super) interpolated: Vec<String>,
}

impl<'g> Walk<'g> {
    pub(super) async fn action(
        &mut self,
        node: &'g Node,
        action: &'g Action,
        begun: Option<Begun>,
    ) -> Result<Done, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let ready = ready(self.graph, action, &scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Ok(Done::of(Err(error), Effect::Pure)),
        };
        let known = if self.journal.is_some() || node.cache {
            match self.dispatch.traits(&ready.item) {
                Ok(known) => Some(known),
                Err(error) => return Ok(Done::of(Err(error), Effect::Pure)),
            }
        } else {
            None
        };
        let key = self.cache_key(node, &ready, known.as_ref());
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(result) = cache.get(key)
        {
            self.begin(node, Effect::Pure, begun)?;
            let mut done = Done::of(Ok(result), Effect::Pure);
            done.outcome = NodeOutcome::Cached;
            return Ok(done);
        }
        let effect = known.as_ref().map_or(Effect::AtMostOnce, effect);
        if let Some(begun) = begun.filter(|it| !is_repeatable(it.effect)) {
            match self.interrupted(node, begun).await? {
                Some(done) => return Ok(done),
                // A person wants it to run once more: so it is written down once more.
                None => self.begin(node, effect, None)?,
            }
        } else {
            self.begin(node, effect, begun)?;
        }
        let result = self.tried(node, ready, known.as_ref()).await?;
        if let (Some(cache), Some(key), Ok(result)) = (&self.cache, &key, &result) {
            cache.put(key, result)?;
        }
        Ok(Done::of(result, effect))
    }

    pub(super) fn cache_key(
        &self,
        node: &Node,
        ready: &Ready,
        known: Option<&ToolTraits>,
    ) -> Option<String> {
        let hash = known?.hash.filter(|_| node.cache)?;
        Some(Cache::key(
            &self.graph.hash,
            &ready.item,
            &ready.params,
            &hash,
        ))
    }

    /// The call, as often as the node says.
    async fn tried(
        &mut self,
        node: &Node,
        ready: Ready,
        known: Option<&ToolTraits>,
    ) -> Result<Result<Value, NodeError>, RecordError> {
        let run = self.child(known, "");
        let Ready {
            item,
            params,
            interpolated,
        } = ready;
        let mut attempt = 1;
        loop {
            let last = attempt > node.retry.max;
            let call = ToolCall {
                item: item.clone(),
                params: if last { Value::Null } else { params.clone() },
                interpolated: interpolated.clone(),
                run: attempt_of(run.clone(), attempt),
            };
            if last {
                let call = ToolCall { params, ..call };
                return Ok(self.dispatch.call(call).await);
            }
            match self.dispatch.call(call).await {
                Err(error) if !is_final(&error) => {
                    attempt += 1;
                    self.tell(Event::Retry { attempt, error });
                    self.commit(false)?;
                    pause(node.retry.pause(attempt - 1)).await;
                }
                result => return Ok(result),
            }
        }
    }

    /// The name of the run of a graph that this step calls, or a `part` of it.
    pub(super) fn child(&self, known: Option<&ToolTraits>, part: &str) -> Option<RunContext> {
        let journal = self.journal.as_ref()?;
        known.filter(|known| known.is_graph)?;
        Some(RunContext {
            id: format!("{}.{}{part}", journal.run(), self.steps),
            depth: self.depth + 1,
        })
    }
}

/// Whether something of a tool may be repeated: a graph goes on where it was.
pub(super) fn effect(known: &ToolTraits) -> Effect {
    if known.is_graph {
        Effect::Idempotent
    } else {
        known.effect
    }
}

/// Fills in a call, and sees whether a permission covers it.
pub(super) fn ready(graph: &Graph, action: &Action, scope: &Scope<'_>) -> Result<Ready, NodeError> {
    let name = match action.item.as_plain().and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => words(&action.item.fill(scope)),
    };
    let item: ItemId = name.parse().map_err(|error| {
        NodeError::new("bad_item_id", format!("`{name}` is no item id: {error}"))
    })?;
    let needed = permission::needed(item.as_str());
    if !graph.permissions.iter().any(|it| it.covers(&needed)) {
        let message = format!("no permission of the graph covers the call of {item}");
        let hint = format!("permissions: [\"{needed}\"]");
        return Err(NodeError::new("not_permitted", message).with_hint(hint));
    }
    let params = match action.params.fill(scope) {
        Value::Null => Value::Object(serde_json::Map::new()),
        params => params,
    };
    let interpolated = action.params.interpolated(&params);
    Ok(Ready {
        item,
        params,
        interpolated,
    })
}

/// Each attempt of a graph is a run of its own.
fn attempt_of(run: Option<RunContext>, attempt: u32) -> Option<RunContext> {
    let run = run?;
    Some(match attempt {
        1 => run,
        _ => RunContext {
            id: format!("{}-try{attempt}", run.id),
            depth: run.depth,
        },
    })
}

/// Errors that another attempt would not change.
fn is_final(error: &NodeError) -> bool {
    matches!(
        error.code.as_str(),
        "not_permitted"
            | "invalid_parameters"
            | "bad_item_id"
            | "not_found"
            | "approval_required"
            | "value_as_code"
    )
}

pub(super) async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// The call of an item of a foreach, as often as the node says.
pub(super) async fn call_often(
    dispatch: &dyn Dispatcher,
    retry: Retry,
    ready: Ready,
    run: Option<RunContext>,
) -> Result<Value, NodeError> {
    let Ready {
        item,
        params,
        interpolated,
    } = ready;
    for attempt in 1..=retry.max {
        let call = ToolCall {
            item: item.clone(),
            params: params.clone(),
            interpolated: interpolated.clone(),
            run: attempt_of(run.clone(), attempt),
        };
        match dispatch.call(call).await {
            Err(error) if !is_final(&error) => pause(retry.pause(attempt)).await,
            result => return result,
        }
    }
    let run = attempt_of(run, retry.max + 1);
    let call = ToolCall {
        item,
        params,
        interpolated,
        run,
    };
    dispatch.call(call).await
}
