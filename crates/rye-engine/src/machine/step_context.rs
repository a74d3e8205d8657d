//! Read-only inputs of a step: clock, limits and lookups.

use std::time::Duration;

use lillux::keys::SigningKey;
use rye_protocol::{CallId, Limits, Millis, ModelContext, Usage};

use super::ContextWindows;
use crate::compaction::Settings;
use crate::tool::EffectClass;

/// Inputs of one step of the state machine.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Millis,
    /// Bounds on the tool calls of one answer.
    pub(crate) calls: CallLimits,
    /// How long prompts are collected.
    pub(crate) collect_window: Duration,
    /// The default model.
    pub(crate) model: &'a str,
    /// Text of the current model call so far.
    pub(crate) partial: &'a str,
    /// Whether the session is paused.
    pub(crate) paused: bool,
    /// Minimum usage of the next model call.
    pub(crate) reserve: Usage,
    /// Deadline of the session.
    pub(crate) until: Option<Millis>,
    /// Limits of the session.
    pub(crate) limits: Limits,
    /// Whether reaching a limit, except a time limit, opens a gate instead of ending the turn.
    pub(crate) prompt_on_limit: bool,
    /// The key that signs histories.
    pub(crate) signer: Option<&'a SigningKey>,
    /// Hash of the session's last seal.
    pub(crate) last_seal: Option<String>,
    /// Model context of the last call and its hash.
    pub(crate) model_context: Option<&'a (ModelContext, String)>,
    /// When and how histories are compacted.
    pub(crate) compaction: &'a Settings,
    pub(crate) windows: &'a dyn ContextWindows,
    /// Files whose changes were undone since the last turn.
    pub(crate) restored_files: Vec<String>,
    /// Whether the changes of a turn are reviewed at its end.
    pub(crate) reviews_changes: bool,
    pub(crate) tools: &'a dyn ToolLookup,
    pub(crate) children: &'a dyn ChildUsage,
}

/// Bounds on the tool calls of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain pair of numbers")]
pub struct CallLimits {
    /// How many are run. Each further call gets a result that says it was not run.
    pub per_answer: usize,
    /// How many run concurrently.
    pub parallel: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            per_answer: 128,
            parallel: 16,
        }
    }
}

/// Looks up the traits of tools.
pub(crate) trait ToolLookup {
    /// The traits of a tool; `None` if there is no such tool.
    fn traits(&self, tool: &str) -> Option<ToolTraits>;
}

/// The properties of a tool that scheduling and recovery depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ToolTraits {
    pub(crate) effect: EffectClass,
    /// Whether it runs alone.
    pub(crate) exclusive: bool,
    /// Whether its call is a child session.
    pub(crate) is_task: bool,
    /// Whether it may request a decision before its effect starts.
    pub(crate) may_request_decision: bool,
}

/// Usage of child sessions.
pub(crate) trait ChildUsage {
    /// Usage of the child session of a call.
    fn used(&self, call: &CallId) -> Usage;
}
