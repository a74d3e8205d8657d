//! Answers that end before their end.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Message, Role};

/// Why an answer is not all that there was to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// The model has written as much as it may at once.
    OutputLimit,
    /// It would not go on, or its provider did not let it.
    Refused,
}

impl Incomplete {
    /// By why a model stopped, in the words of any provider.
    pub fn of(stop_reason: &str) -> Option<Self> {
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

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutputLimit => "the answer is cut off: the model may not write more at once",
            Self::Refused => "the answer is no whole one: the model would not go on",
        })
    }
}

impl Message {
    /// Why it is not all that the model would have said, if it is not.
    pub fn incomplete(&self) -> Option<Incomplete> {
        let said = self.role == Role::Assistant;
        self.stop_reason
            .as_deref()
            .filter(|_| said)
            .and_then(Incomplete::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_providers_word_for_it_is_known() {
        for (words, expected) in [
            (
                ["max_tokens", "length", "max_output_tokens", "MAX_TOKENS"],
                Some(Incomplete::OutputLimit),
            ),
            (
                ["refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT"],
                Some(Incomplete::Refused),
            ),
            (["end_turn", "stop", "completed", "STOP"], None),
        ] {
            for word in words {
                let mut message = Message::text(Role::Assistant, "so far");
                message.stop_reason = Some(word.to_owned());
                assert_eq!(message.incomplete(), expected, "{word}");
                message.role = Role::User;
                assert_eq!(message.incomplete(), None, "{word}");
            }
        }
    }
}
