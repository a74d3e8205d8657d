//! Foreach: the same call for each of a list, so many at a time, results in input order.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rye_items::metadata::Effect;
use serde_json::{Map, Value, json};

use super::act;
use super::{Done, Walk, is_repeatable};
use crate::dispatch::Known;
use crate::event::{Event, NodeError};
use crate::model::{Foreach, Node, fixed_item};
use crate::path::Scope;
use crate::record::{ItemState, RecordError};

/// Items whose beginning may be lost in a power cut, where they must not be done twice.
const SYNC_EVERY: usize = 64;

/// What came of an item.
type Given = Result<Value, NodeError>;

impl<'g> Walk<'g> {
    pub(super) async fn foreach(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        begun: Option<Effect>,
    ) -> Result<Done, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let over = foreach.over.fill(&scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let Value::Array(items) = over else {
            let place = rye_items::Position::of(&self.graph.text, foreach.over_at);
            let kind = kind(&over);
            let message = format!("`over` gives {kind} and no list (line {place})");
            return Ok(Done::of(
                Err(NodeError::new("not_a_list", message)),
                Effect::Pure,
            ));
        };
        let known = match (fixed_item(&foreach.action), &self.journal) {
            (Some(item), Some(_)) => match item.parse() {
                Ok(item) => match self.dispatch.look(&item) {
                    Ok(known) => Some(known),
                    Err(error) => return Ok(Done::of(Err(error), Effect::Pure)),
                },
                Err(_) => None,
            },
            _ => None,
        };
        let effect = known.as_ref().map_or(Effect::AtMostOnce, act::effect);
        self.begin(node, effect, begun)?;
        let results = self
            .each(node, foreach, &items, known.as_ref(), effect)
            .await?;
        Ok(collected(foreach, results, effect))
    }

    async fn each(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        items: &[Value],
        known: Option<&Known>,
        effect: Effect,
    ) -> Result<Vec<Given>, RecordError> {
        let mut results: Vec<Option<Given>> = vec![None; items.len()];
        let open = self.left_over(effect, &mut results);
        let mut open = open.into_iter().peekable();
        let mut running = FuturesUnordered::new();
        let mut begun = 0;
        loop {
            while running.len() < foreach.at_once
                && let Some(index) = open.next()
            {
                let scope = Scope::new(&self.state, &self.inputs);
                let scope = scope.variable(&foreach.variable, &items[index]);
                let ready = act::ready(self.graph, &foreach.action, &scope);
                let missing = scope.missing.into_inner();
                self.warn(node, missing);
                match ready {
                    Ok(ready) => {
                        self.tell(Event::ItemBegin { index });
                        begun += 1;
                        let run = self.child(known, Some(index));
                        let (dispatch, retry) = (self.dispatch, node.retry);
                        running.push(async move {
                            let given = act::call_often(dispatch, retry, ready, run).await;
                            (index, given)
                        });
                    }
                    Err(error) => {
                        let given = Err(error);
                        self.item_ended(index, &given);
                        results[index] = Some(given);
                    }
                }
            }
            // Before any of them is looked at for the first time, which starts it.
            self.write_items(effect, &mut begun)?;
            let Some((index, given)) = running.next().await else {
                break;
            };
            self.item_ended(index, &given);
            results[index] = Some(given);
        }
        let lost = || Err(NodeError::new("lost", "nothing was heard of it"));
        Ok(results
            .into_iter()
            .map(|given| given.unwrap_or_else(lost))
            .collect())
    }

    fn item_ended(&mut self, index: usize, given: &Given) {
        if self.journal.is_none() {
            return;
        }
        self.tell(Event::ItemEnd {
            index,
            result: given.as_ref().ok().cloned().unwrap_or_default(),
            error: given.as_ref().err().cloned(),
        });
    }

    fn write_items(&mut self, effect: Effect, begun: &mut usize) -> Result<(), RecordError> {
        if !is_repeatable(effect) && *begun >= SYNC_EVERY {
            *begun = 0;
            return self.commit(true);
        }
        match &mut self.journal {
            Some(journal) => journal.write(false),
            None => Ok(()),
        }
    }

    /// The items that are still to be done; what is known of the others goes to `results`.
    fn left_over(&mut self, effect: Effect, results: &mut [Option<Given>]) -> Vec<usize> {
        let known = std::mem::take(&mut self.before.items);
        let mut uncertain = if self.before.may_miss && !is_repeatable(effect) && !known.is_empty() {
            SYNC_EVERY
        } else {
            0
        };
        let mut open = Vec::new();
        for (index, result) in results.iter_mut().enumerate() {
            match known.get(&index) {
                Some(ItemState::Done(value)) => *result = Some(Ok(value.clone())),
                Some(ItemState::Failed(error)) => *result = Some(Err(error.clone())),
                Some(ItemState::Begun) if !is_repeatable(effect) => {
                    *result = Some(Err(interrupted()));
                }
                None if uncertain > 0 => {
                    uncertain -= 1;
                    *result = Some(Err(interrupted()));
                }
                Some(ItemState::Begun) | None => open.push(index),
            }
        }
        open
    }
}

fn interrupted() -> NodeError {
    let message = "its process died while it was at it: nobody knows whether it did anything";
    NodeError::new("interrupted", message)
}

/// The results of all items; where some failed, the others are kept all the same.
fn collected(foreach: &Foreach, results: Vec<Given>, effect: Effect) -> Done {
    let total = results.len();
    let mut failed: Vec<(usize, NodeError)> = Vec::new();
    let mut values = Vec::with_capacity(total);
    for (index, given) in results.into_iter().enumerate() {
        values.push(given.unwrap_or_else(|error| {
            let told = json!({ "error": error.message, "code": error.code });
            failed.push((index, error));
            told
        }));
    }
    let values = Value::Array(values);
    let mut set = Map::new();
    if let Some((name, _)) = &foreach.collect {
        set.insert(name.clone(), values.clone());
    }
    let result = match failed.first() {
        None => Ok(values),
        Some((index, first)) => {
            let many = failed.len();
            let message = format!("{many} of {total} items failed; item {index}: {first}");
            // One that may not be called at all is not the item's failure.
            let code = match first.code.as_str() {
                "not_permitted" => "not_permitted",
                _ => "items_failed",
            };
            Err(NodeError {
                hint: first.hint.clone(),
                ..NodeError::new(code, message)
            })
        }
    };
    let mut done = Done::of(result, effect);
    done.set = set;
    done
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
