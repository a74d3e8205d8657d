//! Types whose one serialised form is their text, paths as shells read them, and words that
//! say nothing.

use std::path::Path;

/// A path as one word of a shell command, for a hint that can be pasted.
///
/// ```
/// use lillux::shell_word;
///
/// assert_eq!(shell_word("keys/private_key.pem".as_ref()), "keys/private_key.pem");
/// assert_eq!(shell_word("my keys".as_ref()), "'my keys'");
/// assert_eq!(shell_word("-rf".as_ref()), "'./-rf'");
/// ```
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text
    } else {
        let quoted = text.replace('\'', r"'\''");
        let dash = if quoted.starts_with('-') { "./" } else { "" };
        format!("'{dash}{quoted}'")
    }
}

/// Words that are in any sentence.
const FILLERS: [&str; 46] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "for", "from", "have", "how",
    "i", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our", "please", "should",
    "some", "that", "the", "their", "them", "these", "this", "those", "to", "want", "we", "what",
    "which", "will", "with", "would", "you", "your",
];

/// Whether a word, in lower case, says nothing of what a sentence is about: whoever asks for
/// something in a sentence does not look for these.
///
/// ```
/// use lillux::says_nothing;
///
/// let query = "send a message to the team";
/// let words: Vec<_> = query.split(' ').filter(|word| !says_nothing(word)).collect();
/// assert_eq!(words, ["send", "message", "team"]);
/// ```
pub fn says_nothing(word: &str) -> bool {
    FILLERS.binary_search(&word).is_ok()
}

/// Serialises a type by its `Display` and reads it by its `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_that_says_nothing_is_found() {
        for word in FILLERS {
            assert!(says_nothing(word), "{word}");
        }
        assert!(!says_nothing("todo") && !says_nothing(""));
    }
}
