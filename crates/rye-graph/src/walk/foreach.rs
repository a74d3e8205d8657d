//! Foreach nodes: a call for each item of a list, with limited concurrency and ordered results.

mod collect;

use std::collections::VecDeque;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use rye_engine::record;
use rye_engine::store::StoreError;
use rye_protocol::{EffectClass, Gate, GateStatus, NodeError, RunEvent};
use serde_json::Value;

use super::action;
use super::decision::{InterruptedChoice, interrupted_choice, interrupted_error, interrupted_gate};
use super::{InterruptedStart, NodeResult, Walker, is_repeatable};
use crate::definition::{Foreach, Node, literal_item};
use crate::dispatch::{ToolCall, ToolTraits};
use crate::error::RecordError;
use crate::history::ItemState;
use crate::journal::Journal;
use crate::path::Scope;

/// Number of events after which items that may be repeated are recorded.
const MAX_PENDING: usize = 64;

/// Result of an item.
type ItemResult = Result<Value, NodeError>;

/// Completion of an item's future.
enum ItemEvent {
    /// The call ended; contains its result and cache key.
    Called(ItemResult, Option<String>),
    /// The gate about an interrupted item was closed.
    GateClosed(Box<Gate>, Result<GateStatus, StoreError>),
}

/// Progress of a foreach.
struct Items<'w> {
    all: &'w [Value],
    /// The tool, if all items call the same one.
    traits: Option<ToolTraits>,
    /// Effect class of items without their own.
    effect: EffectClass,
    open: VecDeque<usize>,
    results: Vec<Option<ItemResult>>,
    /// Whether items that must not be repeated have started since the last commit.
    must_commit: bool,
    /// Number of results from the cache.
    cached: usize,
}

/// The next call of an item.
struct NextCall {
    call: ToolCall,
    traits: Option<ToolTraits>,
    key: Option<String>,
}

impl<'g> Walker<'g> {
    pub(super) async fn foreach(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        interrupted: Option<InterruptedStart>,
    ) -> Result<NodeResult, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let over = foreach.over.render(&scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let Value::Array(all) = &over else {
            let error = collect::not_a_list(self.graph, foreach, &over);
            return Ok(NodeResult::new(Err(error)));
        };
        let traits = match literal_item(&foreach.action).map(str::parse) {
            Some(Ok(item)) if self.needs_traits(node) => match self.dispatch.traits(&item) {
                Ok(traits) => Some(traits),
                Err(error) => return Ok(NodeResult::new(Err(error))),
            },
            _ => None,
        };
        let effect = traits
            .as_ref()
            .map_or(EffectClass::AtMostOnce, action::effect);
        self.begin(node, effect, &over, interrupted).await?;
        let mut items = Items {
            all,
            traits,
            effect,
            open: VecDeque::new(),
            results: vec![None; all.len()],
            must_commit: false,
            cached: 0,
        };
        let to_ask = self.sort_items(node, foreach, &mut items);
        self.run_items(node, foreach, &mut items, to_ask).await?;
        Ok(collect::collect(foreach, items))
    }

    async fn run_items(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        items: &mut Items<'_>,
        to_ask: Vec<(usize, u32)>,
    ) -> Result<(), RecordError> {
        let mut running = FuturesUnordered::new();
        let mut to_ask = VecDeque::from(to_ask);
        let mut calls = 0;
        loop {
            while let Some((index, starts)) = to_ask.pop_front() {
                let key = format!("{}:{index}", node.name);
                let what = collect::item_name(&node.name, index, &items.all[index]);
                match self
                    .open_gate(&interrupted_gate(&key, &what, starts))
                    .await?
                {
                    Ok((store, gate)) => running.push(Either::Left(async move {
                        let status = record::wait_closed(&*store, &gate).await;
                        let closed = ItemEvent::GateClosed(Box::new(gate), status);
                        (index, starts, closed)
                    })),
                    Err(_) => self.record_item_end(items, index, Err(interrupted_error()), false),
                }
            }
            while calls < foreach.concurrency
                && let Some(index) = items.open.pop_front()
            {
                let Some(next) = self.next_call(node, foreach, items, index) else {
                    continue;
                };
                let NextCall { call, traits, key } = next;
                let traits = traits.as_ref().or(items.traits.as_ref());
                let call = ToolCall {
                    run: self.nested_run(traits, &format!("-{index}")),
                    ..call
                };
                let (dispatch, retry) = (self.dispatch, node.retry);
                calls += 1;
                running.push(Either::Right(async move {
                    let called = action::call_with_retries(dispatch, retry, call, |_, _| ());
                    let result = called.await;
                    (index, 0, ItemEvent::Called(result, key))
                }));
            }
            // Record the starts before the futures are first polled, which starts the calls.
            self.commit_items(items).await?;
            let mut event = running.next().await;
            if event.is_none() {
                return Ok(());
            }
            // Calls that ended at the same time share a commit.
            while let Some((index, starts, ended)) = event {
                match ended {
                    ItemEvent::Called(result, key) => {
                        calls -= 1;
                        if let (Some(cache), Some(key), Ok(value)) = (&self.cache, &key, &result) {
                            cache.insert(key, value)?;
                        }
                        self.record_item_end(items, index, result, false);
                    }
                    ItemEvent::GateClosed(gate, status) => {
                        let status = status?;
                        if self.accepts(&gate, &status) {
                            self.item_decided(node, items, index, &gate, status);
                        } else {
                            to_ask.push_back((index, starts));
                        }
                    }
                }
                event = running.next().now_or_never().flatten();
            }
        }
    }

    /// Applies the decision about an interrupted item.
    fn item_decided(
        &mut self,
        node: &Node,
        items: &mut Items<'_>,
        index: usize,
        gate: &Gate,
        status: GateStatus,
    ) {
        let resolution = self.record_closed(gate, status);
        match interrupted_choice(resolution) {
            InterruptedChoice::RunAgain => {
                items.open.push_front(index);
                items.must_commit = true;
            }
            InterruptedChoice::UseResult(value) => {
                self.record_item_end(items, index, Ok(value), false);
            }
            InterruptedChoice::Skip => {
                self.record_item_end(items, index, self.skipped(node), false);
            }
        }
    }

    /// Records the start of an item and returns its call; `None` if the result is cached or the
    /// call is invalid.
    fn next_call(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &mut Items<'_>,
        index: usize,
    ) -> Option<NextCall> {
        let next = match self.prepare_item(node, foreach, items, index) {
            Ok(next) => next,
            Err(error) => {
                self.record_item_end(items, index, Err(error), false);
                return None;
            }
        };
        if let Some(cached) = self.cached_result(&next) {
            self.record_item_end(items, index, Ok(cached), true);
            return None;
        }
        let effect = next.traits.as_ref().map(action::effect);
        items.must_commit |= !is_repeatable(effect.unwrap_or(items.effect));
        self.record(RunEvent::ItemBegin { index, effect });
        Some(next)
    }

    fn prepare_item(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &Items<'_>,
        index: usize,
    ) -> Result<NextCall, NodeError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let scope = scope.with_variable(&foreach.variable, &items.all[index]);
        let call = action::prepare(self.graph, &foreach.action, &scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let call = call?;
        let traits = if items.traits.is_none() && self.needs_traits(node) {
            Some(self.dispatch.traits(&call.item)?)
        } else {
            None
        };
        let key = self.cache_key(node, &call, traits.as_ref().or(items.traits.as_ref()));
        Ok(NextCall { call, traits, key })
    }

    fn cached_result(&self, next: &NextCall) -> Option<Value> {
        self.cache.as_ref()?.get(next.key.as_ref()?)
    }

    /// Whether the traits of a tool must be known before the call.
    fn needs_traits(&self, node: &Node) -> bool {
        self.journal.is_some() || (node.cache && self.cache.is_some())
    }

    fn record_item_end(
        &mut self,
        items: &mut Items<'_>,
        index: usize,
        result: ItemResult,
        cached: bool,
    ) {
        items.cached += usize::from(cached);
        if self.journal.is_some() {
            self.record(RunEvent::ItemEnd {
                index,
                result: result.as_ref().ok().cloned().unwrap_or_default(),
                error: result.as_ref().err().cloned(),
                cached,
            });
        }
        items.results[index] = Some(result);
    }

    async fn commit_items(&mut self, items: &mut Items<'_>) -> Result<(), RecordError> {
        let pending = self.journal.as_ref().map_or(0, Journal::pending);
        if items.must_commit || pending >= MAX_PENDING {
            items.must_commit = false;
            self.commit().await?;
        }
        Ok(())
    }

    /// Restores the results of finished items, queues the others, and returns the interrupted
    /// items that the user must decide on, with their number of starts.
    fn sort_items(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &mut Items<'_>,
    ) -> Vec<(usize, u32)> {
        let journaled = std::mem::take(&mut self.progress.items);
        let mut to_ask = Vec::new();
        for index in 0..items.all.len() {
            let (effect, starts) = match journaled.get(&index) {
                Some(ItemState::Done(value)) => {
                    items.results[index] = Some(Ok(value.clone()));
                    continue;
                }
                Some(ItemState::Failed(error)) => {
                    items.results[index] = Some(Err(error.clone()));
                    continue;
                }
                Some(ItemState::Started { effect, starts }) => {
                    (effect.unwrap_or(items.effect), *starts)
                }
                None => (EffectClass::Pure, 0),
            };
            match effect {
                effect if is_repeatable(effect) => items.open.push_back(index),
                // A cached result proves that the call succeeded.
                _ if node.cache
                    && let Ok(next) = self.prepare_item(node, foreach, items, index)
                    && let Some(cached) = self.cached_result(&next) =>
                {
                    self.record_item_end(items, index, Ok(cached), true);
                }
                effect if self.asks_about(node, effect) => to_ask.push((index, starts)),
                _ => self.record_item_end(items, index, Err(interrupted_error()), false),
            }
        }
        to_ask
    }
}
