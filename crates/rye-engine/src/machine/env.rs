//! What a machine must know of the world around it.

use std::time::Duration;

use lillux::keys::SigningKey;
use rye_protocol::{CallId, Limits, Millis, ModelContext, Usage};

use super::Windows;
use crate::compaction::Settings;
use crate::tool::Effect as ToolEffect;

/// What a machine must know of the world.
pub(crate) struct Env<'a> {
    pub(crate) now: Millis,
    /// How many tool calls are run.
    pub(crate) calls: CallLimits,
    /// How long prompts are collected.
    pub(crate) collect: Duration,
    /// The model of a thread that names none.
    pub(crate) model: &'a str,
    /// Whether the session begins nothing more.
    pub(crate) paused: bool,
    /// What the next call of the model uses up at least.
    pub(crate) reserve: Usage,
    /// When the session's time is up.
    pub(crate) until: Option<Millis>,
    /// How much the session may use up.
    pub(crate) limits: Limits,
    /// Whether a person is asked for more when a limit is reached.
    pub(crate) asks_for_more: bool,
    /// Who signs histories.
    pub(crate) signer: Option<&'a SigningKey>,
    /// The hash of the session's last seal.
    pub(crate) last_seal: Option<String>,
    /// What the model was told beside the history, and the hash of that.
    pub(crate) prompted: Option<&'a (ModelContext, String)>,
    /// When and how histories are summed up.
    pub(crate) compaction: &'a Settings,
    pub(crate) windows: &'a dyn Windows,
    pub(crate) tools: &'a dyn Facts,
    pub(crate) children: &'a dyn Children,
}

/// Bounds on the tool calls of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain pair of numbers")]
pub struct CallLimits {
    /// How many are run. Each one beyond gets a result that says that it was not.
    pub per_answer: usize,
    /// How many run at once.
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

/// What a machine must know of tools.
pub(crate) trait Facts {
    /// None if there is no such tool.
    fn of(&self, tool: &str) -> Option<Fact>;
}

/// What a machine must know of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) effect: ToolEffect,
    /// Whether it runs alone.
    pub(crate) exclusive: bool,
    /// Whether its call is a child session.
    pub(crate) is_task: bool,
    /// Whether it does nothing until it says so: it may ask somebody first.
    pub(crate) may_request_decision: bool,
}

/// What a machine must know of the sessions below its own.
pub(crate) trait Children {
    /// What the child of a call has used up.
    fn used(&self, call: &CallId) -> Usage;
}
