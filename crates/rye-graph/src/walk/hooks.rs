//! Hooks: actions beside the program, each at its moment and once.

use rye_items::metadata::Effect;
use serde_json::{Value, json};

use super::act::{self, Ready};
use super::decide::{Wanted, unknown};
use super::{Walk, is_repeatable};
use crate::dispatch::ToolCall;
use crate::event::{Event, NodeError};
use crate::model::{Hook, Moment};
use crate::path::Scope;
use crate::record::{At, RecordError};

impl Walk<'_> {
    /// Asks the hooks that a process may have died among. Those that have acted are not
    /// asked twice.
    pub(super) async fn catch_up(&mut self, from: &At) -> Result<(), RecordError> {
        match from {
            At::Before(_) if self.steps == 0 => self.hooks(Moment::GraphStarted, None).await,
            At::Before(_) | At::Failed { .. } | At::Behind if self.before.is_cut_short => {
                if let Some(error) = self.before.error.take() {
                    self.hooks(Moment::Error, Some(&error)).await?;
                }
                self.hooks(Moment::AfterStep, None).await
            }
            _ => Ok(()),
        }
    }

    /// Asks the hooks of a moment. One that fails is told and changes nothing.
    pub(super) async fn hooks(
        &mut self,
        moment: Moment,
        error: Option<&NodeError>,
    ) -> Result<(), RecordError> {
        for (number, hook) in self.graph.hooks.iter().enumerate() {
            if hook.moment != moment {
                continue;
            }
            let about = json!({ "event": moment.as_str(), "step": self.steps, "error": error });
            let scope = Scope::new(&self.state, &self.inputs).result(&about);
            if hook.condition.as_ref().is_some_and(|it| !it.holds(&scope)) {
                continue;
            }
            let known = self.before.hooks.get(&(number, self.steps)).copied();
            let known = match known {
                Some(known) if known.has_ended => continue,
                known => known.filter(|known| !is_repeatable(known.effect)),
            };
            let given = match known {
                None => None,
                Some(known) if known.effect == Effect::Ask => {
                    let name = format!("hook-{number}");
                    match self.asked_about(&name, known.times).await? {
                        Wanted::Again => None,
                        Wanted::Given(_) => Some(Ok(())),
                        Wanted::Nothing => Some(Err(unknown())),
                    }
                }
                Some(_) => Some(Err(unknown())),
            };
            let result = match given {
                Some(given) => given,
                None => self.hook(number, hook, &about).await?,
            };
            self.hook_ended(number, moment, result.err())?;
        }
        Ok(())
    }

    async fn hook(
        &mut self,
        number: usize,
        hook: &Hook,
        about: &Value,
    ) -> Result<Result<(), NodeError>, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs).result(about);
        let ready = act::ready(self.graph, &hook.action, &scope);
        let known = match (&ready, &self.journal) {
            (Ok(ready), Some(_)) => self.dispatch.traits(&ready.item).ok(),
            _ => None,
        };
        let effect = known.as_ref().map_or(Effect::AtMostOnce, act::effect);
        self.tell(Event::HookBegin {
            hook: number,
            step: self.steps,
            moment: hook.moment.as_str().to_owned(),
            effect,
        });
        self.commit(!is_repeatable(effect))?;
        Ok(match ready {
            Ok(Ready {
                item,
                params,
                interpolated,
            }) => {
                let run = self.child(known.as_ref(), &format!("-hook{number}"));
                let call = ToolCall {
                    item,
                    params,
                    interpolated,
                    run,
                };
                self.dispatch.call(call).await.map(drop)
            }
            Err(error) => Err(error),
        })
    }

    fn hook_ended(
        &mut self,
        hook: usize,
        moment: Moment,
        error: Option<NodeError>,
    ) -> Result<(), RecordError> {
        if let Some(error) = &error {
            let warning = format!("the hook of {} failed: {error}", moment.as_str());
            self.warnings.push(warning);
        }
        let step = self.steps;
        self.tell(Event::HookEnd { hook, step, error });
        self.commit(false)
    }
}
