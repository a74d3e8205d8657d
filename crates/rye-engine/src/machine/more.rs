//! A limit that asks: where the policy lets it, a person is asked for more before a turn ends.

use rye_protocol::{
    Action, CallId, Gate, GateId, GateKind, GateOrigin, GateStatus, Limits, Millis, Op, Resolution,
    Turn,
};
use serde_json::{Map, Value, json};

use super::Step;

/// The tool and the call that stand for a limit in a gate: no tool has this name.
const LIMIT: &str = "(limit)";

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Prompt,
    Session,
}

impl Whose {
    fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Session => "session",
        }
    }
}

/// Limits that a person has let be higher.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Raise {
    pub(crate) limit: &'static str,
    pub(crate) to: u64,
}

impl Raise {
    /// The limits with this one higher; it is never made lower.
    pub(crate) fn apply(self, limits: &mut Limits) {
        let higher = |limit: &mut Option<u64>| *limit = limit.map(|it| it.max(self.to));
        match self.limit {
            "turns" => higher(&mut limits.turns),
            "tokens" => higher(&mut limits.tokens),
            "spend" => higher(&mut limits.micro_dollars),
            _ => limits.until = limits.until.map(|it| it.max(Millis(self.to))),
        }
    }
}

/// Whether a gate asks for more, and nobody has answered.
pub(super) fn is_pending(gate: &Gate) -> bool {
    gate.origin.tool == LIMIT && gate.status.is_pending()
}

impl Step<'_> {
    /// A limit is reached: the turn ends, or a person is asked for more.
    pub(super) fn reached(&mut self, limit: &'static str, whose: Whose) {
        if !self.env.asks_for_more {
            return self.limit(limit);
        }
        self.machine.live.model = false;
        let Some(gate) = self.gate_for_more(limit, whose) else {
            return self.limit(limit);
        };
        if self.machine.gates.contains_key(&gate.id) {
            // It was answered, and with too little.
            return self.limit(limit);
        }
        let call = gate.origin.call.clone();
        self.open(&call, gate);
    }

    /// Takes in what a person said to it. Whatever was let before is let again, after a
    /// restart too: to raise a limit twice is to raise it once.
    pub(super) fn take_more(&mut self) {
        let gates = self.machine.gates.values();
        let gates = gates.filter(|gate| gate.origin.tool == LIMIT);
        let ended: Vec<_> = gates
            .filter_map(|gate| Some((asked(gate)?, gate.status.clone())))
            .collect();
        for ((whose, raise), status) in ended {
            match status {
                GateStatus::Pending => {}
                GateStatus::Resolved { resolution } if resolution.action == "approve" => {
                    self.raise(
                        whose,
                        Raise {
                            to: given(&resolution, raise),
                            ..raise
                        },
                    );
                }
                _ => return self.limit(raise.limit),
            }
        }
    }

    fn raise(&mut self, whose: Whose, raise: Raise) {
        if whose == Whose::Session {
            let mut limits = self.env.limits;
            raise.apply(&mut limits);
            if limits != self.env.limits {
                self.out.raise = Some(raise);
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
        raise.apply(&mut prompt.limits);
        if prompt.limits != before {
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
    }

    fn gate_for_more(&self, limit: &'static str, whose: Whose) -> Option<Gate> {
        let thread = &self.machine.thread;
        let turn = thread.turn.as_ref()?;
        let to = self.as_much_again(limit, whose, turn)?;
        let key = format!("limit:{}:{limit}:{to}", whose.word());
        let action = |id: &str, label: String| Action {
            id: id.to_owned(),
            label,
        };
        let (was, more) = match limit {
            "duration" => ("its time is up".to_owned(), "As long again".to_owned()),
            "spend" => (
                format!("the limit of {} is reached", dollars(to / 2)),
                format!("Up to {}", dollars(to)),
            ),
            _ => (
                format!("the limit of {} {limit} is reached", to / 2),
                format!("Up to {to} {limit}"),
            ),
        };
        let mut context = Map::new();
        context.insert("limit".to_owned(), json!(limit));
        context.insert("of".to_owned(), json!(whose.word()));
        context.insert("raise_to".to_owned(), json!(to));
        Some(Gate {
            id: GateId::new(&thread.session, &thread.id, &turn.prompt, &key),
            kind: GateKind::Approval,
            title: format!("{was}: may the {} use more?", whose.word()),
            body: format!(
                "So far: {} calls of models, {} tokens, {}.",
                turn.usage.turns,
                turn.usage.tokens(),
                dollars(turn.usage.micro_dollars)
            ),
            actions: vec![
                action("approve", more),
                action("deny", "End here".to_owned()),
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
            created_at: self.env.now,
        })
    }

    /// Twice the limit.
    fn as_much_again(&self, limit: &str, whose: Whose, turn: &Turn) -> Option<u64> {
        let prompt = self.running()?;
        let limits = match whose {
            Whose::Prompt => prompt.limits,
            Whose::Session => self.env.limits,
        };
        let twice = |limit: Option<u64>| limit.map(|it| it.saturating_mul(2).max(2));
        match limit {
            "turns" => twice(limits.turns),
            // The next call alone may need more than that.
            "tokens" => twice(limits.tokens)
                .map(|to| to.max(turn.usage.plus(self.env.reserve).tokens().saturating_mul(2))),
            "spend" => twice(limits.micro_dollars),
            _ => {
                let until = limits.until?.0;
                let time = until.saturating_sub(prompt.created_at.0).max(60_000);
                Some(self.env.now.0.saturating_add(time))
            }
        }
    }
}

fn call() -> CallId {
    LIMIT.parse().unwrap_or_else(|_| CallId::new())
}

/// What a gate asked for.
fn asked(gate: &Gate) -> Option<(Whose, Raise)> {
    let text = |key: &str| gate.context.get(key).and_then(Value::as_str);
    let whose = match text("of")? {
        "session" => Whose::Session,
        _ => Whose::Prompt,
    };
    let all = ["turns", "tokens", "spend", "duration"];
    let limit = all.into_iter().find(|it| text("limit") == Some(it))?;
    let to = gate.context.get("raise_to").and_then(Value::as_u64)?;
    Some((whose, Raise { limit, to }))
}

/// What a person let it be: a number of their own, or what was asked for.
fn given(resolution: &Resolution, raise: Raise) -> u64 {
    amount(&resolution.value).unwrap_or(raise.to)
}

fn amount(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    }
}

/// Whether a gate asks how much, and what is said is no amount. Nothing is one: as much again.
pub(crate) fn is_no_amount(gate: &Gate, value: &Value) -> bool {
    gate.origin.tool == LIMIT && !value.is_null() && amount(value).is_none_or(|it| it == 0)
}

fn dollars(millionths: u64) -> String {
    format!(
        "${}.{:02}",
        millionths / 1_000_000,
        millionths % 1_000_000 / 10_000
    )
}
