//! Foreach: the same call for each of a list, so many at a time, results in input order.

mod collect;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use rye_items::metadata::Effect;
use rye_protocol::GateStatus;
use serde_json::Value;

use super::act::{self, Ready};
use super::decide::{Wanted, cut_short, unknown, wanted};
use super::{Begun, Done, Walk, is_repeatable};
use crate::dispatch::ToolTraits;
use crate::event::{Event, NodeError};
use crate::gates::GateFile;
use crate::model::{Foreach, Node, fixed_item};
use crate::path::Scope;
use crate::record::{ItemState, RecordError};

/// Items whose beginning may be lost in a power cut, where they must not be done twice.
const SYNC_EVERY: usize = 64;

/// What came of an item.
type Given = Result<Value, NodeError>;

/// What was heard of an item.
enum Heard {
    /// What came of it, and the name to keep that under.
    Given(Given, Option<String>),
    /// What a person wants done about it.
    Said(Box<GateFile>, Result<GateStatus, RecordError>),
}

/// The items of a foreach.
struct Items<'w> {
    all: &'w [Value],
    /// The tool, where all of them call the same.
    known: Option<ToolTraits>,
    /// Whether they may be repeated, where that tool does not say for each.
    effect: Effect,
    open: VecDeque<usize>,
    results: Vec<Option<Given>>,
    /// Begun since the disk was last waited for.
    begun: usize,
    /// Taken from what was kept.
    cached: usize,
}

/// A call of an item that is to be made.
struct Next {
    ready: Ready,
    known: Option<ToolTraits>,
    key: Option<String>,
}

impl<'g> Walk<'g> {
    pub(super) async fn foreach(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        begun: Option<Begun>,
    ) -> Result<Done, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let over = foreach.over.fill(&scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let Value::Array(all) = over else {
            let error = collect::no_list(self.graph, foreach, &over);
            return Ok(Done::of(Err(error), Effect::Pure));
        };
        let known = match fixed_item(&foreach.action).map(str::parse) {
            Some(Ok(item)) if self.must_look(node) => match self.dispatch.traits(&item) {
                Ok(known) => Some(known),
                Err(error) => return Ok(Done::of(Err(error), Effect::Pure)),
            },
            _ => None,
        };
        let effect = known.as_ref().map_or(Effect::AtMostOnce, act::effect);
        self.begin(node, effect, begun)?;
        let mut items = Items {
            all: &all,
            known,
            effect,
            open: VecDeque::new(),
            results: vec![None; all.len()],
            begun: 0,
            cached: 0,
        };
        let asked = self.left_over(node, foreach, &mut items, begun.is_some());
        self.each(node, foreach, &mut items, asked).await?;
        Ok(collect::collected(foreach, items))
    }

    async fn each(
        &mut self,
        node: &'g Node,
        foreach: &'g Foreach,
        items: &mut Items<'_>,
        asked: Vec<(usize, u32)>,
    ) -> Result<(), RecordError> {
        let mut running = FuturesUnordered::new();
        for (index, times) in asked {
            let key = format!("{}:{index}", node.name);
            let what = collect::name(&node.name, index, &items.all[index]);
            match self.ask(&cut_short(&key, &what, times))? {
                Ok(question) => {
                    let trust = Arc::clone(&self.trust);
                    running.push(Either::Left(async move {
                        let status = question.ended(&*trust).await;
                        (index, Heard::Said(Box::new(question), status))
                    }));
                }
                Err(_) => self.item_ended(items, index, Err(unknown()), false),
            }
        }
        let mut calls = 0;
        loop {
            while calls < foreach.at_once
                && let Some(index) = items.open.pop_front()
            {
                let Some(next) = self.next_call(node, foreach, items, index) else {
                    continue;
                };
                let Next { ready, known, key } = next;
                let known = known.as_ref().or(items.known.as_ref());
                let run = self.child(known, &format!("-{index}"));
                let (dispatch, retry) = (self.dispatch, node.retry);
                calls += 1;
                running.push(Either::Right(async move {
                    let given = act::call_often(dispatch, retry, ready, run).await;
                    (index, Heard::Given(given, key))
                }));
            }
            // Before any of them is looked at for the first time, which starts it.
            self.write_items(items)?;
            match running.next().await {
                None => return Ok(()),
                Some((index, Heard::Given(given, key))) => {
                    calls -= 1;
                    if let (Some(cache), Some(key), Ok(result)) = (&self.cache, &key, &given) {
                        cache.put(key, result)?;
                    }
                    self.item_ended(items, index, given, false);
                }
                Some((index, Heard::Said(question, status))) => {
                    let answer = self.heard(&question, status?);
                    match wanted(answer) {
                        Wanted::Again => {
                            items.open.push_front(index);
                            // That it was begun again must not be lost.
                            items.begun = SYNC_EVERY;
                        }
                        Wanted::Given(value) => self.item_ended(items, index, Ok(value), false),
                        Wanted::Nothing => self.item_ended(items, index, Err(unknown()), false),
                    }
                }
            }
        }
    }

    /// The call of an item, written down; none where its result is known without it.
    fn next_call(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &mut Items<'_>,
        index: usize,
    ) -> Option<Next> {
        let next = match self.filled_in(node, foreach, items, index) {
            Ok(next) => next,
            Err(error) => {
                self.item_ended(items, index, Err(error), false);
                return None;
            }
        };
        if let Some(kept) = self.kept(&next) {
            self.item_ended(items, index, Ok(kept), true);
            return None;
        }
        items.begun += 1;
        let effect = next.known.as_ref().map(act::effect);
        self.tell(Event::ItemBegin { index, effect });
        Some(next)
    }

    fn filled_in(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &Items<'_>,
        index: usize,
    ) -> Result<Next, NodeError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let scope = scope.variable(&foreach.variable, &items.all[index]);
        let ready = act::ready(self.graph, &foreach.action, &scope);
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        let ready = ready?;
        let known = if items.known.is_none() && self.must_look(node) {
            Some(self.dispatch.traits(&ready.item)?)
        } else {
            None
        };
        let key = self.cache_key(node, &ready, known.as_ref().or(items.known.as_ref()));
        Ok(Next { ready, known, key })
    }

    fn kept(&self, next: &Next) -> Option<Value> {
        self.cache.as_ref()?.get(next.key.as_ref()?)
    }

    /// Whether what is called has to be known beforehand.
    fn must_look(&self, node: &Node) -> bool {
        self.journal.is_some() || (node.cache && self.cache.is_some())
    }

    fn item_ended(&mut self, items: &mut Items<'_>, index: usize, given: Given, cached: bool) {
        items.cached += usize::from(cached);
        if self.journal.is_some() {
            self.tell(Event::ItemEnd {
                index,
                result: given.as_ref().ok().cloned().unwrap_or_default(),
                error: given.as_ref().err().cloned(),
                cached,
            });
        }
        items.results[index] = Some(given);
    }

    fn write_items(&mut self, items: &mut Items<'_>) -> Result<(), RecordError> {
        let sync = !is_repeatable(items.effect) && items.begun >= SYNC_EVERY;
        if sync {
            items.begun = 0;
        }
        self.commit(sync)
    }

    /// Sorts the items: what is known of some is their result, some are still to be done,
    /// and about some a person is asked, who is told how often they were begun.
    fn left_over(
        &mut self,
        node: &Node,
        foreach: &Foreach,
        items: &mut Items<'_>,
        is_begun: bool,
    ) -> Vec<(usize, u32)> {
        let known = std::mem::take(&mut self.before.items);
        let may_miss = self.before.may_miss && is_begun;
        let mut uncertain = if may_miss { SYNC_EVERY } else { 0 };
        let mut asked = Vec::new();
        for index in 0..items.all.len() {
            let (effect, times) = match known.get(&index) {
                Some(ItemState::Done(value)) => {
                    items.results[index] = Some(Ok(value.clone()));
                    continue;
                }
                Some(ItemState::Failed(error)) => {
                    items.results[index] = Some(Err(error.clone()));
                    continue;
                }
                Some(ItemState::Begun { effect, times }) => {
                    (effect.unwrap_or(items.effect), *times)
                }
                None if uncertain > 0 => {
                    uncertain -= 1;
                    (items.effect, 1)
                }
                None => (Effect::Pure, 0),
            };
            match effect {
                effect if is_repeatable(effect) => items.open.push_back(index),
                // What was kept was done, whatever else is known of it.
                _ if node.cache
                    && let Ok(next) = self.filled_in(node, foreach, items, index)
                    && let Some(kept) = self.kept(&next) =>
                {
                    self.item_ended(items, index, Ok(kept), true);
                }
                Effect::Ask => asked.push((index, times)),
                _ => self.item_ended(items, index, Err(unknown()), false),
            }
        }
        asked
    }
}
