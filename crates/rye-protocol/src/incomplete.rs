//! Answers that end prematurely.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Message, Role};

/// Why an answer is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReason {
    /// The model reached its output limit.
    OutputLimit,
    /// The model or its provider refused to continue.
    Refused,
}

impl IncompleteReason {
    /// Classifies a stop reason of any provider.
    pub fn from_stop_reason(stop_reason: &str) -> Option<Self> {
        Some(match stop_reason.to_ascii_lowercase().as_str() {
            "max_tokens"
            | "max_output_tokens"
            | "length"
            | "model_length"
            | "model_context_window_exceeded" => Self::OutputLimit,
            "refusal" | "content_filter" | "safety" | "image_safety" | "recitation"
            | "blocklist" | "prohibited_content" | "spii" | "language" => Self::Refused,
            _ => return None,
        })
    }
}

impl fmt::Display for IncompleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutputLimit => "the answer is truncated: the model reached its output limit",
            Self::Refused => "the answer is incomplete: the model refused to continue",
        })
    }
}

impl Message {
    /// Why the message is incomplete, if it is.
    pub fn incomplete_reason(&self) -> Option<IncompleteReason> {
        self.stop_reason
            .as_deref()
            .filter(|_| self.role == Role::Assistant)
            .and_then(IncompleteReason::from_stop_reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_reasons_of_all_providers_are_classified() {
        for (words, expected) in [
            (
                ["max_tokens", "length", "max_output_tokens", "MAX_TOKENS"],
                Some(IncompleteReason::OutputLimit),
            ),
            (
                ["refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT"],
                Some(IncompleteReason::Refused),
            ),
            (["end_turn", "stop", "completed", "STOP"], None),
        ] {
            for word in words {
                let mut message = Message::text(Role::Assistant, "so far");
                message.stop_reason = Some(word.to_owned());
                assert_eq!(message.incomplete_reason(), expected, "{word}");
                message.role = Role::User;
                assert_eq!(message.incomplete_reason(), None, "{word}");
            }
        }
    }
}
