//! What was used up, and how much may be.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
