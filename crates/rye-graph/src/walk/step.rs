//! From what a node gave to the state, and to the node that follows.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{Done, LAST_ERROR, Walk, is_repeatable};
use crate::event::{Event, NodeError, NodeOutcome};
use crate::model::{Moment, Node, Policy};
use crate::path::Scope;
use crate::record::RecordError;

/// More than this a state may not hold: it is copied, compared and written down.
const LARGEST_STATE: usize = 64 << 20;

impl<'g> Walk<'g> {
    /// Puts what came of a node into the state and finds where it goes on. The inner error
    /// is one that nobody sees to.
    pub(super) async fn finish(
        &mut self,
        node: &'g Node,
        done: Done,
        start: Instant,
    ) -> Result<Result<(Option<usize>, Option<Value>), NodeError>, RecordError> {
        let Done {
            mut outcome,
            mut result,
            mut set,
            output,
            effect,
        } = done;
        if let Ok(value) = &result {
            let scope = Scope::new(&self.state, &self.inputs).result(value);
            for (name, _, template) in &node.assign {
                set.insert(name.clone(), template.fill(&scope));
            }
            let missing = scope.missing.into_inner();
            self.warn(node, missing);
            if let Err(error) = self.weigh(&set) {
                (outcome, result) = (NodeOutcome::Failed, Err(error));
                set.clear();
            }
        }
        if let Err(error) = &result {
            let last = json!({ "node": node.name, "error": error.message, "code": error.code });
            set.insert(LAST_ERROR.to_owned(), last);
        }
        let must_sync = !is_repeatable(effect);
        let set_again = if self.journal.is_some() {
            set.clone()
        } else {
            Map::new()
        };
        self.state.extend(set);
        let next = match &result {
            Ok(value) => Ok(self.edge(node, value)),
            Err(error) => match (node.on_error, self.graph.policy) {
                _ if error.code == "not_permitted" => Err(error.clone()),
                (Some(other), _) => Ok(Some(other)),
                // Who was told no must not go on as if nothing had been said.
                (None, Policy::Continue) if error.code != "denied" => {
                    Ok(self.edge(node, &Value::Null))
                }
                (None, _) => Err(error.clone()),
            },
        };
        if self.journal.is_some() {
            let name = |index: usize| self.graph.nodes[index].name.clone();
            let event = Event::Step {
                step: self.steps,
                node: node.name.clone(),
                outcome,
                set: set_again,
                error: result.as_ref().err().cloned(),
                output: output.clone(),
                next: next.as_ref().ok().and_then(|next| next.map(name)),
                fatal: next.is_err(),
                duration_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            };
            self.tell(event);
            self.must_sync |= must_sync;
            let size = self.size;
            if self
                .journal
                .as_ref()
                .is_some_and(|it| it.wants_snapshot(size))
            {
                self.snapshot()?;
            }
        }
        if !self.graph.hooks.is_empty() {
            if let Err(error) = &result {
                self.hooks(Moment::Error, Some(error)).await?;
            }
            self.hooks(Moment::AfterStep, None).await?;
        }
        Ok(next.map(|next| (next, output)))
    }

    /// The first edge that fits.
    fn edge(&mut self, node: &Node, result: &Value) -> Option<usize> {
        let scope = Scope::new(&self.state, &self.inputs).result(result);
        let fits = |when: &crate::condition::Condition| when.holds(&scope);
        let found = node
            .next
            .iter()
            .find(|it| it.when.as_ref().is_none_or(fits));
        let (missing, found) = (scope.missing.into_inner(), found.map(|edge| edge.to));
        self.warn(node, missing);
        if found.is_none() && !node.next.is_empty() {
            self.warn(node, vec!["no edge fits, so the run ends here".to_owned()]);
        }
        found
    }

    /// Whether the state stays within its limit with what comes in.
    fn weigh(&mut self, set: &Map<String, Value>) -> Result<(), NodeError> {
        if self.journal.is_none() {
            return Ok(());
        }
        let mut size = self.size;
        let mut sizes = Vec::new();
        for (name, value) in set {
            let weight = weight(value);
            size = size + weight - self.sizes.get(name).copied().unwrap_or_default();
            sizes.push((name.clone(), weight));
        }
        if size > LARGEST_STATE {
            let message = format!(
                "the state would have {} MiB, and {} MiB is the most",
                size >> 20,
                LARGEST_STATE >> 20
            );
            return Err(NodeError::new("state_too_large", message)
                .with_hint("keep what is large in a file, and its name in the state"));
        }
        self.sizes.extend(sizes);
        self.size = size;
        Ok(())
    }
}

/// About as many bytes as a value takes when it is written.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            let all = fields
                .iter()
                .map(|(name, value)| name.len() + weight(value) + 4);
            all.sum::<usize>() + 2
        }
    }
}
