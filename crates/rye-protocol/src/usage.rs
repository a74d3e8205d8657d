//! What was used up, and how much may be.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    /// Calls of a model.
    pub turns: u64,
    /// Tokens that models read.
    pub input_tokens: u64,
    /// Of these, how many came from a cache.
    pub cached_tokens: u64,
    /// And how many were put into one.
    #[serde(skip_serializing_if = "is_none")]
    pub cache_write_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// What it cost, in millionths of a dollar.
    pub micro_dollars: u64,
}

impl Usage {
    /// Both together.
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

    /// Nothing.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// All tokens.
    pub fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

/// How much may be used up, children included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Limits {
    /// Calls of a model.
    pub turns: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// In millionths of a dollar.
    pub micro_dollars: Option<u64>,
    /// How deep children may have children.
    pub depth: Option<u32>,
    /// When it is over.
    pub until: Option<Millis>,
}

impl Limits {
    /// No limits at all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is left of them once so much is used up.
    #[must_use]
    pub fn left(self, usage: &Usage) -> Self {
        let left = |limit: Option<u64>, used| limit.map(|limit| limit.saturating_sub(used));
        Self {
            turns: left(self.turns, usage.turns),
            tokens: left(self.tokens, usage.tokens()),
            micro_dollars: left(self.micro_dollars, usage.micro_dollars),
            ..self
        }
    }

    /// The tighter of both, each for itself.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
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

    /// The limit that is reached, if one is.
    pub fn reached(&self, usage: &Usage, now: Millis) -> Option<&'static str> {
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        if over(self.turns, usage.turns) {
            Some("turns")
        } else if over(self.tokens, usage.tokens()) {
            Some("tokens")
        } else if over(self.micro_dollars, usage.micro_dollars) {
            Some("spend")
        } else if self.until.is_some_and(|until| now >= until) {
            Some("duration")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_limit_is_never_less_than_nothing() {
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
        let left = limits.left(&usage);
        assert_eq!(
            (left.turns, left.tokens, left.depth),
            (Some(0), None, Some(2))
        );
        assert_eq!(left.reached(&Usage::default(), Millis(0)), Some("turns"));
    }

    #[test]
    fn of_two_limits_the_tighter_holds() {
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
        let both = one.and(other);
        assert_eq!(both, other.and(one));
        assert_eq!(
            (both.turns, both.tokens, both.until),
            (Some(2), Some(10), Some(Millis(7)))
        );
    }
}
