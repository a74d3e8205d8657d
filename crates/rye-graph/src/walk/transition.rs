//! Applies the result of a node to the state and selects the next node.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{LAST_ERROR, NodeResult, Walker};
use crate::definition::{ErrorRoute, HookEvent, Node, NodeKind};
use crate::error::RecordError;
use crate::path::Scope;
use rye_protocol::{NodeError, NodeOutcome, RunEvent};

/// Size limit of a result in the history, in bytes.
const MAX_RESULT_BYTES: usize = 64 << 10;

/// Maximum size of an input, and of a result that nothing depends on, for people who read the
/// history.
const MAX_READ_BYTES: usize = 8 << 10;

/// Size limit of the state in bytes.
const MAX_STATE_BYTES: usize = 64 << 20;

impl<'g> Walker<'g> {
    /// Applies the result of a node and returns the next node and the output. The inner error is
    /// one that no node handles.
    pub(super) async fn finish_node(
        &mut self,
        node: &'g Node,
        result: NodeResult,
        start: Instant,
    ) -> Result<Result<(Option<usize>, Option<Value>), NodeError>, RecordError> {
        let NodeResult {
            mut outcome,
            mut result,
            mut set,
            output,
        } = result;
        if let Ok(value) = &result {
            let scope = Scope::new(&self.state, &self.inputs).with_result(value);
            for (name, _, template) in &node.assign {
                set.insert(name.clone(), template.render(&scope));
            }
            let missing = scope.missing.into_inner();
            self.warn(node, missing);
            if let Err(error) = self.check_state_size(&set) {
                (outcome, result) = (NodeOutcome::Failed, Err(error));
                set.clear();
            }
        }
        if let Err(error) = &result {
            let last = json!({ "node": node.name, "error": error.message, "code": error.code });
            set.insert(LAST_ERROR.to_owned(), last);
        }
        let set_again = if self.journal.is_some() {
            set.clone()
        } else {
            Map::new()
        };
        self.state.extend(set);
        let next = match &result {
            Ok(value) => Ok(self.select_edge(node, value)),
            Err(error) => match self.graph.error_route(node, error) {
                ErrorRoute::Handler(handler) => Ok(Some(handler)),
                ErrorRoute::Continue => Ok(self.select_edge(node, &Value::Null)),
                ErrorRoute::Fail => Err(error.clone()),
            },
        };
        if self.journal.is_some() {
            let name = |index: usize| self.graph.nodes[index].name.clone();
            let recorded = recorded_result(node, result.as_ref().ok());
            let event = RunEvent::Step {
                step: self.steps,
                node: node.name.clone(),
                outcome,
                set: set_again,
                error: result.as_ref().err().cloned(),
                output: output.clone(),
                is_result_omitted: recorded == Recorded::Omitted,
                result: recorded.into_value(),
                next: next.as_ref().ok().and_then(|next| next.map(name)),
                fatal: next.is_err(),
                duration_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            };
            self.record(event);
        }
        if !self.graph.hooks.is_empty() {
            if let Err(error) = &result {
                self.run_hooks(HookEvent::Error, Some(error)).await?;
            }
            self.run_hooks(HookEvent::AfterStep, None).await?;
        }
        Ok(next.map(|next| (next, output)))
    }

    /// The first edge whose condition holds.
    fn select_edge(&mut self, node: &Node, result: &Value) -> Option<usize> {
        let scope = Scope::new(&self.state, &self.inputs).with_result(result);
        let found = node.edge(&scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        if found.is_none() && !node.next.is_empty() {
            self.warn(
                node,
                vec!["no edge condition holds; the run ends here".to_owned()],
            );
        }
        found
    }

    /// Checks that the state stays within its size limit.
    fn check_state_size(&mut self, set: &Map<String, Value>) -> Result<(), NodeError> {
        if self.journal.is_none() {
            return Ok(());
        }
        let mut size = self.size;
        let mut sizes = Vec::new();
        for (name, value) in set {
            let value_size = estimated_size(value);
            size = size + value_size - self.sizes.get(name).copied().unwrap_or_default();
            sizes.push((name.clone(), value_size));
        }
        if size > MAX_STATE_BYTES {
            let message = format!(
                "the state would have {} MiB; the limit is {} MiB",
                size >> 20,
                MAX_STATE_BYTES >> 20
            );
            return Err(NodeError::new("state_too_large", message)
                .with_hint("store large values in a file and keep only its path in the state"));
        }
        self.sizes.extend(sizes);
        self.size = size;
        Ok(())
    }
}

/// Approximate size of the serialised value in bytes.
fn estimated_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => {
            items
                .iter()
                .map(|item| estimated_size(item) + 1)
                .sum::<usize>()
                + 2
        }
        Value::Object(fields) => {
            let all = fields
                .iter()
                .map(|(name, value)| name.len() + estimated_size(value) + 4);
            all.sum::<usize>() + 2
        }
    }
}

/// The result of a node in the history.
#[derive(Debug, PartialEq)]
enum Recorded {
    /// Nothing depends on it.
    Unused,
    /// It is too long.
    Omitted,
    Value(Value),
}

impl Recorded {
    fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value,
            Self::Unused | Self::Omitted => Value::Null,
        }
    }
}

/// The result of a node for the history, from which a replay computes the state and the next node.
/// Items of a foreach have their own events.
fn recorded_result(node: &Node, result: Option<&Value>) -> Recorded {
    let is_call = matches!(node.kind, NodeKind::Action(_) | NodeKind::Decision(_));
    let is_used = !node.assign.is_empty() || node.next.iter().any(|edge| edge.when.is_some());
    let mut room = if is_used {
        MAX_RESULT_BYTES
    } else {
        MAX_READ_BYTES
    };
    match result.filter(|_| is_call) {
        Some(result) if fits(result, &mut room) => Recorded::Value(result.clone()),
        Some(_) if is_used => Recorded::Omitted,
        Some(_) | None => Recorded::Unused,
    }
}

/// The input of a node for the history; null if it is too long.
pub(super) fn recorded_input(input: &Value) -> Value {
    if fits(input, &mut { MAX_READ_BYTES }) {
        input.clone()
    } else {
        Value::Null
    }
}

/// Whether the JSON text of a value fits into about `room` bytes. Reduces `room` by its size.
fn fits(value: &Value, room: &mut usize) -> bool {
    let size = match value {
        Value::String(text) => text.len() + 2,
        _ => 4,
    };
    let Some(left) = room.checked_sub(size) else {
        return false;
    };
    *room = left;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, room)),
        Value::Object(fields) => fields.iter().all(|(name, field)| {
            *room = room.saturating_sub(name.len() + 4);
            fits(field, room)
        }),
        _ => true,
    }
}
