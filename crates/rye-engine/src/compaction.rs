//! Compaction of histories that are too long for a model: prunes old tool output and replaces
//! earlier entries by a summary. The record keeps everything, and a compaction can be undone.
//!
//! Pure except for the model call that writes the summary: [`view`] determines what a model sees
//! of a history, and [`plan`] what to compact.

pub mod plan;
pub(crate) mod summary;
pub mod view;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use plan::{Head, Plan};
pub use view::View;

/// Compaction settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Compact automatically when the context is full or a model rejects it as too long.
    pub auto: bool,
    /// Tokens reserved for the answer. Default: the model's maximum output, at most 20 000.
    pub reserve_tokens: Option<u64>,
    /// Number of turns in the tail, if they fit.
    pub tail_turns: usize,
    /// Share of the usable tokens for the tail, from 0 to 1.
    pub tail_share: f64,
    /// Minimum number of tokens for the tail.
    pub tail_min_tokens: u64,
    /// Maximum number of tokens for the tail.
    pub tail_max_tokens: u64,
    /// Prune old tool output before summarising.
    pub prune: bool,
    /// Number of tokens of the newest tool output to keep.
    pub prune_keep_tokens: u64,
    /// Minimum number of tokens that pruning must save.
    pub prune_save_tokens: u64,
    /// Tools whose output is never pruned.
    pub protected_tools: Vec<String>,
    /// Maximum length of each tool output in the summary request, in characters.
    pub tool_output_chars: usize,
    /// Maximum length of each prompt that is preserved verbatim, in characters.
    pub keep_chars: usize,
    /// Prompt the agent to continue after a compaction.
    pub auto_continue: bool,
    /// Text of that prompt.
    pub continue_prompt: String,
    /// Model that writes summaries. Default: the model of the thread.
    pub model: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auto: true,
            reserve_tokens: None,
            tail_turns: 2,
            tail_share: 0.25,
            tail_min_tokens: 2_000,
            tail_max_tokens: 8_000,
            prune: true,
            prune_keep_tokens: 40_000,
            prune_save_tokens: 20_000,
            protected_tools: ["skill", "thread_read"].map(str::to_owned).to_vec(),
            tool_output_chars: 2_000,
            keep_chars: 16_000,
            auto_continue: true,
            continue_prompt: "Continue if you have next steps, or stop and ask if you are \
                              unsure how to proceed."
                .to_owned(),
            model: None,
        }
    }
}

/// Maximum default reserve, in tokens.
const MAX_DEFAULT_RESERVE: u64 = 20_000;

impl Settings {
    /// Maximum number of context tokens for a model with this window and maximum output.
    pub fn usable_tokens(&self, window: u64, max_output: u64) -> u64 {
        let reserve = self
            .reserve_tokens
            .unwrap_or(max_output.min(MAX_DEFAULT_RESERVE));
        window.saturating_sub(reserve).max(1)
    }

    /// Maximum number of tokens of the tail.
    pub fn tail_tokens(&self, usable: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the share need not be exact, and casts saturate"
        )]
        let share = (usable as f64 * self.tail_share) as u64;
        share.min(self.tail_max_tokens).max(self.tail_min_tokens)
    }

    /// These settings with some replaced; the error is the reason why the result is invalid.
    pub fn with_overrides(&self, overrides: &Map<String, Value>) -> Result<Self, String> {
        let mut settings = serde_json::to_value(self).map_err(|error| error.to_string())?;
        if let Some(fields) = settings.as_object_mut() {
            fields.extend(overrides.clone());
        }
        let settings: Self = serde_json::from_value(settings).map_err(|error| error.to_string())?;
        match settings.validation_error() {
            Some(why) => Err(why),
            None => Ok(settings),
        }
    }

    /// Error message if a setting is invalid.
    pub fn validation_error(&self) -> Option<String> {
        if !(0.0..=1.0).contains(&self.tail_share) {
            return Some("`tail_share` must be between 0 and 1".to_owned());
        }
        if self.tail_min_tokens > self.tail_max_tokens {
            return Some("`tail_min_tokens` exceeds `tail_max_tokens`".to_owned());
        }
        if self.reserve_tokens == Some(0) {
            return Some("`reserve_tokens` must be at least 1".to_owned());
        }
        if self.continue_prompt.trim().is_empty() {
            return Some(
                "`continue_prompt` is empty; set `auto_continue: false` to disable it".to_owned(),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_and_tail_tokens() {
        let settings = Settings::default();
        for (window, max_output, usable, tail) in [
            (200_000, 64_000, 180_000, 8_000),
            (200_000, 8_000, 192_000, 8_000),
            (32_000, 4_000, 28_000, 7_000),
            (8_000, 4_000, 4_000, 2_000),
            (100, 4_000, 1, 2_000),
        ] {
            assert_eq!(settings.usable_tokens(window, max_output), usable);
            assert_eq!(settings.tail_tokens(usable), tail);
        }
        let reserve_tokens = Some(50_000);
        let custom = Settings {
            reserve_tokens,
            ..settings
        };
        assert_eq!(custom.usable_tokens(200_000, 8_000), 150_000);
    }
}
