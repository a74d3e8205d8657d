//! Histories that grow too long for a model: old output is left out, and what came before
//! is summed up. Nothing is lost: the record keeps all of it, and a sum can be taken back.
//!
//! Pure but for the model that writes the sum: what a history looks like to a model is one
//! function of its [`view`], and what is to be done about it is one of [`plan`].

pub mod plan;
pub(crate) mod summary;
pub mod view;

use rye_protocol::Message;
use serde::Deserialize;

pub use plan::{Head, Plan};
pub use view::View;

/// Where a prompt says that nobody asked it: it follows a compaction.
pub(crate) const CONTINUE: &str = "compaction_continue";

/// Whether nobody said it: the agent was told to go on, since its history was summed up.
pub fn is_continuation(message: &Message) -> bool {
    message.metadata.contains_key(CONTINUE)
}

/// Where the message with a sum says how many answers it stands for.
pub const COMPACTED_ANSWERS: &str = "compacted_answers";

/// Where the request for a sum says how many were made before it.
pub const PREVIOUS_COMPACTIONS: &str = "compactions_before";

/// When and how histories are summed up. Each number can be set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether it is done without being asked for: when the context is full, and when a
    /// model says that it is too long.
    pub auto: bool,
    /// Tokens that stay free for the answer; else the model's longest answer, at most
    /// 20 000.
    pub reserve_tokens: Option<u64>,
    /// How many turns at the end are kept as they are, if they fit.
    pub tail_turns: usize,
    /// Which share of what is usable they may have.
    pub tail_share: f64,
    /// But at least so many tokens.
    pub tail_min_tokens: u64,
    /// And at most so many.
    pub tail_max_tokens: u64,
    /// Whether old output of tools is left out first.
    pub prune: bool,
    /// How many tokens of output, the newest, stay.
    pub prune_keep_tokens: u64,
    /// How many must be saved for it to be worth the while.
    pub prune_save_tokens: u64,
    /// Tools whose output stays.
    pub protected_tools: Vec<String>,
    /// How much of each output whoever sums up is shown, in characters.
    pub tool_output_chars: usize,
    /// How much of what must not fade is kept word for word, in characters each.
    pub keep_chars: usize,
    /// Whether the agent is told to go on afterwards.
    pub auto_continue: bool,
    /// In which words.
    pub continue_prompt: String,
    /// Which model sums up; else the one of the thread.
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

/// The largest reserve that nobody asked for.
const RESERVE: u64 = 20_000;

impl Settings {
    /// How many tokens a context may have for a model of this window and longest answer.
    pub fn usable_tokens(&self, window: u64, max_output: u64) -> u64 {
        let reserve = self.reserve_tokens.unwrap_or(max_output.min(RESERVE));
        window.saturating_sub(reserve).max(1)
    }

    /// How many tokens the tail may have.
    pub fn tail_tokens(&self, usable: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of some tokens is as good as it need be, and casts saturate"
        )]
        let share = (usable as f64 * self.tail_share) as u64;
        share.min(self.tail_max_tokens).max(self.tail_min_tokens)
    }

    /// In words what cannot be, if something cannot.
    pub fn wrong(&self) -> Option<String> {
        if !(0.0..=1.0).contains(&self.tail_share) {
            return Some("`tail_share` is a share, from 0 to 1".to_owned());
        }
        if self.tail_min_tokens > self.tail_max_tokens {
            return Some("`tail_min_tokens` is more than `tail_max_tokens`".to_owned());
        }
        if self.reserve_tokens == Some(0) {
            return Some("`reserve_tokens` is at least 1: an answer needs room".to_owned());
        }
        if self.continue_prompt.trim().is_empty() {
            return Some(
                "`continue_prompt` says something; `auto_continue: false` if it is not to go on"
                    .to_owned(),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usable_and_what_the_tail_has() {
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
        let own = Settings {
            reserve_tokens,
            ..settings
        };
        assert_eq!(own.usable_tokens(200_000, 8_000), 150_000);
    }
}
