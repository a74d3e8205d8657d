//! Hooks: tool calls that events of a run trigger, each at most once.

use rye_protocol::EffectClass;
use serde_json::{Value, json};

use super::action;
use super::decision::{InterruptedChoice, interrupted_error};
use super::{Walker, is_repeatable};
use crate::definition::{Hook, HookEvent};
use crate::dispatch::ToolCall;
use crate::error::RecordError;
use crate::history::Position;
use crate::path::Scope;
use rye_protocol::{NodeError, RunEvent};

impl Walker<'_> {
    /// Runs the hooks that a crash may have prevented. Hooks that ran are not repeated.
    pub(super) async fn catch_up_hooks(&mut self, from: &Position) -> Result<(), RecordError> {
        match from {
            Position::Before(_) if self.steps == 0 => {
                self.run_hooks(HookEvent::GraphStarted, None).await
            }
            Position::Before(_) | Position::Failed { .. } | Position::End
                if self.progress.was_interrupted =>
            {
                if let Some(error) = self.progress.error.take() {
                    self.run_hooks(HookEvent::Error, Some(&error)).await?;
                }
                self.run_hooks(HookEvent::AfterStep, None).await
            }
            _ => Ok(()),
        }
    }

    /// Runs the hooks of an event. A failed hook is only a warning.
    pub(super) async fn run_hooks(
        &mut self,
        event: HookEvent,
        error: Option<&NodeError>,
    ) -> Result<(), RecordError> {
        for (number, hook) in self.graph.hooks.iter().enumerate() {
            if hook.event != event {
                continue;
            }
            let context = json!({ "event": event.as_str(), "step": self.steps, "error": error });
            let scope = Scope::new(&self.state, &self.inputs).with_result(&context);
            if hook.condition.as_ref().is_some_and(|it| !it.holds(&scope)) {
                continue;
            }
            let previous = self.progress.hooks.get(&(number, self.steps)).copied();
            let previous = match previous {
                Some(previous) if previous.has_ended => continue,
                previous => previous.filter(|previous| !is_repeatable(previous.effect)),
            };
            let decided = match previous {
                None => None,
                Some(previous) if previous.effect == EffectClass::Ask => {
                    let name = format!("hook-{number}");
                    match self.ask_about_interrupted(&name, previous.starts).await? {
                        InterruptedChoice::RunAgain => None,
                        InterruptedChoice::UseResult(_) => Some(Ok(())),
                        InterruptedChoice::Skip => Some(Err(interrupted_error())),
                    }
                }
                Some(_) => Some(Err(interrupted_error())),
            };
            let result = match decided {
                Some(decided) => decided,
                None => self.run_hook(number, hook, &context).await?,
            };
            self.record_hook_end(number, event, result.err());
        }
        Ok(())
    }

    async fn run_hook(
        &mut self,
        number: usize,
        hook: &Hook,
        context: &Value,
    ) -> Result<Result<(), NodeError>, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs).with_result(context);
        let prepared = action::prepare(self.graph, &hook.action, &scope);
        let traits = match (&prepared, &self.journal) {
            (Ok(prepared), Some(_)) => self.dispatch.traits(&prepared.item).ok(),
            _ => None,
        };
        let effect = traits
            .as_ref()
            .map_or(EffectClass::AtMostOnce, action::effect);
        self.record(RunEvent::HookBegin {
            hook: number,
            step: self.steps,
            trigger: hook.event.as_str().to_owned(),
            effect,
        });
        self.commit().await?;
        Ok(match prepared {
            Ok(call) => {
                let run = self.nested_run(traits.as_ref(), &format!("-hook{number}"));
                let call = ToolCall { run, ..call };
                self.dispatch.call(call).await.map(drop)
            }
            Err(error) => Err(error),
        })
    }

    fn record_hook_end(&mut self, hook: usize, event: HookEvent, error: Option<NodeError>) {
        if let Some(error) = &error {
            let warning = format!("the hook for {} failed: {error}", event.as_str());
            self.warnings.push(warning);
        }
        let step = self.steps;
        self.record(RunEvent::HookEnd { hook, step, error });
    }
}
