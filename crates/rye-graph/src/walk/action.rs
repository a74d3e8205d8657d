//! Action nodes: a tool call with retries and caching.

use rye_executor::RunContext;
use rye_items::ItemId;
use rye_protocol::EffectClass;
use serde_json::Value;

use super::{InterruptedStart, NodeResult, Walker, display_text, is_repeatable};
use crate::cache::ResultCache;
use crate::definition::{Action, Graph, Node, Retry};
use crate::dispatch::{Dispatcher, ToolCall, ToolTraits};
use crate::error::RecordError;
use crate::path::Scope;
use crate::permission;
use rye_protocol::{NodeError, NodeOutcome, RunEvent};

impl<'g> Walker<'g> {
    pub(super) async fn action(
        &mut self,
        node: &'g Node,
        action: &'g Action,
        interrupted: Option<InterruptedStart>,
    ) -> Result<NodeResult, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let call = prepare(self.graph, action, &scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let call = match call {
            Ok(call) => call,
            Err(error) => return Ok(NodeResult::new(Err(error))),
        };
        let traits = if self.journal.is_some() || node.cache {
            match self.dispatch.traits(&call.item) {
                Ok(traits) => Some(traits),
                Err(error) => return Ok(NodeResult::new(Err(error))),
            }
        } else {
            None
        };
        let key = self.cache_key(node, &call, traits.as_ref());
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(result) = cache.get(key)
        {
            self.record_begin(node, EffectClass::Pure, &call.params, interrupted);
            let mut done = NodeResult::new(Ok(result));
            done.outcome = NodeOutcome::Cached;
            return Ok(done);
        }
        let effect = traits.as_ref().map_or(EffectClass::AtMostOnce, effect);
        if let Some(interrupted) = interrupted.filter(|it| !is_repeatable(it.effect)) {
            match self.resolve_interrupted(node, interrupted).await? {
                Some(done) => return Ok(done),
                // The user wants to repeat the call, so its start is journaled again.
                None => self.begin(node, effect, &call.params, None).await?,
            }
        } else {
            self.begin(node, effect, &call.params, interrupted).await?;
        }
        let call = ToolCall {
            run: self.nested_run(traits.as_ref(), ""),
            ..call
        };
        let (dispatch, retry) = (self.dispatch, node.retry);
        let record = |attempt, error| self.record(RunEvent::Retry { attempt, error });
        let result = call_with_retries(dispatch, retry, call, record).await;
        if let (Some(cache), Some(key), Ok(result)) = (&self.cache, &key, &result) {
            cache.insert(key, result)?;
        }
        Ok(NodeResult::new(result))
    }

    pub(super) fn cache_key(
        &self,
        node: &Node,
        call: &ToolCall,
        traits: Option<&ToolTraits>,
    ) -> Option<String> {
        let hash = traits?.hash.filter(|_| node.cache)?;
        Some(ResultCache::key(
            &self.graph.hash,
            &call.item,
            &call.params,
            &hash,
        ))
    }

    /// Identity of the nested run if the step calls a graph; `suffix` distinguishes several.
    pub(super) fn nested_run(
        &self,
        traits: Option<&ToolTraits>,
        suffix: &str,
    ) -> Option<RunContext> {
        let journal = self.journal.as_ref()?;
        traits.filter(|traits| traits.is_graph)?;
        Some(RunContext {
            id: format!("{}.{}{suffix}", journal.session, self.steps),
            depth: self.depth + 1,
        })
    }
}

/// Effect class of a call. A graph is idempotent, because it resumes its own run.
pub(super) fn effect(traits: &ToolTraits) -> EffectClass {
    if traits.is_graph {
        EffectClass::Idempotent
    } else {
        traits.effect
    }
}

/// Renders a call, without the identity of its run, and checks that a permission covers it.
pub(super) fn prepare(
    graph: &Graph,
    action: &Action,
    scope: &Scope<'_>,
) -> Result<ToolCall, NodeError> {
    let name = match action.item.as_literal().and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => display_text(&action.item.render(scope)),
    };
    let item: ItemId = name.parse().map_err(|error| {
        NodeError::new(
            "bad_item_id",
            format!("`{name}` is not a valid item id: {error}"),
        )
    })?;
    let required = permission::required_permission(item.as_str());
    if !graph.permissions.iter().any(|it| it.covers(&required)) {
        let message = format!("no permission of the graph covers {item}");
        let hint = format!("permissions: [\"{required}\"]");
        return Err(NodeError::new("not_permitted", message).with_hint(hint));
    }
    let params = match action.params.render(scope) {
        Value::Null => Value::Object(serde_json::Map::new()),
        params => params,
    };
    let interpolated = action.params.interpolated(&params);
    Ok(ToolCall {
        item,
        params,
        interpolated,
        run: None,
    })
}

/// Each attempt of a nested graph is a separate run.
fn run_of_attempt(run: Option<RunContext>, attempt: u32) -> Option<RunContext> {
    let run = run?;
    Some(match attempt {
        1 => run,
        _ => RunContext {
            id: format!("{}-try{attempt}", run.id),
            depth: run.depth,
        },
    })
}

/// Whether a retry would fail with the same error.
fn is_permanent(error: &NodeError) -> bool {
    matches!(
        error.code.as_str(),
        "not_permitted"
            | "invalid_parameters"
            | "bad_item_id"
            | "not_found"
            | "approval_required"
            | "denied"
            | "value_as_code"
    )
}

/// Makes a call and retries it according to a policy. `on_retry` receives the number of the next
/// attempt and the error of the last one.
pub(super) async fn call_with_retries(
    dispatch: &dyn Dispatcher,
    retry: Retry,
    call: ToolCall,
    mut on_retry: impl FnMut(u32, NodeError),
) -> Result<Value, NodeError> {
    let attempt_call = |call: ToolCall, attempt| ToolCall {
        run: run_of_attempt(call.run, attempt),
        ..call
    };
    for attempt in 1..=retry.max {
        match dispatch.call(attempt_call(call.clone(), attempt)).await {
            Err(error) if !is_permanent(&error) => {
                on_retry(attempt + 1, error);
                tokio::time::sleep(retry.delay(attempt)).await;
            }
            result => return result,
        }
    }
    dispatch.call(attempt_call(call, retry.max + 1)).await
}
