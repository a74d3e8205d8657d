//! Limit gates: if the policy allows it, ask a person to increase a limit before ending a turn.

use rye_protocol::{
    Action, ActionId, CallId, Gate, GateId, GateKind, GateOrigin, GateStatus, LimitKind, Limits,
    Op, Resolution, Turn,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Step;

/// Stands for the tool and the call in a limit gate; no tool has this name.
const LIMIT: &str = "(limit)";

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitScope {
    Prompt,
    Session,
}

impl LimitScope {
    fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Session => "session",
        }
    }
}

/// An approved increase of one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimitIncrease {
    pub(crate) limit: LimitKind,
    pub(crate) to: u64,
}

impl LimitIncrease {
    /// Applies the increase; a limit is never lowered.
    pub(crate) fn apply(self, limits: &mut Limits) {
        let higher = |limit: &mut Option<u64>| *limit = limit.map(|it| it.max(self.to));
        match self.limit {
            LimitKind::Turns => higher(&mut limits.turns),
            LimitKind::Tokens => higher(&mut limits.tokens),
            LimitKind::Spend => higher(&mut limits.micro_dollars),
            // A time limit never asks.
            LimitKind::Duration => {}
        }
    }
}

/// Whether a gate is a pending limit gate.
pub(super) fn is_pending(gate: &Gate) -> bool {
    gate.origin.tool == LIMIT && gate.status.is_pending()
}

impl Step<'_> {
    /// A limit is reached: ends the turn, or opens a limit gate. A time limit always ends the turn,
    /// because waiting for a person would exceed it.
    pub(super) fn on_limit(&mut self, limit: LimitKind, scope: LimitScope) {
        if !self.context.prompt_on_limit || limit == LimitKind::Duration {
            return self.end_at_limit(limit);
        }
        self.machine.live.model = false;
        let Some(gate) = self.build_limit_gate(limit, scope) else {
            return self.end_at_limit(limit);
        };
        if self.machine.gates.contains_key(&gate.id) {
            // The increase was approved, but was too small.
            return self.end_at_limit(limit);
        }
        let call = gate.origin.call.clone();
        self.open(&call, gate);
    }

    /// Applies the answers to limit gates. Applying an answer again, as after a restart, has no
    /// further effect.
    pub(super) fn apply_increase(&mut self) {
        let gates = self.machine.gates.values();
        let gates = gates.filter(|gate| gate.origin.tool == LIMIT);
        let ended: Vec<_> = gates
            .filter_map(|gate| Some((proposal(gate)?, gate.status.clone())))
            .collect();
        for ((scope, increase), status) in ended {
            match status {
                GateStatus::Pending => {}
                GateStatus::Resolved { resolution } if resolution.action == ActionId::Approve => {
                    self.increase(
                        scope,
                        LimitIncrease {
                            to: granted(&resolution, increase),
                            ..increase
                        },
                    );
                }
                _ => return self.end_at_limit(increase.limit),
            }
        }
    }

    fn increase(&mut self, scope: LimitScope, increase: LimitIncrease) {
        if scope == LimitScope::Session {
            let mut limits = self.context.limits;
            increase.apply(&mut limits);
            if limits != self.context.limits {
                self.out.session.increase = Some(increase);
            }
            return;
        }
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let id = turn.prompt.clone();
        let Some(prompt) = self
            .machine
            .prompts
            .iter_mut()
            .find(|prompt| prompt.id == id)
        else {
            return;
        };
        let before = prompt.limits;
        increase.apply(&mut prompt.limits);
        if prompt.limits != before {
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
    }

    fn build_limit_gate(&self, limit: LimitKind, scope: LimitScope) -> Option<Gate> {
        let thread = &self.machine.thread;
        let turn = thread.turn.as_ref()?;
        let to = self.proposed_limit(limit, scope, turn)?;
        let key = format!("limit:{}:{limit}:{to}", scope.word());
        let (was, more) = match limit {
            LimitKind::Spend => (
                format!("spending limit of {} reached", dollars(to / 2)),
                format!("Allow {}", dollars(to)),
            ),
            LimitKind::Turns | LimitKind::Tokens | LimitKind::Duration => (
                format!("limit of {} {limit} reached", to / 2),
                format!("Allow {to} {limit}"),
            ),
        };
        let mut context = Map::new();
        context.insert("limit".to_owned(), json!(limit));
        context.insert("scope".to_owned(), json!(scope));
        context.insert("raise_to".to_owned(), json!(to));
        Some(Gate {
            id: GateId::new(&thread.session, &thread.id, &turn.prompt, &key),
            kind: GateKind::Approval,
            title: format!("{was}: increase it for this {}?", scope.word()),
            body: format!(
                "So far: {} model calls, {} tokens, {}.",
                turn.usage.turns,
                turn.usage.tokens(),
                dollars(turn.usage.micro_dollars)
            ),
            actions: vec![
                Action::new(ActionId::Approve, more),
                Action::new(ActionId::Deny, "End the turn"),
            ],
            status: GateStatus::Pending,
            origin: GateOrigin {
                session: thread.session.clone(),
                thread: thread.id.clone(),
                prompt: turn.prompt.clone(),
                call: call(),
                tool: LIMIT.to_owned(),
                resume_key: key,
            },
            expires_at: None,
            context,
            created_at: self.context.now,
        })
    }

    /// Twice the limit.
    fn proposed_limit(&self, limit: LimitKind, scope: LimitScope, turn: &Turn) -> Option<u64> {
        let prompt = self.running()?;
        let limits = match scope {
            LimitScope::Prompt => prompt.limits,
            LimitScope::Session => self.context.limits,
        };
        let twice = |limit: Option<u64>| limit.map(|it| it.saturating_mul(2).max(2));
        match limit {
            LimitKind::Turns => twice(limits.turns),
            // The next call alone may need more than twice the limit.
            LimitKind::Tokens => twice(limits.tokens).map(|to| {
                to.max(
                    turn.usage
                        .plus(self.context.reserve)
                        .tokens()
                        .saturating_mul(2),
                )
            }),
            LimitKind::Spend => twice(limits.micro_dollars),
            LimitKind::Duration => None,
        }
    }
}

fn call() -> CallId {
    LIMIT.parse().unwrap_or_else(|_| CallId::new())
}

/// The increase that a gate asks for.
fn proposal(gate: &Gate) -> Option<(LimitScope, LimitIncrease)> {
    let field = |key: &str| gate.context.get(key);
    let scope = LimitScope::deserialize(field("scope")?).ok()?;
    let limit = LimitKind::deserialize(field("limit")?).ok()?;
    let to = field("raise_to")?.as_u64()?;
    Some((scope, LimitIncrease { limit, to }))
}

/// The approved amount: the one that the approver entered, or the proposed one.
fn granted(resolution: &Resolution, increase: LimitIncrease) -> u64 {
    amount(&resolution.value).unwrap_or(increase.to)
}

fn amount(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    }
}

/// Whether an answer to a limit gate is not a valid amount. No amount accepts the proposal.
pub(crate) fn is_invalid_limit(gate: &Gate, value: &Value) -> bool {
    gate.origin.tool == LIMIT && !value.is_null() && amount(value).is_none_or(|it| it == 0)
}

fn dollars(millionths: u64) -> String {
    format!(
        "${}.{:02}",
        millionths / 1_000_000,
        millionths % 1_000_000 / 10_000
    )
}
