//! Usage and limits.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// Consumed resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    /// Model calls.
    pub turns: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Input tokens written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cost in millionths of a dollar.
    pub micro_dollars: u64,
}

impl Usage {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            turns: self.turns.saturating_add(other.turns),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self
                .cache_write_tokens
                .saturating_add(other.cache_write_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            micro_dollars: self.micro_dollars.saturating_add(other.micro_dollars),
        }
    }

    /// Whether nothing was consumed.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Input and output tokens.
    pub fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// A limit that a turn can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LimitKind {
    /// The number of model calls reached [`Limits::turns`].
    Turns,
    /// The number of tokens reached [`Limits::tokens`].
    Tokens,
    /// The cost reached [`Limits::micro_dollars`].
    Spend,
    /// The deadline [`Limits::until`] passed.
    Duration,
}

/// Upper bounds of usage, including child sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Limits {
    /// Model calls.
    pub turns: Option<u64>,
    /// Input and output tokens.
    pub tokens: Option<u64>,
    /// Cost in millionths of a dollar.
    pub micro_dollars: Option<u64>,
    /// Nesting depth of child sessions.
    pub depth: Option<u32>,
    /// Time at which the work must have ended.
    pub until: Option<Millis>,
}

impl Limits {
    /// Whether there are no limits.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The remaining amounts after some usage.
    #[must_use]
    pub fn remaining(self, usage: &Usage) -> Self {
        let left = |limit: Option<u64>, used| limit.map(|limit| limit.saturating_sub(used));
        Self {
            turns: left(self.turns, usage.turns),
            tokens: left(self.tokens, usage.tokens()),
            micro_dollars: left(self.micro_dollars, usage.micro_dollars),
            ..self
        }
    }

    /// The tighter limit of both, per field.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            turns: tighter(self.turns, other.turns),
            tokens: tighter(self.tokens, other.tokens),
            micro_dollars: tighter(self.micro_dollars, other.micro_dollars),
            depth: tighter(self.depth, other.depth),
            until: tighter(self.until, other.until),
        }
    }

    /// The limit that is reached, if any.
    pub fn reached(&self, usage: &Usage, now: Millis) -> Option<LimitKind> {
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        if over(self.turns, usage.turns) {
            Some(LimitKind::Turns)
        } else if over(self.tokens, usage.tokens()) {
            Some(LimitKind::Tokens)
        } else if over(self.micro_dollars, usage.micro_dollars) {
            Some(LimitKind::Spend)
        } else if self.until.is_some_and(|until| now >= until) {
            Some(LimitKind::Duration)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_limit_is_never_negative() {
        let limits = Limits {
            turns: Some(3),
            depth: Some(2),
            ..Limits::default()
        };
        let usage = Usage {
            turns: 5,
            output_tokens: 9,
            ..Usage::default()
        };
        let left = limits.remaining(&usage);
        assert_eq!(
            (left.turns, left.tokens, left.depth),
            (Some(0), None, Some(2))
        );
        assert_eq!(
            left.reached(&Usage::default(), Millis(0)),
            Some(LimitKind::Turns)
        );
    }

    #[test]
    fn combined_limits_are_the_tighter_ones() {
        let one = Limits {
            turns: Some(3),
            tokens: Some(10),
            ..Limits::default()
        };
        let other = Limits {
            turns: Some(2),
            until: Some(Millis(7)),
            ..Limits::default()
        };
        let both = one.min(other);
        assert_eq!(both, other.min(one));
        assert_eq!(
            (both.turns, both.tokens, both.until),
            (Some(2), Some(10), Some(Millis(7)))
        );
    }
}
